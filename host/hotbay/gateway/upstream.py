"""One TCP connection to a model server: writes a request, reads its response, and tells the exchange that uses it.

Invariants: at most one exchange uses a connection at a time; whoever uses it hears exactly one end (`upstream_ended` or
`upstream_lost`), unless it lets go first with `abort`. A connection that breaks the protocol, says that it closes, or
receives bytes while nobody uses it is never used again.
"""

import asyncio
import socket
from typing import Protocol, cast

from hotbay.gateway.response_reader import ResponseError, ResponseReader

__all__ = ["ConnectionOwner", "UpstreamConnection", "UpstreamUser", "set_nodelay"]


def set_nodelay(transport: asyncio.BaseTransport) -> None:
    """Switch Nagle's algorithm off: with delayed acknowledgements it holds a token back for 40 ms."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class UpstreamUser(Protocol):
    """What a connection tells the exchange that uses it."""

    def upstream_read(self, reader: ResponseReader) -> None:
        """Bytes came in: a head, parts of the body, or both; not the end alone."""
        ...

    def upstream_ended(self, reader: ResponseReader) -> None:
        """The response is whole (the reader may hold its last parts); the connection is no longer the exchange's."""
        ...

    def upstream_lost(self, reason: str, *, silent: bool) -> None:
        """The connection failed; `silent`: not one byte of a response had come."""
        ...


class ConnectionOwner(Protocol):
    """Who keeps count of connections and takes them back after use."""

    def opened(self, connection: "UpstreamConnection", /) -> None: ...

    def free(self, connection: "UpstreamConnection", /) -> None: ...

    def closed(self, connection: "UpstreamConnection", /) -> None: ...


class UpstreamConnection(asyncio.Protocol):
    """See the module."""

    def __init__(self, owner: ConnectionOwner, key: tuple[str, int], header_bytes: int) -> None:
        self.key = key
        self.reused = False
        self.idle_since = 0.0
        self._owner = owner
        self._header_bytes = header_bytes
        self._user: UpstreamUser | None = None
        self._reader: ResponseReader | None = None
        self._silent = True
        self._paused = False
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        set_nodelay(transport)
        self._owner.opened(self)

    @property
    def usable(self) -> bool:
        """Open as far as this side knows."""
        return not self.transport.is_closing()

    def send(self, user: UpstreamUser, data: bytes) -> None:
        """Write a request for `user`, which hears of the response from now on."""
        self._user = user
        self._reader = ResponseReader(self._header_bytes)
        self._silent = True
        self.transport.write(data)

    def pause(self) -> None:
        """Stop reading: the client cannot take more."""
        if not self._paused and self.usable:
            self._paused = True
            self.transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._paused and self.usable:
            self._paused = False
            self.transport.resume_reading()

    def abort(self) -> None:
        """Let go and close at once; the user hears nothing more."""
        self._user = self._reader = None
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        reader, user = self._reader, self._user
        if reader is None or user is None:
            self.transport.abort()
            return
        self._silent = False
        try:
            reader.feed(data)
        except ResponseError as error:
            self._user = self._reader = None
            self.transport.abort()
            user.upstream_lost(f"bad response: {error}", silent=False)
            return
        if reader.ended:
            self._finish(user, reader)
        elif reader.head_done:
            user.upstream_read(reader)

    def _finish(self, user: UpstreamUser, reader: ResponseReader) -> None:
        self._user = self._reader = None
        # An answer that came before the request was written leaves bytes behind: not a connection to use again.
        if reader.keep_alive and self.usable and not self.transport.get_write_buffer_size():
            self.resume()
            self.reused = True
            self._owner.free(self)
        else:
            self.transport.abort()
        user.upstream_ended(reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.closed(self)
        reader, user = self._reader, self._user
        self._user = self._reader = None
        if reader is None or user is None:
            return
        if exc is None and reader.end_of_stream():
            user.upstream_ended(reader)
        else:
            user.upstream_lost("connection closed", silent=self._silent)
