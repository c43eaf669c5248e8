"""Starts and stops collectors as endpoints come and go, and tells endpoint sources of it, whether anything is polled or not.

Order: an endpoint's coming is told after its collector has started; its going is handed to everybody before the collector stops,
which waits for none of them, and nothing of the collector is written from the moment it goes. Events are handed over one at a
time, in the order of the store, one for each change; each source, and each extractor behind it, hears them from a queue of
its own (see `hearing`), so that neither a collector nor another plugin waits for one that is slow. What an extractor says of an
endpoint that went meanwhile, and maybe came again, is not written. An endpoint whose address changed has a collector of its own
from then on, so that no answer of the old address is taken for one of the new.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hotbay.datalayer.endpoint import EndpointEvent, EndpointMetadata, Upsert
from hotbay.datalayer.source import (
    STEP_TIMEOUT_S,
    AttributesOf,
    Counts,
    EndpointNews,
    EndpointSource,
    EventExtractor,
    EventType,
)
from hotbay.datalayer.sources.all_collectors import AllCollectors
from hotbay.datalayer.sources.hearing import Audience, Hearing
from hotbay.datalayer.sources.polling import SourceCollectors
from hotbay.datalayer.sources.waiting import MOST_WAITING
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import Problem

__all__ = ["EndpointNotificationSource", "Lifecycle", "WatchedSource"]


class EndpointNotificationSource:
    """`endpoint-notification-source`: passes every event on as it is."""

    type = "endpoint-notification-source"

    def __init__(self, name: str) -> None:
        self.name = name

    async def notify_endpoint(self, event: EndpointNews) -> EndpointNews | None:
        return event


@dataclass(frozen=True, slots=True)
class WatchedSource:
    """A source with its extractors, in the order in which they are asked."""

    source: EndpointSource
    extractors: tuple[EventExtractor, ...] = ()


@dataclass(slots=True, eq=False)
class _Step:
    """One event: `kept` once its collector is as it should be, `told` once everybody has it. `life` is the endpoint's."""

    event: EndpointEvent
    life: int
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
        most_waiting: see `waiting.MOST_WAITING`.
    """

    def __init__(
        self,
        store: EndpointStore,
        collectors: SourceCollectors | AllCollectors,
        watched: Sequence[WatchedSource],
        *,
        now: Callable[[], float],
        counts: Counts,
        step_s: float = STEP_TIMEOUT_S,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._store = store
        self._collectors = collectors
        self._now = now
        self._counts = counts
        self._step_s = step_s
        self._most_waiting = most_waiting
        self._audiences: dict[str, Audience[EndpointNews]] = {}
        self._group: TaskGroup | None = None
        self._told: dict[str, tuple[EndpointMetadata, int]] = {}
        self._waiting: deque[_Step] = deque()
        self._news = anyio.Event()
        self._last: dict[str, _Step] = {}
        self._collected: dict[str, EndpointMetadata] = {}
        self._numbers = count(1)
        self._lives: dict[str, int] = {}
        for one in watched:
            self.watch(one)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Which plugins are late, and what they made nothing of."""
        return tuple(problem for audience in self._audiences.values() for problem in audience.problems)

    def watch(self, watched: WatchedSource) -> None:
        """Tell one more source, beginning with all endpoints that the others have been told of."""
        source = watched.source
        audience = self._audiences[source.name] = Audience(
            source,
            source.notify_endpoint,
            watched.extractors,
            self._write,
            counts=self._counts,
            step_s=self._step_s,
            most_waiting=self._most_waiting,
            now=self._now,
        )
        if self._group is not None:
            for endpoint, life in self._told.values():
                audience.put(EndpointNews(EventType.ADD_OR_UPDATE, endpoint), life)
            self._group.start_soon(audience.run)

    def rebind(self, name: str, extractors: Sequence[EventExtractor]) -> None:
        """Let these hear what the source says; with a new one, all hear again of every endpoint. Raises as `unwatch`."""
        audience = self._audiences[name]
        if audience.rebind(extractors) and self._group is not None:
            for endpoint, life in self._told.values():
                audience.put(EndpointNews(EventType.ADD_OR_UPDATE, endpoint), life)

    def unwatch(self, name: str) -> None:
        """Tell this source, and the extractors behind it, nothing more. Raises KeyError for one that is not watched."""
        self._audiences.pop(name).close()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Go on until cancelled; started when every present endpoint has its collector."""
        self._forget()
        async with anyio.create_task_group() as group:

            def follow(event: EndpointEvent) -> None:
                self._follow(group, event)

            unsubscribe = self._store.subscribe(follow)
            self._group = group
            try:
                for audience in self._audiences.values():
                    group.start_soon(audience.run)
                for endpoint in self._store.endpoints():
                    self._follow(group, Upsert(endpoint))
                present = tuple(self._waiting)
                group.start_soon(self._tell_for_ever)
                for step in present:
                    await step.kept.wait()
                task_status.started()
                await anyio.sleep_forever()
            finally:
                self._group = None
                unsubscribe()
                for endpoint_id in tuple(self._collected):
                    self._collectors.retire(endpoint_id)

    def _forget(self) -> None:
        """Begin as if there had been nothing: of what is there, everybody is told again."""
        for known in (self._waiting, self._last, self._collected, self._told, self._lives):
            known.clear()
        for audience in self._audiences.values():
            audience.clear()

    def _follow(self, group: TaskGroup, event: EndpointEvent) -> None:
        endpoint = event.endpoint
        known = self._collected.pop(endpoint.id, None)
        moved = known is not None and known.reached_at != endpoint.reached_at
        anew = known is None or moved
        if moved or not isinstance(event, Upsert):
            self._collectors.retire(endpoint.id)
            self._lives.pop(endpoint.id, None)
        if isinstance(event, Upsert):
            self._collected[endpoint.id] = endpoint
            if anew:
                self._lives[endpoint.id] = next(self._numbers)
        step, before = _Step(event, self._lives.get(endpoint.id, 0)), self._last.get(endpoint.id)
        self._last[endpoint.id] = step
        self._waiting.append(step)
        self._news.set()
        group.start_soon(partial(self._keep, group, step, before, anew=anew))

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
            while self._waiting:
                step = self._waiting.popleft()
                if isinstance(step.event, Upsert):
                    await step.kept.wait()
                self._tell(step)
            self._news = anyio.Event()
            await self._news.wait()

    def _tell(self, step: _Step) -> None:
        endpoint = step.event.endpoint
        if isinstance(step.event, Upsert):
            self._told[endpoint.id] = endpoint, step.life
            news = EndpointNews(EventType.ADD_OR_UPDATE, endpoint)
        else:
            self._told.pop(endpoint.id, None)
            news = EndpointNews(EventType.DELETE, endpoint)
        for audience in self._audiences.values():
            audience.put(news, step.life)
        step.told.set()

    def _write(self, _by: EventExtractor, hearing: Hearing[EndpointNews], found: AttributesOf) -> None:
        told = hearing.event.endpoint.id
        for endpoint_id, values in found.items():
            if endpoint_id != told or self._lives.get(told, 0) == hearing.life:
                self._store.put_attributes(endpoint_id, values, self._now())
