"""Pages of a running host that change: shown one after the other until somebody interrupts."""

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

import click
import orjson
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from hotbay.cli.admin_client import AdminClient
from hotbay.cli.exit_codes import NoHostError
from hotbay.cli.sheet import Screen, Sheet
from hotbay.errors import CapacityError, HostError

__all__ = ["watch_pages"]

Page = Mapping[str, object]

_RETRY_S: Final = 1.0


def watch_pages(
    client: AdminClient,
    target: str,
    sheet_of: Callable[[Page], Sheet],
    *,
    as_json: bool,
    wait: Callable[[float], object],
    part: Callable[[Page], Page] = lambda page: page,
) -> None:
    """Show the pages of a stream until interrupted; a host that goes away is waited for.

    A terminal gets a picture that changes in place, and no more than fits into it; a pipe gets each page that differs from
    the last one. `sheet_of` may raise what is wrong with a page; `part` is what of it is shown.

    Raises:
        HostError: nobody answers at the start.
    """
    console = Screen()

    def write(whole: Page) -> None:
        page = part(whole)
        sheet = sheet_of(page)
        if as_json:
            click.echo(orjson.dumps(page))
            return
        sheet.print(console)
        console.print()

    if as_json or not console.is_terminal:
        _watch(client, target, write, lambda error: None, wait)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="visible") as live:

        def show(page: Page) -> None:
            live.update(sheet_of(part(page)).picture(console), refresh=True)

        def gone(error: HostError) -> None:
            text: RenderableType = Text(f"{error.message}; waiting for it to come back", style="red")
            live.update(text, refresh=True)

        _watch(client, target, show, gone, wait)


def _watch(
    client: AdminClient,
    target: str,
    show: Callable[[Page], None],
    gone: Callable[[HostError], None],
    wait: Callable[[float], object],
) -> None:
    seen = False
    while True:
        try:
            with closing(client.lines(target)) as pages:
                for page in pages:
                    seen = True
                    show(page)
        except NoHostError as error:
            if not seen:
                raise
            gone(error)
        except CapacityError as error:
            gone(error)
        except KeyboardInterrupt:
            return
        try:
            wait(_RETRY_S)
        except KeyboardInterrupt:
            return
