"""One source that runs with the extractors behind it, whatever its variant: how it begins, changes and ends.

Extractors are exchanged while the source goes on: those that stay are not interrupted, and nothing is written of those that go,
from that moment on. Events are told once, so that for an extractor that comes all that is there is told again, to those beside
it, too. What an extractor said of objects goes with it, and with their source. On the event loop.
"""

from collections.abc import Sequence
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from hotbay.datalayer.source import DataSource, EndpointSource, EventExtractor, NotificationSource, PollingSource
from hotbay.datalayer.sources.all_collectors import AllCollectors
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.lifecycle import Lifecycle, WatchedSource
from hotbay.datalayer.sources.notification import Notifications
from hotbay.datalayer.sources.polling import SourceCollectors, whole_ticks
from hotbay.datalayer.sources.registrar import Binding, extractors_of_events, extractors_of_payloads
from hotbay.datalayer.sources.scraped import is_core
from hotbay.errors import Problem

__all__ = ["NotifiedRun", "PolledRun", "SourceRun", "WatchedRun"]


class SourceRun(Protocol):
    """A bound source. `begin` once, `rebind` before and while it runs, `end` once; and nothing after it.

    `interval_s`, from one poll of an endpoint to the next as it is, and `wanted_s`, as it is asked for, are None where nothing is
    polled; `reports`: it brings what the core extractor reads. `asked` is set once it
    asked every endpoint that was there at its beginning, where that takes a while, and at its end.
    """

    asked: anyio.Event

    @property
    def source(self) -> DataSource: ...

    @property
    def interval_s(self) -> float | None: ...

    @property
    def wanted_s(self) -> float | None: ...

    @property
    def reports(self) -> bool: ...

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with how it goes."""

    def begin(self, group: TaskGroup) -> None: ...

    async def started(self) -> None:
        """Return once every present endpoint has its collector."""

    def rebind(self, binding: Binding) -> None:
        """Have exactly the binding's extractors, in its order; the source is the same."""

    def end(self) -> None: ...


class _AtOnce:
    """A run that asks nobody, or each as soon as it can."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.asked.set()

    @property
    def interval_s(self) -> float | None:
        return None

    @property
    def wanted_s(self) -> float | None:
        return None

    @property
    def reports(self) -> bool:
        return False

    @property
    def problems(self) -> tuple[Problem, ...]:
        return ()

    async def started(self) -> None:
        """At once: what is told waits for nobody."""


class PolledRun(_AtOnce):
    """A source that is polled. `collectors` are its alone, with ticks of `tick_s`, and `polled` those of all sources."""

    def __init__(
        self, source: PollingSource, collectors: SourceCollectors, polled: AllCollectors, *, tick_s: float
    ) -> None:
        super().__init__()
        self.source = source
        self._collectors = collectors
        self._polled = polled
        self._tick_s = tick_s
        self._reports = False
        self._group: TaskGroup | None = None

    @property
    def interval_s(self) -> float | None:
        return whole_ticks(self.source.interval_s, self._tick_s) * self._tick_s

    @property
    def wanted_s(self) -> float | None:
        return self.source.interval_s

    @property
    def reports(self) -> bool:
        return self._reports

    def begin(self, group: TaskGroup) -> None:
        self._group = group
        self._polled.add(self._collectors)

    def rebind(self, binding: Binding) -> None:
        extractors = extractors_of_payloads(binding)
        self._reports = any(map(is_core, extractors))
        self._collectors.rebind(self.source.name, extractors)

    def end(self) -> None:
        assert self._group is not None, "it began"
        self._polled.remove(self._collectors, self._group)


class WatchedRun(_AtOnce):
    """A source of endpoints' coming and going."""

    def __init__(self, source: EndpointSource, lifecycle: Lifecycle) -> None:
        super().__init__()
        self.source = source
        self._lifecycle = lifecycle
        self._extractors: tuple[EventExtractor, ...] = ()
        self._began = False

    def begin(self, group: TaskGroup) -> None:
        self._began = True
        self._lifecycle.watch(WatchedSource(self.source, self._extractors))

    def rebind(self, binding: Binding) -> None:
        self._extractors = extractors_of_events(binding)
        if self._began:
            self._lifecycle.rebind(self.source.name, self._extractors)

    def end(self) -> None:
        self._lifecycle.unwatch(self.source.name)


class NotifiedRun(_AtOnce):
    """A source of objects. `notifications` runs it alone; what its extractors find is kept in `attributes`."""

    def __init__(self, source: NotificationSource, notifications: Notifications, attributes: EventAttributes) -> None:
        super().__init__()
        self.source = source
        self._notifications = notifications
        self._attributes = attributes
        self._extractors: tuple[EventExtractor, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._notifications.problems

    def begin(self, group: TaskGroup) -> None:
        self._notifications.start(group)

    def rebind(self, binding: Binding) -> None:
        before, self._extractors = self._extractors, extractors_of_events(binding)
        self._notifications.rebind(self.source.name, self._extractors)
        self._forget([one for one in before if one not in self._extractors])

    def end(self) -> None:
        self._notifications.close()
        self._forget(self._extractors)

    def _forget(self, extractors: Sequence[EventExtractor]) -> None:
        for extractor in extractors:
            self._attributes.forget(extractor.name)
