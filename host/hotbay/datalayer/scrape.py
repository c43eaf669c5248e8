"""Keeps the store's metrics fresh: one collector per endpoint, each over a connection of its own.

A collector scrapes at once and then on a fixed grid of intervals; grid points that pass while it waits for a slow
server are skipped, so at most one scrape of an endpoint is under way and none delays another's. A failed scrape is
counted, its values stay and age, and the collector goes on. When an endpoint is removed or `run` is cancelled, no
write of its collector happens afterwards.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hotbay.datalayer.endpoint import EndpointEvent, EndpointMetadata, Upsert, format_authority, split_authority
from hotbay.datalayer.engines import named_metric
from hotbay.datalayer.exposition import ExpositionError
from hotbay.datalayer.extraction import Extraction, extract
from hotbay.datalayer.metrics_client import MetricsClient, MetricsFetchError
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background

__all__ = ["MIN_INTERVAL_S", "SCRAPE_BUDGET_S", "ScrapeCounts", "Scraper"]

logger = logging.getLogger(__name__)

MIN_INTERVAL_S: Final = 0.05
"""Parsing costs the loop; nothing here is worth knowing more often."""

SCRAPE_BUDGET_S: Final = 1.0
_LOG_INTERVAL_S: Final = 10.0
"""An endpoint that fails at the rate of scraping still writes few lines: six a minute and one for its end."""


@dataclass(slots=True)
class ScrapeCounts:
    """Totals over all endpoints; `errors` by reason."""

    scrapes: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    bad_lines: int = 0
    duplicates: int = 0
    connects: int = 0


@dataclass(slots=True, eq=False)
class _Collector:
    """One endpoint's task and what it has already told the log."""

    endpoint: EndpointMetadata
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    retired: bool = False
    failing: bool = False
    reported: frozenset[str] = frozenset()
    logged_at: float = float("-inf")


