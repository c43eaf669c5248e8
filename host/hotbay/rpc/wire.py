"""One link of one process on the running loop: reads when readable, writes at once or queues.

It moves bytes and keeps the calls of its link; what events mean is its owner's business. Invariants:
`write` never raises and never blocks; who can be made to send without end asks `full` before, so that
at most `MAX_QUEUED_BYTES` and one frame wait for a peer that does not read; data waits behind every other frame,
and never parts one; a peer that sends what nobody asked for without end is cut off, and so is one that passes
descriptors: none is taken from a plugin, which could take the memory behind it away; after `close` nothing of this
object is registered with the loop.
"""

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from hotbay_sdk.protocol import Connection, Event, LinkState, Method, Role, Value
from hotbay_sdk.protocol.messages import ENDLESS_MS, MAX_HOST_CALLS

from hotbay.errors import HostError, PluginFault

READ_BYTES: Final = 96 * 1024
"""One read of a link. Reads of 128 KiB and more cost 14 µs extra: the allocator maps and unmaps them."""
MAX_QUEUED_BYTES: Final = 4 * 1024 * 1024
"""Bytes kept for a plugin that does not read; beyond, calls are refused at once."""
UNASKED_BYTES: Final = 1024 * 1024
UNASKED_BYTES_PER_S: Final = 256 * 1024
UNASKED_FRAME_BYTES: Final = 256
"""What a plugin may send beyond answers: at once, for ever, and what a frame counts for beside its bytes: reading an
empty one takes some 10 µs. What the SDK sends of itself is a PONG every few seconds."""
ANCILLARY_BYTES: Final = 64
"""Room to see that descriptors came: more of them than fit are closed by the kernel."""
MSG_CMSG_CLOEXEC: Final = 0x40000000
"""Descriptors that come are never inherited. The socket module of 3.11 does not name it."""
SILENT_FRAME_S: Final = 1.0
"""A frame begun and then silent for this long, or the oldest call's deadline if longer, is a violation."""

ENDLESS_S: Final = ENDLESS_MS / 1e3
"""Deadline of a call that goes on until it is cancelled: nothing waits for its end."""

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


