"""A host's packages: state directory, world, store, environments and sources, opened together and let go of together.

Wiring; decides nothing. `suspend` gives the state directory away for the time of a handover: what was read stays
readable, what would be written is refused; `resume` takes it again. No collection and no fetch is under way while it is
away.
"""

import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.to_thread

from hotbay.config.host_config import HostConfig
from hotbay.config.source_config import Source as SourceEntry
from hotbay.errors import HostError, InputError, Problem
from hotbay.extend import Extensions, load_extensions
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay.packages.environment import Environments
from hotbay.packages.fetch import Fetcher
from hotbay.packages.manifest import host_platform
from hotbay.packages.package_blobs import FetchLimits, Progress
from hotbay.packages.ref_watch import RefWatcher, SourceStatus
from hotbay.packages.sources.source import Source
from hotbay.rollout.services import Fetching
from hotbay.sourcing import make_sources
from hotbay.store.blobs import BlobStore
from hotbay.store.budget import DiskBudget, DiskUsage
from hotbay.store.digests import Digest
from hotbay.store.gc import collect
from hotbay.store.gc_plan import Demand, GcPlan
from hotbay.store.layout import keep_index
from hotbay.store.state_dir import StateDirectory, unusable
from hotbay.store.world.held import HeldWorld
from hotbay.store.world.opened import in_file, in_memory
from hotbay.store.world.records import ManifestRef

logger = logging.getLogger(__name__)

__all__ = ["CountedFetcher", "Depot", "Supply", "platforms_of"]

USAGE_INTERVAL_S: Final = 30.0
"""How often the room that packages and environments take is measured if nothing changed: it looks at every file."""
USAGE_SETTLE_S: Final = 1.0
"""What was recorded is measured so much later: a change seldom comes alone."""
COLLECT_INTERVAL_S: Final = 60.0
"""How often a host that knows something new looks for what nothing needs any more: it looks at every file, too."""

HOLD_S: Final = 10.0
"""For fetches and builds to end when the state directory is given away: they are cancelled, and wait for the disk at most.
What takes longer harms nobody: who goes on with it spares what is locked."""


@dataclass(frozen=True, slots=True)
class Supply:
    """How a host comes by what plugins run from, where it is not as usual.

    `environments` keeps folders to import from below one, `sources` makes those of a configuration; `gives_way`: the
    process of a new version has the CPU that those that serve leave.
    """

    environments: Callable[[Path], Environments] = Environments
    sources: Callable[[Sequence[SourceEntry], Extensions], Mapping[str, Source]] = make_sources
    gives_way: bool = True


USUAL: Final = Supply()


