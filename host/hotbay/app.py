"""Wiring: the one place where a host's objects are built and joined. Decides nothing.

`Host.run` starts everything in order (state, endpoints, plugins, gateway), says when it serves, and on
the stop event drains in the opposite order. No plugin process is left when it returns. A host that takes over from
another one begins to accept when it is ready, and not before.
"""

import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from hotbay.config.data_parameters import MetricsSource, read_data_layer
from hotbay.config.host_config import HostConfig
from hotbay.config.picker_config import PickerConfig
from hotbay.config.reload import read_content
from hotbay.datalayer.discovery import Discovery
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.endpoint_documents import configured_endpoints
from hotbay.datalayer.scrape import Scraper
from hotbay.datalayer.store import EndpointStore
from hotbay.depot import CountedFetcher, Depot
from hotbay.errors import CapacityError, HostError, Problem
from hotbay.gateway.admin import AdminServer
from hotbay.gateway.http import Gateway
from hotbay.gateway.limits import GatewayLimits
from hotbay.handover import HandoverServer, Successor, find_predecessor
from hotbay.launcher import Launcher
from hotbay.observe.metrics import Metrics
from hotbay.process.isolation import find_level
from hotbay.process.leftovers import HostRecords
from hotbay.rollout.catalog import Catalog
from hotbay.rollout.deployment import Deployment, resolve
from hotbay.rollout.events import EventLog
from hotbay.rollout.lock_document import lock_changes, read_lock
from hotbay.rollout.operations import Operations, Ports
from hotbay.rollout.services import Occurrence, Services
from hotbay.rollout.supervisor import Supervisor, Wanted
from hotbay.rpc.host_services import HostLender
from hotbay.scheduling.router import Router
from hotbay.status import StatusPage
from hotbay.store.state_dir import StateDirectory, unusable
from hotbay.store.world.records import Locked
from hotbay.wishes import binding_keys, binding_options, plugin_settings, trial_policies

logger = logging.getLogger(__name__)

PUBLISH_TICK_S: Final = 0.02
"""Snapshots are published at most this long after a change (hot-path, Snapshot)."""
FIRST_SCAN_S: Final = 10.0
"""How long a start waits for sources that do not answer; what the world holds is there without them."""
HANDOVER_SOCKET: Final = "handover.sock"


@dataclass(frozen=True, slots=True)
class Serving:
    """A host that answers: where, and its parts that a caller may look at."""

    address: tuple[str, int]
    metrics: Metrics
    status: Callable[[], Mapping[str, object]]


def wall_s() -> float:
    """Seconds since the epoch; for people to read, and for the ends of quarantines."""
    return time.time_ns() / 1e9


