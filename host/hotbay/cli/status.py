"""`hotbay status`: asks a running host and shows what it says, once or as it changes."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import click
import orjson
from rich.console import Console

from hotbay.cli.admin_client import AdminClient
from hotbay.cli.sheet import Bar, Screen, Sheet, ago, cells, mapping, rows, short_digests, size, texts
from hotbay.cli.watching import watch_pages
from hotbay.errors import CapacityError
from hotbay.observe.tables import UNKNOWN, Grid, cell

__all__ = ["fetch_status", "print_status", "show_status", "status_sheet", "watch_status"]

# What a failed scrape says repeats the address that the table has.
_SCRAPE_ERROR_CHARS: Final = 60
# A thousand endpoints that fail, fail alike.
_SCRAPE_ERRORS_SHOWN: Final = 10
_WANTED: Final = frozenset({"version", "ready", "plugins", "endpoints"})


def show_status(client: AdminClient, *, as_json: bool) -> None:
    """Print plugins, bindings that lost something, endpoints and problems. Raises `HostError` when no host answers."""
    page = fetch_status(client)
    if as_json:
        click.echo(orjson.dumps(page, option=orjson.OPT_INDENT_2))
        return
    print_status(page, Screen())


def watch_status(client: AdminClient, *, as_json: bool, wait: Callable[[float], object] | None = None) -> None:
    """Show the status as `watch_pages` does."""

    def sheet_of(page: Mapping[str, object]) -> Sheet:
        return status_sheet(_checked(page))

    watch_pages(client, "/status/stream", sheet_of, as_json=as_json, wait=wait or threading.Event().wait)


def fetch_status(client: AdminClient) -> Mapping[str, object]:
    """The host's status page."""
    return _checked(client.get("/status"))


def _checked(page: Mapping[str, object]) -> Mapping[str, object]:
    if not page.keys() >= _WANTED:
        hint = "use the command of the host's own version"
        raise CapacityError("UNAVAILABLE", "what answers is no hotbay host of this version", hint=hint)
    return page


def print_status(page: Mapping[str, object], console: Console) -> None:
    """Print a status page for people."""
    status_sheet(page).print(console)


def status_sheet(page: Mapping[str, object]) -> Sheet:
    """The status page for people."""
    sheet = Sheet()
    ready = "ready" if page.get("ready") else f"not ready: {', '.join(texts(page.get('not_ready')))}"
    sheet.say(f"hotbay {page.get('version')} · {ready} · isolation {page.get('isolation')}")
    plugins = rows(page.get("plugins"))
    sheet.show(_plugins(plugins))
    for row in plugins:
        _add_plugin(sheet, row)
    degraded = _bindings(page)
    if degraded.rows:
        sheet.show(degraded, style="red")
    if sources := rows(page.get("sources")):
        sheet.show(_sources(sources))
    _add_data(sheet, page)
    _add_endpoints(sheet, rows(page.get("endpoints")))
    _add_store(sheet, mapping(page.get("store")))
    for problem in texts(page.get("problems")):
        sheet.say(f"problem: {problem}", style="red")
    for warning in texts(page.get("warnings")):
        sheet.say(f"warning: {warning}", style="yellow")
    return sheet


def _plugins(plugins: Sequence[Mapping[str, object]]) -> Grid:
    lines = []
    for row in plugins:
        live = mapping(row.get("live"))
        lines.append(
            (
                *cells({**row, "phase": _phase(row)}, ("plugin", "phase")),
                *cells(live, ("version", "rev")),
                *cells(mapping(row.get("candidate")), ("rev",)),
                _target(row, live),
                *cells(live, ("generation", "pid")),
                *cells(row, ("leases", "restarts", "swaps")),
            )
        )
    names = (
        "plugin", "phase", "version", "rev", "candidate", "target", "generation", "pid", "leases", "restarts", "swaps",
    )  # fmt: skip
    return Grid(names, (0, 0, 2, 1, 3, 9, 7, 5, 8, 4, 6), tuple(lines))


def _phase(row: Mapping[str, object]) -> str:
    return f"{row.get('phase')} (paused)" if row.get("paused") else str(row.get("phase"))


def _target(row: Mapping[str, object], live: Mapping[str, object]) -> str:
    """The build that is wanted, while another one is live: the beginning of its digest tells it apart."""
    target = row.get("target")
    if not isinstance(target, str) or target == live.get("digest"):
        return UNKNOWN
    return cell(short_digests(target))


