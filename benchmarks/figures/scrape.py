"""What it costs to scrape: CPU of 100 endpoints at 50 ms, of 10 to 1,000, and of reading one page."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, islice, repeat
from typing import Final, TypeVar

from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.extraction import EndpointMemory, MetricsReader
from hotbay.datalayer.pages.text import PageText
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.figure import Bound, Chart, Figure, Goal
from benchmarks.probes import Probe, Room, Sample, TakeSample, percentiles
from benchmarks.scraped import LINES, MARK, open_metrics_server, open_scraper, page_of

SIZES: Final = (10, 30, 100, 300, 1000)
GOAL_SIZE: Final = 100
SECONDS: Final = 3.0
READS: Final = 400
PARSES: Final = 5

_Text = TypeVar("_Text", PageText, str)

READ = "scrape.read"
READ_WHOLE = "scrape.read_whole"
PARSE = "scrape.parse"


def probe_name(size: int, *, own_process: bool) -> str:
    """Name of the probe of so many endpoints."""
    return f"scrape.{'process' if own_process else 'loop'}_{size}"


@contextmanager
def open_scrape(size: int, room: Room, *, own_process: bool) -> Iterator[TakeSample]:
    """Each sample counts for SECONDS."""
    with open_metrics_server(room) as port, open_scraper(room, port, size, own_process=own_process) as scraper:
        yield lambda: scraper.count(SECONDS)


def scrape_probe(size: int, *, own_process: bool) -> Probe:
    return Probe(probe_name(size, own_process=own_process), partial(open_scrape, size, own_process=own_process))


def _timed(pages: Iterable[_Text], work: Callable[[_Text], object]) -> Sample:
    times = []
    for page in pages:
        began = time.perf_counter()
        work(page)
        times.append(time.perf_counter() - began)
    return percentiles(times)


def pages_of(page: bytes) -> Iterator[PageText]:
    """Pages of one endpoint without end, each with numbers that none before it had: nothing is remembered of its lines."""
    return (PageText.of(page.replace(MARK, b"%010d" % number)) for number in count(1))


@contextmanager
def open_read(room: Room, *, remembers: bool) -> Iterator[TakeSample]:
    """Pages as the scraper reads them."""
    pages = pages_of(page_of(room))
    reader, memory = MetricsReader(EngineSet()), EndpointMemory()

    def read(page: PageText) -> object:
        return reader.read(page, {}, memory=memory if remembers else None)

    yield lambda: _timed(islice(pages, READS), read)


@contextmanager
def open_parse(room: Room) -> Iterator[TakeSample]:
    """The whole page by prometheus-client."""
    page = page_of(room).decode()
    yield lambda: _timed(repeat(page, PARSES), lambda text: sum(1 for _ in text_string_to_metric_families(text)))


PROBES = (
    *(scrape_probe(size, own_process=False) for size in SIZES),
    *(scrape_probe(size, own_process=True) for size in (GOAL_SIZE, SIZES[-1])),
    Probe(READ, partial(open_read, remembers=True)),
    Probe(READ_WHOLE, partial(open_read, remembers=False)),
    Probe(PARSE, open_parse),
)

_LOOP, _PROCESS = probe_name(GOAL_SIZE, own_process=False), probe_name(GOAL_SIZE, own_process=True)
_LOOP_MOST, _PROCESS_MOST = (probe_name(SIZES[-1], own_process=own) for own in (False, True))
_CORE: Final = Goal(Bound.AT_MOST, 1.0)
NOTE: Final = (
    f"{GOAL_SIZE} endpoints, each with a connection of its own to one C server on the load CPU, a vLLM page of {LINES} "
    "lines (129 kB) whose counters and running requests change with every answer, interval 50 ms; scraping, store and "
    "publication every 20 ms alone in a process; CPU seconds a second, those of the kernel's TCP included"
)
CURVE_NOTE: Final = NOTE.replace(f"{GOAL_SIZE} endpoints", f"{SIZES[-1]} endpoints") + "; under pressure it is widened"

FIGURES = (
    Figure("G18", "cores of 100 endpoints", f"{_LOOP}:all_cores", goal=_CORE, note=NOTE),
    Figure("G18rate", "their pages a second", f"{_LOOP}:scrapes_per_s", note=NOTE),
    Figure("G18us", "CPU of a page", f"{_LOOP}:cpu_us", note=NOTE),
    Figure("M14", "loop lag p99 beside them", f"{_LOOP}:lag_p99_ms", goal=Goal(Bound.AT_MOST, 20), note=NOTE),
    Figure("G18own", "cores, own process", f"{_PROCESS}:all_cores", goal=_CORE, note=NOTE),
    Figure("G18host", "the loop's part of them", f"{_PROCESS}:host_cores", f"{_LOOP}:all_cores",
           goal=Goal(Bound.AT_MOST, 0.5), note=NOTE),
    Figure("G18most", "cores of 1,000 endpoints", f"{_LOOP_MOST}:all_cores", goal=_CORE, note=CURVE_NOTE),
    Figure("G18int", "interval of 1,000", f"{_LOOP_MOST}:interval_ms", note=CURVE_NOTE),
    Figure("G18int2", "in an own process", f"{_PROCESS_MOST}:interval_ms", note=CURVE_NOTE),
    Figure("P1", "reading a page", f"{READ}:p50_us", f"{PARSE}:p50_us",
           note="numbers of one endpoint's load from page after page of 1,500 lines, none like another, against all families parsed by prometheus-client"),
    Figure("P2", "reading it unremembered", f"{READ_WHOLE}:p50_us", f"{PARSE}:p50_us",
           note="the whole page is searched, as in every twentieth page and for a page that breaks the format's rules"),
)  # fmt: skip

CHARTS = (
    Chart(
        "scraping-cost", "Cost of scraping every 50 ms", "endpoints", "cores",
        {"in the host's loop": [(size, f"{probe_name(size, own_process=False)}:all_cores") for size in SIZES]},
    ),
    Chart(
        "scraping-interval", "Interval that the loop has time for", "endpoints", "ms",
        {"in the host's loop": [(size, f"{probe_name(size, own_process=False)}:interval_ms") for size in SIZES]},
    ),
)  # fmt: skip
