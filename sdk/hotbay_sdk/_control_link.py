"""The control thread of a plugin process, and the thread of slow calls that it starts when first needed.

The control thread never runs the author's code, so it answers pings while a handler is busy. The end
of the control socket is the end of the process, whatever handlers do.
"""

from __future__ import annotations

import os
import sys
from _queue import SimpleQueue
from _thread import allocate_lock, start_new_thread
from time import monotonic

from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk._errors import attempt
from hotbay_sdk.protocol.connection import Connection
from hotbay_sdk.protocol.events import (
    CallReceived,
    CallTooLarge,
    CancelReceived,
    GoAwayReceived,
    PingReceived,
    ViolationFound,
)
from hotbay_sdk.protocol.messages import METHODS, CallError, ErrorCode, Executed, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket
    from collections.abc import Callable
    from typing import NoReturn

    from hotbay_sdk._call_link import CallServer
    from hotbay_sdk.protocol.events import Event

READ_BYTES = 64 * 1024


class ControlServer:
    """The control thread's half, and the thread of slow calls."""

    def __init__(self, control: Socket, connection: Connection, dispatcher: Dispatcher, calls: CallServer) -> None:
        self._control = control
        self._connection = connection
        self._dispatcher = dispatcher
        self._calls = calls
        self._owning = allocate_lock()
        self._slow: SimpleQueue[tuple[CallReceived, float]] | None = None
        self._cancelled: set[int] = set()

    def run(self, first: list[Event]) -> None:
        """Serve the control socket until it ends, then end the process."""
        events = first
        while True:
            for event in events:
                self._handle(event)
            data = receive(self._control)
            with self._owning:
                events = self._connection.feed(data)

    def send(self, make: Callable[[], bytes]) -> None:
        """Make a frame and write it, from any thread. A host that is gone ends the process."""
        with self._owning:
            try:
                self._control.sendall(make())
            except ConnectionError:
                leave(0, "")

    def _handle(self, event: Event) -> None:
        if isinstance(event, PingReceived):
            self.send(lambda: self._connection.send_pong(event.token, self._facts()))
        elif isinstance(event, CallReceived):
            self._queue(event)
        elif isinstance(event, CancelReceived):
            self._cancelled.add(event.stream)
        elif isinstance(event, CallTooLarge):
            message = f"a call of {event.length} bytes, the limit is {event.limit}"
            error = CallError(ErrorCode.FRAME_TOO_LARGE, message, executed=Executed.NO)
            self.send(lambda: self._connection.send_error(event.stream, error))
        elif isinstance(event, GoAwayReceived):
            self._calls.drain()
        elif isinstance(event, ViolationFound):
            leave(1, f"the host broke the protocol on the control link: {event.message}")

    def _queue(self, event: CallReceived) -> None:
        if self._slow is None:
            self._slow = SimpleQueue()
            start_new_thread(self._run_slow, (self._slow,))
        self._slow.put((event, monotonic()))

    def _run_slow(self, queue: SimpleQueue[tuple[CallReceived, float]]) -> None:
        while True:
            event, received = queue.get()
            try:
                result = self._slow_result(event, received)
            except SystemExit as leaving:
                leave(exit_code(leaving), "")
            # A cancel that came while it ran is answered by its result, which the host drops.
            self._cancelled.discard(event.stream)
            self.send(lambda: answer(self._connection, event.stream, result))  # noqa: B023  # called at once

    def _slow_result(self, event: CallReceived, received: float) -> object:
        spec = METHODS.get(event.meta.method)
        if event.stream in self._cancelled:
            self._cancelled.discard(event.stream)
            return CallError(ErrorCode.CANCELLED, "cancelled before it was started", executed=Executed.NO)
        if monotonic() >= received + event.meta.deadline_us / 1e6:
            return CallError(ErrorCode.DEADLINE_EXCEEDED, "late before it was started", executed=Executed.NO)
        if spec is None or spec.link is not Link.CONTROL:
            return CallError(
                ErrorCode.PROTOCOL_VIOLATION,
                f"method {event.meta.method} is no call of the control link",
                executed=Executed.NO,
            )
        return self._dispatcher.control_call(event.meta.method, event.args)

    def _facts(self) -> dict[str, int | float | str | bytes | None]:
        since = self._calls.busy_since
        times = os.times()
        return {
            "in_flight": self._calls.in_flight,
            "oldest_ms": 0 if since is None else int((monotonic() - since) * 1e3),
            "rss_bytes": resident_bytes(),
            "cpu_ms": int((times.user + times.system) * 1e3),
        }


def resident_bytes() -> int:
    """Resident memory of this process, 0 where the kernel does not tell."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        pages = int(os.read(descriptor, 256).split()[1])
    finally:
        os.close(descriptor)
    return pages * os.sysconf("SC_PAGE_SIZE")


def receive(control: Socket) -> bytes:
    """The next bytes of the control socket. Its end ends the process, whatever handlers do."""
    try:
        data = control.recv(READ_BYTES)
    except ConnectionError:
        data = b""
    if not data:
        leave(0, "")
    return data


def exit_code(leaving: SystemExit) -> int:
    """The code that the interpreter would exit with; text goes to the log."""
    if leaving.code is None or isinstance(leaving.code, int):
        return (leaving.code or 0) & 0xFF
    sys.stderr.write(f"{leaving.code!s}\n")
    return 1


def leave(code: int, message: str) -> NoReturn:
    """End the process from any thread, at once."""
    if message:
        sys.stderr.write(message + "\n")
    for stream in (sys.stdout, sys.stderr):
        attempt(stream.flush)
    os._exit(code)
