"""`hotbay status`: asks a running host and shows what it says."""

import http.client
from collections.abc import Mapping
from urllib.parse import urlsplit

import click
import orjson
from rich.console import Console
from rich.table import Table

from hotbay.errors import CapacityError

TIMEOUT_S = 5.0


def show_status(url: str, *, as_json: bool) -> None:
    """Print plugins, endpoints and problems. Raises `CapacityError` when no host answers."""
    page = fetch_status(url)
    if as_json:
        click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        return
    console = Console()
    ready = "ready" if page.get("ready") else f"not ready: {', '.join(_texts(page.get('not_ready')))}"
    console.print(f"hotbay {page.get('version')} · {ready} · isolation {page.get('isolation')}")
    console.print(_plugins(page), _endpoints(page))
    for problem in _texts(page.get("problems")):
        console.print(f"problem: {problem}", markup=False)


def fetch_status(url: str) -> Mapping[str, object]:
    """The host's status page."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/status")
        body = connection.getresponse().read()
        page = orjson.loads(body)
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
        raise CapacityError(
            "UNAVAILABLE", f"no host answers at {url}: {error}", hint="start one with `hotbay run`, or give --url"
        ) from error
    finally:
        connection.close()
    if not isinstance(page, dict):
        raise CapacityError("UNAVAILABLE", f"{url} does not answer as a hotbay host does")
    return page


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
            *(str(row.get(name, "")) for name in ("plugin", "phase")),
            *(str(live.get(name, "")) for name in ("version", "rev", "generation", "pid")),
            *(str(row.get(name, "")) for name in ("restarts", "swaps")),
            text,
        )
    return table


def _endpoints(page: Mapping[str, object]) -> Table:
    names = ("id", "url", "state", "in_flight", "waiting", "running", "kv_usage", "scrape_errors")
    table = Table(*names)
    for row in _rows(page.get("endpoints")):
        table.add_row(*(str(row.get(name, "")) for name in names))
    return table
