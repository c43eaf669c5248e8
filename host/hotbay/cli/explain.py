"""`hotbay explain` and `hotbay dump`: ask a running host why requests went where they went, and what its plugins know."""

from collections.abc import Mapping
from urllib.parse import quote

import click
import orjson

from hotbay.cli.admin_client import AdminClient
from hotbay.cli.explain_sheet import decision_sheet, decisions_sheet, kept_line
from hotbay.cli.sheet import Screen, mapping, rows
from hotbay.errors import printable

__all__ = ["explain_latest", "explain_request", "show_states"]

Page = Mapping[str, object]


def explain_request(client: AdminClient, request_id: str, *, everything: bool, as_json: bool) -> None:
    """Print the decisions for a request, the latest last. Raises `HostError` when none is kept, or no host answers."""
    page = client.get(f"/explain/{quote(request_id, safe='')}")
    if as_json:
        _print_json(page)
        return
    decisions = rows(page.get("decisions"))
    for number, decision in enumerate(decisions, 1):
        if len(decisions) > 1:
            click.echo(f"decision {number} of {len(decisions)} for requests of this id")
        decision_sheet(decision, everything=everything).print(Screen())


def explain_latest(client: AdminClient, count: int, *, everything: bool, as_json: bool) -> None:
    """Print the newest decision, or of several one line each. Raises `HostError` when no host answers."""
    page = client.get(f"/explain?last={count}")
    if as_json:
        _print_json(page)
        return
    decisions = rows(page.get("decisions"))
    if count == 1 and decisions:
        decision_sheet(decisions[0], everything=everything).print(Screen())
    elif decisions:
        decisions_sheet(decisions).print(Screen())
    click.echo(printable(kept_line(mapping(page.get("kept")))))


def show_states(client: AdminClient, ref: str | None, *, as_json: bool) -> None:
    """Print what one ref knows, or all. Raises `HostError` for a ref that does not exist, and when no host answers."""
    page = client.get("/debug/plugins/state" + ("" if ref is None else f"/{quote(ref, safe='')}"))
    if as_json:
        _print_json(page)
        return
    plugins, host = rows(page.get("plugins")), mapping(page.get("host"))
    for row in plugins:
        at = "" if row.get("generation") is None else f" #{row['generation']}"
        click.echo(printable(f"{row.get('ref')} ({row.get('type')} of {row.get('plugin')}{at}):"))
        error = mapping(row.get("error"))
        _print_state(f"{error.get('code')}: {error.get('message')}" if error else row.get("state"))
    for name, state in host.items():
        click.echo(printable(f"{name} (of the host):"))
        _print_state(state)
    if not plugins and not host:
        click.echo("no plugin that runs shows its state")


def _print_state(state: object) -> None:
    if isinstance(state, str):
        click.echo(f"  {printable(state)}")
        return
    text = orjson.dumps(state, option=orjson.OPT_INDENT_2).decode()
    for line in text.splitlines():
        click.echo(f"  {printable(line)}")


def _print_json(page: Page) -> None:
    click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