class Depot:
    """See the module. `open`, then `run` beside the host, then `close`. All methods are for the loop's thread."""

    def __init__(
        self,
        config: HostConfig,
        state: StateDirectory,
        world: HeldWorld,
        sources: Mapping[str, Source],
        *,
        now: Callable[[], float],
        wall: Callable[[], float],
        random: Callable[[], float],
        background: Background | None = None,
        warnings: Sequence[Problem] = (),
        supply: Supply = USUAL,
    ) -> None:
        self.state = state
        self.warnings = tuple(warnings)
        """What the operator should know of how the directory was found."""
        self._background = background or Background()
        self.world = world
        self.store = BlobStore(state.root / "store")
        self.environments = supply.environments(state.root / "environments")
        self.sources = sources
        self.usage: DiskUsage | None = None
        self._collecting = anyio.Lock()
        self._keep_versions = config.limits.keep_versions
        self._budget = DiskBudget(self.store, self.environments.present, limit_bytes=config.limits.store_bytes)
        self._interpreters: Mapping[str, str] = {}
        self._pinned: frozenset[tuple[str, int | str]] = frozenset()
        self.obey(config)
        self.fetcher = Fetcher(
            self.store,
            self.environments,
            world,
            sources,
            limits=_fetch_limits(config),
            interpreter_of=self.interpreter_of,
            wall=wall,
            in_place=[entry.name for entry in config.sources if not entry.copy_blobs],
            check_room=self._budget.check_room,
        )
        entries = {entry.name: entry for entry in config.sources}
        self.watchers: tuple[RefWatcher, ...] = tuple(
            RefWatcher(
                source,
                world,
                fetch=entries[name].fetch,
                store=entries[name].store,
                withdrawn=entries[name].withdrawn,
                now=now,
                wall=wall,
                random=random,
            )
            for name, source in sources.items()
        )

    @classmethod
    async def open(
        cls,
        config: HostConfig,
        state: StateDirectory,
        *,
        now: Callable[[], float],
        wall: Callable[[], float],
        random: Callable[[], float],
        background: Background | None = None,
        supply: Supply = USUAL,
    ) -> Self:
        """Open the world and make the sources, of which none is looked at yet. Raises `HostError`."""
        sources = supply.sources(config.sources, load_extensions())
        warnings: tuple[Problem, ...] = ()
        try:
            if config.world.engine == "memory":
                world = in_memory()
            else:
                world, warnings = await in_file(state.root / config.world.path)
        except OSError as error:
            raise unusable(state.root, error) from error
        try:
            depot = cls(
                config, state, world, sources,
                now=now, wall=wall, random=random, background=background, warnings=warnings,
                supply=supply,
            )  # fmt: skip
            await anyio.to_thread.run_sync(depot._sweep)
        except OSError as error:
            await world.close()
            raise unusable(state.root, error) from error
        return depot

    def _sweep(self) -> None:
        self.store.sweep()
        self.environments.sweep()

    def obey(self, config: HostConfig, *, incoming: HostConfig | None = None) -> None:
        """Run packages on these interpreters from now on, and keep what is pinned; what runs already goes on as it is.

        What only an `incoming` configuration needs can run before that one is in force, on the hosts that it adds.
        """
        self._pinned = _pinned(config) | (_pinned(incoming) if incoming is not None else frozenset())
        added = _interpreters(incoming) if incoming is not None else {}
        self._interpreters = {**added, **_interpreters(config)}

    def interpreter_of(self, platform: str) -> str:
        """The interpreter's path for a platform tag of this host. Raises `InputError` for one that `hosts` has no more."""
        interpreter = self._interpreters.get(platform)
        if interpreter is None:
            known = ", ".join(self._interpreters)
            message = f"no interpreter runs {platform} here; those that do run {known}"
            hint = "name an interpreter for it under hosts, or publish a build for one of those"
            raise InputError([Problem("CONFIG_INVALID", message, path="hosts", hint=hint)])
        return interpreter

    @property
    def statuses(self) -> tuple[SourceStatus, ...]:
        """What the sources are doing."""
        return tuple(watcher.status for watcher in self.watchers)

    def problems(self) -> Sequence[Problem]:
        """What the sources cannot offer, and why."""
        return [problem for status in self.statuses for problem in status.problems]

    async def run(self) -> None:
        """Follow the sources, keep the store's index, measure; until cancelled."""
        keep = self._background.keep
        async with anyio.create_task_group() as group:
            for watcher in self.watchers:
                group.start_soon(keep, f"source {watcher.source.name}", watcher.run)
            group.start_soon(keep, "store index", partial(keep_index, self.world, self.store))
            group.start_soon(keep, "store usage", self._measure)

    async def first_scans(self) -> None:
        """Return when every source was looked at once, or could not be."""
        for watcher in self.watchers:
            await watcher.first_scan.wait()

    async def _measure(self, *, settle_s: float = USAGE_SETTLE_S) -> None:
        while True:
            revision = self.world.view.revision
            try:
                self.usage = await anyio.to_thread.run_sync(self._budget.usage)
            except OSError as error:
                logger.warning("store_not_measured: %s", error)
            else:
                for alarm in self.usage.alarms:
                    logger.warning("store_alarm: %s", alarm)
            with anyio.move_on_after(USAGE_INTERVAL_S):
                await self.world.changed(revision)
            await anyio.sleep(settle_s)

    async def keep_small(
        self, in_use: Callable[[], Collection[Digest]], *, interval_s: float = COLLECT_INTERVAL_S
    ) -> None:
        """Collect by itself when something changed, see `collect`; until cancelled.

        A host that gets a new version every hour would fill its disk and its memory without an operator who says `gc`.
        """
        collected: int | None = None
        while True:
            await anyio.sleep(interval_s)
            revision = self.world.view.revision
            if revision != collected:
                try:
                    await self.collect(in_use, dry_run=False)
                    collected = revision
                except (HostError, OSError) as error:
                    logger.warning("store_not_collected: %s", error)

    async def collect(self, in_use: Callable[[], Collection[Digest]], *, dry_run: bool) -> GcPlan:
        """Remove what nothing needs; `in_use` are the digests of manifests that run or are being tried.

        Calls may overlap: they wait for each other. Raises as `store.gc.collect`.
        """

        def demand() -> Demand:
            return Demand(frozenset(in_use()), self.fetcher.under_way, self._pinned)

        async with self._collecting:
            return await collect(
                self.world,
                self.store,
                self.environments,
                demand=demand,
                keep_versions=self._keep_versions,
                dry_run=dry_run,
            )

    async def suspend(self) -> None:
        """Let go of world and state directory. Fetches and builds are ended, a collection under way ends first."""
        if not await self.fetcher.hold(within_s=HOLD_S):
            logger.warning("fetches_under_way after_s=%g: the successor fetches the same again", HOLD_S)
        async with self._collecting:
            await self.world.let_go()
            self.state.release_lock()

    async def resume(self) -> None:
        """Take both again. Raises `HostError`."""
        self.state.reacquire()
        await self.world.take_again()
        self.fetcher.release()

    async def close(self) -> None:
        """Close the sources and the world."""
        for source in self.sources.values():
            try:
                await source.close()
            except HostError as error:
                logger.warning("source_not_closed source=%s: %s", source.name, error)
        await self.world.close()


