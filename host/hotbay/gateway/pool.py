"""Connections to the model servers: kept ones first, last in first out, new ones on demand.

Invariants: an idle connection is in exactly one list and in no exchange; one that closed, aged or has no room is in
none. Connecting is the only thing on the data path that needs a task: event loops connect through coroutines alone.
Every such task is in `_dialling` until it is done, and `close` cancels them.
"""

import asyncio
from collections.abc import Callable

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.upstream import UpstreamConnection
from hotbay.observe.metrics import Metrics
from hotbay.resolving.resolver import SYSTEM, Resolver, connect

__all__ = ["Dial", "DialFailure", "Pool"]


class DialFailure(Exception):
    """No connection: `reason` is the machine-readable word, `timed_out` tells slow from refused."""

    def __init__(self, reason: str, detail: str, *, timed_out: bool) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.timed_out = timed_out


DialDone = Callable[[UpstreamConnection | DialFailure], None]


class Dial:
    """An attempt to connect that may be given up; `done` is called once, or never after `cancel`."""

    def __init__(self, done: DialDone) -> None:
        self._done: DialDone | None = done

    def cancel(self) -> None:
        """Forget the attempt; a connection that comes of it stays for others."""
        self._done = None

    def finish(self, result: UpstreamConnection | DialFailure) -> bool:
        """Hand over the result; False when nobody wants it any more."""
        done, self._done = self._done, None
        if done is not None:
            done(result)
        return done is not None


class Pool:
    """See the module. One for all endpoints of a gateway."""

    def __init__(self, limits: GatewayLimits, metrics: Metrics, *, resolver: Resolver = SYSTEM) -> None:
        self._limits = limits
        self._metrics = metrics
        self._resolver = resolver
        self._idle: dict[tuple[str, int], list[UpstreamConnection]] = {}
        self._open: set[UpstreamConnection] = set()
        self._dialling: set[asyncio.Task[None]] = set()
        self._closing = False
        self._none_open = asyncio.Event()
        self._none_open.set()

    @property
    def idle_count(self) -> int:
        """Kept connections, all endpoints together."""
        return sum(map(len, self._idle.values()))

    @property
    def open_count(self) -> int:
        """Connections in use and kept."""
        return len(self._open)

    def take(self, endpoint: EndpointMetadata) -> UpstreamConnection | None:
        """The connection that was used last, if one is left."""
        idle = self._idle.get((endpoint.address, endpoint.port))
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
        return None

    def dial(self, endpoint: EndpointMetadata, done: DialDone) -> Dial:
        """Open a new connection and hand it to `done`, never before this returns."""
        dial = Dial(done)
        # Not in a task group: opening one costs more than the connection, and `close` waits for these.
        task = asyncio.get_running_loop().create_task(self._connect(endpoint, dial))
        self._dialling.add(task)
        task.add_done_callback(self._dialling.discard)
        return dial

    async def _connect(self, endpoint: EndpointMetadata, dial: Dial) -> None:
        self._metrics.upstream_connects += 1
        result: UpstreamConnection | DialFailure
        try:
            async with asyncio.timeout(self._limits.connect_s):
                result = await self._open_to(endpoint)
        except TimeoutError:
            why = ": its name is still looked up" if self._resolver.is_waited_for(endpoint.address) else ""
            detail = f"no answer in {self._limits.connect_s} s{why}"
            result = DialFailure("upstream-connect-timeout", detail, timed_out=True)
        except DialFailure as failure:
            result = failure
        except (OSError, UnicodeError) as error:
            # A host name that no resolver takes is a UnicodeError.
            detail = (isinstance(error, OSError) and error.strerror) or str(error)
            result = DialFailure("upstream-connect-failed", detail, timed_out=False)
        if isinstance(result, DialFailure):
            self._metrics.upstream_connect_failures += 1
        if not dial.finish(result) and isinstance(result, UpstreamConnection):
            self.free(result)

    async def _open_to(self, endpoint: EndpointMetadata) -> UpstreamConnection:
        if endpoint.scheme != "http":
            raise DialFailure("upstream-scheme-unsupported", f"{endpoint.scheme} is not spoken", timed_out=False)
        key = (endpoint.address, endpoint.port)
        return await connect(
            lambda: UpstreamConnection(self, key, self._limits.header_bytes), *key, resolver=self._resolver
        )

    def free(self, connection: UpstreamConnection) -> None:
        """Keep a connection that nobody uses now, or close it when there are enough."""
        idle = self._idle.setdefault(connection.key, [])
        if self._closing or not connection.usable or len(idle) >= self._limits.idle_per_endpoint:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        idle.append(connection)

    def opened(self, connection: UpstreamConnection) -> None:
        """A connection came to be."""
        self._open.add(connection)
        self._none_open.clear()

    def closed(self, connection: UpstreamConnection) -> None:
        """A connection is gone; while idle this is how a server's close is noticed."""
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()
        idle = self._idle.get(connection.key)
        if idle is None:
            return
        if connection in idle:
            idle.remove(connection)
        if not idle:
            del self._idle[connection.key]

    def sweep(self, now: float) -> None:
        """Close what has been idle for too long; the oldest stand first."""
        oldest = now - self._limits.idle_upstream_s
        for idle in self._idle.values():
            aged = 0
            while aged < len(idle) and idle[aged].idle_since <= oldest:
                aged += 1
            for connection in idle[:aged]:
                connection.abort()
            del idle[:aged]

    async def close(self) -> None:
        """Give up every attempt and close every connection."""
        self._closing = True
        for task in self._dialling:
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        for connection in list(self._open):
            connection.transport.abort()
        await self._none_open.wait()
