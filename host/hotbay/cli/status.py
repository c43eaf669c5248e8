"""`hotbay status`: asks a running host and shows what it says.

A pipe gets plain lines at their natural width, a terminal tables that fit; no text is cut but the messages of scrapes.
"""

import http.client
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import urlsplit

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hotbay.errors import CapacityError
from hotbay.observe.tables import UNKNOWN, Grid, cell

TIMEOUT_S = 5.0
# Ten thousand endpoints are a quarter of it.
_MAX_PAGE_BYTES = 16 << 20
# What a failed scrape says repeats the address that the table has.
_SCRAPE_ERROR_CHARS = 60
# A thousand endpoints that fail, fail alike.
_SCRAPE_ERRORS_SHOWN = 10
_START = "start one with `hotbay run`, or give its address with --url"


def show_status(url: str, *, as_json: bool) -> None:
    """Print plugins, bindings that lost something, endpoints and problems.

    Raises `CapacityError` when no host answers.
    """
    page = fetch_status(url)
    if as_json:
        click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        return
    print_status(page, Console())


def print_status(page: Mapping[str, object], console: Console) -> None:
    """Print a status page for people."""
    ready = "ready" if page.get("ready") else f"not ready: {', '.join(_texts(page.get('not_ready')))}"
    _say(console, f"hotbay {page.get('version')} · {ready} · isolation {page.get('isolation')}")
    plugins, endpoints = _rows(page.get("plugins")), _rows(page.get("endpoints"))
    _show(console, _plugins(plugins))
    for row in plugins:
        error = row.get("last_error")
        if isinstance(error, dict):
            _say(console, _error(row, error), style="red")
    degraded = _bindings(page)
    if degraded.rows:
        _show(console, degraded, style="red")
    _show(console, _endpoints(endpoints))
    failing = [row for row in endpoints if row.get("scrape_errors") and row.get("last_scrape_error")]
    for row in failing[:_SCRAPE_ERRORS_SHOWN]:
        message = str(row["last_scrape_error"])
        short = message if len(message) <= _SCRAPE_ERROR_CHARS else message[:_SCRAPE_ERROR_CHARS] + "…"
        _say(console, f"{row.get('id')}: {row['scrape_errors']} scrapes failed, the last one: {short}")
    if len(failing) > _SCRAPE_ERRORS_SHOWN:
        _say(console, f"{len(failing) - _SCRAPE_ERRORS_SHOWN} more endpoints have failed scrapes: see --json")
    for problem in _texts(page.get("problems")):
        _say(console, f"problem: {problem}", style="red")


def fetch_status(url: str) -> Mapping[str, object]:
    """The host's status page."""
    host, port = _address(url)
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        answer = connection.getresponse()
        body = answer.read(_MAX_PAGE_BYTES)
        page = orjson.loads(body) if answer.status == HTTPStatus.OK else None
    except orjson.JSONDecodeError:
        page = None
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        # A host name that no resolver takes is a UnicodeError.
        raise CapacityError("UNAVAILABLE", f"no host answers at {url!r}: {error}", hint=_START) from error
    finally:
        connection.close()
    if not isinstance(page, dict) or not page.keys() >= {"version", "ready", "plugins", "endpoints"}:
        raise CapacityError("UNAVAILABLE", f"{url!r} does not answer as a hotbay host does", hint=_START)
    return page


def _address(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise click.UsageError(f"--url: {error}: expected http://HOST:PORT, found {url!r}") from error
    if parts.scheme != "http" or not parts.hostname:
        raise click.UsageError(f"--url: expected http://HOST:PORT, found {url!r}")
    return parts.hostname, port or 80


def _texts(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _rows(value: object) -> list[Mapping[str, object]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _plugins(rows: Sequence[Mapping[str, object]]) -> Grid:
    cells = []
    for row in rows:
        found = row.get("live")
        live: Mapping[str, object] = found if isinstance(found, dict) else {}
        cells.append(
            (
                *_cells(row, ("plugin", "phase")),
                *_cells(live, ("version", "rev", "generation", "pid")),
                *_cells(row, ("restarts", "swaps")),
            )
        )
    names = ("plugin", "phase", "version", "rev", "generation", "pid", "restarts", "swaps")
    return Grid(names, (0, 0, 5, 2, 3, 1, 1, 4), tuple(cells))


def _error(row: Mapping[str, object], error: Mapping[str, object]) -> str:
    generation, ago = error.get("generation"), _ago(error.get("s_ago"))
    parts = [f"generation {generation}"] * (generation is not None) + [ago] * (ago != UNKNOWN)
    where = f" ({', '.join(parts)})" if parts else ""
    hint = f". {error['hint']}" if error.get("hint") else ""
    return f"{row.get('plugin')}: last error{where}: {error.get('code')}: {error.get('message')}{hint}"


def _bindings(page: Mapping[str, object]) -> Grid:
    """Those that ever did without their plugin's answer."""
    names = ("ref", "type", "point", "on_failure", "degraded", "last_reason")
    rows = tuple(
        (*_cells(row, names), _ago(row.get("last_s_ago"))) for row in _rows(page.get("bindings")) if row.get("degraded")
    )
    shown = ("binding", "type", "point", "on failure", "degraded", "last reason", "last")
    return Grid(shown, (0, 4, 3, 2, 0, 0, 1), rows)


def _endpoints(rows: Sequence[Mapping[str, object]]) -> Grid:
    names = ("id", "url", "state", "in_flight", "waiting", "running", "kv_usage", "scrape_errors")
    shown = ("endpoint", "url", "state", "in flight", "waiting", "running", "kv usage", "scrape errors")
    return Grid(shown, (0, 4, 1, 0, 0, 2, 3, 5), tuple(_cells(row, names) for row in rows))


def _cells(row: Mapping[str, object], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(cell(row.get(name)) for name in names)


def _ago(value: object) -> str:
    """How long ago, as people say it."""
    if not isinstance(value, int | float):
        return UNKNOWN
    for unit, length_s in (("h", 3600), ("min", 60)):
        if value >= 2 * length_s:
            return f"{value / length_s:.0f} {unit} ago"
    return f"{value:.0f} s ago"


def _say(console: Console, text: str, *, style: str | None = None) -> None:
    """Text, not markup: what plugins and endpoints call themselves may have brackets."""
    console.print(Text(cell(text), style=style or ""), soft_wrap=not console.is_terminal)


def _show(console: Console, grid: Grid, *, style: str | None = None) -> None:
    if not console.is_terminal:
        for line in grid.lines():
            console.print(Text(line), soft_wrap=True)
        return
    fitted = grid.fitted(console.width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", style=style or "")
    for name in fitted.names:
        table.add_column(Text(name), overflow="fold")
    for row in fitted.rows:
        table.add_row(*(Text(text, style=style or "") for text in row))
    console.print(table)
    left_out = grid.without(fitted)
    if left_out:
        console.print(Text(f"left out for want of room: {', '.join(left_out)}", style="dim"))
