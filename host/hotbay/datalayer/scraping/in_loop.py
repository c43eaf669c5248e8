"""Keeps the store's metrics fresh, on the loop of the host: collectors, a source of metrics, and what becomes of pages.

`ScrapeProcess` does the same in a process of its own; both are `Scraping`.
"""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import anyio
from anyio.abc import TaskStatus

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.collectors import Endpoints, ScrapeCollectors
from hotbay.datalayer.scraping.metrics_source import MIN_INTERVAL_S, MetricsPoller
from hotbay.datalayer.scraping.records import ScrapeCounts, ScrapedStore, ScrapeRecords, log_widened
from hotbay.observe.background import Background

__all__ = ["ScrapeStore", "Scraper", "Scraping", "bounded_interval_s"]

logger = logging.getLogger(__name__)


class ScrapeStore(ScrapedStore, Endpoints, Protocol):
    """The store, as far as scraping needs it."""


class Scraping(Protocol):
    """What keeps metrics fresh. `run` once at a time, until cancelled; the rest may be read at any time.

    `counts` are totals. `interval_s` is what intervals were asked to be, `factor` what they are multiplied by under
    pressure, from 1.
    """

    @property
    def counts(self) -> ScrapeCounts: ...

    @property
    def interval_s(self) -> float: ...

    @property
    def factor(self) -> float: ...

    def want(self, names: Iterable[str]) -> None:
        """Have these sample names read besides, from soon on: `MetricsPage.samples` has them."""

    async def run(self, *, task_status: TaskStatus[None] = ...) -> None: ...


class Scraper:
    """`Scraping` in this process.

    Args:
        store: whose endpoints are scraped, and who is told.
        source: asks for pages; its interval is raised to MIN_INTERVAL_S with a warning.
        clock: monotonic seconds.
        background: what a scrape raises that nobody foresaw stays with its endpoint.
        on_page: told each page after it was stored, for other extractors; must not wait.
        widened: told the factor at each change of it.
    """

    def __init__(
        self,
        store: ScrapeStore,
        source: MetricsPoller,
        *,
        clock: Callable[[], float] = time.monotonic,
        background: Background | None = None,
        on_page: Callable[[EndpointMetadata, MetricsPage], None] = lambda _endpoint, _page: None,
        widened: Callable[[float], None] = lambda _factor: None,
    ) -> None:
        source.interval_s = bounded_interval_s(source.interval_s)
        self._store = store
        self._source = source
        self._told_widened = widened
        self._records = ScrapeRecords(store, source.engines, source.authority, clock=clock, on_page=on_page)
        self._collectors = ScrapeCollectors(
            store,
            source,
            self._records,
            background=background or Background(),
            widened=self._widened,
        )

    @property
    def counts(self) -> ScrapeCounts:
        self._records.counts.connects = self._source.connects
        return self._records.counts

    @property
    def interval_s(self) -> float:
        return self._source.interval_s

    @property
    def factor(self) -> float:
        return self._collectors.factor

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Scrape until cancelled; started when every present endpoint has its collector."""
        unsubscribe = self._store.subscribe(self._follow)
        try:
            await self._collectors.run(task_status=task_status)
        finally:
            unsubscribe()

    def want(self, names: Iterable[str]) -> None:
        """Read these sample names besides, from the next pages on."""
        self._source.want(names)

    def _widened(self, factor: float) -> None:
        log_widened(self.interval_s, factor)
        self._told_widened(factor)

    def _follow(self, event: EndpointEvent) -> None:
        if isinstance(event, Delete):
            self._records.forget(event.endpoint.id)


def bounded_interval_s(interval_s: float) -> float:
    """The interval, raised to MIN_INTERVAL_S with a warning."""
    if interval_s < MIN_INTERVAL_S:
        logger.warning("scrape_interval_raised asked_s=%g used_s=%g", interval_s, MIN_INTERVAL_S)
    return max(interval_s, MIN_INTERVAL_S)
