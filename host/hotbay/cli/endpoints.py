"""`hotbay endpoints`: shows the model servers of a running host, once or as it changes, and waits for one to be drained."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from time import monotonic
from typing import Final

import click
import orjson

from hotbay.cli.admin_client import AdminClient
from hotbay.cli.sheet import Screen, Sheet, cells, rows, texts
from hotbay.cli.status import watch_pages
from hotbay.errors import CapacityError
from hotbay.observe.tables import UNKNOWN, Grid, cell

__all__ = ["drain_endpoints", "endpoint_sheet", "show_endpoints", "watch_endpoints"]

Page = Mapping[str, object]

STREAM: Final = "/endpoints/stream"
_DRAIN_INTERVAL_MS: Final = 200
# A thousand endpoints that fail, fail alike.
_NOTES_SHOWN: Final = 10
_ERROR_CHARS: Final = 60
_COLUMNS: Final = (
    ("endpoint", 0), ("url", 11), ("state", 1), ("healthy", 3), ("why", 2), ("weight", 6), ("slow start", 7), ("waiting", 4),
    ("running", 4), ("kv usage", 5), ("in flight", 1), ("age", 9), ("engine", 10), ("scrape errors", 8),
)  # fmt: skip
"""With how soon each is left out for want of room."""


def show_endpoints(client: AdminClient, *, as_json: bool) -> None:
    """Print them. Raises `HostError` when no host answers."""
    page = client.get("/endpoints")
    if as_json:
        click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        return
    endpoint_sheet(page).print(Screen())


def watch_endpoints(client: AdminClient, *, as_json: bool, wait: Callable[[float], object] | None = None) -> None:
    """Show them until interrupted; a host that goes away is waited for. Raises `HostError` when none answers at the start."""
    watch_pages(client, STREAM, endpoint_sheet, as_json=as_json, wait=wait or threading.Event().wait)


def drain_endpoints(
    client: AdminClient, which: Page, timeout_s: float, *, as_json: bool, now: Callable[[], float] = monotonic
) -> None:
    """Cordon them and wait until nothing of this host is in flight there; prints what is left as it changes.

    Raises:
        HostError: the host refuses, or CapacityError UNAVAILABLE: `timeout_s` passed and something is left.
    """
    chosen = [str(row.get("id")) for row in rows(client.post("/endpoints/cordon", which).get("endpoints"))]
    deadline = now() + timeout_s
    told: Mapping[str, object] | None = None
    with closing(client.lines(f"{STREAM}?interval_ms={_DRAIN_INTERVAL_MS}")) as pages:
        for page in pages:
            left = _left(page, chosen)
            if left != told:
                _say_left(chosen, left, as_json=as_json)
            told = left
            if not left:
                return
            if now() >= deadline:
                break
    raise _not_drained(told or {}, timeout_s)


def _left(page: Page, chosen: Sequence[str]) -> Mapping[str, object]:
    """In flight by endpoint, where there is something; an endpoint that is gone has nothing that could be seen."""
    in_flight = {str(row.get("id")): row.get("in_flight") for row in rows(page.get("endpoints"))}
    return {one: count for one in chosen if (count := in_flight.get(one))}


def _say_left(chosen: Sequence[str], left: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        click.echo(orjson.dumps({"draining": list(chosen), "in_flight": left}))
    elif left:
        click.echo(f"cordoned; still in flight: {', '.join(f'{cell(one)} {count}' for one, count in left.items())}")
    else:
        click.echo(f"drained: {', '.join(map(cell, chosen))}")


def _not_drained(left: Mapping[str, object], timeout_s: float) -> CapacityError:
    told = ", ".join(f"{one} has {count}" for one, count in left.items())
    return CapacityError(
        "UNAVAILABLE",
        f"requests are still in flight after {timeout_s:g} s: {told}",
        hint="they stay cordoned: wait again with `hotbay endpoints drain`, or take them back with `hotbay endpoints uncordon`",
    )


def endpoint_sheet(page: Page) -> Sheet:
    """The page for people."""
    sheet = Sheet()
    endpoints = rows(page.get("endpoints"))
    names, ranks = zip(*_COLUMNS, strict=True)
    sheet.show(Grid(names, ranks, tuple(_line(row) for row in endpoints)))
    notes = [note for row in endpoints for note in _notes(row)]
    for note in notes[:_NOTES_SHOWN]:
        sheet.say(note)
    if len(notes) > _NOTES_SHOWN:
        sheet.say(f"{len(notes) - _NOTES_SHOWN} more remarks: see -o json")
    for row in rows(page.get("absent")):
        said = [str(row.get("state"))] * (row.get("state") is not None)
        said += [f"weight {row.get('weight')}"] * (row.get("weight") is not None)
        sheet.say(f"{row.get('id')} is not there; when it comes: {', '.join(said)}, as {row.get('who')} said")
    return sheet


def _line(row: Page) -> tuple[str, ...]:
    why = cell(row.get("why"))
    if row.get("why") is not None and row.get("admitted"):
        why += " (kept)"
    return (
        *cells(row, ("id", "url")),
        _state(row),
        *cells(row, ("healthy",)),
        why,
        *cells(row, ("weight", "slow_start", "waiting", "running", "kv_usage", "in_flight")),
        UNKNOWN if row.get("age_s") is None else f"{row['age_s']} s",
        *cells(row, ("engine", "scrape_errors")),
    )


def _state(row: Page) -> str:
    """The operator's word, and what keeps requests away in spite of it."""
    phase = row.get("phase")
    if row.get("state") != "active" or phase in (None, "admitted"):
        return cell(row.get("state"))
    return cell(phase)


def _notes(row: Page) -> list[str]:
    notes = [f"{row.get('id')}: {problem}" for problem in texts(row.get("problems"))]
    if row.get("scrape_errors") and row.get("last_scrape_error"):
        message = str(row["last_scrape_error"])
        short = message if len(message) <= _ERROR_CHARS else message[:_ERROR_CHARS] + "…"
        notes.append(f"{row.get('id')}: {row['scrape_errors']} scrapes failed, the last one: {short}")
    if lacks := texts(row.get("lacks")):
        notes.append(f"{row.get('id')}: its metrics page: {', '.join(lacks)}")
    return notes
