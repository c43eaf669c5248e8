"""One plugin that hears events, with the queue of what waits for it: one event at a time, in order.

What waits is kept in a short form where it has one, and is made an event as it is heard. Tells who is late, and of what a
plugin made nothing; what is passed over is counted and named in few lines of the log.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import anyio

from hotbay.datalayer.source import Event, EventType
from hotbay.datalayer.sources.waiting import MOST_NAMED, Entry, Lost, Waiting
from hotbay.errors import Problem

__all__ = ["LATE_S", "LOG_INTERVAL_S", "Hearer", "Kept", "Queued", "listed"]

logger = logging.getLogger(__name__)

LATE_S: Final = 15.0
"""An event that waits longer is a problem: a process that ended is replaced before."""
LOG_INTERVAL_S: Final = 10.0
"""Events that are passed over at the rate at which they come still write few lines: six a minute for each plugin."""
_NAMED: Final = 8
"""Subjects that one message names."""
_MAX_NAME_CHARS: Final = 128

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Kept(Generic[E]):
    """An event as it waits, for all that are to hear it: `own` makes it one plugin's own, and may be called again."""

    own: Callable[[], E]
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Queued(Generic[E]):
    """What waits, and what of it is known without making it an event again."""

    kept: Kept[E]
    type: EventType
    subject: str
    life: int


class Hearer(Generic[E]):
    """One plugin with its queue. `hear` tells it of an event, and whether something came of it; it raises nothing.

    `passed_over` is called for each event that it does not hear, `took` when something waits no more.
    """

    def __init__(
        self,
        name: str,
        hear: Callable[[Queued[E]], Awaitable[bool]],
        waiting: Waiting[Queued[E]],
        *,
        passed_over: Callable[[], None],
        took: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self.name = name
        self.waiting = waiting
        self.is_closed = False
        self._scope = anyio.CancelScope()
        self._hear = hear
        self._passed_over = passed_over
        self._took = took
        self._now = now
        self._under_way: Entry[Queued[E]] | None = None
        self._lost = Lost()
        self._news = anyio.Event()
        self._logged_s = float("-inf")
        self._unlogged = 0
        self._unnamed: dict[str, None] = {}

    def put(self, queued: Queued[E]) -> None:
        is_end = queued.type is EventType.DELETE
        entry = Entry(queued.subject, queued, is_end, self._now(), queued.kept.size_bytes)
        passed_over = self.waiting.put(entry)
        self._news.set()
        for one in passed_over:
            self._passed_over()
            self._unlogged += 1
            if len(self._unnamed) < MOST_NAMED:
                self._unnamed[one.subject] = None
        self._log()

    def _log(self) -> None:
        """Tell what was passed over, once it may be told."""
        if self._unlogged and self._now() - self._logged_s >= LOG_INTERVAL_S:
            of = listed([*self._unnamed])
            logger.warning("events_superseded plugin=%s count=%d of=%s", self.name, self._unlogged, of)
            self._logged_s, self._unlogged = self._now(), 0
            self._unnamed.clear()

    async def run(self) -> None:
        self._scope = anyio.CancelScope()
        with self._scope:
            while not self.is_closed:
                if not self.waiting:
                    self._news = anyio.Event()
                    await self._news.wait()
                entry = self._under_way = self.waiting.take()
                self._took()
                if await self._hear(entry.event):
                    self._lost.mend(entry.subject)
                else:
                    self._lost.note(entry.subject, self._now())
                self._under_way = None
                self._log()

    def close(self) -> None:
        self.is_closed = True
        self._scope.cancel()
        self._took()

    def clear(self) -> None:
        self.waiting.clear()
        self._under_way = None
        self._took()

    def problems(self) -> list[Problem]:
        now, found = self._now(), list[Problem]()
        oldest = self._under_way or self.waiting.first
        if oldest is not None and now - oldest.since_s >= LATE_S:
            count = len(self.waiting) + (self._under_way is not None)
            since = f"the first, of {listed([oldest.subject])}, for {now - oldest.since_s:.0f} s"
            message = f"'{self.name}' is late: {count} events wait for it, {since}"
            hint = "see `hotbay status`: the plugin is slow, is starting, or does not start; nobody else waits for it"
            found.append(Problem("UNAVAILABLE", message, hint=hint))
        lost = self._lost.subjects(now)
        if lost:
            message = f"'{self.name}' made nothing of the last event of {listed(lost)}"
            hint = "`extract_failed` or `notify_failed` in the log says why; it hears of each again when that changes"
            found.append(Problem("UNAVAILABLE", message, hint=hint))
        return found


def listed(subjects: Sequence[str]) -> str:
    """Names in one line, the first few of them: whoever made them may have made them long, or of anything."""
    shown = ", ".join(repr(name[:_MAX_NAME_CHARS]) for name in subjects[:_NAMED])
    more = len(subjects) - _NAMED
    return f"{shown} and {more} others" if more > 0 else shown
