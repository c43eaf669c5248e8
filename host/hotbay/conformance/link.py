"""One link to the peer under test: raw bytes out, raw frames and protocol events in, nothing believed.

Invariants: what arrives is judged by the rules for a host's end of the link (`Connection`), and kept as raw frames
beside, for rules about the form of bodies; a descriptor that arrives is closed and counted; every wait has a deadline,
and a wait that ends without what was waited for is a broken rule.
"""

import array
import fcntl
import os
import socket
import termios
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import anyio
from hotbay_sdk.protocol import (
    MAX_FRAME_BYTES,
    CallError,
    CallReceived,
    CallRefused,
    Connection,
    CreditReceived,
    DataDropped,
    DataEnded,
    DataReceived,
    ErrorCode,
    ErrorReceived,
    Event,
    LateAnswerDropped,
    ReplyReceived,
    Role,
    StrayAnswer,
    ViolationFound,
)
from hotbay_sdk.protocol.frames import Frame, FrameReader

from hotbay.conformance.verdict import BrokenRuleError

READ_BYTES: Final = 256 * 1024
_MAX_DESCRIPTORS: Final = 16
_TAKEN_POLL_S: Final = 0.0005
"""The kernel tells when there is room, never when the other side has read everything: that is looked at."""

__all__ = ["Answer", "Link", "Patience"]

Answer = ReplyReceived | ErrorReceived | LateAnswerDropped


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a peer, in seconds.

    Args:
        answer_s: for an answer to what was sent.
        ready_s: for READY.
        exit_s: for the end of the process, or of a link that it has to give up.
        quiet_s: how long silence is listened to before it counts as silence.
    """

    answer_s: float = 5.0
    ready_s: float = 30.0
    exit_s: float = 10.0
    quiet_s: float = 0.2


class _JumpingConnection(Connection):
    """A host's end whose stream ids may leave out as many as a rule likes."""

    __slots__ = ()

    def jump_to(self, stream: int) -> None:
        """Begin the next call with this stream id, odd and above all before it."""
        assert stream % 2 == 1
        assert stream >= self._next_stream
        self._next_stream = stream


