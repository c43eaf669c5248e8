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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread

from hotbay.config.host_config import HostConfig
from hotbay.config.picker_config import PickerConfig
from hotbay.data_layer import DataLayer
from hotbay.datalayer.endpoint_rows import endpoint_row
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.commands import EndpointCommands
from hotbay.datalayer.operations.overrides import OverrideFile
from hotbay.depot import CountedFetcher, Depot, platforms_of
from hotbay.errors import CapacityError, Problem, only_host_error
from hotbay.gateway.admin import AdminServer
from hotbay.gateway.http import Gateway
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.seams import NotReady
from hotbay.handover import HandoverServer, Successor, find_predecessor, take_state
from hotbay.in_force import InForce
from hotbay.launcher import Launcher
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay.operator_files import OperatorFiles
from hotbay.passing import PassingOn
from hotbay.process.isolation import find_level
from hotbay.process.leftovers import HostRecords
from hotbay.rollout.catalog import Catalog
from hotbay.rollout.deployment import Deployment, resolve
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.rollout.services import Occurrence, Services
from hotbay.rollout.supervisor import Supervisor, Wanted
from hotbay.rpc.host_services import HostLender
from hotbay.scheduling.router import Router
from hotbay.status import StatusPage
from hotbay.store.state_dir import StateDirectory, unusable
from hotbay.wishes import binding_keys, binding_options, ejection_limits, plugin_settings, trial_policies

