"""How the answers to the calls of `hotbay call` are shown: in lines, best first, or as one object."""

import json
from typing import TYPE_CHECKING

from hotbay.errors import printable

if TYPE_CHECKING:
    from hotbay.authoring.runner import Called

__all__ = ["called_lines", "called_page"]


def called_page(type_name: str, called: "Called") -> dict[str, object]:
    """The whole answer."""
    # Scores that are not finite have no form in JSON; they are shown as null, and as such in the text.
    return {
        "type": type_name,
        "point": called.point,
        "results": [_finite(row) if has_answer else None for row, has_answer in _answers(called)],
        "errors": [{"request": request, "error": text} for request, text in called.errors],
        "latency_us": [round(seconds * 1e6) for seconds in called.latencies_s],
        "deadline_us": round(called.deadline_s * 1e6),
    }


def _answers(called: "Called") -> list[tuple[object, bool]]:
    """Each request's row, and whether the plugin answered: in place of an error there are zeros, which it never said."""
    failed = {request for request, _ in called.errors}
    return [(row, -1 not in failed and index not in failed) for index, row in enumerate(called.rows)]


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def called_lines(called: "Called") -> list[str]:
    """What is printed: each answer, each error, and how long it took."""
    lines = []
    what = _ASKED.get(called.point, "request")
    for index, (row, has_answer) in enumerate(_answers(called)):
        if has_answer:
            lines.append(f"{what} {index}: {_WORDS[called.point]}")
            lines += _row(row) if called.point in _ROWS else _data(row)
    for request, text in called.errors:
        lines.append(f"error in {f'every {what}' if request < 0 else f'{what} {request}'}: {text}")
    if called.point in _TOLD and not called.rows and not called.errors:
        lines.append(f"{called.point} was taken; it answers nothing")
    return [*lines, _latency(called)]


_WORDS = {
    "score": "scores, best first",
    "filter": "survivors",
    "pick": "picks, best first",
    "produce": "data",
    "profile_handler": "profiles in order",
    "extract": "attributes",
    "source": "the event as it goes on",
    "poll": "payload",
    "screen": "survivors",
    "admit": "verdict",
    "request_headers": "attributes",
    "parse": "parsed",
    "pre_request": "headers",
    "saturation": "of these endpoints",
    "dump_state": "state",
}
_ROWS = frozenset({"score", "filter", "pick", "produce", "profile_handler", "screen"})
_TOLD = frozenset({"pre_request", "response_headers", "response_body"})
_ASKED = {"extract": "payload", "source": "event", "poll": "endpoint", "saturation": "pool", "dump_state": "instance"}
"""What is counted, of calls that are about no request."""


def _data(row: object) -> list[str]:
    if isinstance(row, dict):
        return [f"  {name}: {json.dumps(_finite(value), default=repr)}" for name, value in row.items()] or ["  none"]
    if isinstance(row, str):
        return [f"  {printable(line)}" for line in row.splitlines()] or ["  empty"]
    return [f"  {json.dumps(_finite(row), default=repr)}"]


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
