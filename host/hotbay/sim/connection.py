"""One client's connection to a simulated server: reads requests, and writes answers as they come.

Answers leave in the order of the requests, one after another. A client that goes away takes its request with it, as it does
on the real server. What a slow client has not read yet waits in memory, as there.
"""

import asyncio
from collections import deque
from typing import Final, Protocol, cast

from hotbay.gateway.answers import Refusal
from hotbay.gateway.request_reader import RequestReader, WireRequest
from hotbay.gateway.upstream import set_nodelay
from hotbay.sim.answering import Answering
from hotbay.sim.answers import head
from hotbay.sim.asking import Asked
from hotbay.sim.failures import Fault
from hotbay.sim.routes import COMPLETIONS, Answer, Server, answer
from hotbay.sim.sequences import Sequence

__all__ = ["Connection", "Host"]

_HEADER_BYTES: Final = 64 * 1024
_BODY_BYTES: Final = 64 * 1024 * 1024
"""A prompt of the largest models, in the four bytes a token that the simulator counts, and room to escape them."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class Host(Server, Protocol):
    """The server as its connections see it."""

    extra_headers: bytes

    def joined(self, connection: "Connection", /) -> None: ...

    def left(self, connection: "Connection", /) -> None: ...

    def take(self, request: WireRequest, /, *, is_chat: bool) -> Asked | Fault:
        """Read a completion request; a fault if it is refused."""
        ...

    def answering(self, asked: Asked, request: WireRequest, /, *, is_kept: bool) -> Answering:
        """What turns its tokens into bytes."""
        ...

    def add(self, asked: Asked, connection: "Connection", /) -> Sequence:
        """Put it into the queue. `go_on` has to follow; then the connection is told of its tokens."""
        ...

    def go_on(self) -> None: ...

    def abort(self, sequence: Sequence, /) -> None: ...


class Connection(asyncio.Protocol):
    """See the module."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._reader = RequestReader(_HEADER_BYTES, _BODY_BYTES)
        self._waiting: deque[WireRequest | Refusal] = deque()
        self._transport = cast(asyncio.Transport, None)
        self._sequence: Sequence | None = None
        self._answering: Answering = cast(Answering, None)
        self._is_serving = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_nodelay(transport)
        self._host.joined(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._host.left(self)
        self._waiting.clear()
        if self._sequence is not None:
            sequence, self._sequence = self._sequence, None
            self._host.abort(sequence)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        self._waiting.extend(reader.feed(data))
        if reader.expects_continue:
            reader.expects_continue = False
            self._transport.write(_CONTINUE)
        if reader.failure is not None and not (self._waiting and isinstance(self._waiting[-1], Refusal)):
            self._waiting.append(reader.failure)
        self._serve_waiting()

    def abandon(self) -> None:
        """Cut it."""
        self._transport.abort()

    def put(self, tokens: int, finish_reason: str) -> None:
        """So many tokens more of the answer; the reason with the last ones."""
        sequence = self._sequence
        if sequence is None:
            return
        data = self._answering.put(tokens, finish_reason, sequence.cached_tokens)
        if data:
            self._transport.write(data)
        if finish_reason:
            self._sequence = None
            if not self._answering.is_kept:
                self._transport.close()
            self._serve_waiting()

    def _serve_waiting(self) -> None:
        """Serve what waits, until a request has to be waited for. An answer that is there at once comes back to here."""
        if self._is_serving:
            return
        self._is_serving = True
        while self._waiting and self._sequence is None and not self._transport.is_closing():
            request = self._waiting.popleft()
            if isinstance(request, Refusal):
                fault = Fault(request.status, request.message, "BadRequestError")
                self._write(Answer.of_fault(fault), is_kept=False)
            else:
                self._serve(request)
        self._is_serving = False

    def _serve(self, request: WireRequest) -> None:
        path = request.target.partition(b"?")[0]
        at_once = answer(self._host, request.method, path, request.body)
        if at_once is not None:
            self._write(at_once, is_kept=request.keep_alive)
            return
        asked = self._host.take(request, is_chat=COMPLETIONS[path])
        if isinstance(asked, Fault):
            self._write(Answer.of_fault(asked), is_kept=request.keep_alive)
            return
        self._answering = self._host.answering(asked, request, is_kept=request.keep_alive)
        begun = self._answering.begin()
        if begun:
            self._transport.write(begun)
        self._sequence = self._host.add(asked, self)
        self._host.go_on()

    def _write(self, given: Answer, *, is_kept: bool) -> None:
        status, content_type, body = given
        self._transport.write(head(status, content_type, len(body), self._host.extra_headers, is_kept=is_kept) + body)
        if not is_kept:
            self._transport.close()
