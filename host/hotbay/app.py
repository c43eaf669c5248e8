"""Wiring: the one place where a host's objects are built and joined. Decides nothing.

`Host.run` starts everything in order (state, endpoints, plugins, gateway), says when it serves, and on
the stop event drains in the opposite order. No plugin process is left when it returns.
"""

import logging
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from hotbay.config.data_parameters import MetricsSource, read_data_layer
from hotbay.config.host_config import HostConfig, PackageEntry
from hotbay.config.picker_config import PickerConfig
from hotbay.datalayer.discovery import Discovery
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.endpoint_documents import configured_endpoints
from hotbay.datalayer.scrape import Scraper
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import CapacityError, HostError, Problem
from hotbay.gateway.http import Gateway
from hotbay.gateway.limits import GatewayLimits
from hotbay.observe.metrics import Metrics
from hotbay.packages.bundled import Part, absent, bundled_folder
from hotbay.packages.environment import sweep_environments
from hotbay.packages.manifest import Manifest
from hotbay.packages.sources.directory import DirectorySource, Scan
from hotbay.packages.staging import stage_package
from hotbay.process.isolation import find_level
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.backoff import BackoffPolicy
from hotbay.rollout.deployment import Deployment, resolve
from hotbay.rollout.instance import StartOptions
from hotbay.rollout.routine import Services
from hotbay.rollout.supervisor import Supervisor, Wanted
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.registry import TypeIndex
from hotbay.scheduling.router import Router
from hotbay.status import StatusPage
from hotbay.store.blobs import BlobStore
from hotbay.store.state_dir import StateDirectory, unusable

logger = logging.getLogger(__name__)

PUBLISH_TICK_S: Final = 0.02
"""Snapshots are published at most this long after a change (hot-path, Snapshot)."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A host that answers: where, and its parts that a caller may look at."""

    address: tuple[str, int]
    metrics: Metrics
    status: Callable[[], Mapping[str, object]]


