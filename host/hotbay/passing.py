"""Client connections that are idle go to the host that serves from now on: none is closed while its client may be
about to use it.

A message is one byte with one descriptor, so that each is received with what belongs to it (unix(7): a read ends at the
end of a message that carries descriptors). Invariants: a connection belongs to one process; one that could not be passed
on stays with the host that had it, or ends with the successor that was to have it.
"""

import contextlib
import errno
import logging
import math
import socket
from collections.abc import AsyncIterator
from typing import Final

import anyio
import anyio.abc

logger = logging.getLogger(__name__)

__all__ = ["PassingOn", "passed_on"]

_MESSAGE: Final = b"c"
_FULL_PAUSE_S: Final = 0.02


class PassingOn:
    """The end of the host that goes. `put` is for the loop's thread; `run` ends after `finish`, or with the successor."""

    def __init__(self, stream: anyio.abc.UNIXSocketStream) -> None:
        self._stream = stream
        self._send, self._receive = anyio.create_memory_object_stream[socket.socket](math.inf)
        self._done = anyio.Event()
        self.count = 0
        """Connections that went."""

    def put(self, connection: socket.socket) -> bool:
        """Take a connection, or not: False once the successor is gone or all is over."""
        try:
            self._send.send_nowait(connection)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return False
        return True

    async def run(self) -> None:
        """Pass on what comes."""
        try:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                async for connection in self._receive:
                    with connection:
                        await self._pass_on(connection)
                    self.count += 1
        finally:
            self._drop_what_is_left()
            self._done.set()
            logger.info("connections_passed_on count=%d", self.count)

    async def _pass_on(self, connection: socket.socket) -> None:
        while True:
            try:
                return await self._stream.send_fds(_MESSAGE, [connection.fileno()])
            except anyio.BrokenResourceError as error:
                # So many descriptors are on their way that the kernel takes no more before some have arrived.
                if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ETOOMANYREFS:
                    raise
            await anyio.sleep(_FULL_PAUSE_S)

    def _drop_what_is_left(self) -> None:
        self._send.close()
        left = self._receive.statistics().current_buffer_used
        for _ in range(left):
            self._receive.receive_nowait().close()
        self._receive.close()

    async def finish(self, within_s: float) -> None:
        """Take none any more; return when those that were taken went, or cannot, or the successor is too slow."""
        self._send.close()
        with anyio.move_on_after(within_s):
            await self._done.wait()


async def passed_on(stream: anyio.abc.UNIXSocketStream) -> AsyncIterator[socket.socket]:
    """The successor's end: connections as they come, until the host is done or gone. Who takes one closes it."""
    with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            _, descriptors = await stream.receive_fds(len(_MESSAGE), 1)
            for descriptor in descriptors:
                yield socket.socket(fileno=descriptor)
