"""Drives one plugin process over its two links: reader callbacks on the running loop, no task per call.

Invariants: every call made ends in exactly one call of its `done`, in time, late, or when the
process is gone; memory for what a plugin does not read is bounded by `MAX_QUEUED_BYTES`; after
`close` nothing of this object is registered with the loop.
"""

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from hotbay_sdk.protocol import CallError as WireError
from hotbay_sdk.protocol import (
    CallLimitError,
    CallReceived,
    CallTooLarge,
    Connection,
    ErrorCode,
    ErrorReceived,
    Event,
    FrameType,
    HandshakeReceived,
    LateAnswerDropped,
    LinkState,
    PongReceived,
    ReplyReceived,
    Role,
    Value,
    ValueRefusedError,
    ViolationFound,
)

from hotbay.errors import CapacityError, HostError, PluginFault

logger = logging.getLogger(__name__)

READ_BYTES: Final = 96 * 1024
"""One read of a link. Reads of 128 KiB and more cost 14 µs extra: the allocator maps and unmaps them."""
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
"""Bytes kept for a plugin that does not read; beyond, calls are refused at once."""
STUCK_S: Final = 10.0
"""A process that still sits on a hot call so long after its deadline is replaced: it answers nobody else meanwhile."""
SILENT_FRAME_S: Final = 1.0
"""A frame begun and then silent for this long, or the oldest call's deadline if longer, is a violation."""

Outcome: TypeAlias = "Value | HostError"


class Channel(Protocol):
    """The host's ends of one process's links, all non-blocking."""

    @property
    def call_in_fd(self) -> int:
        """Readable end of the pipe on which the plugin answers."""

    @property
    def call_out_fd(self) -> int:
        """Writable end of the pipe on which the host calls."""

    @property
    def control(self) -> socket.socket:
        """The control socket."""


class _Call:
    __slots__ = ("deadline_s", "done", "freed", "stuck", "timer")

    def __init__(
        self, done: Callable[[Outcome], None], freed: Callable[[], None] | None, deadline_s: float
    ) -> None:
        self.done = done
        self.freed = freed
        self.deadline_s = deadline_s
        self.timer: asyncio.TimerHandle | None = None
        self.stuck: asyncio.TimerHandle | None = None

    def free(self) -> None:
        """The plugin is no longer busy with it."""
        if self.stuck is not None:
            self.stuck.cancel()
        if self.freed is not None:
            self.freed()


class _Wire:
    """One descriptor pair with its connection: reads when readable, writes at once or queues."""

    __slots__ = ("_buffer", "_events", "_frame_timer", "_loop", "_lost", "_queue", "_queued", "_writing",
                 "calls", "connection", "name", "read_fd", "write_fd")

    def __init__(
        self,
        name: str,
        read_fd: int,
        write_fd: int,
        events: Callable[["_Wire", list[Event]], None],
        lost: Callable[[HostError], None],
    ) -> None:
        self.name = name
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.connection = Connection(Role.HOST)
        self.calls: dict[int, _Call] = {}
        self._buffer = bytearray(READ_BYTES)
        self._events = events
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._writing = False
        self._frame_timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(read_fd, self._on_readable)

    def write(self, data: bytes) -> None:
        """Write now if the peer reads, else queue; raises `CapacityError` beyond the bound."""
        if self._queued:
            self._enqueue(data)
            return
        try:
            written = os.write(self.write_fd, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._lost(PluginFault("CRASHED", f"the {self.name} link cannot be written: {error.strerror}"))
            return
        if written < len(data):
            self._enqueue(data[written:] if written else data)

    def _enqueue(self, data: bytes) -> None:
        if self._queued + len(data) > MAX_QUEUED_BYTES:
            raise CapacityError(
                "RESOURCE_EXHAUSTED",
                f"{self._queued} bytes wait for a plugin that does not read",
                hint="the call was not made; the plugin is replaced when it stays so",
            )
        self._queue.append(data)
        self._queued += len(data)
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self.write_fd, self._on_writable)

    def _on_writable(self) -> None:
        while self._queue:
            data = self._queue[0]
            try:
                written = os.write(self.write_fd, data)
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(PluginFault("CRASHED", f"the {self.name} link cannot be written: {error.strerror}"))
                return
            self._queued -= written
            if written < len(data):
                self._queue[0] = data[written:]
                return
            self._queue.popleft()
        self._writing = False
        self._loop.remove_writer(self.write_fd)

    def _on_readable(self) -> None:
        if not self.read_once():
            self._loop.remove_reader(self.read_fd)
            self._lost(PluginFault("CRASHED", f"the plugin closed its {self.name} link"))

    def read_once(self) -> bool:
        """Take what is there; false at the end of the stream."""
        try:
            count = os.readv(self.read_fd, [self._buffer])
        except BlockingIOError:
            return True
        except OSError:
            return False
        if count == 0:
            return False
        events = self.connection.feed(self._buffer[:count])
        if events:
            self._events(self, events)
        if self.connection.mid_frame and self.connection.state is LinkState.OPEN:
            self._watch_frame()
        elif self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        return True

    def drain(self) -> None:
        """Read to the end of what a dead process left behind, at most one queue's worth."""
        for _ in range(MAX_QUEUED_BYTES // READ_BYTES):
            try:
                count = os.readv(self.read_fd, [self._buffer])
            except OSError:
                return
            if count == 0:
                return
            events = self.connection.feed(self._buffer[:count])
            if events:
                self._events(self, events)

    def _watch_frame(self) -> None:
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        oldest = max((call.deadline_s for call in self.calls.values()), default=0.0)
        self._frame_timer = self._loop.call_later(max(SILENT_FRAME_S, oldest), self._on_silent_frame)

    def _on_silent_frame(self) -> None:
        self._frame_timer = None
        self._lost(PluginFault("PROTOCOL_VIOLATION", f"a frame on the {self.name} link began and went silent"))

    def close(self) -> list[_Call]:
        """Leave the loop; return the calls whose callers still wait, and those that only hold a window."""
        self._loop.remove_reader(self.read_fd)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.write_fd)
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        self._queue.clear()
        self._queued = 0
        self.connection.close()
        calls = list(self.calls.values())
        self.calls.clear()
        return calls