class Host:
    """One host. `run` once."""

    def __init__(self, config: HostConfig, picker: PickerConfig, *, picker_directory: Path) -> None:
        self._config = config
        self._picker = picker
        self._picker_directory = picker_directory
        self._metrics = Metrics()
        self._endpoints = EndpointStore()
        self._not_ready: tuple[str, ...] = ("starting",)
        self._supervisor: Supervisor | None = None
        self._router: Router | None = None
        self._discovery: Discovery | None = None
        self._problems: tuple[Problem, ...] = ()
        self._status = StatusPage(self._endpoints, self._metrics, isolation=config.isolation.level)

    async def run(self, serving: Callable[[Serving], None], stop: anyio.Event) -> None:
        """Serve until `stop` is set, then drain. Raises `HostError` when the host cannot start."""
        state = StateDirectory.open(Path(self._config.state_dir))
        try:
            async with anyio.create_task_group() as group:
                await self._serve(state, group, serving, stop)
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            # A task group wraps even a single error; who runs a host wants the one that it can act upon.
            error = only_host_error(errors)
            if error is None:
                raise
            raise error from errors
        finally:
            state.close()

    async def _serve(
        self,
        state: StateDirectory,
        group: anyio.abc.TaskGroup,
        serving: Callable[[Serving], None],
        stop: anyio.Event,
    ) -> None:
        config = self._config
        find_level(config.isolation.level)
        discovery, follows_file = self._make_discovery()
        self._discovery = discovery
        await discovery.load()
        router = self._router = self._status.router = Router(self._endpoints, self._metrics)
        supervisor = await self._start_plugins(state, router, group)
        if follows_file:
            group.start_soon(discovery.run)
        group.start_soon(self._publish)
        await group.start(self._make_scraper().run)
        gateway = self._gateway(router)
        try:
            await self._answer(gateway, supervisor, serving, stop)
        finally:
            with anyio.CancelScope(shield=True):
                await gateway.close()

    async def _answer(
        self, gateway: Gateway, supervisor: Supervisor, serving: Callable[[Serving], None], stop: anyio.Event
    ) -> None:
        listen, drain_s = self._config.listen.http, self._config.swap.drain_s
        try:
            address = await gateway.listen(listen.host, listen.port)
        except OSError as error:
            raise CapacityError(
                "UNAVAILABLE",
                f"cannot listen on {listen.host}:{listen.port}: {error.strerror or error}",
                hint="stop what uses the address, or set listen.http to another one",
            ) from error
        self._not_ready = ("plugins are starting",)
        serving(Serving(address, self._metrics, self.status))
        async with anyio.create_task_group() as starting:
            starting.start_soon(self._become_ready, supervisor)
            await stop.wait()
            starting.cancel_scope.cancel()
        logger.info("draining")
        self._not_ready = ("draining",)
        with anyio.CancelScope(shield=True):
            await gateway.drain(drain_s)
            await supervisor.shutdown(drain_s)

    async def _become_ready(self, supervisor: Supervisor) -> None:
        """Be ready when every plugin had its first attempt: what does not run then is degraded, and named."""
        await supervisor.first_attempts()
        await supervisor.complete()
        self._not_ready = ()
        missing = [row for row in supervisor.rows if row.live_pid is None]
        for row in missing:
            code, message = (row.last_error.code, row.last_error.message) if row.last_error else ("", "")
            logger.error("ready_without plugin=%s phase=%s code=%s: %s", row.plugin, row.phase, code, message)
        logger.info("ready plugins=%s", len(supervisor.rows) - len(missing))

    # -- parts -----------------------------------------------------------------------------------

    def _make_discovery(self) -> tuple[Discovery, bool]:
        """The discovery, and whether its file is to be followed."""
        configured = configured_endpoints(self._config.endpoints)
        parameters = read_data_layer(self._picker).discovery
        if parameters is None:
            return Discovery(self._endpoints, configured=configured), False
        file = self._picker_directory / parameters.path
        return Discovery(self._endpoints, configured=configured, file=file), parameters.watch_file

    def _make_scraper(self) -> Scraper:
        source = read_data_layer(self._picker).metrics or MetricsSource()
        interval_s = source.interval_s or self._config.scrape.interval_s
        return Scraper(self._endpoints, interval_s=interval_s, path=source.path, port=source.port)

    async def _start_plugins(self, state: StateDirectory, router: Router, group: anyio.abc.TaskGroup) -> Supervisor:
        sources = [
            DirectorySource(Path(s.directory), s.name, dev=s.dev)
            if s.directory
            else DirectorySource(bundled_folder(Part.PACKAGES), s.name, dev=s.dev, absent=absent(Part.PACKAGES))
            for s in self._config.sources
            if s.fetch != "off"
        ]
        scans: dict[str, Scan] = {}
        for source in sources:
            scans[source.name] = await anyio.to_thread.run_sync(source.scan)
        offers = [o for scan in scans.values() for o in scan.offers]
        index = TypeIndex.build(((o.manifest.id, o.manifest.types) for o in offers), self._config.types)
        unusable = [problem for scan in scans.values() for problem in scan.problems]
        scheduling = resolve(self._picker, index, binding_options(self._config), unusable=unusable)
        deployment = Deployment(router, scheduling, index)
        services = partial(self._services, state, deployment, router)
        supervisor = self._supervisor = self._status.supervisor = Supervisor(
            sources, deployment, services, group, ranking=self._config.types
        )
        supervisor.start(scans, [s.name for s in self._config.sources if s.fetch == "watch"])
        return supervisor

    def _services(
        self, state: StateDirectory, deployment: Deployment, router: Router, supervisor: Supervisor
    ) -> Services:
        supervise = self._config.supervise
        environments = state.root / "environments"
        try:
            store = BlobStore(state.root / "store")
            sweep_environments(environments)
        except OSError as error:
            raise unusable(state.root, error) from error

        building: dict[tuple[str, ...], anyio.Lock] = {}

        async def stage(manifest: Manifest, layout: Path) -> Path:
            # Packages with equal wheels share an environment: the first builds it, the others find it.
            wheels = tuple(sorted(blob.digest for blob in manifest.blobs))
            async with building.setdefault(wheels, anyio.Lock()):
                return await stage_package(
                    store,
                    manifest,
                    layout,
                    sys.executable,
                    environments=environments,
                    limit_bytes=self._config.limits.package_bytes,
                )

        def retired(generation: Generation) -> None:
            router.retire(generation.number)

        return Services(
            deployment=deployment,
            environments=stage,
            launcher=_Launcher(self._config, state),
            backoff=BackoffPolicy(
                first_s=supervise.restart.first_s,
                factor=supervise.restart.factor,
                max_s=supervise.restart.max_s,
                stable_s=supervise.stable_s,
                budget_failures=supervise.budget.failures,
                budget_within_s=supervise.budget.within_s,
            ),
            now=time.monotonic,
            random=random.SystemRandom().random,
            starts=anyio.CapacityLimiter(supervise.max_parallel_starts),
            drain_s=self._config.swap.drain_s,
            linger_s=supervise.linger_s,
            retired=retired,
            changed=self._plugin_changed,
            refs_changed=supervisor.refs_changed,
        )

    def _plugin_changed(self, what: str, label: str) -> None:
        if what == "crashed":
            self._metrics.plugin_restart(label.partition("#")[0])

    def _gateway(self, router: Router) -> Gateway:
        limits = self._config.limits
        return Gateway(
            router,
            self._endpoints.ledger,
            metrics=self._metrics,
            endpoints=self._active_endpoints,
            not_ready=lambda: self._not_ready,
            status=self.status,
            limits=GatewayLimits(header_bytes=limits.header_bytes, body_bytes=limits.body_bytes),
        )

    def _active_endpoints(self) -> tuple[EndpointMetadata, ...]:
        return tuple(e for e in self._endpoints.endpoints() if e.state is EndpointState.ACTIVE)

    async def _publish(self) -> None:
        while True:
            self._endpoints.publish(time.monotonic())
            await anyio.sleep(PUBLISH_TICK_S)

    # -- reload ----------------------------------------------------------------------------------

    async def adopt(self, config: HostConfig, picker: PickerConfig) -> None:
        """Put changed scheduling and endpoints in force, or raise `HostError` with the old ones going on."""
        supervisor, discovery = self._supervisor, self._discovery
        assert supervisor is not None, "reloads follow the start"
        assert discovery is not None, "reloads follow the start"
        await supervisor.adopt(Wanted(picker, binding_options(config), config.types))
        discovery.configure(configured_endpoints(config.endpoints))

    def report_problems(self, problems: tuple[Problem, ...]) -> None:
        """What is wrong with the configuration files as they are now, for status."""
        self._problems = problems

    # -- status ----------------------------------------------------------------------------------

    def status(self) -> Mapping[str, object]:
        """The status page."""
        return self._status.render(self._not_ready, self._problems)


