"""`hotbay status`: asks a running host and shows what it says."""

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

TIMEOUT_S = 5.0
# Ten thousand endpoints are a quarter of it.
_MAX_PAGE_BYTES = 16 << 20
_START = "start one with `hotbay run`, or give its address with --url"


def show_status(url: str, *, as_json: bool) -> None:
    """Print plugins, endpoints and problems. Raises `CapacityError` when no host answers."""
    page = fetch_status(url)
    if as_json:
        click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        return
    console = Console()
    ready = "ready" if page.get("ready") else f"not ready: {', '.join(_texts(page.get('not_ready')))}"
    console.print(f"hotbay {page.get('version')} · {ready} · isolation {page.get('isolation')}", markup=False)
    console.print(_plugins(page), _endpoints(page))
    for problem in _texts(page.get("problems")):
        console.print(f"problem: {problem}", markup=False)


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


def _plugins(page: Mapping[str, object]) -> Table:
    table = Table("plugin", "phase", "version", "rev", "generation", "pid", "restarts", "swaps", "last error")
    for row in _rows(page.get("plugins")):
        found = row.get("live")
        live: Mapping[str, object] = found if isinstance(found, dict) else {}
        error = row.get("last_error")
        text = f"{error.get('code')}: {error.get('message')}" if isinstance(error, dict) else ""
        table.add_row(
            *_cells(row, ("plugin", "phase")),
            *_cells(live, ("version", "rev", "generation", "pid")),
            *_cells(row, ("restarts", "swaps")),
            Text(text),
        )
    return table


def _endpoints(page: Mapping[str, object]) -> Table:
    names = ("id", "url", "state", "in_flight", "waiting", "running", "kv_usage", "scrape_errors")
    table = Table(*names)
    for row in _rows(page.get("endpoints")):
        table.add_row(*_cells(row, names))
    return table


def _cells(row: Mapping[str, object], names: Sequence[str]) -> list[Text]:
    """Texts, not markup: what plugins and endpoints call themselves may have brackets."""
    return [Text(str(row.get(name, ""))) for name in names]