class Call:
    """A call without an answer. `timer` is None once its caller was told."""

    __slots__ = ("deadline_s", "done", "freed", "method", "stuck", "timer")

    def __init__(
        self, method: int, done: Callable[[Outcome], None], freed: Callable[[], None] | None, deadline_s: float
    ) -> None:
        self.method = method
        self.done = done
        self.freed = freed
        self.deadline_s = deadline_s
        self.timer: asyncio.TimerHandle | None = None
        self.stuck: asyncio.TimerHandle | None = None

    @property
    def ends(self) -> bool:
        """Whether an answer is due at some time: a process that is silent may be working at it."""
        return self.deadline_s < ENDLESS_S

    def free(self) -> None:
        """The plugin is no longer busy with it."""
        if self.stuck is not None:
            self.stuck.cancel()
        if self.freed is not None:
            self.freed()

    def tell(self, outcome: Outcome) -> None:
        """Give the caller its outcome, unless the deadline did."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
            self.done(outcome)


class Passage:
    """A frame with descriptors that go with its first byte, and are the host's to close then."""

    __slots__ = ("descriptors", "frame")

    def __init__(self, frame: bytes, descriptors: Sequence[int]) -> None:
        self.frame = frame
        self.descriptors = descriptors

    def __len__(self) -> int:
        return len(self.frame)

    def close(self) -> None:
        """Give the descriptors up."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


class Wire:
    """One descriptor pair, or one socket, with its connection.

    `events` takes what arrives, `lost` why the link ended. `max_incoming`: calls of the peer that are served at a time.
    """

    __slots__ = (
        "_buffer",
        "_bulk",
        "_events",
        "_frame_timer",
        "_loop",
        "_lost",
        "_queue",
        "_queued",
        "_socket",
        "_unasked_at_s",
        "_unasked_bytes",
        "_writing",
        "calls",
        "connection",
        "name",
        "read_fd",
        "unasked",
        "write_fd",
    )

    def __init__(
        self,
        name: str,
        read_fd: int,
        write_fd: int,
        events: Callable[["Wire", list[Event]], None],
        lost: Callable[[HostError], None],
        *,
        passes: socket.socket | None = None,
        max_incoming: int = MAX_HOST_CALLS,
    ) -> None:
        self.name = name
        self.read_fd = read_fd
        self.write_fd = write_fd
        self.connection = Connection(Role.HOST, max_incoming=max_incoming)
        self._socket = passes
        self.calls: dict[int, Call] = {}
        self.unasked = 0
        """Frames of the current read that answer no call; counted by `events`."""
        self._unasked_bytes = 0.0
        self._unasked_at_s = 0.0
        self._buffer = bytearray(READ_BYTES)
        self._events = events
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._queue: deque[bytes | Passage] = deque()
        self._queued = 0
        self._bulk: deque[bytes] = deque()
        self._writing = False
        self._frame_timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(read_fd, self._on_readable)

    @property
    def full(self) -> bool:
        """True while so much waits for the peer that nothing new may be begun."""
        return self._queued >= MAX_QUEUED_BYTES

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait for the peer to read."""
        return self._queued

    def write(self, data: bytes) -> None:
        """Write now if the peer reads, else queue."""
        if self._queued:
            self._enqueue(data)
            return
        try:
            written = os.write(self.write_fd, data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._cannot_write(error)
            return
        if written < len(data):
            self._enqueue(data[written:] if written else data)

    def write_data(self, frame: bytes) -> None:
        """Write a frame of data, whose credit bounds it, when nothing else waits."""
        self._bulk.append(frame)
        self._start_writing()

    def write_passing(self, frame: bytes, descriptors: Sequence[int]) -> None:
        """Write a frame with descriptors, which belong to this object from here on; only on the control socket."""
        assert self._socket is not None, "descriptors travel on the control link"
        self._enqueue(Passage(frame, descriptors))

    def _enqueue(self, data: bytes | Passage) -> None:
        self._queue.append(data)
        self._queued += len(data)
        self._start_writing()

    def _start_writing(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self.write_fd, self._on_writable)

    def _on_writable(self) -> None:
        while self._queue or self._bulk:
            if not self._queue:
                frame = self._bulk.popleft()
                self._queue.append(frame)
                self._queued += len(frame)
            data = self._queue[0]
            try:
                written = os.write(self.write_fd, data) if isinstance(data, bytes) else self._pass(data)
            except BlockingIOError:
                return
            except OSError as error:
                self._cannot_write(error)
                return
            self._queued -= written
            if written < len(data):
                self._queue[0] = (data if isinstance(data, bytes) else data.frame)[written:]
                return
            self._queue.popleft()
        self._stop_writing()

    def _pass(self, passage: Passage) -> int:
        assert self._socket is not None, "only a wire with a socket is given passages"
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", passage.descriptors))
        written = self._socket.sendmsg([passage.frame], [rights])
        passage.close()
        return written

    def _stop_writing(self) -> None:
        for item in self._queue:
            if isinstance(item, Passage):
                item.close()
        self._queue.clear()
        self._bulk.clear()
        self._queued = 0
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.write_fd)

    def _cannot_write(self, error: OSError) -> None:
        # A broken pipe stays writable for the poller: left registered, it would be called in every turn of the loop.
        self._stop_writing()
        self._lost(PluginFault("CRASHED", f"the {self.name} link cannot be written: {error.strerror}"))

    def _on_readable(self) -> None:
        if not self._read_once():
            self._loop.remove_reader(self.read_fd)
            self._lost(PluginFault("CRASHED", f"the plugin closed its {self.name} link"))

    def _read_once(self) -> bool:
        """Take what is there; false at the end of the stream."""
        try:
            # A hot call's read costs no further call.
            count = os.readv(self.read_fd, [self._buffer]) if self._socket is None else self._receive(self._socket)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if count == 0:
            return False
        self._take(count)
        if self.connection.mid_frame and self.connection.state is LinkState.OPEN:
            self._watch_frame()
        elif self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        return True

    def _receive(self, link: socket.socket) -> int:
        """Bytes read into the buffer; descriptors with them end the link. Raises OSError."""
        count, ancillary, flags, _ = link.recvmsg_into([self._buffer], ANCILLARY_BYTES, MSG_CMSG_CLOEXEC)
        if ancillary or flags & socket.MSG_CTRUNC:
            self._refuse_descriptors(ancillary)
        return count

    def _refuse_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, rights in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                for descriptor in memoryview(rights[: len(rights) - len(rights) % 4]).cast("i"):
                    os.close(descriptor)
        self.connection.close()
        self._lost(
            PluginFault(
                "PROTOCOL_VIOLATION",
                f"the plugin passed descriptors on its {self.name} link; a host takes none",
                hint="descriptors go from host to plugin only; the process is replaced",
            )
        )

    def drain(self) -> None:
        """Read to the end of what a dead process left behind, at most one queue's worth."""
        for _ in range(MAX_QUEUED_BYTES // READ_BYTES):
            try:
                count = os.readv(self.read_fd, [self._buffer]) if self._socket is None else self._receive(self._socket)
            except OSError:
                return
            if count == 0:
                return
            self._take(count)

    def _take(self, count: int) -> None:
        events = self.connection.feed(self._buffer[:count])
        if events:
            self._events(self, events)
            if self.unasked:
                self._account(count)

    def _account(self, count: int) -> None:
        """Let what was not asked for leak away, or end a link on which it does not."""
        now_s = self._loop.time()
        leaked = (now_s - self._unasked_at_s) * UNASKED_BYTES_PER_S
        self._unasked_bytes = max(0.0, self._unasked_bytes - leaked) + count + self.unasked * UNASKED_FRAME_BYTES
        self._unasked_at_s = now_s
        self.unasked = 0
        if self._unasked_bytes > UNASKED_BYTES and self.connection.state is LinkState.OPEN:
            # What is still in the pipe is not looked at any more.
            self.connection.close()
            self._lost(
                PluginFault(
                    "PROTOCOL_VIOLATION",
                    f"the plugin floods its {self.name} link with frames that answer no call",
                    hint="something in the plugin writes to the host's descriptors; the process is replaced",
                )
            )

    def _watch_frame(self) -> None:
        if self._frame_timer is not None:
            self._frame_timer.cancel()
        oldest = max((call.deadline_s for call in self.calls.values() if call.ends), default=0.0)
        self._frame_timer = self._loop.call_later(max(SILENT_FRAME_S, oldest), self._on_silent_frame)

    def _on_silent_frame(self) -> None:
        self._frame_timer = None
        self._lost(PluginFault("PROTOCOL_VIOLATION", f"a frame on the {self.name} link began and went silent"))

    @property
    def last_end_s(self) -> float:
        """When the last of the calls that have a deadline will have had it, in the loop's time; 0 without any."""
        timers = (call.timer for call in self.calls.values() if call.ends)
        return max((timer.when() for timer in timers if timer is not None), default=0.0)

    def close(self) -> list[Call]:
        """Leave the loop; return the calls whose callers still wait, and those that only hold a window."""
        self._loop.remove_reader(self.read_fd)
        self._stop_writing()
        if self._frame_timer is not None:
            self._frame_timer.cancel()
            self._frame_timer = None
        self.connection.close()
        # What refers to a closed wire refers to itself, too, and stays until it is collected: dozens of swaps later.
        self._buffer = bytearray()
        calls = list(self.calls.values())
        self.calls.clear()
        return calls


def calls_in_flight(wires: Sequence[Wire]) -> list[dict[str, object]]:
    """The host's own table of calls without an answer, for the person who has to find out where a process hangs."""
    return [
        {"link": wire.name, "stream": stream, "method": call.method, "deadline_ms": int(call.deadline_s * 1e3)}
        for wire in wires
        for stream, call in wire.calls.items()
        if call.method != Method.DUMP_STATE
    ]
