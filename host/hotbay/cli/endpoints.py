"""`hotbay endpoints`: shows the model servers of a running host, once or as it changes, and waits for one to be drained."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import monotonic
from typing import Final

import click
import orjson

from hotbay.cli.admin_client import AdminClient
from hotbay.cli.endpoint_sheet import endpoint_sheet, named
from hotbay.cli.sheet import Screen, rows
from hotbay.cli.watching import watch_pages
from hotbay.datalayer.operations.label_selector import read_selector
from hotbay.errors import CapacityError

__all__ = ["drain_endpoints", "show_endpoints", "watch_endpoints"]

Page = Mapping[str, object]

STREAM: Final = "/endpoints/stream"
_DRAIN_INTERVAL_MS: Final = 200


def _chosen(selector: str | None) -> Callable[[Page], Page]:
    """Pages with the endpoints alone whose labels match. Raises InputError for what is no selector."""
    if selector is None:
        return lambda page: page
    matches = read_selector(selector).matches

    def chosen(page: Page) -> Page:
        found = {
            name: [row for row in rows(page.get(name)) if matches(_labels(row))] for name in ("endpoints", "leaving")
        }
        # Of those that are not there nobody knows the labels.
        return {**page, **found, "absent": []}

    return chosen


def _labels(row: Page) -> Mapping[str, str]:
    labels = row.get("labels")
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def show_endpoints(client: AdminClient, selector: str | None = None, *, as_json: bool) -> None:
    """Print them, or those whose labels match. Raises `HostError` when no host answers, or for what is no selector."""
    chosen = _chosen(selector)
    page = chosen(client.get("/endpoints"))
    if as_json:
        click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        return
    endpoint_sheet(page, selector).print(Screen())


def watch_endpoints(
    client: AdminClient,
    selector: str | None = None,
    *,
    as_json: bool,
    wait: Callable[[float], object] | None = None,
) -> None:
    """Show them, or those whose labels match, as `watch_pages` does. Raises `HostError` for what is no selector, too."""
    sheet_of = partial(endpoint_sheet, selector=selector)
    wait = wait or threading.Event().wait
    watch_pages(client, STREAM, sheet_of, as_json=as_json, wait=wait, part=_chosen(selector))


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
    """In flight by endpoint, where there is something, also at one that is removed meanwhile."""
    shown = [*rows(page.get("endpoints")), *rows(page.get("leaving"))]
    in_flight = {str(row.get("id")): row.get("in_flight") for row in shown}
    return {one: count for one in chosen if (count := in_flight.get(one))}


def _say_left(chosen: Sequence[str], left: Mapping[str, object], *, as_json: bool) -> None:
    if as_json:
        click.echo(orjson.dumps({"draining": list(chosen), "in_flight": left}))
    elif left:
        click.echo(f"cordoned; still in flight: {named([f'{one} {count}' for one, count in left.items()])}")
    else:
        click.echo(f"drained: {named(chosen)}")


def _not_drained(left: Mapping[str, object], timeout_s: float) -> CapacityError:
    told = named([f"{one} has {count}" for one, count in left.items()])
    return CapacityError(
        "UNAVAILABLE",
        f"requests are still in flight after {timeout_s:g} s: {told}",
        hint="they stay cordoned: wait again with `hotbay endpoints drain`, or take them back with `hotbay endpoints uncordon`",
    )
