"""One client connection: reads requests, gives each its turn in order, and closes when it must.

Reading never stops while a client is connected: that is how its leaving is noticed. What a client sends ahead of its
turn is bounded instead; one that sends more is answered what it is owed and closed.

Invariants: at most one turn at a time; answers leave in the order of the requests; whatever stage the connection is
in has a deadline, looked at by `look_at_clock`.
"""

import asyncio
import enum
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from hotbay.gateway.answers import Refusal
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.request_reader import Phase, RequestReader, WireRequest
from hotbay.gateway.turn import Turn
from hotbay.gateway.upstream import set_nodelay
from hotbay.observe.metrics import Metrics

__all__ = ["ClientConnection", "Clients", "Taker"]

_NEVER = float("inf")
# A page of metrics takes milliseconds: a client that asks for thousands of them at once must not hold up the others.
_TURNS_AT_ONCE = 1
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_REQUEST_ID = b"x-request-id"


class Taker(Protocol):
    """Takes client connections that are idle."""

    @property
    def is_open(self) -> bool:
        """Whether it still takes any; once False it stays so."""
        ...

    def put(self, connection: socket.socket, /) -> bool:
        """Take one, and close it when it went; or False, and it stays the caller's."""
        ...


class _Stage(enum.Enum):
    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    ANSWERING = "answering"
    LINGERING = "lingering"
    GONE = "gone"


class Clients(Protocol):
    """The gateway as its client connections see it."""

    limits: GatewayLimits
    metrics: Metrics
    draining: bool
    taker: Taker | None
    choose_id: Callable[[bytes | None], str]

    def begin(self, turn: Turn, /) -> None: ...

    def joined(self, connection: "ClientConnection", /) -> bool:
        """Count a connection; False when there are too many."""
        ...

    def left(self, connection: "ClientConnection", /) -> None: ...


class ClientConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self, clients: Clients, *, is_kept: bool = False) -> None:
        """`is_kept`: it was used before, on another host, and waits for its next request."""
        self.peer = "-"
        self.write_paused = False
        self._clients = clients
        self._limits = clients.limits
        self._reader = RequestReader(clients.limits.header_bytes, clients.limits.body_bytes)
        self._waiting: deque[WireRequest | Refusal] = deque()
        self._waiting_bytes = 0
        self._turn: Turn | None = None
        self._stage = _Stage.IDLE
        self._deadline = _NEVER
        self._body_since: float | None = None
        self._quiet_since = 0.0
        self._is_kept = is_kept
        self._advancing = False
        self._resuming: asyncio.Handle | None = None
        self._unsent_bytes = 0
        self._clock = asyncio.get_running_loop().time
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_nodelay(transport)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else "-"
        self._quiet_since = self._clock()
        self._deadline = self._quiet_since + (self._limits.keep_alive_s if self._is_kept else self._limits.head_s)
        if self._is_kept:
            self._begin_again(is_welcome=self._clients.joined(self))
        elif not self._clients.joined(self):
            self._waiting.append(Refusal(503, "too-many-connections", "Too many clients are connected."))
            self._advance()

    def _begin_again(self, *, is_welcome: bool) -> None:
        """A client takes what it is told unasked for the answer to its next request: no word of a refusal."""
        if not is_welcome:
            self.cut()
        elif self._clients.draining:
            asyncio.get_running_loop().call_soon(self.close_when_idle)

    @property
    def may_stay_open(self) -> bool:
        """False while the gateway drains, unless somebody takes the connection over."""
        taker = self._clients.taker
        return not self._clients.draining or (taker is not None and taker.is_open)

    def data_received(self, data: bytes) -> None:
        if self._stage in (_Stage.LINGERING, _Stage.GONE):
            return
        reader = self._reader
        for request in reader.feed(data):
            self._waiting.append(request)
            self._waiting_bytes += len(request.body)
            self._body_since = None
        if reader.failure is not None and not (self._waiting and isinstance(self._waiting[-1], Refusal)):
            self._waiting.append(reader.failure)
        self._advance()
        if (self._turn is not None or self._waiting) and self._ahead_too_far():
            self._stop_reading_requests()
        if self._stage not in (_Stage.LINGERING, _Stage.GONE):
            self._rearm()

    def _ahead_too_far(self) -> bool:
        return (
            len(self._waiting) > self._limits.pipelined_requests
            or self._waiting_bytes + self._reader.pending_bytes > self._limits.pipelined_bytes
        )

    def _stop_reading_requests(self) -> None:
        """Answer the current request, then say why no other one is."""
        refusal = Refusal(429, "pipelined-too-far", "Too much was sent ahead of its turn.")
        self._reader.failure = refusal
        self._waiting.clear()
        self._waiting.append(refusal)
        self._waiting_bytes = 0

    def _advance(self) -> None:
        """Give turns until one takes its time, nothing waits, or others are due. Turns may end while they begin."""
        if self._advancing or self._resuming is not None:
            return
        self._advancing = True
        turns = 0
        while self._turn is None and self._waiting and not self.write_paused and self._stage is not _Stage.GONE:
            if turns == _TURNS_AT_ONCE:
                self._resuming = asyncio.get_running_loop().call_soon(self._resume)
                break
            turns += 1
            item = self._waiting.popleft()
            if self._stage is _Stage.LINGERING:
                continue
            if isinstance(item, Refusal):
                self._refuse(item)
            else:
                self._waiting_bytes -= len(item.body)
                self._begin(item)
        self._advancing = False
        if self._turn is None and self._reader.expects_continue and not self._waiting:
            self._reader.expects_continue = False
            self.write(_CONTINUE)

    def _resume(self) -> None:
        self._resuming = None
        self._advance()
        if self._stage not in (_Stage.LINGERING, _Stage.GONE):
            self._rearm()

    def _begin(self, wire: WireRequest) -> None:
        given = next((value for name, value in wire.headers if name == _REQUEST_ID), None)
        self._turn = Turn(self, wire, self._clients.choose_id(given), self._clients.metrics)
        self._clients.begin(self._turn)

    def _refuse(self, refusal: Refusal) -> None:
        """Refuse what is no whole request: it has no id and no turn of its own."""
        wire = WireRequest(b"", b"", http_1_0=False, headers=(), body=b"", keep_alive=False, has_framing=False)
        self._turn = Turn(self, wire, self._clients.choose_id(None), self._clients.metrics)
        self._turn.refuse(refusal)

    def _rearm(self) -> None:
        now = self._clock()
        if self._turn is not None:
            self._stage, self._deadline = _Stage.ANSWERING, _NEVER
        elif self._reader.phase is Phase.BODY:
            self._stage, self._deadline = _Stage.BODY, self._body_deadline(now)
        elif self._reader.phase is Phase.HEAD:
            if self._stage is not _Stage.HEAD:
                self._stage, self._deadline = _Stage.HEAD, now + self._limits.head_s
        elif self._stage is not _Stage.IDLE:
            self._stage, self._deadline = _Stage.IDLE, now + self._limits.keep_alive_s
            self._quiet_since = now

    def _body_deadline(self, now: float) -> float:
        """The end of its longest silence, or of the time that what has come of it is worth."""
        if self._body_since is None:
            self._body_since = now
        limits = self._limits
        worth_s = self._reader.pending_bytes / limits.body_rate_bytes_per_s
        return min(now, self._body_since + worth_s) + limits.body_s

    def write(self, data: bytes) -> None:
        if self._stage is not _Stage.GONE:
            self._transport.write(data)

    def turn_done(self, *, keep_alive: bool) -> None:
        """The turn's answer is written: on to the next one, or close."""
        self._turn = None
        if self._stage is _Stage.GONE:
            return
        if not keep_alive:
            self._close_when_flushed()
            return
        self._advance()
        if self._turn is None and self._stage is not _Stage.LINGERING:
            self._rearm()
            if self._clients.draining:
                # The answer's last bytes leave at the end of this turn of the loop.
                asyncio.get_running_loop().call_soon(self.close_when_idle)

    def _close_when_flushed(self) -> None:
        """Half-close and let the client close: a full close resets unread input, and an answer can get lost with it."""
        self._stage = _Stage.LINGERING
        self._deadline = self._clock() + self._limits.linger_s
        self._waiting.clear()
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def cut(self) -> None:
        self._turn = None
        self._stage = _Stage.GONE
        self._transport.abort()

    def close_when_idle(self) -> None:
        """Close a connection that owes no answer and has begun no request, once it was quiet for `drain_idle_s`.

        A busy client's next request crosses with a close that comes at once, and most cannot be sent again: it gets its
        answer, which says that the connection ends. Where a successor takes connections, it gets this one instead.
        """
        if self._is_idle and not self._passed_on():
            self._deadline = min(self._deadline, self._quiet_since + self._limits.drain_idle_s)

    @property
    def _is_idle(self) -> bool:
        return self._stage is _Stage.IDLE and self._turn is None and not self._waiting

    def _passed_on(self) -> bool:
        """Let a successor have an idle connection; False when there is none, or part of an answer is left to be sent."""
        taker, transport = self._clients.taker, self._transport
        if taker is None or not taker.is_open or transport.is_closing() or transport.get_write_buffer_size():
            return False
        try:
            copy = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        except OSError:
            return False
        if not taker.put(copy):
            copy.close()
            return False
        self.cut()
        return True

    def look_at_clock(self, now: float) -> None:
        """End what has taken too long."""
        turn = self._turn
        if turn is not None:
            if turn.holder is not None:
                turn.holder.look_at_clock(now)
        elif now >= self._deadline:
            self._out_of_time(now)

    def _out_of_time(self, now: float) -> None:
        if self._stage in (_Stage.HEAD, _Stage.BODY):
            self._reader.failure = Refusal(408, "request-timeout", "The request did not arrive in time.")
            self._waiting.append(self._reader.failure)
            # A client that reads nothing either cannot be told: then this is its last deadline.
            self._stage, self._deadline = _Stage.IDLE, now + self._limits.body_s
            self._advance()
            return
        unsent = self._transport.get_write_buffer_size()
        if unsent and (self._unsent_bytes == 0 or unsent < self._unsent_bytes):
            # A slow client that still takes its answer gets the time for it.
            self._unsent_bytes = unsent
            self._deadline = now + self._limits.body_s
        elif not (self._is_idle and self._passed_on()):
            self.cut()

    def pause_writing(self) -> None:
        self.write_paused = True
        if self._turn is not None and self._turn.holder is not None:
            self._turn.holder.client_paused()

    def resume_writing(self) -> None:
        self.write_paused = False
        if self._turn is not None and self._turn.holder is not None:
            self._turn.holder.client_resumed()
        self._advance()
        if self._stage not in (_Stage.LINGERING, _Stage.GONE):
            self._rearm()

    def eof_received(self) -> None:
        """A client that closes its side has left: nobody can tell it from one that is gone. The transport closes."""
        self._leave(Outcome.CLIENT_DISCONNECT)

    def abandon(self) -> None:
        """The gateway stops: give up the turn and close."""
        self._leave(Outcome.TIMEOUT)
        self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave(Outcome.CLIENT_DISCONNECT)
        self._stage = _Stage.GONE
        self._clients.left(self)

    def _leave(self, outcome: Outcome) -> None:
        turn, self._turn = self._turn, None
        self._waiting.clear()
        if self._stage is not _Stage.GONE:
            self._stage = _Stage.LINGERING
            self._deadline = self._clock() + self._limits.linger_s
        if turn is not None and turn.holder is not None:
            turn.holder.abandoned(outcome)
