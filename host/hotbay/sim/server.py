"""A simulated vLLM server on a port: the engine driven by a clock, and its connections.

Many of them run in one event loop. A server does nothing while nobody asks it anything.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

from hotbay.errors import CapacityError
from hotbay.gateway.request_reader import WireRequest
from hotbay.sim.answering import Answering, StreamedAnswer, WholeAnswer
from hotbay.sim.asking import Asked, read_request
from hotbay.sim.clock import Clock, LoopClock, Timer
from hotbay.sim.config import SimConfig
from hotbay.sim.connection import Connection
from hotbay.sim.engine import NEVER, Engine
from hotbay.sim.failures import Fault, injected
from hotbay.sim.page import MetricsPage
from hotbay.sim.sequences import Sequence

__all__ = ["Seen", "SimServer"]

_BACKLOG: Final = 1024
_SEEN_MAX: Final = 1000
"""Requests that are remembered: enough for a test to look at, and bounded."""

PREFILLER: Final = b"x-prefiller-host-port"
_REQUEST_ID: Final = b"x-request-id"


@dataclass(frozen=True, slots=True)
class Seen:
    """A completion request that was accepted. `prefiller` is what `x-prefiller-host-port` named, empty without it."""

    id: str
    model: str
    prompt_tokens: int
    prefiller: str


class SimServer:
    """One server: `start`, use `url`, `close`. All within one running event loop.

    A request that names a prefill server is remembered with its name and answered as any other: whoever simulates
    disaggregated serving looks at `seen`. `clock` is the loop's, `config.speed` times as fast, unless another is given.
    """

    def __init__(self, config: SimConfig, *, clock: Clock | None = None) -> None:
        self.config = config
        self.adapters = {lora.name: lora.path for lora in config.loras}
        self.engine = Engine(config.limits, config.timing, Random(f"engine {config.seed}"))  # noqa: S311  # a simulation
        self.seen: deque[Seen] = deque(maxlen=_SEEN_MAX)
        self.extra_headers = f"x-inference-pod: {config.pod}\r\n".encode() if config.pod else b""
        self.created = 0
        self.host = ""
        self.port = 0
        self._random = Random(f"server {config.seed}")  # noqa: S311  # a simulation
        self._clock = clock
        self._connections: set[Connection] = set()
        self._asking: dict[Sequence, Connection] = {}
        self._timer: Timer | None = None
        self._due = NEVER
        self._is_going = False
        self._has_more = False
        self._server: asyncio.Server | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Listen; returns the URL. Port 0 takes a free one.

        Raises:
            CapacityError: the address cannot be listened on.
        """
        self._clock = self._clock or LoopClock(self.config.speed)
        self._page = MetricsPage(self.engine, self.config, self._clock.unix_of)
        self.created = int(self._clock.unix_of)
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: Connection(self), host, port, backlog=_BACKLOG)
        except OSError as error:
            raise CapacityError(
                "UNAVAILABLE",
                f"cannot listen on {host}:{port}: {error}",
                hint="Choose another port, or 0 for a free one.",
            ) from error
        self.host, self.port = self._server.sockets[0].getsockname()[:2]
        return self.url

    async def close(self) -> None:
        """Stop listening and cut every connection. May be called twice."""
        server, self._server = self._server, None
        for connection in list(self._connections):
            connection.abandon()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if server is not None:
            server.close()
            await server.wait_closed()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    @property
    def load(self) -> int:
        return len(self._asking)

    @property
    def clock(self) -> Clock:
        """Whose time it lives in, once it has started."""
        assert self._clock is not None, "the server has not started"
        return self._clock

    def metrics(self) -> bytes:
        """The metrics page, as of now."""
        self.go_on()
        return self._page.render(self.clock.unix_of)

    def forget_adapter(self, name: str, /) -> None:
        del self.adapters[name]
        self.engine.adapters.forget(name)

    def joined(self, connection: Connection, /) -> None:
        self._connections.add(connection)

    def left(self, connection: Connection, /) -> None:
        self._connections.discard(connection)

    def take(self, request: WireRequest, /, *, is_chat: bool) -> Asked | Fault:
        """Read a completion request, unless it is refused: by an injected failure, or because the queue is full."""
        config = self.config
        fault = injected(config.names[0], config.failure_rate, config.failure_types, self._random)
        if fault is not None:
            return fault
        asked = read_request(request.body, config, self.adapters, self._random, is_chat=is_chat)
        if isinstance(asked, Fault):
            return asked
        if config.max_waiting and len(self.engine.waiting) >= config.max_waiting:
            self.engine.statistics.rejected["max_num_queued_reqs"] += 1
            return Fault(429, f"{config.max_waiting} requests wait already.", "TooManyRequestsError")
        return asked

    def answering(self, asked: Asked, request: WireRequest, /, *, is_kept: bool) -> Answering:
        headers = dict(request.headers)
        given = headers.get(_REQUEST_ID, b"").decode("latin-1") or f"{self._random.getrandbits(128):032x}"
        id = f"{'chatcmpl' if asked.is_chat else 'cmpl'}-{given}"  # noqa: A001
        prefiller = headers.get(PREFILLER, b"").decode("latin-1")
        self.seen.append(Seen(id, asked.model, asked.work.prompt_tokens, prefiller))
        created = int(self.clock.now() + self.clock.unix_of)
        tells = self.config.tells_cached_tokens
        if not asked.stream:
            return WholeAnswer(
                asked, id=id, created=created, headers=self.extra_headers, tells_cached_tokens=tells, is_kept=is_kept
            )
        return StreamedAnswer(
            asked,
            id=id,
            created=created,
            headers=self.extra_headers,
            interval=self.config.stream_interval,
            tells_cached_tokens=tells,
            is_kept=is_kept,
        )

    def add(self, asked: Asked, connection: Connection, /) -> Sequence:
        sequence = self.engine.add(asked.work, self.clock.now())
        self._asking[sequence] = connection
        return sequence

    def abort(self, sequence: Sequence, /) -> None:
        self._asking.pop(sequence, None)
        self.engine.abort(sequence, self.clock.now())
        self.go_on()

    def go_on(self) -> None:
        """Let the engine do what is due, tell the connections, and come back when there is more."""
        self._has_more = True
        # An answer that ends may let the next request of its connection in, and so come back to here: what the others got
        # has to reach them first.
        if self._is_going:
            return
        self._is_going = True
        try:
            while self._has_more:
                self._has_more = False
                for sequence, tokens, finish_reason in self.engine.advance(self.clock.now()):
                    connection = self._asking.pop(sequence, None) if finish_reason else self._asking.get(sequence)
                    if connection is not None:
                        connection.put(tokens, finish_reason)
        finally:
            self._is_going = False
        self._arm()

    def _arm(self) -> None:
        due = self.engine.next_at
        if self._server is None:
            return
        if due == self._due and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = None if due == NEVER else self.clock.call_at(due, self._woken)

    def _woken(self) -> None:
        self._timer = None
        self.go_on()
