"""One connection to the admin socket: bytes in and out, every wait with a deadline."""

import socket

import anyio
import anyio.lowlevel

from hotbay.gateway.answers import Answer, Refusal, serialise
from hotbay.gateway.request_reader import Phase, RequestReader, WireRequest

__all__ = ["AdminPeer", "PeerGoneError"]

_PIECE_BYTES = 64 * 1024
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
)


class PeerGoneError(Exception):
    """The other end has left, or does not take part in time."""


class AdminPeer:
    """One task at a time reads, one at a time writes; both raise `PeerGoneError`.

    Args:
        connection: not blocking; whoever gives it closes it.
        reader: takes its requests.
        read_s: longest wait for a request to begin, and longest time from then to its last byte.
        write_s: longest time in which an answer or a line must be taken.
    """

    def __init__(self, connection: socket.socket, reader: RequestReader, *, read_s: float, write_s: float) -> None:
        self._connection = connection
        self._reader = reader
        self._read_s = read_s
        self._write_s = write_s
        self._waiting: list[WireRequest] = []

    async def request(self) -> WireRequest | None:
        """The next request; None when the other end has left, or sent what is none: then `failure` says what."""
        has_begun = self._reader.phase is not Phase.BETWEEN
        until_s = anyio.current_time() + self._read_s
        while not self._waiting and self._reader.failure is None:
            with anyio.CancelScope(deadline=until_s) as scope:
                data = await self._receive()
            if scope.cancelled_caught:
                raise PeerGoneError("no request came in time")
            if not data:
                return None
            self._waiting += self._reader.feed(data)
            if not has_begun and self._reader.phase is not Phase.BETWEEN:
                has_begun, until_s = True, anyio.current_time() + self._read_s
            if self._reader.expects_continue:
                self._reader.expects_continue = False
                await self._send(_CONTINUE)
        return self._waiting.pop(0) if self._waiting else None

    @property
    def failure(self) -> Refusal | None:
        """What was wrong with the bytes that came, if anything was."""
        return self._reader.failure

    async def refuse(self, answer: Answer) -> None:
        """Send the last answer, to what is no request."""
        await self._send(serialise(answer, keep_alive=False, http_1_0=False, head_only=False, request_id=""))

    async def answer(self, request: WireRequest, answer: Answer) -> None:
        """Send a whole answer."""
        head_only = request.method == b"HEAD"
        await self._send(
            serialise(
                answer,
                keep_alive=request.keep_alive,
                http_1_0=request.http_1_0,
                head_only=head_only,
                request_id="",
            )
        )

    async def begin_lines(self) -> None:
        """Send the head of an answer without end; the connection's end will be its."""
        await self._send(_STREAM_HEAD)

    async def line(self, data: bytes) -> None:
        """Send one line."""
        await self._send(data + b"\n")

    async def left(self) -> None:
        """Return when the other end has closed; what it sends before is of no use to anybody."""
        while await self._receive():
            pass

    async def _receive(self) -> bytes:
        # A client that always has more must not keep the loop to itself, nor get past its deadline.
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return self._connection.recv(_PIECE_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(self._connection)
            except OSError as error:
                raise PeerGoneError(str(error)) from error

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        with anyio.move_on_after(self._write_s) as scope:
            while rest:
                try:
                    rest = rest[self._connection.send(rest) :]
                except BlockingIOError:
                    await anyio.wait_writable(self._connection)
                except OSError as error:
                    raise PeerGoneError(str(error)) from error
        if scope.cancelled_caught:
            raise PeerGoneError("the answer was not taken in time")
