"""One source of metrics pages that runs: what scrapes it, and what becomes of its pages.

The core extractor's figures are written by who scrapes, as soon as a page is there; all other extractors get pages at their own
pace. Those may be exchanged while it runs; another core extractor, like another address or interval, is another source. What
takes the place of this one may wait until this one `asked` every server: then no figure has a gap.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeGuard

import anyio
from anyio.abc import TaskGroup

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.pages.engines import NO_ENGINE, EngineSet
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.counted_store import CountedPages, CountedScrapes
from hotbay.datalayer.scraping.in_loop import ScrapeStore, Scraping
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.source import AnyExtractor, Counts, Extractor
from hotbay.datalayer.sources.core import CoreMetricsExtractor
from hotbay.datalayer.sources.extracting import Extraction
from hotbay.datalayer.sources.pages import PageExtraction
from hotbay.datalayer.sources.registrar import Binding, extractors_of_payloads
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import Problem
from hotbay.observe.background import Background

__all__ = ["MakeScraper", "OnPage", "ScrapedSource", "Started", "is_core"]

OnPage = Callable[[EndpointMetadata, MetricsPage], None]
MakeScraper = Callable[[ScrapeStore, MetricsPoller, OnPage, Callable[[float], None]], Scraping]


class Started:
    """A task status that may be told more than once, as by a task that is begun again."""

    def __init__(self, event: anyio.Event) -> None:
        self._event = event

    def started(self, value: None = None) -> None:
        self._event.set()


class ScrapedSource:
    """A `SourceRun`. `core` None: nothing is read of the pages but what the other extractors want.

    Args:
        source: what is asked; nobody else asks it.
        binding: with the extractors behind it.
        store: whose endpoints are meant.
        now: monotonic seconds, of the store's times.
        counts: where failures are counted.
        background: boundary around what runs beside requests.
        make_scraper: makes what scrapes, tells each page to the first function that it is given, and each change of its
            factor to the second.
        changed: called when `interval_s` is not what it was.
    """

    def __init__(
        self,
        source: MetricsPoller,
        binding: Binding,
        *,
        store: EndpointStore,
        now: Callable[[], float],
        counts: Counts,
        background: Background,
        make_scraper: MakeScraper,
        changed: Callable[[], None],
    ) -> None:
        self.source = source
        self._started = anyio.Event()
        self.asked = anyio.Event()
        self._store = store
        self._counts = counts
        self._background = background
        extractors = extractors_of_payloads(binding)
        self._core = next(filter(is_core, extractors), None)
        self._extraction = Extraction(source.name, (), store=store, now=now, counts=counts)
        self._pages = PageExtraction(self._extraction, store.endpoint)
        self._scope = anyio.CancelScope()
        self._heard_of: set[str] = set()
        self._news = anyio.Event()
        source.read_by(EngineSet(NO_ENGINE if self._core is None else self._core.parameters))
        as_seen = CountedPages if self._core is None else CountedScrapes
        told_to = as_seen(store, source.name, counts, heard=self._hear)
        self._scraping = make_scraper(told_to, source, self._arrived, lambda _factor: changed())
        self._bind(extractors)

    @property
    def interval_s(self) -> float:
        """Seconds from one page of an endpoint to the next, as it is now."""
        return self._scraping.interval_s * self._scraping.factor

    @property
    def wanted_s(self) -> float:
        """The same as it is asked for, with time for it."""
        return self._scraping.interval_s

    @property
    def problems(self) -> tuple[Problem, ...]:
        """None: how each endpoint goes, the store knows."""
        return ()

    @property
    def reports(self) -> bool:
        """Whether it brings what the core extractor reads."""
        return self._core is not None

    def begin(self, group: TaskGroup) -> None:
        """Run in `group`, until `end`."""
        group.start_soon(self._run)

    async def started(self) -> None:
        """Return once every present endpoint has its collector."""
        await self._started.wait()

    def rebind(self, binding: Binding) -> None:
        """Have these extractors read pages from the next one on, and the samples of pages that they want by now."""
        self._bind(extractors_of_payloads(binding))

    def quieten(self) -> None:
        """Let no extractor but the core one read any more of it: what takes its place feeds the others."""
        self._extraction.extractors = ()

    def end(self) -> None:
        """Nothing of it is written from now on."""
        self.quieten()
        self._scope.cancel()
        self.asked.set()
        self._started.set()

    def _bind(self, extractors: Sequence[Extractor]) -> None:
        others = self._extraction.extractors = tuple(one for one in extractors if not is_core(one))
        self._scraping.want(frozenset(family for one in others for family in getattr(one, "families", ())))

    def _arrived(self, endpoint: EndpointMetadata, page: MetricsPage) -> None:
        if self._core is not None and (page.missing or page.invalid):
            self._counts.extract_failed(self.source.name, self._core.name)
        if self._extraction.extractors:
            self._pages.arrived(endpoint, page)

    def _hear(self, endpoint_id: str) -> None:
        if not self.asked.is_set():
            self._heard_of.add(endpoint_id)
            self._news.set()

    async def _run(self) -> None:
        with self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._background.keep, "data source", self._pages.run)
                scrape = partial(self._scraping.run, task_status=Started(self._started))
                group.start_soon(self._background.keep, "scraping", scrape)
                await self._ask_all()

    async def _ask_all(self) -> None:
        """Say so once every endpoint that is there now was asked, or is gone."""
        present = {endpoint.id for endpoint in self._store.endpoints()}
        unsubscribe = self._store.subscribe(lambda _event: self._news.set())
        try:
            while any(one.id in present and one.id not in self._heard_of for one in self._store.endpoints()):
                await self._news.wait()
                self._news = anyio.Event()
        finally:
            unsubscribe()
        self.asked.set()
        self._heard_of.clear()


def is_core(extractor: AnyExtractor) -> TypeGuard[CoreMetricsExtractor]:
    """Whether it reads the figures that scorers rate by."""
    return isinstance(extractor, CoreMetricsExtractor)
