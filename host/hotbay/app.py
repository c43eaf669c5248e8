"""Wiring: the one place where a host's objects are built and joined. Decides nothing.

`Host.run` starts everything in order (state, endpoints, plugins, gateway), says when it serves, and on
the stop event drains in the opposite order. No plugin process is left when it returns. What plugins are started by is
built in `supervising`; `serving` runs what was built.
"""

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.abc
import anyio.to_thread
from hotbay_sdk.protocol import TypeDeclaration

from hotbay.config.host_config import HostConfig
from hotbay.config.picker_config import PickerConfig
from hotbay.data_layer import DataLayer
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.health.watch import HealthWatch
from hotbay.datalayer.operations.commands import EndpointCommands
from hotbay.datalayer.operations.overrides import OverrideFile
from hotbay.depot import USUAL, Depot, Supply
from hotbay.errors import Problem, only_host_error
from hotbay.gateway.admin import AdminServer
from hotbay.gateway.admin_inspection import Inspection
from hotbay.gateway.explain_header import header_of
from hotbay.gateway.http import Gateway
from hotbay.gateway.limits import GatewayLimits
from hotbay.handover.ends import HANDOVER_SOCKET
from hotbay.handover.successor import Successor, find_predecessor, take_state
from hotbay.in_force import InForce
from hotbay.launcher import Launcher
from hotbay.models.files import ModelFiles
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay.operator_files import OperatorFiles
from hotbay.process.isolation import find_level
from hotbay.process.leftovers import HostRecords
from hotbay.rollout.dumping import StateDumps, host_parts
from hotbay.rollout.events import EventLog
from hotbay.rollout.operations import Operations, Ports
from hotbay.rollout.readiness import Readiness
from hotbay.rollout.supervisor import Supervisor, Wanted
from hotbay.rpc.host_services import HostLender
from hotbay.scheduling.listed_parsers import ListedParsers
from hotbay.scheduling.router import Router
from hotbay.serving import Entry, Served, Service, Serving
from hotbay.status import StatusPage
from hotbay.store.state_dir import StateDirectory
from hotbay.supervising import PluginParts, make_supervisor, open_records
from hotbay.wishes import allowance, binding_keys, binding_options, ejection_limits, explain_bounds

FIRST_SCAN_S: Final = 10.0
"""How long a start waits for sources that do not answer; what the world holds is there without them."""


def wall_s() -> float:
    """Seconds since the epoch; for people to read, and for the ends of quarantines."""
    return time.time_ns() / 1e9


