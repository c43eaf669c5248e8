"""What one end of a link takes in: bytes in, events out, and the tables of the calls that they belong to. Without IO.

The receiving half of `Connection`, where the states of links and calls are told.
"""

from __future__ import annotations

from hotbay_sdk.protocol.control import (
    HANDSHAKE,
    MAX_STREAM,
    EarlyCancels,
    LinkState,
    Role,
    control_event,
    name_of,
)
from hotbay_sdk.protocol.events import (
    CallReceived,
    CallRefused,
    CancelReceived,
    DescriptorsReceived,
    ErrorReceived,
    FrameSkipped,
    LateAnswerDropped,
    NoticeReceived,
    ReplyReceived,
    StrayAnswer,
    ViolationFound,
)
from hotbay_sdk.protocol.frames import (
    FLAG_CRITICAL,
    FLAG_DESCRIPTORS,
    KNOWN_TYPES,
    Frame,
    FrameReader,
    FrameType,
    Oversized,
)
from hotbay_sdk.protocol.messages import (
    CONTROL_FRAME_BYTES,
    FRAME_LIMITS,
    HOST_CALL_BYTES,
    METHODS,
    CallError,
    ErrorCode,
    Executed,
    MalformedMessageError,
    read_meta,
)
from hotbay_sdk.protocol.streams import STREAMED_METHODS, DataStreams
from hotbay_sdk.protocol.values import ValueRefusedError, unpack, unpack_checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from hotbay_sdk.protocol.events import Event
    from hotbay_sdk.protocol.values import Value

_STREAMED: Final = frozenset({FrameType.DATA, FrameType.END, FrameType.CREDIT})

# Looking a member up on its enum costs more than the dictionary look-ups of a call together (Python 3.11).
_REQ: Final = int(FrameType.REQ)
_RESP: Final = int(FrameType.RESP)
_ERR: Final = int(FrameType.ERR)
_EVENT: Final = int(FrameType.EVENT)
_CANCEL: Final = int(FrameType.CANCEL)
_CALLS: Final = frozenset({_REQ, _EVENT})
_OPEN: Final = LinkState.OPEN


