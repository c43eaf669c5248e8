"""Starts and stops collectors as endpoints come and go, and tells endpoint sources of it, whether anything is polled or not.

Order: an endpoint's coming is told after its collector has started, its going before the collector stops, and nothing of the
collector is written from the moment it goes. Events are told one at a time, in the order of the store, one for each change; but when many wait for a source
that is slow, those are passed over and counted that a newer one of their endpoint follows, and endpoints that went before
anybody heard of them. An endpoint whose address changed has a collector of its own from then on, so that no answer of the old address is taken for one
of the new.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.datalayer.source import (
    STEP_TIMEOUT_S,
    AttributesOf,
    Counts,
    EndpointNews,
    EndpointSource,
    EventExtractor,
    EventType,
    step_timeout_s,
)
from hotbay.datalayer.sources.extracting import Guard
from hotbay.datalayer.sources.polling import SourceCollectors
from hotbay.datalayer.store import EndpointStore

__all__ = ["MOST_WAITING", "EndpointNotificationSource", "Lifecycle", "WatchedSource"]

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 4096
"""Events that wait in full; of more, the newest of each endpoint waits."""


class EndpointNotificationSource:
    """`endpoint-notification-source`: passes every event on as it is."""

    type = "endpoint-notification-source"

    def __init__(self, name: str) -> None:
        self.name = name

    async def notify_endpoint(self, event: EndpointNews) -> EndpointNews | None:
        return event


@dataclass(frozen=True, slots=True)
class WatchedSource:
    """A source with its extractors, in the order in which they run."""

    source: EndpointSource
    extractors: tuple[EventExtractor, ...] = ()


@dataclass(slots=True, eq=False)
class _Step:
    """One event: `kept` once its collector is as it should be, `told` once every source knows."""

    event: EndpointEvent
    kept: anyio.Event = field(default_factory=anyio.Event)
    told: anyio.Event = field(default_factory=anyio.Event)


class Lifecycle:
    """See the module. `run` once at a time.

    Args:
        store: whose endpoints are meant.
        collectors: see there.
        watched: endpoint sources with their extractors.
        now: monotonic seconds, of the store's times.
        counts: where events and failures are counted.
        step_s: time of a source's say on one event, and of one extractor.
        most_waiting: see MOST_WAITING.
    """

    def __init__(
        self,
        store: EndpointStore,
        collectors: SourceCollectors,
        watched: Sequence[WatchedSource],
        *,
        now: Callable[[], float],
        counts: Counts,
        step_s: float = STEP_TIMEOUT_S,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._store = store
        self._collectors = collectors
        self._most_waiting = self._thin_above = most_waiting
        self._watched: list[tuple[WatchedSource, Guard]] = []
        self._joining: deque[tuple[WatchedSource, Guard]] = deque()
        self._told: dict[str, EndpointMetadata] = {}
        self._now = now
        self._counts = counts
        self._step_s = step_s
        self._waiting: deque[_Step] = deque()
        self._news = anyio.Event()
        self._last: dict[str, _Step] = {}
        self._collected: dict[str, EndpointMetadata] = {}
        for one in watched:
            self.watch(one)

    def watch(self, watched: WatchedSource) -> None:
        """Tell one more source, from all endpoints on that the others have been told of."""
        self._joining.append((watched, Guard(watched.source.name, counts=self._counts, step_s=self._step_s)))
        self._news.set()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Go on until cancelled; started when every present endpoint has its collector."""
        self._waiting.clear()
        self._last.clear()
        self._collected.clear()
        self._told.clear()
        async with anyio.create_task_group() as group:

            def follow(event: EndpointEvent) -> None:
                self._follow(group, event)

            unsubscribe = self._store.subscribe(follow)
            try:
                for endpoint in self._store.endpoints():
                    self._follow(group, Upsert(endpoint))
                present = tuple(self._waiting)
                group.start_soon(self._tell_for_ever)
                for step in present:
                    await step.kept.wait()
                task_status.started()
                await anyio.sleep_forever()
            finally:
                unsubscribe()
                for endpoint_id in tuple(self._collected):
                    self._collectors.retire(endpoint_id)

    def _follow(self, group: TaskGroup, event: EndpointEvent) -> None:
        endpoint = event.endpoint
        known = self._collected.pop(endpoint.id, None)
        moved = known is not None and known.reached_at != endpoint.reached_at
        if moved or not isinstance(event, Upsert):
            self._collectors.retire(endpoint.id)
        if isinstance(event, Upsert):
            self._collected[endpoint.id] = endpoint
        step, before = _Step(event), self._last.get(endpoint.id)
        self._last[endpoint.id] = step
        self._waiting.append(step)
        if len(self._waiting) > self._thin_above:
            self._thin()
        self._news.set()
        group.start_soon(partial(self._keep, group, step, before, anew=known is None or moved))

    def _thin(self) -> None:
        """Pass over what need not be told any more: see the module."""
        newest = {step.event.endpoint.id: step for step in self._waiting}
        kept: deque[_Step] = deque()
        for step in self._waiting:
            endpoint_id = step.event.endpoint.id
            is_unheard_of = isinstance(step.event, Delete) and endpoint_id not in self._told
            if newest[endpoint_id] is step and not is_unheard_of:
                kept.append(step)
                continue
            step.told.set()
            for watched, _ in self._watched:
                self._counts.event(watched.source.name, "superseded")
        self._waiting = kept
        # Whatever is kept has to be: looking through it at every event would make many of them dear.
        self._thin_above = max(self._most_waiting, 2 * len(kept))

    async def _keep(self, group: TaskGroup, step: _Step, before: _Step | None, *, anew: bool) -> None:
        """Have the collector as the event wants it, after the endpoint's event before."""
        endpoint = step.event.endpoint
        if before is not None:
            await before.kept.wait()
        if isinstance(step.event, Upsert):
            if anew:
                await self._collectors.stop(endpoint.id)
                self._collectors.start(group, endpoint)
            else:
                self._collectors.update(endpoint)
        else:
            await step.told.wait()
            await self._collectors.stop(endpoint.id)
        step.kept.set()
        if self._last.get(endpoint.id) is step:
            del self._last[endpoint.id]

    async def _tell_for_ever(self) -> None:
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            while self._waiting or self._joining:
                while self._joining:
                    await self._join(*self._joining[0])
                    self._watched.append(self._joining.popleft())
                if self._waiting:
                    await self._tell_all(self._waiting.popleft())

    async def _join(self, watched: WatchedSource, guard: Guard) -> None:
        for endpoint in tuple(self._told.values()):
            await self._tell(watched, guard, EndpointNews(EventType.ADD_OR_UPDATE, endpoint))

    async def _tell_all(self, step: _Step) -> None:
        endpoint = step.event.endpoint
        if isinstance(step.event, Upsert):
            # Before anything is awaited: from here on its going has to be told, too.
            self._told[endpoint.id] = endpoint
            await step.kept.wait()
            news = EndpointNews(EventType.ADD_OR_UPDATE, endpoint)
        else:
            news = EndpointNews(EventType.DELETE, endpoint)
            self._told.pop(endpoint.id, None)
        for watched, guard in self._watched:
            await self._tell(watched, guard, news)
        step.told.set()

    async def _tell(self, watched: WatchedSource, guard: Guard, news: EndpointNews) -> None:
        source = watched.source
        try:
            with anyio.fail_after(step_timeout_s(source, self._step_s)):
                seen = await source.notify_endpoint(news)
        except Exception:
            # The boundary around what sources say to an event: one that fails loses this event, and no other.
            self._counts.event(source.name, "failed")
            logger.exception("notify_failed source=%s event=%s endpoint=%s", source.name, news.type, news.endpoint.id)
            return
        self._counts.event(source.name, "dropped" if seen is None else "delivered")
        if seen is None:
            return
        for extractor in watched.extractors:
            await guard.run(extractor, partial(extractor.extract_event, seen), self._write)

    def _write(self, found: AttributesOf) -> None:
        for endpoint_id, values in found.items():
            self._store.put_attributes(endpoint_id, values, self._now())
