"""Takes events from notification sources and hands them to their extractors: one at a time, in order, each with a copy.

A source may change or drop an event. A failed extractor is counted, and the others see the event all the same. What extractors
find is written before the next event of the source is taken.
"""

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import anyio
from anyio.abc import TaskGroup

from hotbay.datalayer.source import (
    STEP_TIMEOUT_S,
    AttributesOf,
    Counts,
    EventExtractor,
    NotificationSource,
    ObjectEvent,
    step_timeout_s,
)
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.extracting import Guard
from hotbay.observe.background import Background

__all__ = ["Notifications", "NotifiedSource"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NotifiedSource:
    """A source with its extractors, in the order in which they run."""

    source: NotificationSource
    extractors: tuple[EventExtractor, ...] = ()


class Notifications:
    """Runs notification sources.

    Args:
        notified: sources with their extractors; each reads the kind of its source.
        attributes: where what they find is written.
        counts: where events and failures are counted.
        background: a source that fails begins again, later each time.
        step_s: time of a source's say on one event, and of one extractor.
    """

    def __init__(
        self,
        notified: Sequence[NotifiedSource],
        *,
        attributes: EventAttributes,
        counts: Counts,
        background: Background,
        step_s: float = STEP_TIMEOUT_S,
    ) -> None:
        self._notified = tuple(notified)
        self._attributes = attributes
        self._counts = counts
        self._background = background
        self._step_s = step_s

    def start(self, group: TaskGroup) -> None:
        """Run every source in `group`."""
        for notified in self._notified:
            guard = Guard(notified.source.name, counts=self._counts, step_s=self._step_s)
            emit = partial(self._take, notified, guard, anyio.Lock())
            work = partial(notified.source.run, emit)
            group.start_soon(self._background.keep, "notification source", work)

    async def _take(self, notified: NotifiedSource, guard: Guard, turn: anyio.Lock, event: ObjectEvent) -> None:
        source = notified.source
        # Waiters have their turns in the order in which they came.
        async with turn:
            try:
                with anyio.fail_after(step_timeout_s(source, self._step_s)):
                    seen = await source.notify(_copied(event))
            except Exception:
                # The boundary around what sources say to an event: one that fails loses this event, and no other.
                self._counts.event(source.name, "failed")
                logger.exception("notify_failed source=%s event=%s object=%s", source.name, event.type, event.key)
                return
            self._counts.event(source.name, "dropped" if seen is None else "delivered")
            if seen is None:
                return
            for extractor in notified.extractors:
                own = _copied(seen)
                keep = partial(self._keep, source.name, extractor.name)
                await guard.run(extractor, partial(extractor.extract_event, own), keep)

    def _keep(self, source: str, extractor: str, found: AttributesOf) -> None:
        for _ in range(self._attributes.of(extractor).put(found)):
            self._counts.event(source, "forgotten")


def _copied(event: ObjectEvent) -> ObjectEvent:
    return replace(event, object=copy.deepcopy(event.object))