class Host:
    """One host. `run` once.

    `take_over`: if a host runs on the state directory, become its successor; without one, just start.
    """

    def __init__(
        self, config: HostConfig, picker: PickerConfig, *, picker_directory: Path, take_over: bool = False
    ) -> None:
        self._config = config
        self._picker = picker
        self._picker_directory = picker_directory
        self._take_over = take_over
        self._metrics = Metrics()
        self._endpoints = EndpointStore()
        self._not_ready: tuple[str, ...] = ("starting",)
        self._supervisor: Supervisor | None = None
        self._depot: Depot | None = None
        self._router: Router | None = None
        self._discovery: Discovery | None = None
        self._problems: tuple[Problem, ...] = ()
        self._is_replaced = False
        self._held_back: HeldBack | None = None
        self._events = EventLog(wall_s)
        self._lender = HostLender(
            count=self._metrics.plugin_counters.add,
            endpoints=self._endpoints.endpoints,
            now=time.monotonic,
            wall=wall_s,
            entropy=os.urandom,
        )
        self._status = StatusPage(self._endpoints, self._metrics, isolation=config.isolation.level)
        self._metrics.facts = lambda: self._status.facts(self._not_ready, self._problems)

    async def run(self, serving: Callable[[Serving], None], stop: anyio.Event) -> None:
        """Serve until `stop` is set, then drain. Raises `HostError` when the host cannot start."""
        root = Path(self._config.state_dir)
        predecessor = await find_predecessor(root / HANDOVER_SOCKET) if self._take_over else None
        try:
            if predecessor is not None:
                await predecessor.freeze()
            state = StateDirectory.open(root)
            try:
                await self._run(state, predecessor, serving, stop)
            finally:
                state.close()
        finally:
            if predecessor is not None:
                await predecessor.aclose()

    async def _run(
        self,
        state: StateDirectory,
        predecessor: Successor | None,
        serving: Callable[[Serving], None],
        stop: anyio.Event,
    ) -> None:
        find_level(self._config.isolation.level)
        draw = random.SystemRandom().random
        depot = self._depot = await Depot.open(self._config, state, now=time.monotonic, wall=wall_s, random=draw)
        records: HostRecords | None = None
        try:
            records = await anyio.to_thread.run_sync(_open_records, state.root / "processes")
            async with anyio.create_task_group() as group:
                await self._serve(depot, records, group, _Entry(predecessor, serving, stop))
                group.cancel_scope.cancel()
        except ExceptionGroup as errors:
            # A task group wraps even a single error; who runs a host wants the one that it can act upon.
            error = only_host_error(errors)
            if error is None:
                raise
            raise error from errors
        finally:
            with anyio.CancelScope(shield=True):
                if records is not None:
                    await anyio.to_thread.run_sync(records.close)
                await depot.close()

    async def _serve(self, depot: Depot, records: HostRecords, group: anyio.abc.TaskGroup, entry: "_Entry") -> None:
        discovery, follows_file = self._make_discovery()
        self._discovery = discovery
        await discovery.load()
        router = self._router = self._status.router = Router(self._endpoints, self._metrics)
        self._status.sources, self._status.store = lambda: depot.statuses, lambda: depot.usage
        self._status.world = lambda: depot.world.view
        group.start_soon(depot.run)
        with anyio.move_on_after(FIRST_SCAN_S):
            await depot.first_scans()
        await self._first_lock(depot, self._lock_lines())
        launcher = Launcher(lambda: self._config, depot.state, depot.interpreter_of, str(records.folder))
        supervisor = self._start_plugins(depot, launcher, router, group)
        admin = AdminServer(self._operations(depot, launcher, router, supervisor))
        if follows_file:
            group.start_soon(discovery.run)
        group.start_soon(self._publish)
        await group.start(self._make_scraper().run)
        gateway = self._gateway(router)
        try:
            await self._answer(gateway, supervisor, depot, entry, admin)
        finally:
            with anyio.CancelScope(shield=True):
                await gateway.close()

    async def _answer(
        self, gateway: Gateway, supervisor: Supervisor, depot: Depot, entry: "_Entry", admin: AdminServer
    ) -> None:
        self._not_ready = ("plugins are starting",)
        predecessor, root = entry.predecessor, depot.state.root
        if predecessor is None:
            entry.serving(Serving(await self._listen(gateway), self._metrics, self.status))
        admin_path = root / self._config.listen.admin.path
        async with anyio.create_task_group() as group:
            if predecessor is None:
                await group.start(admin.run, admin_path)
            starting = anyio.CancelScope()

            async def start() -> None:
                with starting:
                    await self._become_ready(supervisor)
                    if predecessor is not None:
                        address = await gateway.listen_on(predecessor.sockets)
                        # Not sooner: a successor that fails would take the socket of the host that goes on with it.
                        await group.start(admin.run, admin_path)
                        entry.serving(Serving(address, self._metrics, self.status))
                        await predecessor.serving()
                    place = _Place(self, gateway, supervisor, depot, entry.stop)
                    await group.start(HandoverServer(root / HANDOVER_SOCKET, place).run)

            group.start_soon(start)
            await entry.stop.wait()
            starting.cancel()
            logger.info("draining")
            self._not_ready = ("draining",)
            with anyio.CancelScope(shield=True):
                drain_s = self._config.swap.drain_s
                await gateway.drain(drain_s, accepts=not self._is_replaced)
                await supervisor.shutdown(drain_s)
            group.cancel_scope.cancel()

    async def _listen(self, gateway: Gateway) -> tuple[str, int]:
        listen = self._config.listen.http
        try:
            return await gateway.listen(listen.host, listen.port)
        except OSError as error:
            raise CapacityError(
                "UNAVAILABLE",
                f"cannot listen on {listen.host}:{listen.port}: {error.strerror or error}",
                hint="stop what uses the address, or set listen.http to another one",
            ) from error

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

    def _start_plugins(
        self, depot: Depot, launcher: Launcher, router: Router, group: anyio.abc.TaskGroup
    ) -> Supervisor:
        config, catalog = self._config, Catalog()
        catalog.read(depot.world.view)
        index = catalog.index(config.types)
        scheduling = resolve(
            self._picker,
            index,
            binding_options(config),
            keys=binding_keys(config),
            unusable=depot.problems(),
            asked=depot.sources,
        )
        deployment = Deployment(router, scheduling, index)
        supervisor = self._supervisor = self._status.supervisor = Supervisor(
            depot.world,
            catalog,
            deployment,
            partial(self._services, depot, launcher, deployment, router),
            group,
            ranking=config.types,
            sources=depot.sources.keys(),
            problems=depot.problems,
        )
        router.wake = supervisor.wake
        supervisor.start()
        return supervisor

    def _services(
        self,
        depot: Depot,
        launcher: Launcher,
        deployment: Deployment,
        router: Router,
        supervisor: Supervisor,
    ) -> Services:
        supervise = self._config.supervise
        return Services(
            world=depot.world,
            fetcher=CountedFetcher(depot.fetcher, self._metrics),
            deployment=deployment,
            launcher=launcher,
            lend=self._lender.serve,
            measures=router,
            settings=lambda name: plugin_settings(self._config, name, platforms=depot.platforms),
            facts=supervisor.facts,
            manifest=supervisor.catalog.manifest,
            ref=supervisor.catalog.ref,
            policies=lambda: trial_policies(self._config),
            now=time.monotonic,
            wall=wall_s,
            random=random.SystemRandom().random,
            starts=anyio.CapacityLimiter(supervise.max_parallel_starts),
            drain_s=self._config.swap.drain_s,
            linger_s=supervise.linger_s,
            retired=lambda generation: router.retire(generation.number),
            happened=self._happened,
            on_trial=supervisor.on_trial,
            refs_changed=supervisor.refs_changed,
            settled=supervisor.settled,
        )

    def _happened(self, occurrence: Occurrence) -> None:
        plugin, metrics = occurrence.plugin, self._metrics
        if occurrence.event == "crashed":
            metrics.plugin_restart(plugin)
        elif occurrence.event == "swapped":
            metrics.rollout(plugin, "live")
        elif occurrence.event == "candidate_failed":
            metrics.rollout(plugin, str(occurrence.fields["code"]))
        self._events.happened(occurrence)

    # -- the operator ----------------------------------------------------------------------------

    async def _first_lock(self, depot: Depot, file: Sequence[Locked] | None) -> None:
        """A state directory that never had a lock obeys the lock file at once; later changes of it wait to be applied.

        Without a lock file none is in force.
        """
        lines = file or ()
        if lines and depot.world.view.all(Locked):
            return
        await depot.world.transact(lambda view: lock_changes(view, lines))

    def _lock_lines(self) -> Sequence[Locked] | None:
        if self._config.lock is None:
            return None
        content = read_content(self._config.lock)
        return read_lock(content.text(hint="`hotbay lock --out FILE` writes one"), file=str(content.path))

    def _operations(self, depot: Depot, launcher: Launcher, router: Router, supervisor: Supervisor) -> Operations:
        ports = Ports(
            status=self.status,
            lines=launcher.lines,
            collect=depot.collect,
            bindings=lambda: router.plan.bindings if router.plan is not None else (),
            lock=self._lock_lines,
            waiting=lambda: self._held_back.changes if self._held_back is not None else (),
            apply=self._apply,
        )
        return Operations(supervisor, self._events, ports)

    async def _apply(self) -> Sequence[str]:
        held, self._held_back = self._held_back, None
        if held is None:
            return ()
        try:
            await held.apply()
        except BaseException:
            # One that came meanwhile is newer.
            self._held_back = self._held_back or held
            raise
        return held.changes

    def hold_back(self, held: "HeldBack | None") -> None:
        """A valid change of the configuration that waits to be applied, in place of the one that waited before."""
        self._held_back = held

    def _gateway(self, router: Router) -> Gateway:
        limits = self._config.limits
        return Gateway(
            router,
            self._endpoints.ledger,
            metrics=self._metrics,
            endpoints=self._active_endpoints,
            not_ready=lambda: self._not_ready,
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
        """Put a changed configuration in force, or raise `HostError` with the old one going on.

        What only acts at the next start is left as it is.
        """
        supervisor, discovery, depot = self._supervisor, self._discovery, self._depot
        assert supervisor is not None, "reloads follow the start"
        assert depot is not None, "reloads follow the start"
        assert discovery is not None, "reloads follow the start"
        before, self._config = self._config, config
        depot.use_hosts(config)
        try:
            # One that cannot be read would keep `apply` from correcting it.
            lock = self._lock_lines()
            await supervisor.adopt(Wanted(picker, binding_options(config), config.types, binding_keys(config)))
        except BaseException:
            self._config = before
            depot.use_hosts(before)
            raise
        if lock is not None:
            await self._first_lock(depot, lock)
        discovery.configure(configured_endpoints(config.endpoints))
        self._metrics.reload("applied")

    def report_problems(self, problems: tuple[Problem, ...]) -> None:
        """What is wrong with the configuration files as they are now, for status."""
        self._problems = problems
        if problems:
            self._metrics.reload("refused")

    def found_unchanged(self) -> None:
        """A configuration file was saved and says what it said before."""
        self._metrics.reload("unchanged")

    # -- status ----------------------------------------------------------------------------------

    def status(self) -> Mapping[str, object]:
        """The status page."""
        return self._status.render(self._not_ready, self._problems)

    def replaced(self) -> None:
        """A successor accepts requests: this host does so no more."""
        self._is_replaced = True


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A change of the configuration that waits: the names of what differs, and what puts it in force."""

    changes: Sequence[str]
    apply: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Entry:
    """How a host begins to serve, and what ends it."""

    predecessor: Successor | None
    serving: Callable[[Serving], None]
    stop: anyio.Event


@dataclass(frozen=True, slots=True)
class _Place:
    """What a host gives to its successor; a `Predecessor`."""

    host: Host
    gateway: Gateway
    supervisor: Supervisor
    depot: Depot
    stop: anyio.Event

    def sockets(self) -> Sequence[socket.socket]:
        return self.gateway.sockets

    async def freeze(self) -> None:
        self.supervisor.freeze()
        await self.depot.suspend()

    async def thaw(self) -> None:
        await self.depot.resume()
        self.supervisor.thaw()

    def leave(self) -> None:
        self.host.replaced()
        self.stop.set()


def _open_records(root: Path) -> HostRecords:
    """End what dead hosts left behind, and begin this host's records. Blocks. Raises `InputError`."""
    try:
        return HostRecords.open(root)
    except OSError as error:
        raise unusable(root, error) from error


def only_host_error(errors: ExceptionGroup[Exception]) -> HostError | None:
    """The one error of a task group, however deep, if it is somebody's to act upon."""
    inner: Exception = errors
    while isinstance(inner, ExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, HostError) else None
