"""The model servers for people: a table, what there is to say of some of them, and what the words in the table mean."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from hotbay.cli.sheet import Sheet, cells, mapping, moment, rows, texts
from hotbay.observe.tables import UNKNOWN, Grid, cell

__all__ = ["MEANINGS", "endpoint_sheet", "named"]

Page = Mapping[str, object]

MEANINGS: Final[Mapping[str, str]] = {
    "cordoned": "gets nothing new; `hotbay endpoints uncordon` ends that, whoever said it",
    "draining": "cordoned, and requests that it had go on",
    "leaving": "is removed, and requests that it had go on",
    "ejected": "gets nothing, for it failed; after a while one request tries it",
    "half-open": "was ejected, and gets nothing but the request that tries it, which is the next one",
    "probing": "was ejected, and one request tries it now",
    "unreachable": "requests got no connection there, or no byte of an answer",
    "silent": "requests that waited long got no byte of an answer there, nor did others meanwhile",
    "errors": "too many of its requests failed",
    "slow": "its first tokens came much later than those of the others",
    "kept": "gets requests although it should be out, because too few others are left",
    "weight 0": "gets nothing unless nothing else is left",
    "scrapes fail": "its figures cannot be fetched; it gets requests all the same",
    "stale": "figures that are older than `freshness` allows; it gets requests all the same",
    "slow start": "is new or back, and gets a share that grows to all of what its weight allows",
}
"""Every word of the columns `state`, `why` and `age`."""

_CORDONED_BY: Final = {"label": "its label hotbay.dev/state", "discovery": "the discovery or file that names it"}
"""What is not told by the command that said it."""
_UNHEALTHY: Final = 0.0
# A thousand endpoints that fail, fail alike.
_NOTES_SHOWN: Final = 10
_NAMES_SHOWN: Final = 5
_ERROR_CHARS: Final = 60
_COLUMNS: Final = (
    ("endpoint", 0), ("url", 11), ("state", 1), ("healthy", 3), ("why", 2), ("weight", 7), ("slow start", 8), ("waiting", 5),
    ("running", 5), ("kv usage", 6), ("in flight", 1), ("age", 4), ("engine", 10), ("scrape errors", 9),
)  # fmt: skip
"""With how soon each is left out for want of room."""


def endpoint_sheet(page: Page, selector: str | None = None) -> Sheet:
    """The page for people; `selector` is what its endpoints were chosen by."""
    sheet = Sheet()
    endpoints = [*rows(page.get("endpoints")), *rows(page.get("leaving"))]
    if endpoints:
        names, ranks = zip(*_COLUMNS, strict=True)
        grid = Grid(names, ranks, tuple(_line(row) for row in endpoints))
        sheet.show(grid, stays=_most_telling_first(endpoints))
        sheet.say(_counted(endpoints))
    elif selector is not None:
        sheet.say(f"no endpoint has labels that match {selector!r}; `hotbay endpoints -o json` has the labels of each")
    else:
        sheet.say(_none(mapping(page.get("discovery"))))
    _say_some(sheet, [*_notes(endpoints, _troubles), *_notes(endpoints, _words_of_operators)])
    _say_some(sheet, [_absent(row) for row in rows(page.get("absent"))])
    words = {word for row in endpoints for word in _words(row)}
    for word, meaning in MEANINGS.items():
        if word in words:
            sheet.say(f"{word}: {meaning}", style="dim", aside=True)
    return sheet


def named(names: Sequence[str], shown: int = _NAMES_SHOWN) -> str:
    """The first of them, and how many there are besides."""
    more = [f"and {len(names) - shown} more"] if len(names) > shown else []
    return ", ".join([*map(cell, names[:shown]), *more])


def _none(discovery: Page) -> str:
    if waits := texts(discovery.get("waits")):
        return f"no endpoints yet: {', '.join(waits)}; `hotbay status` says which problems there are"
    if discovery.get("problems"):
        return "no endpoints: none is named that can be used; `hotbay status` says which problems discovery has"
    return "no endpoints: neither `endpoints` of the HostConfig nor a discovery names any"


def _say_some(sheet: Sheet, remarks: Sequence[str]) -> None:
    for remark in remarks[:_NOTES_SHOWN]:
        sheet.say(remark, aside=True)
    if (more := len(remarks) - _NOTES_SHOWN) > 0:
        sheet.say(f"{more} more remark{'s' * (more != 1)}: see -o json", aside=True)


def _counted(endpoints: Sequence[Page]) -> str:
    counts = Counter(cell(row.get("state")) for row in endpoints)
    stale = sum(1 for row in endpoints if texts(row.get("stale")))
    parts = [f"{count} {state}" for state, count in sorted(counts.items())] + [f"{stale} with stale figures"] * bool(
        stale
    )
    return f"{len(endpoints)} endpoint{'s' * (len(endpoints) != 1)}: {', '.join(parts)}"


def _most_telling_first(endpoints: Sequence[Page]) -> list[int]:
    return sorted(range(len(endpoints)), key=lambda number: (not _words(endpoints[number]), number))


# -- one line --------------------------------------------------------------------------------------


def _line(row: Page) -> tuple[str, ...]:
    return (
        *cells(row, ("id", "url", "state", "healthy")),
        _why(row),
        *cells(row, ("weight", "slow_start", "waiting", "running", "kv_usage", "in_flight")),
        _age(row),
        *cells(row, ("engine", "scrape_errors")),
    )


def _why(row: Page) -> str:
    """The first that holds: why it is out, or would be; why it gets less; what is known of it no more."""
    if (reason := row.get("why")) is not None:
        retry_s = row.get("retry_in_s")
        is_tried = row.get("state") == "ejected" and isinstance(retry_s, int | float)
        return f"{cell(reason)}, tried in {retry_s:.0f} s" if is_tried else cell(reason)
    if row.get("weight") == 0:
        return "weight 0"
    if _scrapes_fail(row):
        return "scrapes fail"
    return "slow start" if _starts_slowly(row) else UNKNOWN


def _words(row: Page) -> Iterable[str]:
    """The words of its line that have a meaning to be told: none for one that is as it should be."""
    state = str(row.get("state"))
    found = [state, str(row.get("why"))]
    found += ["cordoned"] * (state == "draining")
    found += ["weight 0"] * (row.get("weight") == 0)
    found += ["scrapes fail"] * _scrapes_fail(row)
    found += ["stale"] * bool(texts(row.get("stale")))
    found += ["slow start"] * _starts_slowly(row)
    return [word for word in found if word in MEANINGS]


def _scrapes_fail(row: Page) -> bool:
    return row.get("healthy") == _UNHEALTHY and bool(row.get("scrapes_failed_in_a_row"))


def _starts_slowly(row: Page) -> bool:
    share = row.get("slow_start")
    return isinstance(share, int | float) and share < 1


def _age(row: Page) -> str:
    age_s = row.get("age_s")
    stale = " (stale)" * bool(texts(row.get("stale")))
    if not isinstance(age_s, int | float):
        return f"{UNKNOWN}{stale}"
    return f"{age_s:.{2 if age_s < 1 else 1 if age_s < 10 else 0}f} s{stale}"


# -- what there is to say beside it ----------------------------------------------------------------


def _notes(endpoints: Sequence[Page], remarks: Callable[[Page], Iterable[str]]) -> list[str]:
    """What holds of several is said once."""
    about: dict[str, list[str]] = {}
    for row in endpoints:
        for remark in remarks(row):
            about.setdefault(remark, []).append(str(row.get("id")))
    return [f"{named(ids)}: {remark}" for remark, ids in about.items()]


def _troubles(row: Page) -> list[str]:
    remarks = texts(row.get("problems"))
    if row.get("scrapes_failed_in_a_row") and row.get("last_scrape_error"):
        message = str(row["last_scrape_error"])
        short = message if len(message) <= _ERROR_CHARS else message[:_ERROR_CHARS] + "…"
        remarks.append(f"the last scrape failed: {short}")
    if lacks := texts(row.get("lacks")):
        remarks.append(f"its metrics page: {', '.join(lacks)}")
    return remarks


def _words_of_operators(row: Page) -> list[str]:
    remarks = []
    said = mapping(row.get("said"))
    if (by := _CORDONED_BY.get(str(row.get("cordoned_by")))) is not None:
        remarks.append(f"cordoned by {by}: `hotbay endpoints uncordon` with its ID goes over that")
    if said.get("state") is not None:
        undone = ": `hotbay endpoints uncordon` with its ID ends it" if said["state"] == "cordoned" else ""
        remarks.append(f"{said['state']}, as {_who(said)} said{undone}")
    if said.get("weight") is not None:
        remarks.append(
            f"weight {cell(said['weight'])}, as {_who(said)} said: `hotbay endpoints weight default` with its ID ends it"
        )
    return remarks


def _who(said: Page) -> str:
    at_s = said.get("at_s")
    return (
        f"{said.get('who')} at {moment(at_s)}" if isinstance(at_s, int | float) and at_s > 0 else str(said.get("who"))
    )


def _absent(row: Page) -> str:
    said = [str(row.get("state"))] * (row.get("state") is not None)
    said += [f"weight {cell(row.get('weight'))}"] * (row.get("weight") is not None)
    return f"{row.get('id')} is not there; when it comes: {', '.join(said)}, as {row.get('who')} said"
