"""The gateway: listens, gives requests to the dispatcher, looks at deadlines, drains and stops.

One per process and event loop. The data path is callbacks only; the coroutines here start and stop it.
"""

import asyncio
import logging
import math
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random

import anyio

from hotbay.gateway.directing import Director, no_rules
from hotbay.gateway.dispatch import Dispatcher
from hotbay.gateway.explain_header import Explain, nothing
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.pool import Pool
from hotbay.gateway.reading import Reading
from hotbay.gateway.request_ids import request_ids
from hotbay.gateway.seams import (
    BUILT_IN,
    NOBODY,
    UNWATCHED,
    Attempts,
    Completed,
    Hearing,
    Ledger,
    ListEndpoints,
    Look,
    NotReady,
    Parsing,
    Router,
    as_decided,
)
from hotbay.gateway.server import ClientConnection, Taker
from hotbay.gateway.upstreams import Upstreams
from hotbay.models.rules import ModelRules
from hotbay.observe.metrics import Metrics
from hotbay.resolving.resolver import SYSTEM, Resolver

__all__ = ["Gateway"]

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_TELL_S = 60.0


class Gateway:
    """An OpenAI-compatible streaming reverse proxy.

    Args:
        router: decides where inference requests go.
        ledger: told of every request that is sent to an endpoint and of its end.
        metrics: counted into, and shown at `/metrics`.
        endpoints: the live endpoints, for requests that need no decision.
        not_ready: reasons why `/readyz` must say no; empty when ready.
        completed: told once about the end of every picked request.
        attempts: told how each endpoint does.
        look: asked before a request is sent: what was decided may be a while old.
        limits: see `GatewayLimits`.
        random: chooses among endpoints where no decision is made, and among the targets of a model's rewrite.
        hearing: told of responses, as far as it wants.
        parsing: which parsers there are, and those that do not read by themselves.
        models: rewrites and objectives, as they are at the moment.
        explain: what answers say of decisions.
        resolver: knows the addresses of endpoints that are named.
    """

    def __init__(
        self,
        router: Router,
        ledger: Ledger,
        *,
        metrics: Metrics,
        endpoints: ListEndpoints,
        not_ready: NotReady,
        completed: Completed | None = None,
        attempts: Attempts = UNWATCHED,
        look: Look = as_decided,
        limits: GatewayLimits | None = None,
        random: Random | None = None,
        resolver: Resolver = SYSTEM,
        hearing: Hearing = NOBODY,
        parsing: Parsing = BUILT_IN,
        models: Callable[[], ModelRules] = no_rules,
        explain: Explain = nothing,
    ) -> None:
        self.limits = limits or GatewayLimits()
        self.metrics = metrics
        self.draining = False
        self.taker: Taker | None = None
        self.choose_id = request_ids(secrets.token_hex(4))
        self.pool = Pool(self.limits, metrics, resolver=resolver)
        random = random or Random(secrets.randbits(64))  # noqa: S311 - spreads load, keeps no secret
        self._dispatcher = Dispatcher(
            Upstreams(
                self.pool, ledger, metrics, self.limits, router, attempts, look, _name(), completed, hearing, explain
            ),
            Reading(parsing, Director(models, random, metrics), self.limits.first_byte_s),
            endpoints=endpoints,
            not_ready=not_ready,
            random=random,
        )
        self._connections: set[ClientConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._tell_at = -math.inf
        self._intake = asyncio.Event()
        self._intake.set()
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self.begin = self._dispatcher.begin

    @property
    def unsettled_picks(self) -> int:
        """Picks that were answered and neither settled nor expired."""
        return len(self._dispatcher.picks)

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept connections; returns the address that is listened on (port 0 means any free one)."""
        loop = asyncio.get_running_loop()
        return self._serves(await loop.create_server(lambda: ClientConnection(self), host, port, backlog=_BACKLOG))

    async def listen_on(self, sockets: Sequence[socket.socket]) -> tuple[str, int]:
        """Accept connections on sockets that listen already, at least one; returns the address of the first."""
        loop = asyncio.get_running_loop()
        addresses = [
            self._serves(await loop.create_server(lambda: ClientConnection(self), sock=given, backlog=_BACKLOG))
            for given in sockets
        ]
        return addresses[0]

    async def take_over(self, connections: AsyncIterator[socket.socket]) -> None:
        """Serve connections of clients that another host accepted and that owe and are owed nothing, as they come."""
        loop = asyncio.get_running_loop()
        self._intake.clear()
        try:
            async for given in connections:
                try:
                    given.setblocking(False)
                    await loop.connect_accepted_socket(lambda: ClientConnection(self, is_kept=True), given)
                except OSError as error:
                    logger.debug("connection_lost on its way from another host: %s", error)
                    given.close()
        finally:
            self._intake.set()

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """What is listened on, for a successor: each end may close its own."""
        return [given for server in self._servers for given in server.sockets]

    def _serves(self, server: asyncio.Server) -> tuple[str, int]:
        self._servers.append(server)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.limits.tick_s, self._tick)
        address = server.sockets[0].getsockname()
        logger.info("gateway listens host=%s port=%d", address[0], address[1])
        return address[0], address[1]

    def joined(self, connection: ClientConnection) -> bool:
        """Count a client connection; False when there are too many."""
        self._connections.add(connection)
        self._empty.clear()
        count = self.metrics.client_connections = len(self._connections)
        if count <= self.limits.connections:
            return True
        self._tell_refused(count)
        return False

    def _tell_refused(self, count: int) -> None:
        """Say that clients are refused, seldom: they come by the thousand."""
        now = asyncio.get_running_loop().time()
        if now >= self._tell_at:
            self._tell_at = now + _TELL_S
            logger.warning("clients_refused connected=%d limit=%d: one more is refused", count, self.limits.connections)

    def left(self, connection: ClientConnection) -> None:
        """A client connection is gone."""
        self._connections.discard(connection)
        self.metrics.client_connections = len(self._connections)
        if not self._connections:
            self._empty.set()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.limits.tick_s, self._tick)
        now = loop.time()
        for connection in list(self._connections):
            connection.look_at_clock(now)
        self._dispatcher.expire(now)
        self.pool.sweep(now)

    async def drain(self, window_s: float, *, taker: Taker | None = None) -> bool:
        """Say "not ready", close what is idle, let answers under way end; then close. True when all of them ended.

        New connections are served for the first half of the window, while balancers learn that this host goes away;
        the second half belongs to what has begun. With a `taker` a successor takes new connections from now on, and
        gets those that are idle, also those that still come from another host; one that it refuses is closed as without it.
        """
        self.draining, self.taker = True, taker
        if taker is not None:
            for server in self._servers:
                server.close()
        for connection in list(self._connections):
            connection.close_when_idle()
        with anyio.move_on_after(window_s / 2):
            await self._emptied()
        for server in self._servers:
            server.close()
        with anyio.move_on_after(window_s / 2):
            await self._emptied()
        ended = self._empty.is_set()
        await self.close()
        return ended

    async def _emptied(self) -> None:
        """Return when no connection is here, and none comes any more that has to go on to a successor."""
        if self.taker is not None:
            await self._intake.wait()
        await self._empty.wait()

    async def close(self) -> None:
        """Stop listening and cut every connection. May be called twice."""
        self.draining = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abandon()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.pool.close()
        await self._empty.wait()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()


def _name() -> bytes:
    """What this gateway is in `Via`: its own, so that others of its kind before or behind it are not taken for it."""
    return b"hotbay-" + secrets.token_hex(4).encode()
