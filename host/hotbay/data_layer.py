"""Wiring of the data layer: the store, what fills it with endpoints, what keeps it fresh, and its publication.

Decides nothing. `load` comes first and is strict, `run` starts what goes on beside requests, `configure` takes over what a
reload may change. One event loop; the store's owner is its thread.
"""

import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from hotbay.collection import Collection, MakeScraper, OnPage
from hotbay.config.data_sources import DataParameters, Provided, default_use, read_data_layer
from hotbay.config.data_types import ObjectKind
from hotbay.config.host_config import HostConfig
from hotbay.config.picker_config import PickerConfig
from hotbay.datalayer.discovery.configured import configured_endpoints
from hotbay.datalayer.discovery.discovery import Discovery
from hotbay.datalayer.discovery.feed import FeedPlan
from hotbay.datalayer.discovery.plans import discovery_plan
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.provider import RemoteTypes
from hotbay.datalayer.remote.records import listens_on
from hotbay.datalayer.scraping.in_loop import ScrapeStore
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.process import ScrapeProcess
from hotbay.datalayer.source import DataSource, NotificationSource
from hotbay.datalayer.sources.builtin import make_source
from hotbay.datalayer.sources.objects import ObjectDirectorySource
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.errors import Problem
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay.process.helper import Helper
from hotbay.scheduling.registry import SCHEDULING_TYPES

__all__ = ["PUBLISH_TICK_S", "DataLayer"]

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
        self.plugins = RemoteTypes(
            default_source=partial(_default_source, interval_s=config.scrape.interval_s),
            feed=_objects(config.objects.directory),
            own=listens_on(config.listen.http.host, config.listen.http.port),
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
        self._discovery: Discovery | None = None
        self._parameters = DataParameters(None, ())

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
        self._parameters = read_data_layer(self._picker, others=SCHEDULING_TYPES)
        self._discovery = Discovery(
            self.store,
            configured=configured,
            plans=self._plans(self._picker, self._parameters),
            background=self._background,
            draw=random.SystemRandom().random,
        )
        self.plugins.listed = _unnamed(self._picker)
        await self._discovery.check()
        interval_s = self._config.scrape.interval_s
        await self.collection.load(
            self._parameters, directory=self._directory, interval_s=interval_s, provider=self.plugins
        )
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

    def check(self, picker: PickerConfig) -> None:
        """Raises `InputError` when `configure` would. A discovery that then fails keeps what the one before it named."""
        self._plans(picker, read_data_layer(picker, others=SCHEDULING_TYPES))

    def configure(self, config: HostConfig, picker: PickerConfig) -> None:
        """Take over another configuration, which has been checked.

        What a reload does not change stays as it is until the next start: see the operator guide.
        """
        plans = self._plans(picker, read_data_layer(picker, others=SCHEDULING_TYPES))
        self.discovery.configure(configured_endpoints(config.endpoints))
        self.discovery.follow(plans)
        self._config, self._picker = config, picker
        self.plugins.listed = _unnamed(picker)
        self._age()

    def _plans(self, picker: PickerConfig, parameters: DataParameters) -> tuple[FeedPlan, ...]:
        reference, found = picker.data_layer.discovery, parameters.discovery
        if reference is None or found is None:
            return ()
        if isinstance(found, Provided):
            return (self.plugins.discovery_plan(reference.ref),)
        return (discovery_plan(reference.ref, found, self._directory),)

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