class Scraper:
    """Scrapes every endpoint of a store while `run` runs. `counts` may be read at any time.

    Args:
        store: whose endpoints are scraped, and who is told.
        interval_s: from one scrape of an endpoint to the next; not below MIN_INTERVAL_S.
        path: of the page, printable ASCII.
        port: of the page, instead of the endpoint's own.
        budget_s: time for a whole answer.
        clock: monotonic seconds.
        background: what a scrape raises that nobody foresaw stays with its endpoint.
    """

    def __init__(
        self,
        store: EndpointStore,
        *,
        interval_s: float = MIN_INTERVAL_S,
        path: str = "/metrics",
        port: int | None = None,
        budget_s: float = SCRAPE_BUDGET_S,
        clock: Callable[[], float] = time.monotonic,
        background: Background | None = None,
    ) -> None:
        if interval_s < MIN_INTERVAL_S:
            logger.warning("scrape_interval_raised asked_s=%g used_s=%g", interval_s, MIN_INTERVAL_S)
        self.interval_s = max(interval_s, MIN_INTERVAL_S)
        self.counts = ScrapeCounts()
        self._store = store
        self._path = path
        self._port = port
        self._budget_s = budget_s
        self._clock = clock
        self._background = background or Background()
        self._collectors: dict[str, _Collector] = {}

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Scrape until cancelled; started when every present endpoint has its collector. Run it once at a time."""
        async with anyio.create_task_group() as tasks:

            def follow(event: EndpointEvent) -> None:
                self._follow(tasks, event)

            unsubscribe = self._store.subscribe(follow)
            try:
                for endpoint in self._store.endpoints():
                    self._start(tasks, endpoint)
                task_status.started()
                await anyio.sleep_forever()
            finally:
                unsubscribe()
                for endpoint_id in tuple(self._collectors):
                    self._retire(endpoint_id)

    def _follow(self, tasks: TaskGroup, event: EndpointEvent) -> None:
        if isinstance(event, Upsert):
            current = self._collectors.get(event.endpoint.id)
            if current is not None and self._authority(current.endpoint) == self._authority(event.endpoint):
                current.endpoint = event.endpoint
                return
            self._start(tasks, event.endpoint)
        else:
            self._retire(event.endpoint.id)

    def _authority(self, endpoint: EndpointMetadata) -> str:
        if self._port is None or endpoint.metrics_host:
            return endpoint.metrics_authority
        return format_authority(endpoint.address, self._port)

    def _start(self, tasks: TaskGroup, endpoint: EndpointMetadata) -> None:
        self._retire(endpoint.id)
        collector = self._collectors[endpoint.id] = _Collector(endpoint)
        tasks.start_soon(self._keep, collector, name=f"scrape {endpoint.id}")

    def _retire(self, endpoint_id: str) -> None:
        collector = self._collectors.pop(endpoint_id, None)
        if collector is not None:
            # A cancellation reaches a task whose answer is already there one await too late.
            collector.retired = True
            collector.scope.cancel()

    async def _keep(self, collector: _Collector) -> None:
        with collector.scope:
            await self._background.keep("scrape", partial(self._collect, collector))

    async def _collect(self, collector: _Collector) -> None:
        authority = self._authority(collector.endpoint)
        host, port = split_authority(authority)
        client = MetricsClient(host, port, authority=authority, path=self._path)
        try:
            due = anyio.current_time()
            while True:
                await self._scrape(collector, client)
                due = _next_due(due, self.interval_s, anyio.current_time())
                await anyio.sleep_until(due)
        finally:
            client.close()

    async def _scrape(self, collector: _Collector, client: MetricsClient) -> None:
        connects = client.connects
        endpoint_id = collector.endpoint.id
        try:
            body = await client.fetch(self._budget_s)
            extraction = extract(body, collector.endpoint.labels)
        except MetricsFetchError as error:
            self._failed(collector, error.reason, str(error))
        except ExpositionError as error:
            self._failed(collector, "not_metrics", str(error))
        else:
            if not collector.retired:
                self._store.update_metrics(endpoint_id, extraction.metrics, self._clock())
                self._report(collector, extraction)
            self.counts.bad_lines += extraction.bad_lines
            self.counts.duplicates += extraction.duplicates
        finally:
            self.counts.scrapes += 1
            self.counts.connects += client.connects - connects

    def _failed(self, collector: _Collector, reason: str, message: str) -> None:
        self.counts.errors[reason] += 1
        if collector.retired:
            return
        self._store.record_scrape_failure(collector.endpoint.id, message)
        if self._may_log(collector):
            where = self._authority(collector.endpoint)
            logger.warning(
                "scrape_failed endpoint=%s from=%s reason=%s: %s", collector.endpoint.id, where, reason, message
            )
        collector.failing = True

    def _report(self, collector: _Collector, extraction: Extraction) -> None:
        if collector.failing and self._may_log(collector):
            logger.info("scrape_recovered endpoint=%s", collector.endpoint.id)
        collector.failing = False
        engine = extraction.metrics.engine
        wrong = frozenset(f"missing {named_metric(engine, name)}" for name in extraction.missing)
        wrong |= frozenset(f"invalid {named_metric(engine, name)}" for name in extraction.invalid)
        if not wrong <= collector.reported:
            logger.warning(
                "scrape_incomplete endpoint=%s engine=%s: %s",
                collector.endpoint.id,
                engine,
                ", ".join(sorted(wrong - collector.reported)),
            )
            collector.reported |= wrong

    def _may_log(self, collector: _Collector) -> bool:
        now = self._clock()
        if now - collector.logged_at < _LOG_INTERVAL_S:
            return False
        collector.logged_at = now
        return True


def _next_due(due: float, interval_s: float, now: float) -> float:
    """The first point of the grid that is not past."""
    missed = max(0, int((now - due) / interval_s))
    return due + (missed + 1) * interval_s