logger = logging.getLogger(__name__)

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

    `take_over`: if a host runs on the state directory, become its successor; without one, just start. `clients`: how many
    may be connected at once. `known`: what the operator should know of where it runs.
    """

    def __init__(
        self,
        config: HostConfig,
        picker: PickerConfig,
        *,
        picker_directory: Path,
        take_over: bool = False,
        clients: int = GatewayLimits().connections,
        known: Sequence[Problem] = (),
    ) -> None:
        self._in_force = InForce(config)
        self._picker = picker
        self._take_over = take_over
        self._metrics = Metrics()
        self._not_ready: NotReady = lambda: ("starting",)
        self._supervisor: Supervisor | None = None
        self._depot: Depot | None = None
        self._router: Router | None = None
        self._passing: PassingOn | None = None
        self._standing: list[Problem] = [*known]
        self._clients = clients
        self._background = Background(lambda task: self._metrics.internal_errors.add((task,)), now=time.monotonic)
        self._data = DataLayer(
            config, picker, directory=picker_directory, background=self._background, metrics=self._metrics
        )
        self._health = HealthWatch(
            self._data.store,
            self._metrics,
            limits=lambda: ejection_limits(self._config),
            slow_start_s=lambda: self._config.health.slow_start_s,
        )
        self._data.before_publish = self._health.tick
        self.files = OperatorFiles(lambda: self._config.lock)
        self._events = EventLog(wall_s)
        self._lender = HostLender(
            count=self._metrics.plugin_counters.add,
            endpoints=lambda: [endpoint_row(endpoint) for endpoint in self._data.store.endpoints()],
            now=time.monotonic,
            wall=wall_s,
            entropy=os.urandom,
        )
        self._status = StatusPage(self._data.store, self._metrics, isolation=config.isolation.level)
        self._metrics.facts = lambda: self._status.facts(self._not_ready(), self._known_problems())

    @property
    def _config(self) -> HostConfig:
        return self._in_force.config

    async def run(self, serving: Callable[[Serving], None], stop: anyio.Event) -> None:
        """Serve until `stop` is set, then drain. Raises `HostError` when the host cannot start."""
        root = Path(self._config.state_dir)
        predecessor = await find_predecessor(root / HANDOVER_SOCKET) if self._take_over else None
        try:
            state = await take_state(root, predecessor)
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
        depot = self._depot = await Depot.open(
            self._config, state, now=time.monotonic, wall=wall_s, random=draw, background=self._background
        )
        self._standing += depot.warnings
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
        endpoints = EndpointCommands(self._data.store, self._health, OverrideFile(depot.state.root), wall_s)
        await endpoints.load()
        await self._data.load()
        router = self._router = self._status.router = Router(self._data.store, self._metrics, admission=self._health)
        self._status.available = self._health.counts
        self._status.intervals_s = lambda: self._data.collection.intervals_s
        self._status.sources, self._status.store = lambda: depot.statuses, lambda: depot.usage
        self._status.world = self.files.view = lambda: depot.world.view
        group.start_soon(depot.run)
        with anyio.move_on_after(FIRST_SCAN_S):
            await depot.first_scans()
        await self.files.obey_lock(depot.world)
        launcher = Launcher(self._in_force.of, depot.state, depot.interpreter_of, str(records.folder))
        supervisor = self._start_plugins(depot, launcher, router, group)
        operations = self._operations(depot, launcher, router, supervisor)
        admin = AdminServer(
            operations, endpoints=endpoints, background=self._background, is_frozen=lambda: supervisor.is_frozen
        )
        await self._data.run(group)
        gateway = self._gateway(router)
        try:
            await self._answer(gateway, supervisor, depot, entry, admin)
        finally:
            with anyio.CancelScope(shield=True):
                await gateway.close()
            router.close()

    async def _answer(
        self, gateway: Gateway, supervisor: Supervisor, depot: Depot, entry: "_Entry", admin: AdminServer
    ) -> None:
        self._not_ready = lambda: ("plugins are starting", *self._data.discovery.not_ready)
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
                    collecting = partial(depot.keep_small, supervisor.in_use)
                    group.start_soon(self._background.keep, "collection", collecting)
                    if predecessor is not None:
                        address = await gateway.listen_on(predecessor.sockets)
                        # Not sooner: a successor that fails would take the socket of the host that goes on with it.
                        await group.start(admin.run, admin_path)
                        entry.serving(Serving(address, self._metrics, self.status))
                        await predecessor.serving()
                        taking = partial(gateway.take_over, predecessor.connections())
                        group.start_soon(self._background.guard, "handover", taking)
                    place = _Place(self, gateway, supervisor, depot, entry.stop)
                    handover = HandoverServer(
                        root / HANDOVER_SOCKET, place, off=self._standing.append, background=self._background
                    )
                    await group.start(handover.run)

            group.start_soon(start)
            await entry.stop.wait()
            starting.cancel()
            logger.info("draining")
            passing = self._passing
            # Who asks a host that was replaced asks for the one that serves.
            self._not_ready = lambda: () if passing is not None else ("draining",)
            with anyio.CancelScope(shield=True):
                drain_s = self._config.swap.drain_s
                await gateway.drain(drain_s, taker=passing)
                if passing is not None:
                    await passing.finish(drain_s)
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
        self._not_ready = lambda: self._data.discovery.not_ready
        await self._data.ready()
        self._not_ready = lambda: ()
        missing = [row for row in supervisor.rows if row.live_pid is None]
        for row in missing:
            code, message = (row.last_error.code, row.last_error.message) if row.last_error else ("", "")
            logger.error("ready_without plugin=%s phase=%s code=%s: %s", row.plugin, row.phase, code, message)
        logger.info("ready plugins=%s", len(supervisor.rows) - len(missing))

    # -- parts -----------------------------------------------------------------------------------

    def _start_plugins(
        self, depot: Depot, launcher: Launcher, router: Router, group: anyio.abc.TaskGroup
    ) -> Supervisor:
        config, catalog, in_force = self._config, Catalog(), self._in_force
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
        self._data.plugins.bind(deployment, router)
        in_force.is_only_incoming = deployment.is_only_incoming
        in_force.changed = lambda: depot.obey(in_force.config, incoming=in_force.incoming)
        supervisor = self._supervisor = self._status.supervisor = Supervisor(
            depot.world,
            catalog,
            deployment,
            partial(self._services, depot, launcher, deployment, router),
            group,
            ranking=config.types,
            sources=depot.sources.keys(),
            problems=depot.problems,
            background=self._background,
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
            settings=lambda name: plugin_settings(it := self._in_force.of(name), name, platforms=platforms_of(it)),
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

    def _operations(self, depot: Depot, launcher: Launcher, router: Router, supervisor: Supervisor) -> Operations:
        ports = Ports(
            status=self.status,
            lines=launcher.lines,
            collect=depot.collect,
            bindings=lambda: router.plan.bindings if router.plan is not None else (),
            lock=self.files.lock_lines,
            waiting=self.files.waiting,
            apply=self.files.apply,
        )
        return Operations(supervisor, self._events, ports)

    def _gateway(self, router: Router) -> Gateway:
        limits = self._config.limits
        return Gateway(
            router,
            self._data.store.ledger,
            metrics=self._metrics,
            endpoints=self._data.active_endpoints,
            not_ready=lambda: self._not_ready(),
            attempts=self._health,
            look=self._data.look,
            limits=GatewayLimits(limits.header_bytes, limits.body_bytes, self._clients),
        )

    # -- reload ----------------------------------------------------------------------------------

    async def adopt(
        self, config: HostConfig, picker: PickerConfig, *, in_force: Callable[[], None] = lambda: None
    ) -> None:
        """Put a changed configuration in force, or raise `HostError` with the old one going on.

        Until it is in force, nothing that the old one needs learns of it. What only acts at the next start is left as it
        is. Calls may overlap: the newest counts, and one that still waits for packages raises `ReplacedError`. `in_force`
        is called in the step in which it is.
        """
        supervisor, depot = self._supervisor, self._depot
        assert supervisor is not None, "reloads follow the start"
        assert depot is not None, "reloads follow the start"
        # One that cannot be read would keep `apply` from correcting it.
        self.files.read_lock(config.lock)

        def take() -> None:
            self._in_force.take(config)
            self._data.configure(config, picker)
            in_force()

        self._data.check(picker)
        self._in_force.offer(config)
        wanted = Wanted(picker, binding_options(config), config.types, binding_keys(config))
        try:
            await supervisor.adopt(wanted, in_force=take)
        except BaseException:
            self._in_force.give_up(config)
            supervisor.look()
            raise
        self._metrics.reload("applied")

    def report_problems(self, problems: tuple[Problem, ...]) -> None:
        """What is wrong with the configuration files as they are now, for status."""
        self.files.refuse(problems)
        if problems:
            self._metrics.reload("refused")

    def found_unchanged(self) -> None:
        """A configuration file was saved and says what it said before."""
        self._metrics.reload("unchanged")

    @property
    def background(self) -> Background:
        """For what runs beside this host."""
        return self._background

    # -- status ----------------------------------------------------------------------------------

    def status(self) -> Mapping[str, object]:
        """The status page."""
        return self._status.render(self._not_ready(), self._known_problems())

    def _known_problems(self) -> tuple[Problem, ...]:
        return (*self.files.problems, *self._standing, *self._data.problems, *self._background.problems())

    def replaced(self, passing: PassingOn) -> None:
        """A successor accepts requests: this host does so no more, and gives up its connections."""
        self._passing = passing


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

    def leave(self, passing: PassingOn) -> None:
        self.host.replaced(passing)
        self.stop.set()


def _open_records(root: Path) -> HostRecords:
    """End what dead hosts left behind, and begin this host's records. Blocks. Raises `InputError`."""
    try:
        return HostRecords.open(root)
    except OSError as error:
        raise unusable(root, error) from error