def only_host_error(errors: ExceptionGroup[Exception]) -> HostError | None:
    """The one error of a task group, however deep, if it is somebody's to act upon."""
    inner: Exception = errors
    while isinstance(inner, ExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, HostError) else None


class _Launcher:
    """Launch specifications from the operator's wishes."""

    def __init__(self, config: HostConfig, state: StateDirectory) -> None:
        self._config = config
        self._state = state
        self._packages = {entry.id: entry for entry in config.packages}

    def _entry(self, plugin_id: str) -> PackageEntry:
        return self._packages.get(plugin_id) or PackageEntry(id=plugin_id)

    def spec(self, manifest: Manifest, site: Path, number: int) -> LaunchSpec:
        entry = self._entry(manifest.id)
        return LaunchSpec(
            interpreter=sys.executable,
            stage0=STAGE0,
            environment=str(site),
            entrypoint=manifest.entrypoint,
            working_directory="/",
            level=entry.isolation or self._config.isolation.level,
            label=f"{manifest.id}#{number}",
            arm_timeout_s=entry.hello_s,
            hello_timeout_s=entry.hello_s,
            ready_timeout_s=entry.ready_s,
        )

    def next_generation(self) -> int:
        return self._state.next_generation()

    def options(self, plugin_id: str) -> StartOptions:
        return StartOptions(
            configure_timeout_s=self._entry(plugin_id).ready_s,
            log_level=self._config.logging.level,
            seed=random.SystemRandom().getrandbits(63),
        )

    def log(self, plugin_id: str, label: str) -> LogSink:
        return LogSink(label)


def binding_options(config: HostConfig) -> dict[str, BindingOptions]:
    """HostConfig's `bindings` as the scheduler wants them."""
    return {
        name: BindingOptions(Policy(b.on_failure) if b.on_failure is not None else None, b.deadline_s, b.neutral)
        for name, b in config.bindings.items()
    }
