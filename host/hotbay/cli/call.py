"""`hotbay call`: one type of a package or a project, in a process of its own, called once; no router, no host."""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hotbay.cli.exit_codes import EXIT_FAILED
from hotbay.cli.failures import fails_in_form
from hotbay.cli.points import CALLED_POINTS, PointChoice

if TYPE_CHECKING:
    from hotbay.authoring.arguments import Row
    from hotbay.authoring.runner import Called

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
    "--payload", "payload_file", type=_FILE, help="What an extractor reads: a page, a document, or events' objects."
)
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
) -> None:
    """Start one plugin process, make a ref of TYPE in it, call it, and print what it answered and how long it took.

    A project runs as it lies there, with the wheels of its requirements.lock. Files are YAML or JSON. Exits with 1 when
    it could not be started or called, or when a call raised.
    """
    # Imported here because they bring in the event loop and everything that starts a process.
    import tempfile  # noqa: PLC0415

    from hotbay.authoring.command import CallOptions, call_command  # noqa: PLC0415

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
    )
    log: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hotbay-call-") as work:
        try:
            called = call_command(options, Path(work), log)
        finally:
            _show_log(log)
    click.echo(_json(type_name, called) if output == "json" else "\n".join(_text(called)))
    sys.exit(_exit_code(called))


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


def _json(type_name: str, called: "Called") -> str:
    # Scores that are not finite have no form in JSON; they are shown as null, and as such in the text.
    page = {
        "type": type_name,
        "point": called.point,
        "results": [_finite(row) if has_answer else None for row, has_answer in _answers(called)],
        "errors": [{"request": request, "error": text} for request, text in called.errors],
        "latency_us": [round(seconds * 1e6) for seconds in called.latencies_s],
        "deadline_us": round(called.deadline_s * 1e6),
    }
    return json.dumps(page, indent=2)


def _exit_code(called: "Called") -> int:
    return EXIT_FAILED if called.errors else 0


def _answers(called: "Called") -> "list[tuple[Row, bool]]":
    """Each request's row, and whether the plugin answered: in place of an error there are zeros, which it never said."""
    failed = {request for request, _ in called.errors}
    return [(row, -1 not in failed and index not in failed) for index, row in enumerate(called.rows)]


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _text(called: "Called") -> list[str]:
    lines = []
    what = "payload" if called.point == "extract" else "request"
    for index, (row, has_answer) in enumerate(_answers(called)):
        if has_answer:
            lines.append(f"{what} {index}: {_WORDS[called.point]}")
            lines += _attributes(row) if called.point == "extract" else _row(row)
    for request, text in called.errors:
        lines.append(f"error in {f'every {what}' if request < 0 else f'{what} {request}'}: {text}")
    if called.point == "pre_request":
        lines.append("pre_request was taken; it answers nothing")
    return [*lines, _latency(called)]


_WORDS = {
    "score": "scores, best first",
    "filter": "survivors",
    "pick": "picks, best first",
    "produce": "data",
    "profile_handler": "profiles in order",
    "extract": "attributes",
}


def _attributes(row: object) -> list[str]:
    assert isinstance(row, dict)
    return [f"  {name}: {json.dumps(_finite(value), default=repr)}" for name, value in row.items()] or ["  none"]


def _row(row: object) -> list[str]:
    if isinstance(row, list):
        return [f"  {item}" for item in row] or ["  none"]
    assert isinstance(row, dict)
    if all(isinstance(value, float) for value in row.values()):
        # What is not finite is no rating and goes last.
        ranked = sorted(row.items(), key=lambda item: -item[1] if item[1] == item[1] else float("inf"))
        return [f"  {value:.6g}  {name}" for name, value in ranked]
    return [f"  {name}: {_column(value)}" for name, value in row.items()]


def _column(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:.6g}" for name, number in value.items())
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _latency(called: "Called") -> str:
    ms = [seconds * 1000 for seconds in called.latencies_s]
    late = sum(seconds > called.deadline_s for seconds in called.latencies_s)
    text = f"latency {ms[0]:.3f} ms"
    if len(ms) > 1:
        text = f"latency of {len(ms)} calls: first {ms[0]:.3f} ms, median {sorted(ms)[len(ms) // 2]:.3f} ms, "
        text += f"max {max(ms):.3f} ms"
    warning = f"; {late} over a host's deadline of {called.deadline_s * 1000:g} ms" if late else ""
    return text + warning
