"""`hotbay conformance`: drives a command, or a package, through the rules of the wire protocol and prints TAP."""

import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hotbay.cli.exit_codes import EXIT_FAILED
from hotbay.errors import HostError, InputError, Place, Problem, printable

if TYPE_CHECKING:
    from hotbay.conformance.stage import Rule
    from hotbay.process.launch import LaunchSpec

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)

__all__ = ["conformance"]


@click.command()
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--package", type=_FOLDER, help="Package folder, or a project's folder, instead of COMMAND.")
@click.option("--rule", "only", multiple=True, metavar="ID", help="Try this rule alone; repeatable.")
@click.option("--parameters", type=_FILE, help="Map from type to parameters, for types that need some.")
@click.option("--wheels", type=_FOLDER, help="Folder of the SDK wheel, instead of the one that comes with the host.")
@click.option("--list", "list_rules", is_flag=True, help="Name the rules and do nothing.")
def conformance(
    command: tuple[str, ...],
    package: Path | None,
    only: tuple[str, ...],
    parameters: Path | None,
    wheels: Path | None,
    *,
    list_rules: bool,
) -> None:
    """Drive COMMAND, which speaks the plugin's side, through every rule of the wire protocol. Prints TAP.

    COMMAND gets the links by HOTBAY_CHANNEL and may begin with HELLO, or with ARMED if it is a stage 0. Exits with 1 when a
    rule is broken.

      hotbay conformance -- ./my-plugin --flag
    """
    # Imported here because they bring in the event loop and everything that starts a process.
    import tempfile  # noqa: PLC0415

    from hotbay.authoring.files import content_of  # noqa: PLC0415
    from hotbay.authoring.inputs import read_type_parameters  # noqa: PLC0415
    from hotbay.conformance.suite import RULES  # noqa: PLC0415

    if list_rules:
        for rule in RULES:
            click.echo(f"{rule.id}: {rule.title}")
        return
    if bool(command) == (package is not None):
        raise click.UsageError("give either COMMAND, after --, or --package")
    rules = _chosen(RULES, only)
    # What the peer prints is shown with the rule that it breaks.
    logging.getLogger("hotbay").addHandler(logging.NullHandler())
    logging.getLogger("hotbay").propagate = False
    text, file = content_of(parameters, "{}")
    given = read_type_parameters(text, file=file)
    with tempfile.TemporaryDirectory(prefix="hotbay-conformance-") as work:
        try:
            counts = _run(command, package, Path(work), wheels=wheels, rules=rules, parameters=given)
        except HostError as error:
            text = error.message if isinstance(error, InputError) else str(error)
            click.echo(f"Bail out! {' '.join(printable(text).split())}")
            raise
    click.echo("# " + ", ".join(f"{count} {word}" for word, count in counts.items()))
    sys.exit(EXIT_FAILED if counts["broken"] else 0)


def _chosen(rules: "Sequence[Rule]", only: Sequence[str]) -> "Sequence[Rule]":
    # Imported here with what it is needed beside.
    from hotbay.config.wording import nearest  # noqa: PLC0415

    known = {rule.id: rule for rule in rules}
    for name in only:
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean {near}?" if near else "see --list"
            raise click.UsageError(f"there is no rule {name}; {hint}")
    return [rule for rule in rules if not only or rule.id in only]


def _run(
    command: Sequence[str],
    package: Path | None,
    work: Path,
    *,
    wheels: Path | None,
    rules: "Sequence[Rule]",
    parameters: Mapping[str, Mapping[str, object]],
) -> Counter[str]:
    # Imported here because they bring in the event loop and everything that starts a process.
    import anyio  # noqa: PLC0415

    from hotbay.authoring.runnable import make_runnable  # noqa: PLC0415

    async def run() -> Counter[str]:
        if package is None:
            spec = _command_spec(command)
        else:
            spec = (await make_runnable(package, work, wheels=wheels)).spec(work)
        return await _judge(spec, rules, parameters)

    return anyio.run(run, backend_options={"use_uvloop": True})


async def _judge(
    spec: "LaunchSpec", rules: "Sequence[Rule]", parameters: Mapping[str, Mapping[str, object]]
) -> Counter[str]:
    # Imported here because they bring in the event loop and everything that starts a process.
    from hotbay.conformance.suite import run_suite  # noqa: PLC0415
    from hotbay.conformance.verdict import Verdict, tap_lines  # noqa: PLC0415

    counts = Counter({"kept": 0, "broken": 0, "skipped": 0})
    click.echo(f"TAP version 14\n1..{len(rules)}")
    async with aclosing(run_suite(spec, rules=rules, parameters=parameters)) as results:
        number = 0
        async for result in results:
            number += 1
            counts[{Verdict.KEPT: "kept", Verdict.BROKEN: "broken", Verdict.SKIPPED: "skipped"}[result.verdict]] += 1
            click.echo("\n".join(tap_lines(number, result)))
    return counts


def _command_spec(command: Sequence[str]) -> "LaunchSpec":
    # Imported here because they bring in everything that starts a process.
    import shutil  # noqa: PLC0415

    from hotbay.process.launch import STAGE0, LaunchSpec  # noqa: PLC0415

    program = shutil.which(command[0])
    if program is None:
        hint = "Name a program that exists and may be executed; relative paths begin with ./"
        raise InputError([Problem("CONFIG_INVALID", "there is no such program", Place(command[0]), hint=hint)])
    here = str(Path.cwd())
    argv = (str(Path(program).absolute()), *command[1:])
    return LaunchSpec(argv[0], STAGE0, "", "", here, "none", "conformance#1", argv=argv)
