"""Takes events from notification sources and hands them to their extractors: one at a time, in order, each with a copy.

A source may change or drop an event. It, and each extractor behind it, hears events from a queue of its own (see `hearing`):
whoever finds them goes on at once, and one that is slow or not there delays nobody. An object waits as its document crosses: decoded
it may take eighty times the room. Only where more waits for somebody than a source may have at all does the source wait, too. A failed
extractor is counted, and the others see the event all the same. What an extractor finds is written before it hears the next event.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from hotbay_sdk.protocol.values import Encoder, ValueRefusedError, unpack

from hotbay.datalayer.source import (
    STEP_TIMEOUT_S,
    AttributesOf,
    Counts,
    EventExtractor,
    NotificationSource,
    ObjectEvent,
    TellsAgain,
)
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.hearing import Audience, Hearing, Kept
from hotbay.datalayer.sources.waiting import MOST_OBJECTS_WAITING
from hotbay.errors import Problem
from hotbay.observe.background import Background

__all__ = ["Notifications", "NotifiedSource"]


@dataclass(frozen=True, slots=True)
class NotifiedSource:
    """A source with its extractors, in the order in which they are asked."""

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
        most_waiting: see `waiting.MOST_OBJECTS_WAITING`.
        now: monotonic seconds.
    """

    def __init__(
        self,
        notified: Sequence[NotifiedSource],
        *,
        attributes: EventAttributes,
        counts: Counts,
        background: Background,
        step_s: float = STEP_TIMEOUT_S,
        most_waiting: int = MOST_OBJECTS_WAITING,
        now: Callable[[], float] = anyio.current_time,
    ) -> None:
        self._notified = tuple(notified)
        self._attributes = attributes
        self._counts = counts
        self._background = background
        self._is_closed = False
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._audiences = {
            one.source.name: Audience(
                one.source,
                one.source.notify,
                one.extractors,
                partial(self._write, one.source.name),
                counts=counts,
                keep=partial(_kept, Encoder()),
                step_s=step_s,
                most_waiting=most_waiting,
                now=now,
            )
            for one in self._notified
        }

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Which plugins are late, and what they made nothing of."""
        return tuple(problem for audience in self._audiences.values() for problem in audience.problems)

    def start(self, group: TaskGroup) -> None:
        """Run every source in `group`. Once."""
        for notified in self._notified:
            audience = self._audiences[notified.source.name]
            group.start_soon(self._background.keep, "events of objects", audience.run)
            group.start_soon(self._follow, notified.source, audience)

    async def _follow(self, source: NotificationSource, audience: Audience[ObjectEvent]) -> None:
        work = partial(source.run, partial(_take, audience))
        while not self._is_closed:
            with anyio.CancelScope() as self._scopes[source.name]:
                await self._background.keep("notification source", work)
                return

    def rebind(self, source: str, extractors: Sequence[EventExtractor]) -> None:
        """Let these hear of the source's events from now on; with a new one, all hear again of every object that is there.

        Raises KeyError for a source that is not run here.
        """
        is_new = self._audiences[source].rebind(extractors)
        for one in self._notified:
            if is_new and one.source.name == source and isinstance(one.source, TellsAgain):
                one.source.tell_again()
                if source in self._scopes:
                    # It looks at once when it is run again.
                    self._scopes[source].cancel()

    def close(self) -> None:
        """End every source, and write nothing more of what they told."""
        self._is_closed = True
        for audience in self._audiences.values():
            audience.close()
        for scope in self._scopes.values():
            scope.cancel()

    def _write(self, source: str, by: EventExtractor, _hearing: Hearing[ObjectEvent], found: AttributesOf) -> None:
        for _ in range(self._attributes.of(by.name).put(found)):
            self._counts.event(source, "forgotten")


async def _take(audience: Audience[ObjectEvent], event: ObjectEvent) -> None:
    audience.put(event)
    # Whoever has many to tell lets others have a turn.
    await anyio.lowlevel.checkpoint()
    await audience.room()


def _kept(encoder: Encoder, event: ObjectEvent) -> Kept[ObjectEvent]:
    kind = event.type, event.kind, event.key
    try:
        body = encoder.pack_checked(event.object)
    except ValueRefusedError:
        # Of the host's own sources, whose files the operator writes: what a package tells has crossed before.
        document = copy.deepcopy(event.object)
        return Kept(lambda: ObjectEvent(*kind, copy.deepcopy(document)))
    return Kept(lambda: ObjectEvent(*kind, _unpacked(body)), len(body))


def _unpacked(body: bytes) -> dict[str, object]:
    document = unpack(body)
    assert isinstance(document, dict), "what is kept was packed from a document"
    return dict(document)
