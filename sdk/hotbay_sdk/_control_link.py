"""The control thread of a plugin process, and the threads of slow calls and of the data layer that it starts when first needed.

The control thread never runs the author's code, so it answers pings while a handler is busy, takes a predecessor's
state and tells where a process hangs. The end of the control socket is the end of the process, whatever handlers do.
"""

from __future__ import annotations

import os
from _queue import Empty, SimpleQueue
from _thread import start_new_thread
from time import monotonic

from hotbay_sdk import _lazy
from hotbay_sdk._dispatch import Dispatcher, answer
from hotbay_sdk._errors import CallFailedError
from hotbay_sdk._host_calls import HostCalls, close_all
from hotbay_sdk._leaving import exit_code, leave
from hotbay_sdk.protocol.events import (
    CallReceived,
    CallRefused,
    CancelReceived,
    CreditReceived,
    DataDropped,
    DataEnded,
    DataReceived,
    DescriptorsReceived,
    ErrorReceived,
    GoAwayReceived,
    PingReceived,
    ReplyReceived,
    ViolationFound,
)
from hotbay_sdk.protocol.messages import DATA_METHODS, METHODS, CallError, ErrorCode, Executed, Link, Method

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as Socket

    from hotbay_sdk._call_link import CallServer
    from hotbay_sdk._data_calls import DataCalls
    from hotbay_sdk.protocol.events import Event

READ_BYTES = 64 * 1024
_ANCILLARY_BYTES = 64
"""Room for the descriptors of one frame, four at most, with their header."""
_CLOSE_ON_EXEC = 0x40000000
"""MSG_CMSG_CLOEXEC: a program that the plugin starts gets none of them."""
_SOL_SOCKET, _SCM_RIGHTS = 1, 1
LOG_DESCRIPTOR = 2