def _add_plugin(sheet: Sheet, row: Mapping[str, object]) -> None:
    """What there is to say of a plugin beside its row: what it fetches, what decides, what it waits for, what failed."""
    name = row.get("plugin")
    progress = mapping(row.get("progress"))
    done, total = progress.get("bytes"), progress.get("total_bytes")
    if isinstance(done, int):
        what = "its environment is built" if progress.get("phase") == "environment" else "is downloaded"
        sheet.bar(Bar(f"{name} {what}", done, total if isinstance(total, int) else 0))
    if verdict := mapping(row.get("verdict")):
        sheet.say(f"{name}: {_verdict(verdict)}", style="red" if verdict.get("ruling") == "fail" else "")
    asked = " ".join(texts(row.get("asked"))) or "CAP…"
    for digest in texts(row.get("awaiting_grant")):
        sheet.say(
            f"{name}: {short_digests(digest)} asks for more than is granted: `hotbay grant {name} {asked}` allows it"
        )
    _add_choice(sheet, row)
    if cold := row.get("cold"):
        sheet.say(f"{name}: began without the state of its predecessor: {cold}")
    if isinstance(retry_s := row.get("retry_in_s"), int | float):
        sheet.say(f"{name}: goes on by itself in {retry_s:g} s")
    error = row.get("last_error")
    if isinstance(error, dict):
        sheet.say(_error(row, error), style="red")


def _add_choice(sheet: Sheet, row: Mapping[str, object]) -> None:
    """What keeps other versions from being chosen."""
    name = row.get("plugin")
    if pin := mapping(row.get("pin")):
        what = f"rev {pin['rev']}" if pin.get("rev") is not None else pin.get("digest")
        who = f" by {pin['by']}: `hotbay unpin {name}` ends it" if pin.get("by") else " in the configuration"
        sheet.say(f"{name}: pinned to {what}{who}")
    live, below = mapping(row.get("live")), row.get("below")
    for rev in below if isinstance(below, list) else ():
        hint = f"`hotbay pin {name}@{rev}` runs it, or pack it again with a higher --rev"
        sheet.say(f"{name}: rev {rev} is below what runs, rev {live.get('rev')}, and is not chosen: {hint}")


def _verdict(verdict: Mapping[str, object]) -> str:
    """How far the step is, and the figure that decides, candidate against live."""
    form = _mebibytes if verdict.get("figure") == "memory" else "{:.2%}".format
    values = [verdict.get(name) for name in ("candidate", "live", "bound")]
    candidate, live, bound = (form(value) if isinstance(value, int | float) else UNKNOWN for value in values)
    limit_s = verdict.get("limit_s")
    over = f" over {limit_s * 1000:.3g} ms" if isinstance(limit_s, int | float) else ""
    figure = str(verdict.get("figure")).replace("_", " ")
    step = f"{verdict['phase']} of rev {verdict.get('rev')}: " if verdict.get("phase") else ""
    so_far = _gathered(mapping(verdict.get("gathered"))) if verdict.get("ruling") == "wait" else ""
    return f"{step}{so_far}{verdict.get('ruling')}: {figure}{over} {candidate}, of the live one {live}, allowed {bound}"


def _gathered(gathered: Mapping[str, object]) -> str:
    """What a step has of what it wants before its verdict."""
    elapsed_s, for_s, at_most_s = (gathered.get(name) for name in ("elapsed_s", "for_s", "at_most_s"))
    if not isinstance(elapsed_s, int | float) or not isinstance(for_s, int | float):
        return ""
    counts = f"{gathered.get('count')} of {gathered.get('wanted')} {gathered.get('counted')}"
    joined, end = (" or", "") if not isinstance(at_most_s, int | float) else (",", f", at most {at_most_s:g} s")
    # A step that waits for its requests alone has had its time.
    return f"{counts}{joined} {min(elapsed_s, for_s):.0f} of {for_s:g} s{end}: "


def _mebibytes(count: float) -> str:
    return f"{count / 2**20:.0f} MiB"


def _error(row: Mapping[str, object], error: Mapping[str, object]) -> str:
    generation, since = error.get("generation"), ago(error.get("s_ago"))
    parts = [f"generation {generation}"] * (generation is not None) + [since] * (since != UNKNOWN)
    where = f" ({', '.join(parts)})" if parts else ""
    hint = f". {error['hint']}" if error.get("hint") else ""
    return short_digests(f"{row.get('plugin')}: last error{where}: {error.get('code')}: {error.get('message')}{hint}")


