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
        self.is_open = True
        """Whether connections are taken: until `finish`, or the successor's end."""
        self.count = 0
        """Connections that went."""

    def put(self, connection: socket.socket) -> bool:
        """Take a connection, or not: False once the successor is gone or all is over."""
        if not self.is_open:
            return False
        try:
            self._send.send_nowait(connection)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return False
        return True

    async def run(self) -> None:
        """Pass on what comes."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch)
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    async for connection in self._receive:
                        with connection:
                            await self._pass_on(connection)
                        self.count += 1
                group.cancel_scope.cancel()
        finally:
            self._close()
            self._drop_what_is_left()
            self._done.set()
            logger.info("connections_passed_on count=%d", self.count)

    async def _watch(self) -> None:
        """Take no more as soon as the successor is gone: what is not sent yet would be lost with it."""
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                await self._stream.receive(len(_MESSAGE))
        self._close()

    def _close(self) -> None:
        self.is_open = False
        self._send.close()

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
        left = self._receive.statistics().current_buffer_used
        for _ in range(left):
            self._receive.receive_nowait().close()
        self._receive.close()

    async def finish(self, within_s: float) -> None:
        """Take none any more; return when those that were taken went, or cannot, or the successor is too slow."""
        self._close()
        with anyio.move_on_after(within_s):
            await self._done.wait()


async def passed_on(stream: anyio.abc.UNIXSocketStream) -> AsyncIterator[socket.socket]:
    """The successor's end: connections as they come, until the host is done or gone. Who takes one closes it."""
    lost = 0
    try:
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                message, descriptors = await stream.receive_fds(len(_MESSAGE), 1)
                if not message:
                    return
                if not descriptors:
                    # The kernel drops what the receiver has no number for, and says so by nothing else.
                    lost += 1
                    if lost == 1:
                        logger.error("connection_lost on its way from another host: this one has no descriptor left")
                for descriptor in descriptors:
                    yield socket.socket(fileno=descriptor)
    finally:
        if lost:
            logger.error("connections_lost count=%d: raise the limit of open files (ulimit -n)", lost)