class Link:
    """The host's ends of one link, non-blocking. Owned by the event loop's thread; one task at a time reads."""

    def __init__(
        self, name: str, read_fd: int, write_fd: int, patience: Patience, *, control: socket.socket | None = None
    ) -> None:
        self.name = name
        self.connection = _JumpingConnection(Role.HOST, max_outstanding=1 << 20)
        self.frames: list[Frame] = []
        self.descriptors = 0
        self.broken = ""
        """What the peer did that no host accepts."""
        self.ended = False
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._patience = patience
        self._control = control
        self._raw = FrameReader(lambda *_: MAX_FRAME_BYTES)
        self._events: deque[Event] = deque()
        self._answers: dict[int, Answer] = {}
        self.data: dict[int, bytearray] = {}
        """What came in DATA frames, by stream."""
        self.data_ended: set[int] = set()
        self._owed: dict[int, int] = {}
        self._has_credit = False

    # -- writing ---------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        """Write all of it; a peer that does not read in time, or has closed the link, breaks the rule."""
        try:
            with anyio.fail_after(self._patience.answer_s):
                rest = memoryview(data)
                while rest:
                    written = self._write_some(rest)
                    rest = rest[written:]
                    if not written:
                        await anyio.wait_writable(self._write_fd)
        except TimeoutError as error:
            raise BrokenRuleError(f"the peer does not read its {self.name} link") from error
        except OSError as error:
            raise BrokenRuleError(f"the peer closed its {self.name} link: {error.strerror}") from error

    async def write_taken(self, pieces: Sequence[bytes]) -> None:
        """Write pieces one after the other, each when the peer has read the one before: it sees every cut."""
        for piece in pieces:
            if piece:
                await self.write(piece)
                await self.taken()

    async def write_last(self, data: bytes) -> None:
        """Write to a peer that may end the link meanwhile: that is what is waited for afterwards."""
        try:
            await self.write(data)
        except BrokenRuleError:
            self.ended = True

    async def write_passing(self, frame: bytes, descriptors: Sequence[int]) -> None:
        """Write a frame of the control link with descriptors, which stay the caller's, beside its first byte."""
        assert self._control is not None, "descriptors travel on the control link"
        await self.taken()
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
        try:
            written = self._control.sendmsg([frame], [rights])
        except OSError as error:
            raise BrokenRuleError(f"the peer closed its {self.name} link: {error.strerror}") from error
        await self.write(frame[written:])

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._write_fd, data)
        except BlockingIOError:
            return 0

    async def taken(self) -> None:
        """Wait until the peer has read all that was written."""
        request = termios.FIONREAD if self._control is None else termios.TIOCOUTQ
        waiting = array.array("i", [0])
        try:
            with anyio.fail_after(self._patience.answer_s):
                while True:
                    fcntl.ioctl(self._write_fd, request, waiting)
                    if waiting[0] == 0:
                        return
                    await anyio.sleep(_TAKEN_POLL_S)
        except TimeoutError as error:
            raise BrokenRuleError(f"the peer does not read its {self.name} link") from error

    # -- reading ---------------------------------------------------------------------------------

    async def event(self, within_s: float | None = None) -> Event:
        """The next event that is no answer to a call. Raises `BrokenRuleError` when none comes."""
        while not self._events:
            await self.more(self._patience.answer_s if within_s is None else within_s)
        return self._events.popleft()

    async def answer(self, stream: int, within_s: float | None = None) -> Answer:
        """The answer to a call, whatever comes before it."""
        while stream not in self._answers:
            try:
                await self.more(self._patience.answer_s if within_s is None else within_s)
            except BrokenRuleError as error:
                raise BrokenRuleError(f"no answer to call {stream}: {error}") from error
        return self._answers.pop(stream)

    async def answer_with_data(self, stream: int) -> Answer:
        """As `answer`, giving credit for data as it comes."""
        while stream not in self._answers:
            await self.give_credit()
            try:
                await self.more(self._patience.answer_s)
            except BrokenRuleError as error:
                raise BrokenRuleError(f"no answer to call {stream}: {error}") from error
        return self._answers.pop(stream)

    def is_answered(self, stream: int) -> bool:
        """Whether the answer to a call has come, and nobody has taken it."""
        return stream in self._answers

    async def give_credit(self) -> None:
        """Let the peer send as much more data as came since the last time."""
        owed, self._owed = self._owed, {}
        credit = b"".join(self.connection.data.consumed(key, count) for key, count in owed.items())
        if credit:
            await self.write(credit)

    async def credit(self) -> None:
        """Wait until the peer lets more data be sent, or answers."""
        known = len(self._answers)
        while not self._has_credit and len(self._answers) == known:
            await self.more(self._patience.answer_s)
        self._has_credit = False

    async def unasked(self, for_s: float | None = None) -> list[Event]:
        """Listen for a while; what came that is no answer."""
        with anyio.move_on_after(self._patience.quiet_s if for_s is None else for_s):
            while not self.ended and not self.broken:
                await self.more(self._patience.exit_s)
        self._raise_broken()
        found = list(self._events)
        self._events.clear()
        return found

    async def until_ended(self) -> None:
        """Read to the end of the link; returns when it has ended."""
        while not self.ended:
            if not await self._read():
                await anyio.wait_readable(self._read_fd)

    def _raise_broken(self) -> None:
        if self.broken:
            raise BrokenRuleError(self.broken)

    async def more(self, within_s: float) -> None:
        """Take what comes next. Raises `BrokenRuleError` when nothing does in time, or the link is over."""
        self._raise_broken()
        if self.ended:
            raise BrokenRuleError(f"the {self.name} link ended")
        try:
            with anyio.fail_after(within_s):
                while not await self._read():
                    await anyio.wait_readable(self._read_fd)
        except TimeoutError as error:
            raise BrokenRuleError(f"nothing came on the {self.name} link within {within_s:g} s") from error

    async def _read(self) -> bool:
        """Take what is there; false when nothing is."""
        try:
            data = os.read(self._read_fd, READ_BYTES) if self._control is None else self._receive(self._control)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.ended = True
            return True
        self.frames.extend(item for item in self._raw.feed(data) if isinstance(item, Frame))
        for event in self.connection.feed(data):
            await self._take(event)
        return True

    def _receive(self, control: socket.socket) -> bytes:
        size = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
        data, ancillary, _, _ = control.recvmsg(READ_BYTES, size)
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                received = array.array("i")
                received.frombytes(raw[: len(raw) - len(raw) % received.itemsize])
                self.descriptors += len(received)
                for descriptor in received:
                    os.close(descriptor)
        return data

    async def _take(self, event: Event) -> None:
        if isinstance(event, ReplyReceived | LateAnswerDropped) or (isinstance(event, ErrorReceived) and event.stream):
            self._answers[event.stream] = event
        elif isinstance(event, DataReceived | DataDropped | DataEnded | CreditReceived):
            self._take_data(event)
        elif isinstance(event, ViolationFound):
            self.broken = f"on the {self.name} link: {event.code}: {event.message}"
        elif isinstance(event, StrayAnswer):
            self.broken = f"on the {self.name} link: an answer to call {event.stream}, which was answered or never made"
        elif isinstance(event, CallReceived | CallRefused):
            # A plugin may ask; nothing is granted here.
            refusal = CallError(ErrorCode.UNAVAILABLE, "a conformance run grants no host calls")
            await self.write(self.connection.send_error(event.stream, refusal))
        else:
            self._events.append(event)

    def _take_data(self, event: DataReceived | DataDropped | DataEnded | CreditReceived) -> None:
        if isinstance(event, DataReceived):
            self.data.setdefault(event.stream, bytearray()).extend(event.data)
            self._owed[event.stream] = self._owed.get(event.stream, 0) + len(event.data)
        elif isinstance(event, DataDropped):
            self._owed[event.stream] = self._owed.get(event.stream, 0) + event.length
        elif isinstance(event, DataEnded):
            self.data_ended.add(event.stream)
        else:
            self._has_credit = True
