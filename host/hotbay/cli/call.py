"""`hotbay call`: one type of a package or a project, in a process of its own, called once; no router, no host."""

import json
import logging
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hotbay.cli.called import called_lines, called_page
from hotbay.cli.exit_codes import EXIT_FAILED
from hotbay.cli.failures import fails_in_form
from hotbay.cli.points import CALLED_POINTS, PointChoice
from hotbay.cli.told import end_lines, told_line, told_page

if TYPE_CHECKING:
    from hotbay.authoring.runner import Called
    from hotbay.authoring.telling import Ran, Told

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
LOG_CHARS = 4000

__all__ = ["call"]


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.option("--package", type=_FOLDER, default=".", help="Package folder, or a project's folder.  [default: .]")
@click.option("--request", "request_file", type=_FILE, help="Body of an OpenAI request, or a list of them.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of the requests; repeatable.")
@click.option("--endpoints", "endpoints_file", type=_FILE, help="Map from endpoint id to its figures.")
@click.option("--candidate", "candidates", multiple=True, metavar="ID", help="Only these are candidates; repeatable.")
@click.option(
    "--payload", "payload_file", type=_FILE, help="For the data layer: a page, events' objects, or endpoints."
)
@click.option("-f", "--follow", is_flag=True, help="Go on listening to a discovery or watch, until interrupted.")
@click.option("--for", "for_s", type=click.FloatRange(min=0.0), metavar="SECONDS", help="The same, so long at most.")
@click.option("--parameters", "parameters_file", type=_FILE, help="The operator's map of parameters.")
@click.option("--point", type=PointChoice(CALLED_POINTS), help="Of a type that answers several.")
@click.option("--picks", type=click.IntRange(min=1), default=1, show_default=True, help="How many a picker may choose.")
@click.option("--profile", "profiles", multiple=True, default=("default",), help="For a profile handler; repeatable.")
@click.option("--repeat", type=click.IntRange(1, 100_000), default=1, show_default=True, help="Calls to time.")
@click.option("--wheels", type=_FOLDER, help="Folder of the SDK wheel, instead of the one that comes with the host.")
@click.option("-o", "output", type=click.Choice(("text", "json")), default="text", show_default=True)
@fails_in_form
def call(
    type_name: str,
    package: Path,
    request_file: Path | None,
    headers: tuple[str, ...],
    endpoints_file: Path | None,
    candidates: tuple[str, ...],
    payload_file: Path | None,
    parameters_file: Path | None,
    point: str | None,
    picks: int,
    profiles: tuple[str, ...],
    repeat: int,
    wheels: Path | None,
    output: str,
    for_s: float | None,
    *,
    follow: bool,
) -> None:
    """Start one plugin process, make a ref of TYPE in it, call it, and print what it answered and how long it took.

    Of a discovery, or what watches objects, what it tells is printed in order, until it says ready.

    A project runs as it lies there, with the wheels of its requirements.lock. Files are YAML or JSON. Exits with 1 when
    it could not be started or called, or when a call raised.
    """
    # Imported here because they bring in the event loop and everything that starts a process.
    import tempfile  # noqa: PLC0415

    from hotbay.authoring.command import CallOptions, call_command  # noqa: PLC0415
    from hotbay.authoring.telling import Bound, Ran  # noqa: PLC0415  # the other is for annotations

    # A plugin's log is shown below its answer, not in between.
    logging.getLogger("hotbay").addHandler(logging.NullHandler())
    logging.getLogger("hotbay").propagate = False
    options = CallOptions(
        type_name=type_name,
        package=package,
        requests=request_file,
        headers=_headers(headers),
        endpoints=endpoints_file,
        candidates=frozenset(candidates) or None,
        parameters=parameters_file,
        point=point,
        picks=picks,
        profiles=profiles,
        repeat=repeat,
        wheels=wheels,
        payload=payload_file,
        bound=Bound(follow=follow or for_s is not None, for_s=math.inf if for_s is None else for_s),
    )
    log: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hotbay-call-") as work:
        try:
            called = call_command(options, Path(work), log, told=_say if output == "text" else _say_nothing)
        finally:
            _show_log(log)
    if output == "json":
        page = told_page(type_name, called) if isinstance(called, Ran) else called_page(type_name, called)
        click.echo(json.dumps(page, indent=2, default=repr))
    else:
        lines = end_lines(called) if isinstance(called, Ran) else called_lines(called)
        click.echo("".join(f"{line}\n" for line in lines), nl=False)
    sys.exit(_exit_code(called))


def _exit_code(called: "Called | Ran") -> int:
    return EXIT_FAILED if called.errors else 0


def _say(point: str, told: "Told") -> None:
    click.echo(told_line(point, told))


def _say_nothing(_point: str, _told: "Told") -> None:
    """The whole is printed at the end."""


def _headers(given: Sequence[str]) -> dict[str, str]:
    headers = {}
    for header in given:
        name, equals, value = header.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--header {header}: expected NAME=VALUE")
        headers[name] = value
    return headers


def _show_log(log: Sequence[str]) -> None:
    text = "\n".join(log)[-LOG_CHARS:]
    if text:
        click.echo(f"the plugin's log:\n{text}", err=True)