@dataclass(frozen=True, slots=True)
class CountedFetcher:
    """A fetcher whose fetches are counted: bytes that came from sources, and how each fetch that did something ended."""

    fetcher: Fetching
    metrics: Metrics

    async def fetch(self, ref: ManifestRef, *, report: Callable[[Progress], None]) -> Path:
        """See `Fetcher.fetch`."""
        plugin, done, has_worked = ref.plugin_id, None, False

        def note(progress: Progress) -> None:
            nonlocal done, has_worked
            if done is not None and progress.bytes_done > done:
                self.metrics.fetched(plugin, progress.bytes_done - done)
            done, has_worked = progress.bytes_done, has_worked or progress.phase != "complete"
            report(progress)

        try:
            site = await self.fetcher.fetch(ref, report=note)
        except HostError as error:
            self.metrics.fetch(plugin, error.code)
            raise
        if has_worked:
            self.metrics.fetch(plugin, "complete")
        return site


def platforms_of(config: HostConfig) -> tuple[str, ...]:
    """Tags of what packages can run on, the preferred first."""
    return tuple(_interpreters(config))


def _pinned(config: HostConfig) -> frozenset[tuple[str, int | str]]:
    return frozenset((entry.id, entry.pin) for entry in config.packages if entry.pin is not None)


def _interpreters(config: HostConfig) -> dict[str, str]:
    configured = {host.platform: str(host.interpreter or sys.executable) for host in config.hosts}
    return configured or {host_platform(): sys.executable}


def _fetch_limits(config: HostConfig) -> FetchLimits:
    limits = config.limits
    return FetchLimits(
        concurrency=limits.fetch_concurrency,
        min_rate_bytes_per_s=limits.fetch_rate_bytes,
        stall_s=limits.fetch_stall_s,
        total_s=limits.fetch_timeout_s,
        package_bytes=limits.package_bytes,
    )
