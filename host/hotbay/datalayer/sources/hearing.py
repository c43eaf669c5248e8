"""Tells a source of events, and the extractors behind it, of events: each from a queue of its own, so that none waits for another.

Each of them hears one event at a time, in order; an extractor hears what the source made of an event, once it has. What an
extractor makes of an event is written before it hears the next one. Whoever brings events hands them over and goes on: it waits
for nobody, unless it wants to wait for `room`. What waits is kept in a short form where it has one, and is made an event again as
a plugin hears it. A plugin that is late, or not there, has its events wait as `waiting` says; that, and what it made nothing of, is
among the problems, by name.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import anyio
import anyio.abc

from hotbay.datalayer.source import (
    STEP_TIMEOUT_S,
    AttributesOf,
    Counts,
    DataSource,
    EndpointNews,
    Event,
    EventExtractor,
    step_timeout_s,
)
from hotbay.datalayer.sources.extracting import Guard
from hotbay.datalayer.sources.hearer import LATE_S, LOG_INTERVAL_S, Hearer, Kept, Queued, listed
from hotbay.datalayer.sources.waiting import MOST_WAITING, Waiting
from hotbay.errors import Problem

__all__ = ["LATE_S", "Audience", "Hearing", "Kept", "Write"]

logger = logging.getLogger(__name__)

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Hearing(Generic[E]):
    """An event on its way. `life` tells one that came again from what it was before; 0 where that does not matter."""

    event: E
    life: int = 0


def _as_it_is(event: E) -> Kept[E]:
    return Kept(lambda: event)


Write = Callable[[EventExtractor, Hearing[E], AttributesOf], None]
"""Writes what an extractor made of an event."""


def _subject(event: Event) -> str:
    return event.endpoint.id if isinstance(event, EndpointNews) else event.key


class Audience(Generic[E]):
    """A source of events with the extractors behind it. `put` at any time on the event loop, `run` once at a time.

    Args:
        source: whose word comes first.
        say: its word on an event: what the extractors are to see, None for nothing.
        extractors: in the order in which they are asked.
        write: writes what they make of events; what it raises is a failure of the extractor.
        keep: how an event waits.
        counts: where events and failures are counted.
        step_s: time of the source's say on one event, and of one extractor, unless it has a time of its own.
        most_waiting: see `waiting.MOST_WAITING`; of each of them.
        now: monotonic seconds.
    """

    def __init__(
        self,
        source: DataSource,
        say: Callable[[E], Awaitable[E | None]],
        extractors: Sequence[EventExtractor],
        write: Write[E],
        *,
        counts: Counts,
        keep: Callable[[E], Kept[E]] = _as_it_is,
        step_s: float = STEP_TIMEOUT_S,
        most_waiting: int = MOST_WAITING,
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._name = source.name
        self._say_s = step_timeout_s(source, step_s)
        self._say = say
        self._write = write
        self._counts = counts
        self._keep = keep
        self._guard = Guard(source.name, counts=counts, step_s=step_s)
        self._scope = anyio.CancelScope()
        self._is_closed = False
        self._room = anyio.Event()
        self._logged_s = float("-inf")
        passed_over = partial(counts.event, source.name, "superseded")
        waiting: Waiting[Queued[E]] = Waiting(most_waiting)
        self._source = Hearer(
            source.name, self._tell_source, waiting, passed_over=passed_over, took=self._took, now=now
        )
        self._most_waiting = most_waiting
        self._now = now
        self._group: anyio.abc.TaskGroup | None = None
        self._bound = tuple(extractors)
        self._extractors = [self._hearer_of(one) for one in self._bound]

    def _hearer_of(self, extractor: EventExtractor) -> Hearer[E]:
        passed_over = partial(self._counts.extract_skipped, self._name, extractor.name, "superseded")
        hear, waiting = partial(self._tell_extractor, extractor), Waiting[Queued[E]](self._most_waiting)
        return Hearer(extractor.name, hear, waiting, passed_over=passed_over, took=self._took, now=self._now)

    def _took(self) -> None:
        self._room.set()

    def rebind(self, extractors: Sequence[EventExtractor]) -> bool:
        """Let these hear from now on what the source says; whether one of them is new here.

        Who stays goes on with what waits for it. Of who goes nothing is written any more.
        """
        before = dict(zip(map(id, self._bound), self._extractors, strict=True))
        self._bound = tuple(extractors)
        self._extractors = [before.get(id(one)) or self._hearer_of(one) for one in self._bound]
        for hearer in before.values():
            if hearer not in self._extractors:
                hearer.close()
        new = [hearer for hearer in self._extractors if hearer not in before.values()]
        if self._group is not None:
            for hearer in new:
                self._group.start_soon(hearer.run)
        return bool(new)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Who of them is late, and what they made nothing of."""
        return tuple(problem for hearer in (self._source, *self._extractors) for problem in hearer.problems())

    @property
    def waiting(self) -> dict[str, int]:
        """How many events wait, by the name of who is to hear them."""
        return {hearer.name: len(hearer.waiting) for hearer in (self._source, *self._extractors)}

    def put(self, event: E, life: int = 0) -> None:
        """An event, which each of them hears after those before it. Waits for nobody."""
        self._source.put(self._queued(event, life))

    def _queued(self, event: E, life: int) -> Queued[E]:
        return Queued(self._keep(event), event.type, _subject(event), life)

    async def room(self) -> None:
        """Wait until each of them has room for more, or nobody is to hear anything more."""
        while not self._is_closed and not all(one.waiting.has_room for one in (self._source, *self._extractors)):
            if self._room.is_set():
                self._room = anyio.Event()
            await self._room.wait()

    def clear(self) -> None:
        """Forget what waits, and what was heard. Not while it runs."""
        for hearer in (self._source, *self._extractors):
            hearer.clear()

    async def run(self) -> None:
        """Tell them until `close` or a cancellation."""
        if self._is_closed:
            return
        self._scope = anyio.CancelScope()
        with self._scope:
            async with anyio.create_task_group() as group:
                self._group = group
                try:
                    for hearer in (self._source, *self._extractors):
                        group.start_soon(hearer.run)
                    await anyio.sleep_forever()
                finally:
                    self._group = None

    def close(self) -> None:
        """Nobody is to hear anything more."""
        self._is_closed = True
        self._took()
        self._scope.cancel()

    async def _tell_source(self, queued: Queued[E]) -> bool:
        name = self._name
        try:
            with anyio.fail_after(self._say_s):
                seen = await self._say(queued.kept.own())
            told = None if seen is None else self._queued(seen, queued.life)
        except Exception:
            # The boundary around what sources say to an event: one that fails loses this event, and no other.
            self._counts.event(name, "failed")
            if self._now() - self._logged_s >= LOG_INTERVAL_S:
                self._logged_s = self._now()
                of = listed([queued.subject])
                logger.exception("notify_failed source=%s event=%s of=%s", name, queued.type, of)
            return False
        self._counts.event(name, "dropped" if told is None else "delivered")
        if told is not None:
            for hearer in self._extractors:
                hearer.put(told)
        return True

    async def _tell_extractor(self, extractor: EventExtractor, queued: Queued[E]) -> bool:
        async def step() -> tuple[E, AttributesOf]:
            event = queued.kept.own()
            return event, await extractor.extract_event(event)

        def write(made: tuple[E, AttributesOf]) -> None:
            event, found = made
            if not self._is_closed and any(one is extractor for one in self._bound):
                self._write(extractor, Hearing(event, queued.life), found)

        return await self._guard.run(extractor, step, write, what=f" event={queued.type} of={listed([queued.subject])}")
