"""One link's conversation, without IO: bytes in, events out; messages in, bytes out.

The same class serves both roles. No clock and no socket: the caller reads and writes, and owns
every timer. The host begins calls with odd stream ids, a plugin with even ones; ids only grow and
are never used again, so an answer can never reach a later call.

State of a link::

    OPEN --violation found in feed()--> BROKEN      (last event: ViolationFound)
    OPEN --close()--------------------> CLOSED

State of a call that this end made::

    (none) --start_call--> PENDING --RESP | ERR--> (none), the caller is told
                           PENDING --cancel------> TOMBSTONE --RESP | ERR--> (none), dropped and counted

An answer to a stream that is neither pending nor a tombstone is dropped and told: how many of them a peer may
send is its owner's decision. Tombstones count as outstanding, so a peer that never answers cannot make the
tables grow: further calls are refused.

Data beside a call's arguments (`Streams.REQUEST`) or before its result (`Streams.REPLY`) travels in DATA frames of
the call's stream, under the credits of `streams`, up to END. A call that is over ends its data.
"""

from __future__ import annotations

from hotbay_sdk.protocol.control import (
    HANDSHAKE,
    CallLimitError,
    EarlyCancels,
    LinkState,
    LocalProtocolError,
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
    Violation,
    encode_frame,
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
from hotbay_sdk.protocol.values import Encoder, ValueRefusedError, unpack, unpack_checked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from hotbay_sdk.protocol.events import Event
    from hotbay_sdk.protocol.values import Value

MAX_STREAM: Final = 2**31 - 1
DEFAULT_MAX_OUTSTANDING: Final = 1024
"""Calls of one end that may be without an answer, tombstones included."""

_STREAMED: Final = frozenset({FrameType.DATA, FrameType.END, FrameType.CREDIT})

# Looking a member up on its enum costs more than the dictionary look-ups of a call together (Python 3.11).
_REQ: Final = int(FrameType.REQ)
_RESP: Final = int(FrameType.RESP)
_ERR: Final = int(FrameType.ERR)
_EVENT: Final = int(FrameType.EVENT)
_CANCEL: Final = int(FrameType.CANCEL)
_CALLS: Final = frozenset({_REQ, _EVENT})
_OPEN: Final = LinkState.OPEN


class Connection:
    """One end of one link. Not safe to use from two threads at once: its owner serialises.

    `feed` never raises on any input: what the peer did wrong comes as a `ViolationFound`, after the
    events of the frames before it. Methods that send return the bytes to write, in order.

    Attributes:
        data: sends the data of calls, and gives credit for what came.
    """

    __slots__ = (
        "_call_limit_bytes",
        "_decode",
        "_descriptors",
        "_early_cancels",
        "_encode",
        "_highest_received",
        "_incoming",
        "_late_answers",
        "_limit",
        "_most_incoming",
        "_next_stream",
        "_pack",
        "_peer_parity",
        "_pending",
        "_reader",
        "_state",
        "_streaming",
        "_tombstones",
        "data",
    )

    def __init__(
        self,
        role: Role,
        *,
        max_outstanding: int = DEFAULT_MAX_OUTSTANDING,
        max_incoming: int = DEFAULT_MAX_OUTSTANDING,
    ) -> None:
        host = role is Role.HOST
        encoder = Encoder()
        self._pack = encoder.pack
        self._encode = encoder.pack if host else encoder.pack_checked
        self._decode = unpack_checked if host else unpack
        self._call_limit_bytes = HOST_CALL_BYTES if host else _REQUEST_BYTES
        self._limit = max_outstanding
        self._most_incoming = max_incoming
        self.data = DataStreams(encoder.pack)
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

    @property
    def state(self) -> LinkState:
        """OPEN, BROKEN after a violation, CLOSED after `close`."""
        return self._state

    @property
    def outstanding(self) -> int:
        """Calls of this end without an answer, cancelled ones included."""
        return len(self._pending) + len(self._tombstones)

    @property
    def pending(self) -> Sequence[int]:
        """Streams of this end's calls whose callers still wait, oldest first."""
        return tuple(self._pending)

    @property
    def serving(self) -> int:
        """The peer's calls that this end has not answered."""
        return len(self._incoming)

    @property
    def late_answers(self) -> int:
        """Answers that came after their call was cancelled, since the link was opened."""
        return self._late_answers

    @property
    def mid_frame(self) -> bool:
        """True while a frame has begun and has not ended: the caller times it."""
        return self._reader.mid_frame

    @property
    def table_sizes(self) -> Mapping[str, int]:
        """Sizes of all tables, for leak tests: every one is 0 once all calls are answered."""
        return {
            "pending": len(self._pending),
            "tombstones": len(self._tombstones),
            "incoming": len(self._incoming),
            "early_cancels": len(self._early_cancels),
            "data": len(self.data.calls),
        }

    # -- sending ---------------------------------------------------------------------------------

    def send_handshake(self, frame_type: FrameType, body: Mapping[str, Value]) -> bytes:
        """Bytes of an ARMED, GO, HELLO, WELCOME or READY frame."""
        if frame_type not in HANDSHAKE:
            raise LocalProtocolError(f"{frame_type.name} is no handshake frame")
        return encode_frame(frame_type, 0, self._pack(body))

    def start_call(
        self,
        method: int,
        args: Sequence[object],
        *,
        deadline_us: int,
        trace: str | None = None,
        tenant: str | None = None,
        attempt: int = 0,
        parent: int = 0,
        epoch: int = 0,
        reply_limit_bytes: int | None = None,
        descriptors: bool = False,
    ) -> tuple[int, bytes]:
        """Begin a call; return its stream id and the bytes to write.

        `deadline_us` counts from the peer's receipt and must be above 0. `reply_limit_bytes` is the
        longest reply body taken, the method's limit by default. `descriptors`: the frame's first byte
        will carry some; only a host may send any. Raises `CallLimitError` when too many
        calls are without an answer or the ids have run out, `ValueRefusedError` for an argument
        that cannot cross; in both cases nothing has changed.
        """
        if deadline_us <= 0:
            raise LocalProtocolError("a call needs a deadline above 0 µs")
        if self._state is not _OPEN:
            raise LocalProtocolError(f"the link is {self._state.value}")
        if len(self._pending) + len(self._tombstones) >= self._limit:
            raise CallLimitError(f"{self._limit} calls are without an answer, the limit of this link")
        stream = self._next_stream
        if stream > MAX_STREAM:
            raise CallLimitError("the stream ids of this link are used up; the process must be replaced")
        # A member of `Method` is no plain number, which alone may cross.
        body = self._encode([+method, deadline_us, trace, tenant, attempt, parent, epoch, *args])
        if reply_limit_bytes is None:
            reply_limit_bytes = METHODS[method].reply_bytes
            if method in STREAMED_METHODS:
                self.data.begin(method, stream, calling=True)
        frame = encode_frame(_REQ, stream, body, FLAG_DESCRIPTORS if descriptors else 0)
        self._next_stream = stream + 2
        self._pending[stream] = reply_limit_bytes
        return stream, frame

    def send_notice(self, method: int, args: Sequence[object], *, epoch: int = 0) -> bytes:
        """Bytes of a one-way call."""
        return encode_frame(_EVENT, 0, self._pack([method, 0, None, None, 0, 0, epoch, *args]))

    def send_reply(self, stream: int, result: object, *, descriptors: bool = False) -> bytes:
        """Answer a received call. Raises `ValueRefusedError`, with nothing changed, for a value that may not cross.

        `descriptors`: the frame's first byte will carry some; only a host may send any.
        """
        if stream not in self._incoming:
            raise LocalProtocolError(f"call {stream} is not being served")
        body = self._encode(result)
        self._incoming.discard(stream)
        if self._streaming:
            self.data.end(stream)
        return encode_frame(_RESP, stream, body, FLAG_DESCRIPTORS if descriptors else 0)

    def send_error(self, stream: int, error: CallError) -> bytes:
        """Answer a received call, or a `CallRefused`, with an error; on stream 0 a failure to start.

        Raises `ValueRefusedError`, with nothing changed, for details that may not cross.
        """
        if stream != 0 and stream not in self._incoming:
            raise LocalProtocolError(f"call {stream} is not being served")
        body = self._encode(error.to_wire())
        self._incoming.discard(stream)
        if self._streaming:
            self.data.end(stream)
        return encode_frame(_ERR, stream, body)

    def cancel(self, stream: int, reason: str) -> bytes:
        """Give up a pending call; its late answer will be dropped. Empty when it is not pending."""
        limit = self._pending.pop(stream, None)
        if limit is None:
            return b""
        self._tombstones[stream] = limit
        if self._streaming:
            self.data.end(stream)
        return encode_frame(_CANCEL, stream, self._pack(reason))

    def send_ping(self, token: int) -> bytes:
        """Bytes of a PING."""
        return encode_frame(FrameType.PING, 0, self._pack(token))

    def send_pong(self, token: int, facts: Mapping[str, Value]) -> bytes:
        """Bytes of the PONG that answers `token`."""
        return encode_frame(FrameType.PONG, 0, self._encode([token, facts]))

    def send_goaway(self, code: str, message: str) -> bytes:
        """Bytes of a GOAWAY that names the last stream this end has taken."""
        return encode_frame(FrameType.GOAWAY, 0, self._pack([self._highest_received, code, message[:4096]]))

    def send_log(self, record: Mapping[str, Value]) -> bytes:
        """Bytes of a LOG record."""
        return encode_frame(FrameType.LOG, 0, self._encode(record))

    def close(self) -> Sequence[int]:
        """End the link; return the streams whose callers still wait. Idempotent."""
        waiting = tuple(self._pending)
        self._pending.clear()
        self._tombstones.clear()
        self._incoming.clear()
        self._early_cancels.clear()
        for stream in tuple(self.data.calls):
            self.data.end(stream)
        if self._state is _OPEN:
            self._state = LinkState.CLOSED
        return waiting

    # -- receiving -------------------------------------------------------------------------------

    def take_descriptors(self, descriptors: tuple[int, ...]) -> None:
        """Note what came with the bytes that are fed next: the frame that begins in them and is flagged carries it.

        For a plugin alone. Its reader gets those of one frame at a time, because the kernel ends a read where
        descriptors were passed.
        """
        if self._peer_parity == 0:
            raise LocalProtocolError("a host takes no descriptors")
        self._descriptors.append(descriptors)

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
                self._on_violation(item, events)
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

    def _on_violation(self, violation: Violation, events: list[Event]) -> None:
        self._break(events, ErrorCode(violation.code), violation.message)

    def _break(self, events: list[Event], code: ErrorCode, message: str) -> None:
        self._state = LinkState.BROKEN
        events.append(ViolationFound(code, message))


_REQUEST_BYTES: Final = max(spec.request_bytes for spec in METHODS.values())
