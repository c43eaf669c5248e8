"""One HTTP/1.1 connection as a protocol of the loop: a request out, an answer in, read where the kernel wrote it.

Reading is done in steps of bounded size, and the loop has its turn after one that took long: neither a large answer nor a
hostile one keeps others waiting. What reading took of the thread is counted.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, cast

from hotbay.datalayer.fetching.buffers import Buffers
from hotbay.datalayer.fetching.http_answer import Answer, AnswerError, AnswerReader

__all__ = ["ClosedUnansweredError", "Connection"]

_READ_BYTES: Final = 128 * 1024
"""What is read of a connection in one step: most pages are one, and chunks of next to nothing are refused within some ms."""
_TURN_S: Final = 0.002
"""After so much reading the loop has its turn before there is more of it."""

_NOWHERE: Final = memoryview(bytearray(4096))


class ClosedUnansweredError(Exception):
    """The peer closed before the first byte of an answer."""


class Connection(asyncio.BufferedProtocol):
    """See the module. `thread_s` tells the seconds that this thread has run so far."""

    def __init__(self, buffers: Buffers, thread_s: Callable[[], float] = time.thread_time) -> None:
        self._thread_s = thread_s
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._reader = AnswerReader(buffers)
        self._keep_alive = True
        self._spent_s = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._keep_alive and self._waiter is None and self._transport is not None

    async def exchange(self, request: bytes, left_s: float, budget_s: float) -> Answer:
        """Send the request and return the answer, whatever its status, within what is left of the budget."""
        assert self._transport is not None
        assert self._waiter is None
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Answer] = loop.create_future()
        self._waiter = waiter
        self._reader.begin()
        self._transport.write(request)
        # A cancel scope for each of thousands of fetches a second would cost as much as reading the page.
        deadline = loop.call_later(left_s, self._fail, "timeout", f"no whole answer within {budget_s:g} s")
        try:
            return await waiter
        except asyncio.CancelledError:
            # The rest of the answer would be taken for that of the next request.
            self.abort()
            raise
        finally:
            deadline.cancel()
            self._waiter = None

    def take_spent_s(self) -> float:
        """What reading took of the thread since this was last asked for."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def release(self) -> None:
        """The last answer was read."""
        if self._waiter is None:
            self._reader.release()

    def abort(self) -> None:
        """Close at once."""
        self._keep_alive = False
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance check: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        # What comes unasked must not lie over an answer that is still being read.
        if self._waiter is None or self._waiter.done():
            return _NOWHERE
        return self._reader.space()[:_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._waiter is None or self._waiter.done():
            # Nobody asked: whatever this is, it is not the answer to the next request.
            self.abort()
            return
        began_s = self._thread_s()
        try:
            answer = self._reader.received(nbytes)
        except AnswerError as error:
            self._fail(error.reason, str(error))
            return
        finally:
            took_s = self._thread_s() - began_s
            self._spent_s += took_s
        if answer is not None:
            self._keep_alive = self._keep_alive and answer.reusable
            self._waiter.set_result(answer)
        elif took_s >= _TURN_S and self._transport is not None:
            # A loop reads on while there is something to read.
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        # False: the transport closes itself, and `connection_lost` says the rest.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._keep_alive = False
        if self._waiter is not None and not self._waiter.done():
            if not self._reader.started:
                self._waiter.set_exception(ClosedUnansweredError())
            elif exc is not None:
                self._fail("truncated", "the connection was lost in the middle of the answer")
            else:
                self._finish_at_end(self._waiter)

    def _finish_at_end(self, waiter: "asyncio.Future[Answer]") -> None:
        try:
            waiter.set_result(self._reader.ended())
        except AnswerError as error:
            self._fail(error.reason, str(error))

    def _fail(self, reason: str, message: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(AnswerError(reason, message))
        self.abort()
