"""Keeps the store's metrics fresh from a process of its own, so that the host's loop pays only for what changed.

Pages are fetched and read there; here, batches of outcomes become what a scraper in the host would have made of them,
with the same times, and of one endpoint in the same order. Outcomes that the host was too busy to hear of before newer ones
are counted only. A process that ended, or says nothing any more, is replaced, later each time;
until then values stay and age. The process is told of every endpoint that comes, changes and goes; what it still says
of one as it was before counts for nothing. When `run` ends, the process is gone.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskStatus

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.in_loop import ScrapeStore, bounded_interval_s
from hotbay.datalayer.scraping.link import HelperProcess, ScrapeLink
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.records import ScrapeCounts, ScrapeRecords, log_widened
from hotbay.datalayer.scraping.wire import (
    Arrived,
    Batch,
    EndpointGone,
    EndpointSaid,
    Order,
    Outcome,
    SamplesWanted,
    ScrapeSettings,
)

__all__ = ["WORKER_MODULE", "ScrapeProcess"]

logger = logging.getLogger(__name__)

WORKER_MODULE: Final = "hotbay.datalayer.scraping.worker"

FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0
"""A process that ran so long before it ended is replaced after the first pause."""
SILENT_S: Final = 10.0
"""Ten times the heartbeat: a process that says nothing for so long hangs."""
GRACE_S: Final = 2.0


@dataclass(slots=True)
class _Known:
    """An endpoint as the process was told of it, and what it last said."""

    endpoint: EndpointMetadata
    number: int
    page: MetricsPage | None = None


class ScrapeProcess:
    """`Scraping` in a process of its own.

    Args:
        store: whose endpoints are scraped, and who is told.
        source: what is to be fetched, and how; it is asked for nothing here.
        start: starts a process of WORKER_MODULE; raises OSError.
        clock: monotonic seconds of this machine, as the process has them.
        on_page: told each page after it was stored, for other extractors; must not wait.
        widened: told the factor at each change of it.
        first_pause_s: before a process that ended is replaced, for the first time.
        silent_s: a process that says nothing for so long is replaced.
    """

    def __init__(
        self,
        store: ScrapeStore,
        source: MetricsPoller,
        *,
        start: Callable[[str], HelperProcess],
        clock: Callable[[], float] = time.monotonic,
        on_page: Callable[[EndpointMetadata, MetricsPage], None] = lambda _endpoint, _page: None,
        widened: Callable[[float], None] = lambda _factor: None,
        first_pause_s: float = FIRST_PAUSE_S,
        silent_s: float = SILENT_S,
    ) -> None:
        source.interval_s = bounded_interval_s(source.interval_s)
        self.starts = 0
        self.pid: int | None = None
        self.factor = 1.0
        self._store = store
        self._source = source
        self._start = start
        self._clock = clock
        self._widened = widened
        self._first_pause_s = first_pause_s
        self._silent_s = silent_s
        self._records = ScrapeRecords(store, source.engines, source.authority, clock=clock, on_page=on_page)
        self._known: dict[str, _Known] = {}
        self._number = 0
        self._link: ScrapeLink | None = None
        self._connects_before = 0

    @property
    def counts(self) -> ScrapeCounts:
        return self._records.counts

    @property
    def interval_s(self) -> float:
        return self._source.interval_s

    def want(self, names: Iterable[str]) -> None:
        """Have these sample names read besides, by the process that runs and by its successors."""
        known = self._source.wanted
        self._source.want(names)
        if self._source.wanted != known:
            self._say(SamplesWanted(self._source.wanted))

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a process running until cancelled; started when there was a first one, or none could be started."""
        unsubscribe = self._store.subscribe(self._follow)
        pause_s = self._first_pause_s
        try:
            for endpoint in self._store.endpoints():
                self._learn(endpoint)
            while True:
                began_s = self._clock()
                await self._run_one(task_status)
                task_status = anyio.TASK_STATUS_IGNORED
                if self._clock() - began_s >= STEADY_S:
                    pause_s = self._first_pause_s
                await anyio.sleep(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
        finally:
            unsubscribe()
            self._known.clear()

    async def _run_one(self, task_status: TaskStatus[None]) -> None:
        """Run one process to its end."""
        try:
            process = self._start(WORKER_MODULE)
        except OSError as error:
            logger.warning("scraper_not_started: %s; it is tried again", error)
            task_status.started()
            return
        self.starts += 1
        self.pid = process.pid
        link = self._link = ScrapeLink(process, self._take)
        grace_s = GRACE_S
        try:
            link.open()
            link.send(self._settings())
            for known in self._known.values():
                known.page = None
                link.send(EndpointSaid(known.number, known.endpoint))
            task_status.started()
            told = await link.ended(self._silent_s)
            if told is None:
                grace_s, told = 0.0, f"it said nothing for {self._silent_s:g} s"
        finally:
            self._link = self.pid = None
            self._connects_before = self.counts.connects
            link.close()
            how = await process.close(grace_s)
        logger.warning("scraper_ended pid=%s by=%s: %s; values age until the next one", process.pid, how, told)
        self._records.counts.errors["scraper_ended"] += 1

    def _settings(self) -> ScrapeSettings:
        source = self._source
        return ScrapeSettings(
            source.path,
            source.port,
            source.interval_s,
            source.budget_s,
            source.tls_files,
            source.engines.parameters,
            source.wanted,
            source.at_node,
        )

    def _follow(self, event: EndpointEvent) -> None:
        endpoint = event.endpoint
        if isinstance(event, Delete):
            self._known.pop(endpoint.id, None)
            self._records.forget(endpoint.id)
            self._say(EndpointGone(endpoint.id))
        else:
            self._say(EndpointSaid(self._learn(endpoint).number, endpoint))

    def _learn(self, endpoint: EndpointMetadata) -> _Known:
        self._number += 1
        known = self._known[endpoint.id] = _Known(endpoint, self._number)
        return known

    def _say(self, order: Order) -> None:
        if self._link is not None:
            self._link.send(order)

    def _take(self, batch: Batch) -> None:
        for level, text in batch.logs:
            logger.log(level, "scraper: %s", text)
        self._records.counts.connects = self._connects_before + batch.connects
        for outcome in batch.outcomes:
            self._take_outcome(outcome)
        for reason, count in batch.superseded.items():
            self._records.superseded(reason, count)
        if batch.factor != self.factor:
            self.factor = batch.factor
            log_widened(self.interval_s, batch.factor)
            self._widened(batch.factor)

    def _take_outcome(self, outcome: Outcome) -> None:
        known = self._known.get(outcome.endpoint_id)
        if known is None or known.number != outcome.number:
            return
        if not isinstance(outcome, Arrived):
            self._records.failed(known.endpoint, outcome.reason, outcome.message)
            return
        if outcome.page is not None:
            known.page = outcome.page
        if known.page is not None:
            self._records.arrived(known.endpoint, known.page, outcome.at)
