"""How a host begins to serve and how it ends: it listens or takes over, becomes ready, hands its place over, drains.

Invariants: a host that takes over begins to accept when it is ready, and not before; what it is not ready for is said from
its first moment to its last; no plugin process is left when `run` returns.
"""

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.abc

from hotbay.config.host_config import HostConfig
from hotbay.data_layer import DataLayer
from hotbay.depot import Depot
from hotbay.errors import CapacityError, Problem
from hotbay.gateway.admin import AdminServer
from hotbay.gateway.http import Gateway
from hotbay.gateway.seams import NotReady
from hotbay.handover.ends import HANDOVER_SOCKET
from hotbay.handover.server import HandoverServer
from hotbay.handover.successor import Successor
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay.passing import PassingOn
from hotbay.rollout.readiness import Readiness
from hotbay.rollout.supervisor import Supervisor

logger = logging.getLogger(__name__)

__all__ = ["Entry", "Served", "Service", "Serving"]

START_PATIENCE_S: Final = 1.0
"""How long a start waits for plugins to say that they are ready; who do not, are named by `/readyz` from then on."""
TAKE_OVER_PATIENCE_S: Final = 30.0
"""The same while another host goes on serving."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A host that answers: where, and its parts that a caller may look at."""

    address: tuple[str, int]
    metrics: Metrics
    status: Callable[[], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a host begins to serve, and what ends it."""

    predecessor: Successor | None
    serving: Callable[[Serving], None]
    stop: anyio.Event


@dataclass(frozen=True, slots=True)
class Served:
    """What a host serves with."""

    gateway: Gateway
    admin: AdminServer
    admin_path: Path
    supervisor: Supervisor
    depot: Depot
    readiness: Readiness


class Service:
    """One host's service. `run` once; `not_ready` may be asked at any time.

    Args:
        config: what is in force.
        data: which is loaded when `run` begins.
        metrics: for who is told that the host serves.
        status: the status page, likewise.
        off: told why no successor can take over.
        background: boundary around what runs beside requests.
    """

    def __init__(
        self,
        config: Callable[[], HostConfig],
        data: DataLayer,
        metrics: Metrics,
        *,
        status: Callable[[], Mapping[str, object]],
        off: Callable[[Problem], None],
        background: Background,
    ) -> None:
        self._config = config
        self._data = data
        self._metrics = metrics
        self._status = status
        self._off = off
        self._background = background
        self._reasons: NotReady = lambda: ("starting",)
        self._passing: PassingOn | None = None

    def not_ready(self) -> Sequence[str]:
        """What the host still waits for; empty when it is ready."""
        return self._reasons()

    def replaced(self, passing: PassingOn) -> None:
        """A successor accepts requests: this host does so no more, and gives up its connections."""
        self._passing = passing

    async def run(self, served: Served, entry: Entry) -> None:
        """Answer until `entry.stop` is set, then drain. Raises `HostError` when the host cannot begin."""
        self._reasons = lambda: ("plugins are starting", *self._data.discovery.not_ready)
        if entry.predecessor is None:
            address = await self._listen(served.gateway)
            entry.serving(Serving(address, self._metrics, self._status))
        async with anyio.create_task_group() as group:
            if entry.predecessor is None:
                await group.start(served.admin.run, served.admin_path)
            starting = anyio.CancelScope()
            group.start_soon(self._begin, served, entry, starting, group)
            await entry.stop.wait()
            starting.cancel()
            await self._drain(served)
            group.cancel_scope.cancel()

    async def _begin(
        self, served: Served, entry: Entry, starting: anyio.CancelScope, group: anyio.abc.TaskGroup
    ) -> None:
        depot, predecessor = served.depot, entry.predecessor
        with starting:
            patience_s = START_PATIENCE_S if predecessor is None else TAKE_OVER_PATIENCE_S
            await self._become_ready(served.supervisor, served.readiness, patience_s)
            group.start_soon(self._background.keep, "readiness", served.readiness.run)
            collecting = partial(depot.keep_small, served.supervisor.in_use)
            group.start_soon(self._background.keep, "collection", collecting)
            if predecessor is not None:
                address = await served.gateway.listen_on(predecessor.sockets)
                # Not sooner: a successor that fails would take the socket of the host that goes on with it.
                await group.start(served.admin.run, served.admin_path)
                entry.serving(Serving(address, self._metrics, self._status))
                await predecessor.serving()
                taking = partial(served.gateway.take_over, predecessor.connections())
                group.start_soon(self._background.guard, "handover", taking)
            path, place = depot.state.root / HANDOVER_SOCKET, _Place(self, served, entry.stop)
            await group.start(HandoverServer(path, place, off=self._off, background=self._background).run)

    async def _drain(self, served: Served) -> None:
        logger.info("draining")
        passing = self._passing
        # Who asks a host that was replaced asks for the one that serves.
        self._reasons = lambda: () if passing is not None else ("draining",)
        with anyio.CancelScope(shield=True):
            drain_s = self._config().swap.drain_s
            await served.gateway.drain(drain_s, taker=passing)
            if passing is not None:
                await passing.finish(drain_s)
            await served.supervisor.shutdown(drain_s)

    async def _listen(self, gateway: Gateway) -> tuple[str, int]:
        listen = self._config().listen.http
        try:
            return await gateway.listen(listen.host, listen.port)
        except OSError as error:
            raise CapacityError(
                "UNAVAILABLE",
                f"cannot listen on {listen.host}:{listen.port}: {error.strerror or error}",
                hint="stop what uses the address, or set listen.http to another one",
            ) from error

    async def _become_ready(self, supervisor: Supervisor, readiness: Readiness, patience_s: float) -> None:
        """Be ready when every plugin had its first attempt: what does not run then is degraded, and named."""
        await supervisor.first_attempts()
        await supervisor.complete()
        self._reasons = lambda: self._data.discovery.not_ready
        await self._data.ready()
        self._reasons = lambda: ("plugins are asked whether they are ready", *readiness.reasons)
        await readiness.settle(patience_s)
        self._reasons = lambda: readiness.reasons
        missing = [row for row in supervisor.rows if row.live_pid is None]
        for row in missing:
            code, message = (row.last_error.code, row.last_error.message) if row.last_error else ("", "")
            logger.error("ready_without plugin=%s phase=%s code=%s: %s", row.plugin, row.phase, code, message)
        logger.info("ready plugins=%s", len(supervisor.rows) - len(missing))


@dataclass(frozen=True, slots=True)
class _Place:
    """What a host gives to its successor; a `Predecessor`."""

    service: Service
    served: Served
    stop: anyio.Event

    def sockets(self) -> Sequence[socket.socket]:
        return self.served.gateway.sockets

    async def freeze(self) -> None:
        self.served.supervisor.freeze()
        await self.served.depot.suspend()

    async def thaw(self) -> None:
        await self.served.depot.resume()
        self.served.supervisor.thaw()

    def leave(self, passing: PassingOn) -> None:
        self.service.replaced(passing)
        self.stop.set()
