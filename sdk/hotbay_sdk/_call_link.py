"""The main thread's half of a plugin process: hot calls from one pipe, answers to another.

Reads block, and handlers run in the reading thread, one after the other: a hand-over would cost more
than the call. A call that is already late, or cancelled, is refused before any of the author's code
runs for it. Time counts from when the process read the call.
"""

from __future__ import annotations

import os
import select
from time import monotonic

from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk.protocol.connection import Connection, Role
from hotbay_sdk.protocol.events import CallReceived, CallTooLarge, CancelReceived, NoticeReceived, ViolationFound
from hotbay_sdk.protocol.messages import METHODS, CallError, ErrorCode, Executed, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hotbay_sdk.protocol.events import Event

READ_BYTES = 64 * 1024
"""One read; the allocator keeps blocks below 128 KiB, so that a read costs no page faults."""


class LeavingError(Exception):
    """The serving loop ends: the host wants no more."""


class CallServer:
    """The main thread's half: hot calls from one descriptor, answers to another."""

    def __init__(self, dispatcher: Dispatcher, call_in: int, call_out: int) -> None:
        self._dispatcher = dispatcher
        self._in = call_in
        self._out = call_out
        self._connection = Connection(Role.PLUGIN)
        self._waiting: list[tuple[CallReceived | NoticeReceived, float]] = []
        self._cancelled: set[int] = set()
        self._wake_read, self._wake_write = os.pipe()
        self._readable = select.poll()
        self._readable.register(call_in, select.POLLIN)
        self._readable.register(self._wake_read, select.POLLIN)
        self._draining = False
        self.busy_since: float | None = None

    @property
    def in_flight(self) -> int:
        """Calls that were read and not answered."""
        return self._connection.serving

    def drain(self) -> None:
        """From any thread: end once every call that was sent is answered."""
        os.write(self._wake_write, b"\0")

    def serve(self) -> None:
        """Answer calls until the link ends or is drained; raises SystemExit if the author's code does."""
        try:
            while True:
                self._read(block=not self._waiting)
                if self._waiting:
                    self._handle(*self._waiting.pop(0))
        except LeavingError:
            return

    def _read(self, *, block: bool) -> None:
        """Take what has arrived; with `block`, wait for something."""
        while True:
            ready = [fd for fd, _ in self._readable.poll(None if block and not self._draining else 0)]
            if self._wake_read in ready:
                self._draining = True
                self._readable.unregister(self._wake_read)
            if self._in not in ready:
                if block and self._draining:
                    raise LeavingError
                if not block:
                    return
                continue
            data = os.read(self._in, READ_BYTES)
            if not data:
                raise LeavingError
            now = monotonic()
            for event in self._connection.feed(data):
                self._take(event, now)
            if self._waiting:
                # Only a full read may have left the cancel of a waiting call behind it in the pipe.
                block = False
                if len(data) < READ_BYTES:
                    return

    def _take(self, event: Event, now: float) -> None:
        if isinstance(event, (CallReceived, NoticeReceived)):
            self._waiting.append((event, now))
        elif isinstance(event, CancelReceived):
            self._cancelled.add(event.stream)
        elif isinstance(event, CallTooLarge):
            message = f"a call of {event.length} bytes, the limit is {event.limit}"
            self._write(
                self._connection.send_error(
                    event.stream, CallError(ErrorCode.FRAME_TOO_LARGE, message, executed=Executed.NO)
                )
            )
        elif isinstance(event, ViolationFound):
            raise SystemExit(f"the host broke the protocol on the call link: {event.message}")

    def _handle(self, event: CallReceived | NoticeReceived, received: float) -> None:
        meta = event.meta
        spec = METHODS.get(meta.method)
        if isinstance(event, NoticeReceived):
            if spec is not None and spec.one_way:
                self._dispatcher.call(meta.method, event.args)
            return
        refusal = self._refusal(event, received)
        if refusal is None and (spec is None or spec.one_way or spec.link is not Link.CALL):
            refusal = CallError(
                ErrorCode.PROTOCOL_VIOLATION, f"method {meta.method} is no call of this link", executed=Executed.NO
            )
        if refusal is not None:
            self._write(self._connection.send_error(event.stream, refusal))
            return
        self.busy_since = received
        timeout_s = received + meta.deadline_us / 1e6 - monotonic()
        result = self._dispatcher.call(meta.method, event.args, timeout_s=max(0.0, timeout_s))
        self.busy_since = None
        self._write(answer(self._connection, event.stream, result))

    def _refusal(self, event: CallReceived, received: float) -> CallError | None:
        if event.stream in self._cancelled:
            self._cancelled.discard(event.stream)
            return CallError(ErrorCode.CANCELLED, "cancelled before it was started", executed=Executed.NO)
        late_s = monotonic() - received - event.meta.deadline_us / 1e6
        if late_s >= 0:
            return CallError(
                ErrorCode.DEADLINE_EXCEEDED,
                f"its deadline passed {late_s * 1e3:.1f} ms before it could be started",
                executed=Executed.NO,
            )
        return None

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._out, data)
            while written < len(data):
                data = data[written:]
                written = os.write(self._out, data)
        except BrokenPipeError as error:
            raise LeavingError from error
