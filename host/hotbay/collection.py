"""Wiring of what keeps endpoints' data fresh: sources and extractors as configured and registered, and what runs them.

Decides which run is for which source: pages of metrics are scraped, other data are polled, and sources of events are followed;
and who makes which attribute: it has one owner, the host's own extractors first, then whoever is named first. Types that are
not the host's are made by whoever provides them.

What changes while it runs: a source that is as it was goes on, and its extractors are exchanged in place. One that differs is
another one, which takes the place of the one before. A source of metrics pages that brings figures of the core extractor goes on
until the sources of pages that bring them now have asked every server, so that they have no gap. A source of a package that
brings them is waited for by none and goes at once: figures stay as they are until those that are new come, or they are too old.
Attributes that nobody makes any more are taken away.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import anyio.lowlevel
from anyio import Event
from anyio.abc import TaskGroup

from hotbay.config.data_sources import DataParameters
from hotbay.datalayer.scraping.in_loop import Scraper, ScrapeStore, Scraping
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.schedule import start_delay_s
from hotbay.datalayer.source import AnyExtractor, Counts, EndpointSource, NotificationSource, PollingSource
from hotbay.datalayer.sources.all_collectors import AllCollectors
from hotbay.datalayer.sources.bindings import Bindings, PreparedSources, TypeProvider
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.lifecycle import Lifecycle
from hotbay.datalayer.sources.notification import Notifications, NotifiedSource
from hotbay.datalayer.sources.owners import made_by, share_out
from hotbay.datalayer.sources.polling import PolledSource, SourceCollectors, base_tick_s
from hotbay.datalayer.sources.registrar import Binding, Registrant, Resolution
from hotbay.datalayer.sources.runs import NotifiedRun, PolledRun, SourceRun, WatchedRun
from hotbay.datalayer.sources.scraped import MakeScraper, OnPage, ScrapedSource, Started
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import Problem
from hotbay.observe.background import Background

__all__ = ["Collection"]


class Collection:
    """See the module. `load` once, then `run` once; `take` and `learn` at any time after `load`.

    Args:
        store: whose endpoints are meant.
        counts: where failures and events are counted.
        background: boundary around what runs beside requests.
        make_scraper: makes what scrapes a source; by default on this loop.
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
        self._interval_s = 0.0
        self._clashes: tuple[Problem, ...] = ()
        self._made: frozenset[str] = frozenset()
        self._polled = AllCollectors()
        self._lifecycle = Lifecycle(store, self._polled, (), now=time.monotonic, counts=counts)
        self._attributes = EventAttributes(store, now=time.monotonic)
        self._group: TaskGroup | None = None
        self._runs: dict[str, SourceRun] = {}
        self._leaving: list[SourceRun] = []

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with sources as they are now and how they go, and dependencies that nothing serves."""
        sources = (binding.source for binding in self.resolution.bindings)
        found = [problem for source in sources for problem in getattr(source, "problems", ())]
        found += [problem for run in self._runs.values() for problem in run.problems]
        return (*self._bindings.problems, *self._clashes, *found, *self._lifecycle.problems)

    @property
    def columns(self) -> Mapping[str, str]:
        """Attributes that are columns, name -> format."""
        columns: dict[str, str] = {}
        for extractor in _extractors(self.resolution):
            columns |= getattr(extractor, "columns", {})
        return columns

    @property
    def intervals_s(self) -> Mapping[str, float]:
        """Seconds from one poll of an endpoint to the next as they are now, by the name of each source that is polled."""
        found = ((name, run.interval_s) for name, run in self._runs.items())
        return {name: interval_s for name, interval_s in found if interval_s is not None}

    @property
    def asked_s(self) -> Mapping[str, float]:
        """The same as they are asked for: before they are rounded, and with time for all of them."""
        found = ((name, run.wanted_s) for name, run in self._runs.items())
        return {name: wanted_s for name, wanted_s in found if wanted_s is not None}

    @property
    def extractors(self) -> Mapping[str, Sequence[str]]:
        """Names of the extractors behind each source, by its name, in the order in which they are asked."""
        return {one.source.name: [it.name for it in one.extractors] for one in self.resolution.bindings}

    @property
    def longest_report_s(self) -> float:
        """The longest of the intervals at which sources bring what the core extractor reads; 0 without any.

        What leaves counts until it is gone: its figures are still shown.
        """
        runs = (*self._runs.values(), *self._leaving)
        return max((run.interval_s or 0.0 for run in runs if run.reports), default=0.0)

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
        self._interval_s = interval_s
        self._bindings = Bindings(provider, registrants)
        self.take(await self.prepare(parameters, directory))

    async def prepare(self, parameters: DataParameters, directory: Path) -> PreparedSources:
        """What another configuration needs, for `take`; nothing has changed yet. Calls may overlap. Raises as `load`."""
        return await self._bindings.prepare(parameters.sources, directory, self._interval_s)

    def take(self, prepared: PreparedSources) -> None:
        """Have these sources and extractors from now on."""
        self._have(self._bindings.take(prepared))

    def learn(self) -> None:
        """Take over what types of packages declare by now: themselves, attributes that are columns, and samples of pages."""
        self._have(self._bindings.learn())

    async def run(self, group: TaskGroup) -> None:
        """Start everything in `group`; returns when every endpoint has its collectors."""
        self._group = group
        self._attributes.follow()
        for run in self._runs.values():
            run.begin(group)
        collected = Event()
        follow = partial(self._lifecycle.run, task_status=Started(collected))
        group.start_soon(self._background.keep, "endpoint events", follow)
        for run in tuple(self._runs.values()):
            await run.started()
        await collected.wait()

    def _have(self, resolution: Resolution) -> None:
        self.resolution = resolution
        # By what they made when it was last looked at: an extractor that stays may make others since.
        before, self._made = self._made, made_by(_extractors(resolution))
        bindings = {binding.source.name: binding for binding in resolution.bindings}
        tick_s = self._tick_s(resolution)
        going = {name: run for name, run in self._runs.items() if not _goes_on(run, bindings.get(name))}
        coming: dict[str, SourceRun] = {}
        runs: dict[str, SourceRun] = {}
        for name, binding in bindings.items():
            known = None if name in going else self._runs.get(name)
            runs[name] = known or coming.setdefault(name, self._run_of(binding, tick_s))
            runs[name].rebind(binding)
        self._runs = runs
        self._replace(going, coming, before)
        self._clashes = share_out(_extractors(resolution))
        self._store.declare_attributes(self.columns)
        self._take_away(before - self._made)
        self._changed()

    def _replace(self, going: Mapping[str, SourceRun], coming: Mapping[str, SourceRun], made: frozenset[str]) -> None:
        """End what goes and begin what comes; nothing of it before everything runs. `made` are attributes until now."""
        group = self._group
        if group is None:
            return
        heirs = [run for run in coming.values() if run.reports]
        for run in going.values():
            if isinstance(run, ScrapedSource) and run.reports and heirs:
                run.quieten()
                self._leaving.append(run)
                group.start_soon(self._leave, run, heirs, made)
            else:
                run.end()
        for run in coming.values():
            run.begin(group)

    async def _leave(self, run: SourceRun, heirs: Sequence[SourceRun], made: frozenset[str]) -> None:
        for heir in heirs:
            await heir.asked.wait()
        run.end()
        self._leaving.remove(run)
        self._changed()
        # A page that came in this very step is still written.
        await anyio.lowlevel.checkpoint()
        self._take_away(made - self._made)

    def _take_away(self, attributes: Iterable[str]) -> None:
        nothing = dict.fromkeys(attributes)
        for endpoint in self._store.endpoints() if nothing else ():
            self._store.put_attributes(endpoint.id, nothing, time.monotonic())
        self._attributes.keep_none(nothing)

    def _tick_s(self, resolution: Resolution) -> float:
        """What intervals of sources that begin now are rounded to; those that go on keep theirs."""
        sources = (binding.source for binding in resolution.bindings)
        polled = [it for it in sources if isinstance(it, PollingSource) and not isinstance(it, MetricsPoller)]
        return base_tick_s(self._interval_s, [source.interval_s for source in polled])

    def _run_of(self, binding: Binding, tick_s: float) -> SourceRun:
        source = binding.source
        if isinstance(source, MetricsPoller):
            return self._scrape(source, binding)
        if isinstance(source, PollingSource):
            return PolledRun(source, self._collectors(source, tick_s), self._polled, tick_s=tick_s)
        if isinstance(source, NotificationSource):
            notifications = Notifications(
                [NotifiedSource(source)], attributes=self._attributes, counts=self._counts, background=self._background
            )
            return NotifiedRun(source, notifications, self._attributes)
        assert isinstance(source, EndpointSource), "a source is of one variant"
        return WatchedRun(source, self._lifecycle)

    def _scrape(self, source: MetricsPoller, binding: Binding) -> ScrapedSource:
        return ScrapedSource(
            source,
            binding,
            store=self._store,
            now=time.monotonic,
            counts=self._counts,
            background=self._background,
            make_scraper=self._make_scraper,
            changed=self._changed,
        )

    def _collectors(self, source: PollingSource, tick_s: float) -> SourceCollectors:
        return SourceCollectors(
            self._store,
            [PolledSource(source)],
            tick_s=tick_s,
            now=time.monotonic,
            counts=self._counts,
            background=self._background,
            phase=partial(start_delay_s, interval_s=1.0, count=0),
        )

    def _scraper(
        self, store: ScrapeStore, source: MetricsPoller, on_page: OnPage, widened: Callable[[float], None]
    ) -> Scraping:
        return Scraper(store, source, background=self._background, on_page=on_page, widened=widened)


def _goes_on(run: SourceRun, binding: Binding | None) -> bool:
    return binding is not None and binding.source is run.source


def _extractors(resolution: Resolution) -> list[AnyExtractor]:
    return [extractor for binding in resolution.bindings for extractor in binding.extractors]
