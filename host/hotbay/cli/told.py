"""How what a discovery or a watch tells is shown: a line for each record as it comes, or one object at the end."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from hotbay.errors import printable

if TYPE_CHECKING:
    from hotbay.authoring.telling import Ran, Told

__all__ = ["end_lines", "told_line", "told_page"]

_THINGS = {"discover": "endpoint", "watch": "object"}


def told_line(point: str, told: "Told") -> str:
    """One record, without anything that acts on a terminal."""
    if told.what == "ready":
        what = f"{told.count} {_THINGS[point]}{'' if told.count == 1 else 's'}"
        return f"{told.what:<9} {what} after {told.after_s * 1e3:.0f} ms"
    parts = [f"{told.what:<8}", told.name or "without a name"]
    if told.why is not None:
        parts.append(_reason(told))
    elif point == "discover" and isinstance(told.thing, Mapping):
        parts += [told.where, *_beside(told.thing)]
    return printable(" ".join("  ".join(parts).split("\n")))


def _reason(told: "Told") -> str:
    assert told.why is not None
    found = f": expected {told.why.expected}, found {told.why.found}" if told.why.expected else ""
    return f"{told.why.path or told.why.code}{found or f': {told.why.message}'}"


def _beside(row: Mapping[str, object]) -> Iterator[str]:
    labels = row["labels"]
    if isinstance(labels, Mapping) and labels:
        yield ", ".join(f"{name}={value}" for name, value in labels.items())
    if row["state"] != "active":
        yield str(row["state"])
    if row["weight"] != 1:
        yield f"weight {row['weight']}"


def end_lines(ran: "Ran") -> Iterator[str]:
    """What is to be said when a run is over."""
    if ran.ended and ran.ready_s is not None and not ran.errors:
        yield "it ended by itself: a host begins it again after a pause, and keeps what it told"
    for error in ran.errors:
        yield printable(f"error: {error}")
        if error.hint:
            yield f"  what to do: {printable(error.hint)}"


def told_page(type_name: str, ran: "Ran") -> dict[str, object]:
    """The whole of a run, in order."""
    return {
        "type": type_name,
        "point": ran.point,
        "records": [_entry(ran.point, told) for told in ran.told],
        "ready_ms": None if ran.ready_s is None else round(ran.ready_s * 1e3),
        "ended": ran.ended,
        "errors": [{"code": error.code, "message": error.message, "hint": error.hint} for error in ran.errors],
    }


def _entry(point: str, told: "Told") -> dict[str, object]:
    entry: dict[str, object] = {"record": told.what, "after_ms": round(told.after_s * 1e3)}
    if told.name:
        entry["id" if point == "discover" else "key"] = told.name
    if told.thing is not None:
        entry[_THINGS[point]] = told.thing
    return entry
