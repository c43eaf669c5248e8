"""Asks every endpoint for its metrics at its time: one task per endpoint, so that a slow one delays no other.

Tasks of endpoints that come together start in slices, with a turn of the loop after each. An endpoint is asked soon after it
appeared and then on a grid of its own; points that pass while it is slow to answer
are left out, so that at most one question to it is under way. When all of them take more time than the loop has, the
intervals grow, and shrink again afterwards, and those of endpoints whose pages are dear to read before all others. One that
fails again and again is asked less often until it answers, and then as before: see `schedule`. Whatever a question ends with
goes to the sink, in the order in which it happened; after an endpoint was removed, or `run` was cancelled, nothing of it does.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hotbay.datalayer.endpoint import EndpointEvent, EndpointMetadata, Upsert
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.schedule import (
    CALM,
    LATE_S,
    POLL_S,
    WINDOW_S,
    failing_factor,
    measured,
    most_factor,
    next_due,
    own_factor,
    start_delay_s,
    step,
)
from hotbay.datalayer.source import SourceError
from hotbay.observe.background import Background

__all__ = ["MOST_STARTED", "Endpoints", "ScrapeCollectors", "Sink"]

logger = logging.getLogger(__name__)

MOST_STARTED: Final = 50
"""Collectors that start in one turn of the loop: some ms, however many endpoints come at once."""


class Endpoints(Protocol):
    """Whom to ask: the store, or what stands for it in another process."""

    def endpoints(self) -> tuple[EndpointMetadata, ...]: ...

    def subscribe(self, listener: Callable[[EndpointEvent], None]) -> Callable[[], None]: ...


class Sink(Protocol):
    """Where answers go. Called from the loop's thread; must not wait."""

    def arrived(self, endpoint: EndpointMetadata, page: MetricsPage) -> None: ...

    def failed(self, endpoint: EndpointMetadata, reason: str, message: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Collector:
    """One endpoint's task."""

    endpoint: EndpointMetadata
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    retired: bool = False
    own_factor: float = 1.0
    failures: int = 0


class ScrapeCollectors:
    """Polls the source for every endpoint while `run` runs. `factor` and `polls` may be read at any time.

    Args:
        endpoints: who is asked, followed while it changes.
        source: what asks. Closed in the end.
        sink: where answers go.
        background: what a task raises that nobody foresaw stays with its endpoint.
        cpu_s: seconds that this thread has run so far.
        widened: told the factor at each change of it.
        start_delay: see `start_delay_s`, by which endpoints that come together are not asked together.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        source: MetricsPoller,
        sink: Sink,
        *,
        background: Background,
        cpu_s: Callable[[], float] = time.thread_time,
        widened: Callable[[float], None] = lambda _: None,
        start_delay: Callable[[str, float, int], float] = start_delay_s,
    ) -> None:
        self.polls = 0
        self._endpoints = endpoints
        self._source = source
        self._sink = sink
        self._background = background
        self._cpu_s = cpu_s
        self._widened = widened
        self._start_delay = start_delay
        self._pressure = CALM
        self._wakings = self._late_wakings = 0
        self._polled_s = 0.0
        self._collectors: dict[str, _Collector] = {}
        self._to_start: dict[str, EndpointMetadata] = {}
        self._came = asyncio.Event()

    @property
    def factor(self) -> float:
        """What intervals are multiplied by now; 1 without pressure."""
        return self._pressure.factor

    @property
    def running(self) -> int:
        """How many endpoints have their collector."""
        return len(self._collectors)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Poll until cancelled; started when every present endpoint has its collector. Run it once at a time."""
        async with anyio.create_task_group() as tasks:
            unsubscribe = self._endpoints.subscribe(self._follow)
            try:
                for endpoint in self._endpoints.endpoints():
                    self._to_start[endpoint.id] = endpoint
                await self._start_slices(tasks)
                tasks.start_soon(self._keep_starting, tasks, name="scrape starts")
                task_status.started()
                await self._watch_load()
            finally:
                unsubscribe()
                self._to_start.clear()
                for endpoint_id in tuple(self._collectors):
                    self._retire(endpoint_id)
                self._source.close()

    def _follow(self, event: EndpointEvent) -> None:
        if isinstance(event, Upsert):
            current = self._collectors.get(event.endpoint.id)
            same = current is not None and (
                self._source.authority(current.endpoint) == self._source.authority(event.endpoint)
            )
            if current is not None and same:
                current.endpoint = event.endpoint
            else:
                self._retire(event.endpoint.id)
                self._to_start[event.endpoint.id] = event.endpoint
                self._came.set()
        else:
            self._retire(event.endpoint.id)

    async def _keep_starting(self, tasks: TaskGroup) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            await self._start_slices(tasks)

    async def _start_slices(self, tasks: TaskGroup) -> None:
        while self._to_start:
            for endpoint_id in tuple(islice(self._to_start, MOST_STARTED)):
                self._start(tasks, self._to_start.pop(endpoint_id))
            await asyncio.sleep(0)

    def _start(self, tasks: TaskGroup, endpoint: EndpointMetadata) -> None:
        collector = self._collectors[endpoint.id] = _Collector(endpoint)
        tasks.start_soon(self._keep, collector, name=f"scrape {endpoint.id}")

    def _retire(self, endpoint_id: str) -> None:
        self._to_start.pop(endpoint_id, None)
        collector = self._collectors.pop(endpoint_id, None)
        if collector is not None:
            # A cancellation reaches a task whose answer is already there one await too late.
            collector.retired = True
            collector.scope.cancel()
            self._source.forget(endpoint_id)

    async def _keep(self, collector: _Collector) -> None:
        with collector.scope:
            await self._background.keep("scrape", partial(self._collect, collector))

    async def _collect(self, collector: _Collector) -> None:
        interval_s = self._source.interval_s
        delay_s = self._start_delay(collector.endpoint.id, interval_s, len(self._collectors) + len(self._to_start))
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_s
        while True:
            # Not anyio's: its look for the kind of loop is a tenth of a whole poll.
            await asyncio.sleep(max(0.0, due - loop.time()))
            self._wakings += 1
            self._late_wakings += loop.time() - due >= LATE_S
            await self._poll(collector)
            due = next_due(due, interval_s * self._factor_of(collector), loop.time())

    def _factor_of(self, collector: _Collector) -> float:
        interval_s, endpoint_id = self._source.interval_s, collector.endpoint.id
        most, cost_s, before = most_factor(interval_s), self._source.cost_s(endpoint_id), collector.own_factor
        now = collector.own_factor = own_factor(before, cost_s, interval_s, most)
        if before == 1.0 < now:
            logger.warning(
                "scrape_endpoint_widened endpoint=%s interval_s=%.3g: what it answers takes %.3g ms to read",
                endpoint_id, interval_s * now, cost_s * 1e3,
            )  # fmt: skip
        elif now == 1.0 < before:
            logger.info("scrape_endpoint_restored endpoint=%s interval_s=%g", endpoint_id, interval_s)
        failing = failing_factor(endpoint_id, collector.failures, interval_s)
        return min(most, self._pressure.factor * max(now, failing))

    async def _poll(self, collector: _Collector) -> None:
        try:
            page = await self._source.poll(collector.endpoint)
        except SourceError as error:
            collector.failures += 1
            if not collector.retired:
                self._sink.failed(collector.endpoint, error.reason, str(error))
        else:
            collector.failures = 0
            if not collector.retired:
                self._sink.arrived(collector.endpoint, page)
        finally:
            self.polls += 1
            self._polled_s += POLL_S + self._source.cost_s(collector.endpoint.id)

    async def _watch_load(self) -> None:
        most = most_factor(self._source.interval_s)
        while True:
            self._wakings, self._late_wakings, self._polled_s = 0, 0, 0.0
            began, ran_s = anyio.current_time(), self._cpu_s()
            await anyio.sleep(WINDOW_S)
            took_s, ran_s = anyio.current_time() - began, self._cpu_s() - ran_s
            load = measured(took_s, ran_s, self._wakings, self._late_wakings, self._polled_s)
            if load is None:
                continue
            before, self._pressure = self._pressure.factor, step(self._pressure, load, most)
            if self._pressure.factor != before:
                self._widened(self._pressure.factor)
