"""Wiring of the data layer: the store, what fills it with endpoints, what keeps it fresh, and its publication.

Decides nothing. `load` comes first and is strict, `run` starts what goes on beside requests, `configure` takes over what a
reload may change. One event loop; the store's owner is its thread.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from hotbay.collection import Collection
from hotbay.config.data_sources import DataParameters, Provided, default_use, read_data_layer
from hotbay.config.data_types import ObjectKind
from hotbay.config.host_config import HostConfig
from hotbay.config.picker_config import PickerConfig
from hotbay.datalayer.discovery.configured import configured_endpoints
from hotbay.datalayer.discovery.discovery import Discovery
from hotbay.datalayer.discovery.feed import FeedPlan
from hotbay.datalayer.discovery.places import listens_on
from hotbay.datalayer.discovery.plans import discovery_plan
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.provider import RemoteTypes
from hotbay.datalayer.scraping.in_loop import ScrapeStore
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.process import ScrapeProcess
from hotbay.datalayer.source import DataSource, NotificationSource
from hotbay.datalayer.sources.bindings import PreparedSources
from hotbay.datalayer.sources.builtin import make_source
from hotbay.datalayer.sources.objects import ObjectDirectorySource
from hotbay.datalayer.sources.owners import made_by
from hotbay.datalayer.sources.scraped import MakeScraper, OnPage
from hotbay.datalayer.sources.unserved import unasked, unmade
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.errors import Problem
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay.process.helper import Helper
from hotbay.scheduling.registry import BUILTIN_TYPES, SCHEDULING_TYPES

__all__ = ["PUBLISH_TICK_S", "DataLayer", "PreparedData"]

PUBLISH_TICK_S: Final = 0.02
"""Snapshots are published at most this long after a change (hot-path, Snapshot)."""


class DataLayer:
    """What a host knows of the model servers. `store` may be used at any time; `load` once, then `run` once.

    `before_publish` is called with the monotonic time before each publication.

    Args:
        config: of the host: endpoints that stand in it, and how often metrics are fetched if nothing else says so.
        picker: its `dataLayer`.
        directory: what relative paths of the picker configuration are relative to.
        background: boundary around what runs beside requests.
        metrics: where failures and events of sources are counted.
        make_scraper: makes what scrapes; without it `scrape.process` decides.
    """

    def __init__(
        self,
        config: HostConfig,
        picker: PickerConfig,
        *,
        directory: Path,
        background: Background,
        metrics: Metrics,
        make_scraper: MakeScraper | None = None,
    ) -> None:
        self.store = EndpointStore()
        # At port 0 the system chooses one: what that is nobody can have named before.
        self._own = listens_on(config.listen.http.host, config.listen.http.port)
        self.plugins = RemoteTypes(
            default_source=partial(_default_source, interval_s=config.scrape.interval_s),
            feed=_objects(config.objects.directory),
            own=self._own,
        )
        self.before_publish: Callable[[float], None] = lambda now: None
        make_scraper = make_scraper or (_scrape_process if config.scrape.process else None)
        self.collection = Collection(
            self.store, counts=metrics, background=background, make_scraper=make_scraper, changed=self._age
        )
        self._config = config
        self._picker = picker
        self._directory = directory
        self._background = background
        self._metrics = metrics
        self._discovery: Discovery | None = None

    def active_endpoints(self) -> tuple[EndpointMetadata, ...]:
        """Endpoints that may be picked, by row."""
        snapshot = self.store.snapshot
        return tuple(e for e, live in zip(snapshot.endpoints, snapshot.live, strict=True) if e is not None and live)

    def look(self, decided: EndpointMetadata) -> EndpointMetadata | None:
        """An endpoint that was decided for as it is now, None when it is gone or cordoned.

        Then what is known is published at once: who decides again must not be shown the pool that it just left, which may
        have been replaced as a whole.
        """
        now = self.store.look(decided)
        if now is None:
            self.store.publish(time.monotonic())
        return now

    async def load(self) -> None:
        """Fill the store for the first time. Raises `InputError` when an endpoint, file or parameter cannot be used."""
        configured = configured_endpoints(self._config.endpoints)
        parameters, plans = self._read(self._picker, self._directory)
        self._discovery = Discovery(
            self.store,
            configured=configured,
            plans=_bounded(plans, self._config),
            background=self._background,
            draw=random.SystemRandom().random,
            allowed=self._config.discovery.allowed_networks,
            refused=self._metrics.endpoint_refused,
            own=self._own,
        )
        self.plugins.listed = _unnamed(self._picker)
        await self._discovery.check()
        interval_s = self._config.scrape.interval_s
        await self.collection.load(parameters, directory=self._directory, interval_s=interval_s, provider=self.plugins)
        self._age()

    @property
    def discovery(self) -> Discovery:
        """What fills the store, once it is loaded."""
        assert self._discovery is not None, "load comes first"
        return self._discovery

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with discoveries and sources as they are now."""
        discovery = self._discovery.problems if self._discovery is not None else ()
        return (*discovery, *self.collection.problems)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What should be known of discoveries and sources, and asks for nothing; in a step of the loop."""
        discovery = self._discovery.warnings if self._discovery is not None else ()
        lacking = self.collection.resolution.warnings
        return (*discovery, *lacking, *unasked(self.plugins.listed, self.plugins.declared), *self._unmade())

    async def ready(self) -> None:
        """Return once the configured discovery has told all that there is, and requests see it."""
        await self.discovery.ready.wait()
        self.store.publish(time.monotonic())

    async def run(self, group: anyio.abc.TaskGroup) -> None:
        """Start discovery, publication and collection in `group`; returns when every endpoint has its collector."""
        group.start_soon(self._background.keep, "discovery", self.discovery.run)
        group.start_soon(self._background.keep, "snapshots", self._publish)
        group.start_soon(self._background.keep, "plugin attributes", self._follow_plugins)
        await self.collection.run(group)

    async def prepare(self, picker: PickerConfig, directory: Path | None = None) -> "PreparedData":
        """What `configure` needs of another picker configuration; nothing has changed yet. Calls may overlap.

        `directory` is what its relative paths are relative to, if that is not what those in force are relative to. Raises `InputError`. A
        discovery that then fails keeps what the one before it named.
        """
        directory = directory or self._directory
        # In a thread: thousands of endpoints may stand there.
        parameters, plans = await anyio.to_thread.run_sync(self._read, picker, directory)
        return PreparedData(picker, directory, plans, await self.collection.prepare(parameters, directory))

    def configure(self, config: HostConfig, prepared: "PreparedData") -> None:
        """Take over another configuration.

        What a reload does not change stays as it is until the next start: see the operator guide.
        """
        self.discovery.configure(configured_endpoints(config.endpoints))
        self.discovery.follow(_bounded(prepared.plans, config))
        self.discovery.allow(config.discovery.allowed_networks)
        self._config, self._picker, self._directory = config, prepared.picker, prepared.directory
        self.plugins.listed = _unnamed(prepared.picker)
        self.collection.take(prepared.sources)
        self._age()

    def _unmade(self) -> tuple[Problem, ...]:
        """Attributes that are read and that nobody makes; none while a type is not known that could make them."""
        entries = [entry for entry in self._picker.plugins if entry.type not in BUILTIN_TYPES]
        declared = [(entry.name, self.plugins.declared(entry.name)) for entry in entries]
        if any(known is None for _, known in declared):
            return ()
        readers = [(name, known.reads) for name, known in declared if known is not None]
        readers.append(("freshness.fields", tuple(self._config.freshness.fields)))
        made = made_by(one for binding in self.collection.resolution.bindings for one in binding.extractors)
        return unmade(readers, made)

    def _read(self, picker: PickerConfig, directory: Path) -> tuple[DataParameters, tuple[FeedPlan, ...]]:
        parameters = read_data_layer(picker, others=SCHEDULING_TYPES)
        return parameters, self._plans(picker, parameters, directory)

    def _plans(self, picker: PickerConfig, parameters: DataParameters, directory: Path) -> tuple[FeedPlan, ...]:
        reference, found = picker.data_layer.discovery, parameters.discovery
        if reference is None or found is None:
            return ()
        if isinstance(found, Provided):
            return (self.plugins.discovery_plan(reference.ref),)
        return (discovery_plan(reference.ref, found, directory),)

    async def _follow_plugins(self) -> None:
        """What extractors of packages make, and what they read, may change with each version."""
        while True:
            changed = anyio.Event()
            unwatch = self.plugins.watch(changed.set)
            try:
                self.collection.learn()
                await changed.wait()
            finally:
                unwatch()

    def _age(self) -> None:
        """Figures count for as long as the configuration says, and until they can have been renewed."""
        written = self._config.freshness
        limits = Freshness(written.stale_after_s, written.fields, StalePolicy(written.policy), written.failures)
        self.store.freshness = limits.for_interval(self.collection.longest_report_s)

    async def _publish(self) -> None:
        while True:
            now = time.monotonic()
            self.before_publish(now)
            self.store.publish(now)
            await anyio.sleep(PUBLISH_TICK_S)


@dataclass(frozen=True, slots=True)
class PreparedData:
    """A picker configuration whose data layer can be put in force: what is to be run of it."""

    picker: PickerConfig
    directory: Path
    plans: tuple[FeedPlan, ...]
    sources: PreparedSources


def _bounded(plans: tuple[FeedPlan, ...], config: HostConfig) -> tuple[FeedPlan, ...]:
    """The plans, those of packages with how many endpoints they may name."""
    most = config.discovery.plugin_endpoints
    return tuple(replace(plan, most=most) if plan.is_package else plan for plan in plans)


def _objects(folder: Path | None) -> Callable[[ObjectKind], NotificationSource] | None:
    """What finds the objects of a kind for sources of packages."""
    if folder is None:
        return None
    return lambda kind: ObjectDirectorySource(f"objects of {kind}", folder, kind)


def _default_source(type_name: str, *, interval_s: float) -> DataSource | None:
    use = default_use(type_name)
    return make_source(use, directory=Path(), interval_s=interval_s) if use is not None else None


def _unnamed(picker: PickerConfig) -> dict[str, str]:
    """The plugins that the data layer does not refer to, name → type."""
    named = picker.data_layer.refs
    return {entry.name: entry.type for entry in picker.plugins if entry.name not in named}


def _scrape_process(
    store: ScrapeStore, source: MetricsPoller, on_page: OnPage, widened: Callable[[float], None]
) -> ScrapeProcess:
    return ScrapeProcess(store, source, start=Helper.start, on_page=on_page, widened=widened)