class ReceivingEnd:
    """The half of a `Connection` that takes what comes, and the tables of both halves.

    `pack` encodes the bodies of data and credit.
    """

    __slots__ = (
        "_call_limit_bytes",
        "_decode",
        "_descriptors",
        "_early_cancels",
        "_highest_received",
        "_incoming",
        "_late_answers",
        "_most_incoming",
        "_next_stream",
        "_peer_parity",
        "_pending",
        "_reader",
        "_state",
        "_streaming",
        "_tombstones",
        "data",
    )

    def __init__(self, role: Role, pack: Callable[[object], bytes], max_outstanding: int, max_incoming: int) -> None:
        host = role is Role.HOST
        self._decode = unpack_checked if host else unpack
        self._call_limit_bytes = HOST_CALL_BYTES if host else _REQUEST_BYTES
        self._most_incoming = max_incoming
        self.data = DataStreams(pack)
        self._streaming = self.data.calls
        self._descriptors: list[tuple[int, ...]] = []
        self._reader = FrameReader(self._limit_of)
        self._next_stream = 1 if host else 2
        self._peer_parity = 0 if host else 1
        self._highest_received = 0
        self._pending: dict[int, int] = {}
        self._tombstones: dict[int, int] = {}
        self._incoming: set[int] = set()
        self._early_cancels = EarlyCancels(max_outstanding)
        self._late_answers = 0
        self._state = LinkState.OPEN

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take the next bytes of the stream, split anyhow; return the events that they complete."""
        events: list[Event] = []
        if self._state is not _OPEN:
            return events
        whole = self._reader.whole(data)
        if whole is not None:
            self._take_frame(*whole, events)
            return events
        for item in self._reader.feed(data):
            if isinstance(item, Frame):
                self._take_frame(*item, events)
            elif isinstance(item, Oversized):
                self._on_oversized(item, events)
            else:
                self._break(events, ErrorCode(item.code), item.message)
            if self._state is not _OPEN:
                break
        return events

    def _limit_of(self, frame_type: int, stream: int) -> int:
        if frame_type == _RESP:
            limit = self._pending.get(stream)
            if limit is None:
                limit = self._tombstones.get(stream, 0)
            return limit
        if frame_type in _CALLS:
            return self._call_limit_bytes
        return FRAME_LIMITS.get(frame_type, CONTROL_FRAME_BYTES)

    def _take_frame(self, kind: int, flags: int, stream: int, body: bytes, events: list[Event]) -> None:
        try:
            if flags:
                self._take_flags(flags, stream, events)
            if kind not in KNOWN_TYPES:
                self._on_unknown(kind, flags, len(body), events)
                return
            value = self._decode(body)
            if kind == _RESP:
                if self._settle(stream, events):
                    events.append(ReplyReceived(stream, value))
            elif kind == _REQ:
                self._on_call(stream, value, events)
            else:
                self._on_rare(kind, flags, stream, value, events)
        except ValueRefusedError as error:
            self._on_unreadable(kind, stream, str(error), events)
        except MalformedMessageError as error:
            self._break(events, ErrorCode.PROTOCOL_VIOLATION, f"{name_of(kind)} {stream}: {error}")

    def _on_rare(self, kind: int, flags: int, stream: int, value: Value, events: list[Event]) -> None:
        if kind == _EVENT:
            meta, args = read_meta(value)
            events.append(NoticeReceived(meta, args))
        elif kind == _ERR:
            self._on_error(stream, CallError.from_wire(value), events)
        elif kind == _CANCEL:
            self._on_cancel(stream, value, events)
        elif kind in _STREAMED:
            self._on_data(kind, flags, stream, value, events)
        else:
            events.append(control_event(kind, value))

    def _on_unreadable(self, kind: int, stream: int, why: str, events: list[Event]) -> None:
        """A body that is no value: the frame's end is known, so a call or an answer fails alone."""
        try:
            if kind in (_RESP, _ERR):
                error = CallError(ErrorCode.BAD_RESULT, f"the answer cannot be read: {why}", executed=Executed.YES)
                self._fail_call(stream, error, events)
            elif kind == _REQ:
                self._refuse_call(stream, ErrorCode.PROTOCOL_VIOLATION, f"the call cannot be read: {why}", events)
            else:
                raise MalformedMessageError(why)
        except MalformedMessageError as error:
            self._break(events, ErrorCode.PROTOCOL_VIOLATION, f"{name_of(kind)} {stream}: {error}")

    def _refuse_call(self, stream: int, code: ErrorCode, message: str, events: list[Event]) -> None:
        """Take the stream of a call that will not be served, and let the owner answer it."""
        if stream & 1 != self._peer_parity or not self._highest_received < stream <= MAX_STREAM:
            raise self._bad_stream(stream)
        self._highest_received = stream
        self._incoming.add(stream)
        again = code is ErrorCode.RESOURCE_EXHAUSTED
        events.append(CallRefused(stream, CallError(code, message, retryable=again, executed=Executed.NO)))
        if self._early_cancels:
            self._early_cancels.apply(stream, events)

    def _settle(self, stream: int, events: list[Event]) -> bool:
        """Take an answered call off its table; true if its caller still waits."""
        if self._streaming:
            self.data.end(stream)
        if self._pending.pop(stream, None) is not None:
            return True
        if self._tombstones.pop(stream, None) is not None:
            self._late_answers += 1
            events.append(LateAnswerDropped(stream))
            return False
        events.append(StrayAnswer(stream))
        return False

    def _on_error(self, stream: int, error: CallError, events: list[Event]) -> None:
        if stream == 0 or self._settle(stream, events):
            events.append(ErrorReceived(stream, error))

    def _fail_call(self, stream: int, error: CallError, events: list[Event]) -> None:
        """An answer of no use; stream 0 is nobody's call."""
        if self._settle(stream, events):
            events.append(ErrorReceived(stream, error))

    def _on_call(self, stream: int, value: Value, events: list[Event]) -> None:
        if len(self._incoming) >= self._most_incoming:
            text = f"{self._most_incoming} calls are being served, the limit of this link"
            self._refuse_call(stream, ErrorCode.RESOURCE_EXHAUSTED, text, events)
            return
        if stream & 1 != self._peer_parity or not self._highest_received < stream <= MAX_STREAM:
            raise self._bad_stream(stream)
        self._highest_received = stream
        self._incoming.add(stream)
        meta, args = read_meta(value)
        if meta.deadline_us == 0:
            raise MalformedMessageError("a call without a deadline")
        if meta.method in STREAMED_METHODS:
            self.data.begin(meta.method, stream, calling=False)
        events.append(CallReceived(stream, meta, args))
        if self._early_cancels:
            self._early_cancels.apply(stream, events)

    def _bad_stream(self, stream: int) -> MalformedMessageError:
        expected = "odd" if self._peer_parity else "even"
        return MalformedMessageError(f"stream id {stream}, expected {expected} and above {self._highest_received}")

    def _on_cancel(self, stream: int, value: Value, events: list[Event]) -> None:
        reason = value if isinstance(value, str) else ""
        if stream in self._incoming:
            events.append(CancelReceived(stream, reason))
        elif stream & 1 != self._peer_parity or not 0 < stream <= MAX_STREAM:
            raise MalformedMessageError("cancels a call that this peer can never make")
        elif stream > self._highest_received:
            self._early_cancels.keep(stream, reason)

    def _on_data(self, kind: int, flags: int, stream: int, value: Value, events: list[Event]) -> None:
        if kind == FrameType.CREDIT:
            events.append(self.data.take_credit(stream, value))
            return
        ours = stream & 1 != self._peer_parity
        if not 0 < stream <= (self._next_stream - 2 if ours else self._highest_received):
            raise MalformedMessageError("no stream of data is open")
        events += self.data.take_data(kind, flags, stream, value)

    def _take_flags(self, flags: int, stream: int, events: list[Event]) -> None:
        if not flags & FLAG_DESCRIPTORS:
            return
        if not self._descriptors:
            raise MalformedMessageError("is flagged to carry descriptors and carries none")
        events.append(DescriptorsReceived(stream, self._descriptors.pop(0)))

    def _on_unknown(self, kind: int, flags: int, length: int, events: list[Event]) -> None:
        if flags & FLAG_CRITICAL:
            raise MalformedMessageError("a critical frame of a type unknown to this version")
        events.append(FrameSkipped(kind, length))

    def _on_oversized(self, frame: Oversized, events: list[Event]) -> None:
        kind, stream = frame.type, frame.stream
        text = f"{name_of(kind)} of {frame.length} bytes, the limit is {frame.limit}"
        try:
            if kind in (_RESP, _ERR):
                error = CallError(ErrorCode.FRAME_TOO_LARGE, text, executed=Executed.YES)
                self._fail_call(stream, error, events)
            elif kind == _REQ:
                self._refuse_call(stream, ErrorCode.FRAME_TOO_LARGE, text, events)
            elif kind in HANDSHAKE or kind in _STREAMED:
                raise MalformedMessageError(text)
            else:
                self._on_unknown(kind, frame.flags, frame.length, events)
        except MalformedMessageError as error:
            self._break(events, ErrorCode.PROTOCOL_VIOLATION, f"{name_of(kind)} {stream}: {error}")

    def _break(self, events: list[Event], code: ErrorCode, message: str) -> None:
        self._state = LinkState.BROKEN
        events.append(ViolationFound(code, message))


_REQUEST_BYTES: Final = max(spec.request_bytes for spec in METHODS.values())