class PluginClient:
    """Calls one plugin process. Lives on the loop that made it; not for use from other threads.

    `on_lost(fault)` is called at most once, when a link ends or the plugin breaks the protocol; the
    owner then stops the process and calls `close`.
    """

    def __init__(self, channel: Channel, *, label: str, on_lost: Callable[[HostError], None]) -> None:
        self._label = label
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._fault: HostError | None = None
        self._handshakes: dict[FrameType, asyncio.Future[Value]] = {}
        self._pongs: dict[int, asyncio.Future[Value]] = {}
        self._late_answers = 0
        self._call = _Wire("call", channel.call_in_fd, channel.call_out_fd, self._handle, self._lost)
        fd = channel.control.fileno()
        self._control = _Wire("control", fd, fd, self._handle, self._lost)

    @property
    def fault(self) -> HostError | None:
        """Why the process can no longer be called, once it cannot."""
        return self._fault

    @property
    def outstanding(self) -> int:
        """Hot calls without an answer, cancelled ones included."""
        return self._call.connection.outstanding

    @property
    def late_answers(self) -> int:
        """Answers that came after their deadline and were dropped."""
        return self._call.connection.late_answers

    @property
    def label(self) -> str:
        """`plugin id#generation`, for logs."""
        return self._label

    def start_call(
        self,
        method: int,
        args: Sequence[object],
        *,
        deadline_s: float,
        done: Callable[[Outcome], None],
        freed: Callable[[], None] | None = None,
        reply_limit_bytes: int | None = None,
        epoch: int = 0,
    ) -> None:
        """Make a hot call. `done` gets the result or a `HostError`, exactly once, never before this returns.

        `freed` is called once when the plugin answered (in time or late) or is gone: until then it is
        busy with the call. Raises `HostError` when the call could not be made; then neither is called.
        """
        self._start(self._call, method, args, deadline_s, done, freed, reply_limit_bytes, epoch)

    def notify(self, method: int, args: Sequence[object], *, epoch: int = 0) -> None:
        """Send a one-way call. Raises `HostError` when it cannot be sent."""
        if self._fault is not None:
            raise self._fault
        self._call.write(self._call.connection.send_notice(method, args, epoch=epoch))

    async def control_call(self, method: int, args: Sequence[object], *, deadline_s: float) -> Value:
        """Call on the control link and wait. Raises `HostError`."""
        future: asyncio.Future[Outcome] = self._loop.create_future()

        def done(outcome: Outcome) -> None:
            if not future.done():
                future.set_result(outcome)

        self._start(self._control, method, args, deadline_s, done, None, None, 0)
        outcome = await future
        if isinstance(outcome, HostError):
            raise outcome
        return outcome

    def send_handshake(self, frame_type: FrameType, body: Mapping[str, Value]) -> None:
        """Send GO or WELCOME."""
        self._control.write(self._control.connection.send_handshake(frame_type, body))

    async def handshake(self, frame_type: FrameType) -> Value:
        """Wait for the plugin's ARMED, HELLO or READY. Raises the fault that ended the process instead."""
        if self._fault is not None:
            raise self._fault
        future = self._handshakes.setdefault(frame_type, self._loop.create_future())
        return await future

    def goaway(self, message: str) -> None:
        """Tell the plugin that no calls follow: it ends what is in flight and exits."""
        if self._fault is None:
            self._control.write(self._control.connection.send_goaway("RETIRED", message))

    async def ping(self, token: int) -> Value:
        """Ask the control thread for its figures; raises the fault when the process goes meanwhile."""
        if self._fault is not None:
            raise self._fault
        future = self._pongs.setdefault(token, self._loop.create_future())
        self._control.write(self._control.connection.send_ping(token))
        return await future

    def close(self, fault: HostError) -> None:
        """End both links: what the process left is read first, then every waiting caller gets `fault`. Idempotent."""
        self._call.drain()
        self._control.drain()
        if self._fault is None:
            self._fault = fault
        self._fail_waiters(self._fault)
        for wire in (self._call, self._control):
            for call in wire.close():
                if call.timer is not None:
                    call.timer.cancel()
                    call.done(self._fault)
                call.free()

    # -- inside ----------------------------------------------------------------------------------

    def _start(
        self,
        wire: _Wire,
        method: int,
        args: Sequence[object],
        deadline_s: float,
        done: Callable[[Outcome], None],
        freed: Callable[[], None] | None,
        reply_limit_bytes: int | None,
        epoch: int,
    ) -> None:
        if self._fault is not None:
            raise self._fault
        try:
            stream, frame = wire.connection.start_call(
                method,
                args,
                deadline_us=max(1, int(deadline_s * 1e6)),
                reply_limit_bytes=reply_limit_bytes,
                epoch=epoch,
            )
        except CallLimitError as error:
            raise CapacityError("RESOURCE_EXHAUSTED", str(error)) from error
        except ValueRefusedError as error:
            raise PluginFault("BAD_RESULT", f"an argument cannot cross the wire: {error}") from error
        call = _Call(done, freed, deadline_s)
        wire.calls[stream] = call
        try:
            wire.write(frame)
        except CapacityError:
            del wire.calls[stream]
            wire.connection.cancel(stream, "")
            raise
        if self._fault is None:
            call.timer = self._loop.call_later(deadline_s, self._on_deadline, wire, stream)
        else:
            wire.calls.pop(stream, None)
            raise self._fault

    def _on_deadline(self, wire: _Wire, stream: int) -> None:
        call = wire.calls.get(stream)
        if call is None:
            return
        call.timer = None
        if wire is self._call:
            call.stuck = self._loop.call_later(STUCK_S, self._on_stuck)
        frame = wire.connection.cancel(stream, "deadline")
        try:
            wire.write(frame)
        except CapacityError:
            logger.debug("cancel_not_sent", extra={"plugin": self._label, "stream": stream})
        call.done(
            PluginFault("DEADLINE_EXCEEDED", f"{self._label} gave no answer within {call.deadline_s * 1000:.0f} ms")
        )

    def _on_stuck(self) -> None:
        self._lost(
            PluginFault(
                "DEADLINE_EXCEEDED",
                f"{self._label} still had not answered a call {STUCK_S:g} s after its deadline",
                hint="a handler of the plugin hangs; the process is replaced",
            )
        )

    def _handle(self, wire: _Wire, events: list[Event]) -> None:
        for event in events:
            if type(event) is ReplyReceived:
                self._settle(wire, event.stream, event.result)
            elif type(event) is ErrorReceived and event.stream == 0:
                self._lost(fault_from_wire(event.error, self._label))
            elif type(event) is ErrorReceived:
                self._settle(wire, event.stream, fault_from_wire(event.error, self._label))
            elif type(event) is LateAnswerDropped:
                call = wire.calls.pop(event.stream, None)
                if call is not None:
                    call.free()
            else:
                self._handle_rare(wire, event)

    def _settle(self, wire: _Wire, stream: int, outcome: Outcome) -> None:
        call = wire.calls.pop(stream)
        if call.timer is not None:
            call.timer.cancel()
        call.free()
        call.done(outcome)

    def _handle_rare(self, wire: _Wire, event: Event) -> None:
        if isinstance(event, HandshakeReceived):
            future = self._handshakes.setdefault(event.type, self._loop.create_future())
            if not future.done():
                future.set_result(event.body)
        elif isinstance(event, PongReceived):
            pong = self._pongs.pop(event.token, None)
            if pong is not None and not pong.done():
                pong.set_result(event.facts)
        elif isinstance(event, ViolationFound):
            self._lost(PluginFault(str(event.code), f"{self._label} on the {wire.name} link: {event.message}"))
        elif isinstance(event, (CallReceived, CallTooLarge)):
            refusal = WireError(ErrorCode.UNAVAILABLE, "this host grants no host calls")
            wire.write(wire.connection.send_error(event.stream, refusal))
        else:
            logger.debug("frame_ignored", extra={"plugin": self._label, "event": type(event).__name__})

    def _lost(self, fault: HostError) -> None:
        if self._fault is not None:
            return
        self._fault = fault
        self._fail_waiters(fault)
        self._on_lost(fault)

    def _fail_waiters(self, fault: HostError) -> None:
        for future in (*self._handshakes.values(), *self._pongs.values()):
            if not future.done():
                future.set_exception(fault)
                # Nobody may be waiting: the exception is then seen by no one, which is no error.
                future.exception()


_CAPACITY: Final = frozenset({ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.UNAVAILABLE})


def fault_from_wire(error: WireError, label: str) -> HostError:
    """The host's error for what a plugin answered."""
    details = {"executed": str(error.executed), "traceback": error.traceback, **error.details}
    kind = CapacityError if error.code in _CAPACITY else PluginFault
    return kind(str(error.code), f"{label}: {error.message}", details=details)
