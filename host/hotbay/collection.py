"""Wiring of what keeps endpoints' data fresh: sources and extractors as configured and registered, and the tasks that run them.

Decides which task runs which source: pages of metrics are scraped, other data are polled, and sources of events are followed;
and who makes which attribute: it has one owner, the host's own extractors first, then whoever is named first. Types that are
not the host's are made by whoever provides them.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeGuard

import anyio.to_thread
from anyio.abc import TaskGroup, TaskStatus

from hotbay.config.data_sources import DataParameters
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.pages.engines import NO_ENGINE, EngineSet
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.counted_store import CountedPages, CountedScrapes
from hotbay.datalayer.scraping.in_loop import Scraper, ScrapeStore, Scraping
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.schedule import start_delay_s
from hotbay.datalayer.source import (
    Counts,
    EndpointSource,
    Extractor,
    NotificationSource,
    PollingSource,
)
from hotbay.datalayer.sources.bindings import Bindings, TypeProvider
from hotbay.datalayer.sources.core import CoreMetricsExtractor
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.extracting import Extraction
from hotbay.datalayer.sources.lifecycle import Lifecycle, WatchedSource
from hotbay.datalayer.sources.notification import Notifications, NotifiedSource
from hotbay.datalayer.sources.owners import share_out
from hotbay.datalayer.sources.pages import PageExtraction
from hotbay.datalayer.sources.polling import PolledSource, SourceCollectors, base_tick_s, whole_ticks
from hotbay.datalayer.sources.registrar import (
    Binding,
    Registrant,
    Resolution,
    extractors_of_events,
    extractors_of_payloads,
)
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import Problem
from hotbay.observe.background import Background

__all__ = ["Collection", "MakeScraper", "OnPage"]

OnPage = Callable[[EndpointMetadata, MetricsPage], None]
MakeScraper = Callable[[ScrapeStore, MetricsPoller, OnPage, Callable[[float], None]], Scraping]


@dataclass(frozen=True, slots=True)
class _Scraped:
    """`core` None: nothing is read of the pages but what the extractors of `extraction` want."""

    name: str
    scraping: Scraping
    core: CoreMetricsExtractor | None
    extraction: Extraction
    pages: PageExtraction


@dataclass(frozen=True, slots=True)
class _Running:
    """What runs: `late` are scopes of what began later, `rebind` gives sources that are polled other extractors, by name."""

    group: TaskGroup
    lifecycle: Lifecycle
    attributes: EventAttributes
    late: dict[str, anyio.CancelScope] = field(default_factory=dict)
    rebind: dict[str, Callable[[Sequence[Extractor]], None]] = field(default_factory=dict)


class Collection:
    """See the module. `load` once, then `run` once.

    Args:
        store: whose endpoints are meant.
        counts: where failures and events are counted.
        background: boundary around what runs beside requests.
        make_scraper: makes what scrapes a source, tells each page to the first function that it is given, and each change of
            its factor to the second.
        changed: called when `intervals_s` is not what it was.
    """

    def __init__(
        self,
        store: EndpointStore,
        *,
        counts: Counts,
        background: Background,
        make_scraper: MakeScraper | None = None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.resolution = Resolution(())
        self._store = store
        self._counts = counts
        self._background = background
        self._make_scraper = make_scraper or self._scraper
        self._changed = changed
        self._bindings = Bindings()
        self._clashes: tuple[Problem, ...] = ()
        self._running: _Running | None = None
        self._tick_s = base_tick_s(0.0, ())
        self._scraped: list[_Scraped] = []
        self._polled: list[PolledSource] = []

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with sources as they are now, and dependencies that nothing serves."""
        sources = (binding.source for binding in self.resolution.bindings)
        found = [problem for source in sources for problem in getattr(source, "problems", ())]
        return (*self._bindings.problems, *self._clashes, *found)

    @property
    def columns(self) -> Mapping[str, str]:
        """Attributes of the host's own extractors that are columns, name -> format."""
        columns: dict[str, str] = {}
        for binding in self.resolution.bindings:
            for extractor in binding.extractors:
                columns |= getattr(extractor, "columns", {})
        return columns

    @property
    def intervals_s(self) -> Mapping[str, float]:
        """Seconds from one poll of an endpoint to the next as they are now, by the name of each source that is polled."""
        tick_s = self._tick_s
        return {one.name: one.scraping.interval_s * one.scraping.factor for one in self._scraped} | {
            one.source.name: whole_ticks(one.source.interval_s, tick_s) * tick_s for one in self._polled
        }

    @property
    def longest_report_s(self) -> float:
        """The longest of the intervals at which sources bring what the core extractor reads; 0 without any."""
        intervals_s, reporting = self.intervals_s, {one.name for one in self._scraped if one.core is not None}
        reporting |= {one.source.name for one in self._polled if any(map(_is_core, one.extractors))}
        return max((intervals_s[name] for name in reporting), default=0.0)

    async def load(
        self,
        parameters: DataParameters,
        *,
        directory: Path,
        interval_s: float,
        provider: TypeProvider | None = None,
        registrants: Iterable[Registrant] = (),
    ) -> None:
        """Make all sources and extractors.

        Args:
            parameters: a configuration that was read, and is valid.
            directory: what relative paths are relative to.
            interval_s: of metrics where none is written, and the base of all intervals.
            provider: makes what is not the host's.
            registrants: who depends on sources beside the configured ones.

        Raises:
            InputError: a file cannot be used, a type is provided by nobody, or what was made does not go together.
        """
        self._bindings = Bindings(parameters.sources, provider, registrants)
        self.resolution = await self._bindings.make(directory, interval_s)
        for binding in self.resolution.bindings:
            self._part(binding)
        self._tick_s = base_tick_s(interval_s, [one.source.interval_s for one in self._polled])

    async def run(self, group: TaskGroup) -> None:
        """Start everything in `group`; returns when every endpoint has its collectors."""
        self._declare()
        collectors = self._collectors(self._polled)
        watched = [one for binding in self.resolution.bindings if (one := _watched(binding)) is not None]
        lifecycle = Lifecycle(self._store, collectors, watched, now=time.monotonic, counts=self._counts)
        attributes = EventAttributes(self._store, now=time.monotonic)
        attributes.follow()
        running = self._running = _Running(group, lifecycle, attributes)
        running.rebind.update((one.source.name, partial(collectors.rebind, one.source.name)) for one in self._polled)
        for binding in self.resolution.bindings:
            self._notify(binding, running)
        for scraped in tuple(self._scraped):
            await group.start(self._keep, "data source", scraped.pages.run)
            await group.start(self._keep, "scraping", scraped.scraping.run)
        if self._polled or watched or self._bindings.waits:
            await group.start(self._keep, "endpoint events", lifecycle.run)

    async def _keep(self, task: str, run: Callable[..., Awaitable[None]], *, task_status: TaskStatus[None]) -> None:
        """Keep `run` running; started when it is for the first time."""
        first = _FirstStart(task_status)
        await self._background.keep(task, partial(run, task_status=first))

    def learn(self) -> None:
        """Take over what types of packages declare by now: themselves, attributes that are columns, and samples of pages."""
        known, self.resolution = self.resolution, self._bindings.learn()
        before = {binding.source.name: binding for binding in known.bindings}
        after = {binding.source.name: binding for binding in self.resolution.bindings}
        for name in before.keys() - after.keys():
            self._end(name)
        for name, binding in after.items():
            if name not in before:
                self._begin(binding)
            elif binding.extractors != before[name].extractors:
                self._rebind(name, extractors_of_payloads(binding))
        self._declare()
        for scraped in self._scraped:
            scraped.scraping.want(_families(scraped.extraction.extractors))

    def _declare(self) -> None:
        extractors = [extractor for binding in self.resolution.bindings for extractor in binding.extractors]
        self._clashes = share_out(extractors)
        self._store.declare_attributes(self.columns)

    def _begin(self, binding: Binding) -> None:
        """Run a source that was not known at the start."""
        running, scraped, polled = self._running, len(self._scraped), len(self._polled)
        assert running is not None, "nothing is learned before it runs"
        self._part(binding)
        self._notify(binding, running)
        if (watched := _watched(binding)) is not None:
            running.lifecycle.watch(watched)
        for one in self._scraped[scraped:]:
            self._run_late(one.name, one.pages.run, one.scraping.run)
        for made in self._polled[polled:]:
            collectors = self._collectors([made])
            running.rebind[made.source.name] = partial(collectors.rebind, made.source.name)
            lifecycle = Lifecycle(self._store, collectors, (), now=time.monotonic, counts=self._counts)
            self._run_late(made.source.name, lifecycle.run)
        self._changed()

    def _run_late(self, name: str, *runs: Callable[..., Awaitable[None]]) -> None:
        assert self._running is not None, "nothing is learned before it runs"
        scope = self._running.late[name] = anyio.CancelScope()

        async def run(one: Callable[..., Awaitable[None]]) -> None:
            with scope:
                await self._background.keep("data source", one)

        for one in runs:
            self._running.group.start_soon(run, one)

    def _end(self, name: str) -> None:
        """A source goes that only stood for what asks for it no more."""
        assert self._running is not None, "nothing is learned before it runs"
        self._running.late.pop(name).cancel()
        self._scraped = [one for one in self._scraped if one.name != name]
        self._polled = [one for one in self._polled if one.source.name != name]
        self._changed()

    def _rebind(self, name: str, extractors: Sequence[Extractor]) -> None:
        assert self._running is not None, "nothing is learned before it runs"
        for scraped in self._scraped:
            if scraped.name == name:
                scraped.extraction.extractors = tuple(one for one in extractors if not _is_core(one))
        if name in self._running.rebind:
            self._running.rebind[name](extractors)

    def _part(self, binding: Binding) -> None:
        extractors = extractors_of_payloads(binding)
        if isinstance(binding.source, MetricsPoller):
            self._scraped.append(self._to_scrape(binding.source, extractors))
        elif isinstance(binding.source, PollingSource):
            self._polled.append(PolledSource(binding.source, extractors))

    def _collectors(self, polled: Sequence[PolledSource]) -> SourceCollectors:
        return SourceCollectors(
            self._store,
            polled,
            tick_s=self._tick_s,
            now=time.monotonic,
            counts=self._counts,
            background=self._background,
            phase=partial(start_delay_s, interval_s=1.0, count=0),
        )

    def _to_scrape(self, source: MetricsPoller, extractors: Sequence[Extractor]) -> _Scraped:
        core = next(filter(_is_core, extractors), None)
        others = tuple(one for one in extractors if one is not core)
        source.read_by(EngineSet(NO_ENGINE if core is None else core.parameters))
        source.want(_families(others))
        extraction = Extraction(source.name, others, store=self._store, now=time.monotonic, counts=self._counts)
        pages = PageExtraction(extraction, self._store.endpoint)

        def told(endpoint: EndpointMetadata, page: MetricsPage) -> None:
            if core is not None and (page.missing or page.invalid):
                self._counts.extract_failed(source.name, core.name)
            if extraction.extractors:
                pages.arrived(endpoint, page)

        as_seen = CountedPages if core is None else CountedScrapes
        store = as_seen(self._store, source.name, self._counts)
        scraping = self._make_scraper(store, source, told, lambda _factor: self._changed())
        return _Scraped(source.name, scraping, core, extraction, pages)

    def _notify(self, binding: Binding, running: _Running) -> None:
        if isinstance(binding.source, NotificationSource):
            notified = NotifiedSource(binding.source, extractors_of_events(binding))
            Notifications(
                [notified], attributes=running.attributes, counts=self._counts, background=self._background
            ).start(running.group)

    def _scraper(
        self, store: ScrapeStore, source: MetricsPoller, on_page: OnPage, widened: Callable[[float], None]
    ) -> Scraping:
        return Scraper(store, source, background=self._background, on_page=on_page, widened=widened)


class _FirstStart:
    """A task status that may be told more than once."""

    def __init__(self, status: TaskStatus[None]) -> None:
        self._status = status
        self._told = False

    def started(self, value: None = None) -> None:
        if not self._told:
            self._told = True
            self._status.started(value)


def _watched(binding: Binding) -> WatchedSource | None:
    if not isinstance(binding.source, EndpointSource):
        return None
    return WatchedSource(binding.source, extractors_of_events(binding))


def _is_core(extractor: Extractor) -> TypeGuard[CoreMetricsExtractor]:
    return isinstance(extractor, CoreMetricsExtractor)


def _families(extractors: Iterable[Extractor]) -> frozenset[str]:
    return frozenset(family for one in extractors for family in getattr(one, "families", ()))