class Host:
    """One host. `run` once.

    `take_over`: if a host runs on the state directory, become its successor; without one, just start. `clients`: how many
    may be connected at once. `known`: what the operator should know of where it runs. `supply`: where its packages come from.
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
        supply: Supply = USUAL,
    ) -> None:
        self._in_force = InForce(config)
        self._picker = picker
        self._preparing = anyio.Lock()
        self._take_over = take_over
        self._metrics = Metrics()
        self._supervisor: Supervisor | None = None
        self._depot: Depot | None = None
        self._router: Router | None = None
        self._standing: list[Problem] = [*known]
        self._clients = clients
        self._supply = supply
        self._background = Background(lambda task: self._metrics.internal_errors.add((task,)), now=time.monotonic)
        self._data = DataLayer(
            config, picker, directory=picker_directory, background=self._background, metrics=self._metrics
        )
        self._models = ModelFiles(config.models.files, changed=self._metrics.reload)
        self._parsers: ListedParsers | None = None
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
            endpoints=lambda: [wire_row(endpoint) for endpoint in self._data.store.endpoints()],
            now=time.monotonic,
            wall=wall_s,
            entropy=os.urandom,
        )
        self._status = StatusPage(self._data.store, self._metrics, isolation=config.isolation.level)
        self._service = Service(
            lambda: self._config,
            self._data,
            self._metrics,
            status=self.status,
            off=self._standing.append,
            background=self._background,
        )
        self._metrics.facts = lambda: self._status.facts(self._service.not_ready(), self._known_problems())

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
            self._config, state, now=time.monotonic, wall=wall_s, random=draw, background=self._background,
            supply=self._supply,
        )  # fmt: skip
        self._standing += depot.warnings
        records: HostRecords | None = None
        try:
            records = await anyio.to_thread.run_sync(open_records, state.root / "processes")
            async with anyio.create_task_group() as group:
                await self._serve(depot, records, group, Entry(predecessor, serving, stop))
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

    async def _serve(self, depot: Depot, records: HostRecords, group: anyio.abc.TaskGroup, entry: Entry) -> None:
        endpoints = EndpointCommands(self._data.store, self._health, OverrideFile(depot.state.root), wall_s)
        await endpoints.load()
        await self._data.load()
        await self._models.load()
        router = self._router = self._status.router = Router(self._data.store, self._metrics, admission=self._health)
        router.decisions.bound(**explain_bounds(self._config))
        parsers = self._parsers = ListedParsers(router, self._picker)
        endpoints.discovery = lambda: self._data.discovery
        self._status.health, self._status.available = self._health, self._health.counts
        self._status.polls, self._status.warnings = self._data.collection, lambda: self._data.warnings
        self._status.sources, self._status.store = lambda: depot.statuses, lambda: depot.usage
        self._status.world = self.files.view = lambda: depot.world.view
        group.start_soon(depot.run)
        with anyio.move_on_after(FIRST_SCAN_S):
            await depot.first_scans()
        await self.files.obey_lock(depot.world)
        launcher = Launcher(
            self._in_force.of, depot.state, depot.interpreter_of, str(records.folder), gives_way=self._supply.gives_way
        )
        supervisor = self._start_plugins(depot, launcher, router, group)
        operations = self._operations(depot, launcher, router, supervisor)
        dumps = StateDumps(supervisor.deployment, host_parts(self._data.store, router))
        admin = AdminServer(
            operations,
            endpoints=endpoints,
            inspection=Inspection(lambda: router.decisions, dumps.dump, now=time.perf_counter, wall=wall_s),
            background=self._background,
            is_frozen=lambda: supervisor.is_frozen,
        )
        await self._data.run(group)
        group.start_soon(self._background.keep, "models", self._models.run)
        gateway = self._gateway(router, parsers)
        try:
            readiness = Readiness(supervisor.deployment.answering)
            path = depot.state.root / self._config.listen.admin.path
            served = Served(gateway, admin, path, supervisor, depot, readiness)
            await self._service.run(served, entry)
        finally:
            with anyio.CancelScope(shield=True):
                await gateway.close()
            router.close()

    def _start_plugins(
        self, depot: Depot, launcher: Launcher, router: Router, group: anyio.abc.TaskGroup
    ) -> Supervisor:
        parts = PluginParts(
            in_force=self._in_force,
            depot=depot,
            launcher=launcher,
            router=router,
            kinds=self._data.plugins,
            metrics=self._metrics,
            events=self._events,
            lend=self._lender.serve,
            background=self._background,
            wall=wall_s,
        )
        supervisor = self._supervisor = self._status.supervisor = make_supervisor(parts, self._picker, group)
        supervisor.start()
        return supervisor

    def _operations(self, depot: Depot, launcher: Launcher, router: Router, supervisor: Supervisor) -> Operations:
        ports = Ports(
            status=self.status,
            lines=launcher.lines,
            collect=depot.collect,
            bindings=lambda: router.plan.bindings if router.plan is not None else (),
            lock=self.files.lock_lines,
            waiting=self.files.waiting,
            apply=self.files.apply,
            next_start=lambda: self.files.next_start(),
        )
        return Operations(supervisor, self._events, ports)

    def _gateway(self, router: Router, parsers: ListedParsers) -> Gateway:
        limits = self._config.limits
        return Gateway(
            router,
            self._data.store.ledger,
            metrics=self._metrics,
            endpoints=self._data.active_endpoints,
            not_ready=self._service.not_ready,
            attempts=self._health,
            look=self._data.look,
            limits=GatewayLimits(
                limits.header_bytes, limits.body_bytes, self._clients, first_byte_s=limits.first_byte_s
            ),
            hearing=router,
            parsing=parsers,
            models=lambda: self._models.rules,
            explain=header_of(router.explain, lambda: self._config.explain.header),
        )

    async def adopt(
        self,
        config: HostConfig,
        picker: PickerConfig,
        *,
        directory: Path | None = None,
        in_force: Callable[[], None] = lambda: None,
    ) -> None:
        """Put a changed configuration in force, or raise `HostError` with the old one going on.

        Until it is in force, nothing that the old one needs learns of it. What only acts at the next start is left as it
        is. Calls may overlap: the newest counts, and one that still waits for packages raises `ReplacedError`. `in_force`
        is called in the step in which it is. `directory` is what relative paths of `picker` are relative to, if that changed.
        """
        supervisor, depot, parsers, router = self._supervisor, self._depot, self._parsers, self._router
        assert supervisor is not None, "reloads follow the start"
        assert depot is not None, "reloads follow the start"
        assert parsers is not None, "reloads follow the start"
        assert router is not None, "reloads follow the start"
        # One that cannot be read would keep `apply` from correcting it.
        self.files.read_lock(config.lock)

        def take() -> None:
            self._in_force.take(config)
            self._data.configure(config, prepared)
            self._models.configure(models)
            parsers.take(picker)
            router.decisions.bound(**explain_bounds(config))
            in_force()

        # One after the other: who comes first is not to be the newest because its files were slow to read.
        async with self._preparing:
            prepared = await self._data.prepare(picker, directory)
            models = await self._models.prepare(config.models.files)
        self._in_force.offer(config)
        wanted = Wanted(picker, binding_options(config), config.types, binding_keys(config), allowance(config))
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
    def events(self) -> EventLog:
        """What happens to plugins."""
        return self._events

    def declared(self, plugin: str) -> Mapping[str, TypeDeclaration]:
        """What the version that is live declares of its types, by name; nothing where none is."""
        live = self._supervisor.deployment.live(plugin) if self._supervisor is not None else None
        return live.types if live is not None else {}

    @property
    def background(self) -> Background:
        """For what runs beside this host."""
        return self._background

    def status(self) -> Mapping[str, object]:
        """The status page."""
        return self._status.render(self._service.not_ready(), self._known_problems())

    def _known_problems(self) -> tuple[Problem, ...]:
        problems = (*self._standing, *self._data.problems, *self._models.problems)
        return (*self.files.problems, *problems, *self._background.problems())