class ControlServer:
    """The control thread's half, and the thread of slow calls."""

    def __init__(self, control: Socket, host: HostCalls, dispatcher: Dispatcher, calls: CallServer) -> None:
        self._control = control
        self._host = host
        self._connection = host.connection
        self._dispatcher = dispatcher
        self._calls = calls
        self._slow: SimpleQueue[tuple[CallReceived, float]] | None = None
        self._data: DataCalls | None = None
        self._cancelled: set[int] = set()
        self._credit: SimpleQueue[None] = SimpleQueue()
        self._states: dict[int, bytearray] = {}
        self._descriptors: tuple[int, ...] = ()

    def run(self, first: list[Event]) -> None:
        """Serve the control socket until it ends, then end the process."""
        events = first
        while True:
            for event in events:
                self._handle(event)
                if self._descriptors and not isinstance(event, DescriptorsReceived):
                    # No other frame than a host call's answer, and `share`, has a use for any.
                    close_all(self._descriptors)
                    self._descriptors = ()
            data, descriptors = receive(self._control)
            with self._host.owning:
                if descriptors:
                    self._connection.take_descriptors(descriptors)
                events = self._connection.feed(data)

    def _handle(self, event: Event) -> None:
        if isinstance(event, PingReceived):
            self._host.send(lambda: self._connection.send_pong(event.token, self._facts()))
        elif isinstance(event, (ReplyReceived, ErrorReceived)):
            descriptors, self._descriptors = self._descriptors, ()
            self._host.settle(event, descriptors)
        elif isinstance(event, CallReceived):
            self._begin(event)
        elif isinstance(event, CancelReceived):
            self._cancel(event.stream)
        elif isinstance(event, CallRefused):
            self._host.send(lambda: self._connection.send_error(event.stream, event.error))
        elif isinstance(event, GoAwayReceived):
            if self._data is not None:
                self._data.stop()
            self._calls.drain()
        elif isinstance(event, ViolationFound):
            leave(1, f"the host broke the protocol on the control link: {event.message}")
        else:
            self._handle_data(event)

    def _handle_data(self, event: Event) -> None:
        if isinstance(event, CreditReceived):
            if self._data is None or not self._data.credited(event.stream):
                self._credit.put(None)
        elif isinstance(event, DescriptorsReceived):
            self._descriptors = event.descriptors
        elif isinstance(event, DataReceived):
            state = self._states.get(event.stream)
            if state is not None:
                state += event.data
            self._host.send(lambda: self._connection.data.consumed(event.stream, len(event.data)))
        elif isinstance(event, DataDropped):
            self._host.send(lambda: self._connection.data.consumed(event.stream, event.length))
        elif isinstance(event, DataEnded) and event.stream in self._states:
            result = self._dispatcher.import_state(bytes(self._states.pop(event.stream)))
            self._host.send(lambda: answer(self._connection, event.stream, result))

    def _cancel(self, stream: int) -> None:
        if self._states.pop(stream, None) is not None:
            given_up = CallError(ErrorCode.CANCELLED, "cancelled before the state was there", executed=Executed.NO)
            self._host.send(lambda: self._connection.send_error(stream, given_up))
            return
        if self._data is not None and self._data.cancel(stream):
            return
        self._cancelled.add(stream)
        self._credit.put(None)

    def finish(self) -> None:
        """Answer what was called of the data layer; for the main thread, when no more calls come."""
        if self._data is not None:
            self._data.finish()

    def _begin(self, event: CallReceived) -> None:
        if event.meta.method == Method.IMPORT_STATE:
            self._states[event.stream] = bytearray()
        elif event.meta.method == Method.DUMP_STATE and not event.args:
            _lazy.dump_stacks(LOG_DESCRIPTOR)
            beside = self._data.table() if self._data is not None else []
            table = {"calls": [*self._calls.table(), *beside], "in_flight": self._calls.in_flight}
            self._host.send(lambda: answer(self._connection, event.stream, table))
        elif event.meta.method == Method.SHARE:
            descriptors, self._descriptors = self._descriptors, ()
            result = self._dispatcher.share(event.args, descriptors)
            self._host.send(lambda: answer(self._connection, event.stream, result))
        elif event.meta.method in DATA_METHODS:
            if self._data is None:
                self._data = _lazy.data_calls(self._dispatcher, self._host)
            self._data.submit(event)
        else:
            self._queue(event)

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
            self._host.send(lambda: answer(self._connection, event.stream, result))  # noqa: B023  # called at once

    def _slow_result(self, event: CallReceived, received: float) -> object:
        spec = METHODS.get(event.meta.method)
        left_s = received + event.meta.deadline_us / 1e6 - monotonic()
        if event.stream in self._cancelled:
            return CallError(ErrorCode.CANCELLED, "cancelled before it was started", executed=Executed.NO)
        if left_s <= 0:
            return CallError(ErrorCode.DEADLINE_EXCEEDED, "late before it was started", executed=Executed.NO)
        if spec is None or spec.link is not Link.CONTROL or not spec.by_host:
            return CallError(
                ErrorCode.PROTOCOL_VIOLATION,
                f"method {event.meta.method} is no call of the control link",
                executed=Executed.NO,
            )
        if event.meta.method == Method.EXPORT_STATE:
            stream, deadline = event.stream, monotonic() + left_s
            result = self._dispatcher.export_state(
                event.args, lambda data: self._send_data(stream, data, deadline), left_s
            )
            if not isinstance(result, CallError):
                self._host.send(lambda: self._end(stream))
            return result
        if event.meta.method == Method.DUMP_STATE:
            return self._dispatcher.control_call(event.meta.method, event.args, left_s)
        return self._dispatcher.control_call(event.meta.method, event.args)

    def _send_data(self, stream: int, data: bytes, deadline: float) -> None:
        """Send data as the host gives credit; raises `CallFailedError` when it wants no more or takes too long."""
        position = 0
        while position < len(data):
            if stream in self._cancelled:
                raise _failed(ErrorCode.CANCELLED, "cancelled while it ran")
            with self._host.owning:
                piece = data[position : position + self._connection.data.room(stream)]
                if piece:
                    self._host.write(self._connection.data.send(stream, piece))
            position += len(piece)
            if not piece:
                self._await_credit(deadline)

    def _end(self, stream: int) -> bytes:
        return self._connection.data.send_end(stream) if self._connection.data.sending(stream) else b""

    def _await_credit(self, deadline: float) -> None:
        try:
            self._credit.get(timeout=max(0.0, deadline - monotonic()))
        except Empty:
            raise _failed(ErrorCode.DEADLINE_EXCEEDED, "the host gave no credit in time") from None

    def _facts(self) -> dict[str, int | float | str | bytes | None]:
        since = self._calls.busy_since
        times = os.times()
        return {
            "in_flight": self._calls.in_flight,
            "oldest_ms": 0 if since is None else int((monotonic() - since) * 1e3),
            "rss_bytes": resident_bytes(),
            "cpu_ms": int((times.user + times.system) * 1e3),
        }


def _failed(code: ErrorCode, message: str) -> CallFailedError:
    return CallFailedError(CallError(code, message, executed=Executed.YES))


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


def receive(control: Socket) -> tuple[bytes, tuple[int, ...]]:
    """The next bytes of the control socket and the descriptors with them. Its end ends the process, whatever handlers do."""
    try:
        data, ancillary, _, _ = control.recvmsg(READ_BYTES, _ANCILLARY_BYTES, _CLOSE_ON_EXEC)
    except ConnectionError:
        data, ancillary = b"", []
    if not data:
        leave(0, "")
    if not ancillary:
        return data, ()
    raw = b"".join(rights for level, kind, rights in ancillary if (level, kind) == (_SOL_SOCKET, _SCM_RIGHTS))
    return data, tuple(memoryview(raw[: len(raw) - len(raw) % 4]).cast("i"))