def _bindings(page: Mapping[str, object]) -> Grid:
    """Those that ever did without their plugin's answer."""
    names = ("ref", "type", "point", "on_failure", "degraded", "last_reason")
    lines = tuple(
        (*cells(row, names), ago(row.get("last_s_ago"))) for row in rows(page.get("bindings")) if row.get("degraded")
    )
    shown = ("binding", "type", "point", "on failure", "degraded", "last reason", "last")
    return Grid(shown, (0, 4, 3, 2, 0, 0, 1), lines)


def _sources(sources: Sequence[Mapping[str, object]]) -> Grid:
    names = ("source", "state", "scans", "problems", "last_error")
    return Grid(
        ("source", "state", "scans", "problems", "last error"),
        (0, 0, 4, 3, 1),
        tuple(cells(row, names) for row in sources),
    )


def _add_data(sheet: Sheet, page: Mapping[str, object]) -> None:
    """How often endpoints are polled, what stands behind each source, and figures of theirs that stand still."""
    if polled := rows(page.get("polled")):
        lines = tuple(
            (*cells(row, ("source",)), *_seconds(row, ("asked_s", "interval_s")), _behind(row)) for row in polled
        )
        sheet.show(Grid(("polled source", "interval wanted", "interval now", "extractors"), (0, 1, 0, 2), lines))
    if told := rows(page.get("event_sources")):
        lines = tuple((*cells(row, ("source",)), _behind(row)) for row in told)
        sheet.show(Grid(("source of events", "extractors"), (0, 1), lines))
    if stale := rows(page.get("stale")):
        lines = tuple(
            (
                *cells(row, ("figure", "endpoints")),
                *_seconds(row, ("oldest_s", "limit_s")),
                "the last one" if row.get("shown") else "nothing",
            )
            for row in stale
        )
        names = ("stale figure", "endpoints", "oldest", "limit", "plugins see")
        sheet.show(Grid(names, (0, 0, 0, 1, 2), lines), style="yellow")


def _behind(row: Mapping[str, object]) -> str:
    return ", ".join(map(cell, texts(row.get("extractors")))) or UNKNOWN


def _seconds(row: Mapping[str, object], names: Iterable[str]) -> tuple[str, ...]:
    values = (row.get(name) for name in names)
    return tuple(f"{value:g} s" if isinstance(value, int | float) else UNKNOWN for value in values)


def _add_endpoints(sheet: Sheet, endpoints: Sequence[Mapping[str, object]]) -> None:
    names = ("id", "url", "state", "in_flight", "waiting", "running", "kv_usage", "scrape_errors")
    shown = ("endpoint", "url", "state", "in flight", "waiting", "running", "kv usage", "scrape errors")
    grid = Grid(shown, (0, 4, 1, 0, 0, 2, 3, 5), tuple(cells(row, names) for row in endpoints))
    sheet.show(grid, stays=range(len(endpoints)))
    failing = [row for row in endpoints if row.get("scrapes_failed_in_a_row") and row.get("last_scrape_error")]
    for row in failing[:_SCRAPE_ERRORS_SHOWN]:
        message = str(row["last_scrape_error"])
        short = message if len(message) <= _SCRAPE_ERROR_CHARS else message[:_SCRAPE_ERROR_CHARS] + "…"
        sheet.say(
            f"{row.get('id')}: {row['scrapes_failed_in_a_row']} scrapes in a row failed, the last one: {short}",
            aside=True,
        )
    if len(failing) > _SCRAPE_ERRORS_SHOWN:
        more = len(failing) - _SCRAPE_ERRORS_SHOWN
        sheet.say(f"{more} more endpoint{'s' * (more != 1)} whose scrapes fail: see -o json", aside=True)


def _add_store(sheet: Sheet, store: Mapping[str, object]) -> None:
    used, budget, free = (store.get(name) for name in ("bytes", "budget_bytes", "free_bytes"))
    if not isinstance(used, int):
        return
    parts = [f"store: {size(used)}"]
    of_packages, of_environments = store.get("package_bytes"), store.get("environment_bytes")
    if isinstance(of_packages, int) and isinstance(of_environments, int):
        parts.append(f"(packages {size(of_packages)}, environments {size(of_environments)})")
    if isinstance(budget, int):
        parts.append(f"of {size(budget)}")
    if isinstance(free, int):
        parts.append(f"· {size(free)} free on its disk")
    alarm = bool(store.get("alarm"))
    if alarm:
        parts.append("· nearly full: `hotbay gc` removes what nothing needs")
    sheet.say(" ".join(parts), style="red" if alarm else "")
