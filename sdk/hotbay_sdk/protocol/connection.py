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

An answer to a stream that is neither pending nor a tombstone is a violation. Tombstones count as
outstanding, so a peer that never answers cannot make the tables grow: further calls are refused.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import StrEnum
from hotbay_sdk.protocol.events import (
    CallReceived,
    CallTooLarge,
    CancelReceived,
    ErrorReceived,
    FrameSkipped,
    GoAwayReceived,
    HandshakeReceived,
    LateAnswerDropped,
    LogReceived,
    NoticeReceived,
    PingReceived,
    PongReceived,
    ReplyReceived,
    ViolationFound,
)
from hotbay_sdk.protocol.frames import (
    FLAG_CRITICAL,
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
    METHODS,
    CallError,
    ErrorCode,
    Executed,
    MalformedMessageError,
    read_meta,
)
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


class Role(StrEnum):
    """Which end this is. A plugin trusts its host; a host trusts nobody."""

    HOST = "host"
    PLUGIN = "plugin"


class LinkState(StrEnum):
    """Whether a link may still be used."""

    OPEN = "open"
    BROKEN = "broken"
    CLOSED = "closed"


class CallLimitError(Exception):
    """Refused before a byte was written: too many calls without an answer, or no stream ids left."""


class LocalProtocolError(Exception):
    """This end's own code broke the protocol: a bug, never caught."""


_HANDSHAKE: Final = frozenset({FrameType.ARMED, FrameType.GO, FrameType.HELLO, FrameType.WELCOME, FrameType.READY})
_UNOPENED: Final = frozenset({FrameType.DATA, FrameType.END, FrameType.CREDIT})

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
    """

    __slots__ = (
        "_call_limit_bytes",
        "_decode",
        "_early_cancels",
        "_encode",
        "_highest_received",
        "_incoming",
        "_late_answers",
        "_limit",
        "_next_stream",
        "_pack",
        "_peer_parity",
        "_pending",
        "_reader",
        "_state",
        "_tombstones",
    )

    def __init__(self, role: Role, *, max_outstanding: int = DEFAULT_MAX_OUTSTANDING) -> None:
        host = role is Role.HOST
        encoder = Encoder()
        self._pack = encoder.pack
        self._encode = encoder.pack if host else encoder.pack_checked
        self._decode = unpack_checked if host else unpack
        self._call_limit_bytes = CONTROL_FRAME_BYTES if host else _REQUEST_BYTES
        self._limit = max_outstanding
        self._reader = FrameReader(self._limit_of)
        self._next_stream = 1 if host else 2
        self._peer_parity = 0 if host else 1
        self._highest_received = 0
        self._pending: dict[int, int] = {}
        self._tombstones: dict[int, int] = {}
        self._incoming: set[int] = set()
        self._early_cancels: dict[int, str] = {}
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
        }

    # -- sending ---------------------------------------------------------------------------------

    def send_handshake(self, frame_type: FrameType, body: Mapping[str, Value]) -> bytes:
        """Bytes of an ARMED, GO, HELLO, WELCOME or READY frame."""
        if frame_type not in _HANDSHAKE:
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
    ) -> tuple[int, bytes]:
        """Begin a call; return its stream id and the bytes to write.

        `deadline_us` counts from the peer's receipt and must be above 0. `reply_limit_bytes` is the
        longest reply body taken, the method's limit by default. Raises `CallLimitError` when too many
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
        body = self._pack([method, deadline_us, trace, tenant, attempt, parent, epoch, *args])
        if reply_limit_bytes is None:
            reply_limit_bytes = METHODS[method].reply_bytes
        frame = encode_frame(_REQ, stream, body)
        self._next_stream = stream + 2
        self._pending[stream] = reply_limit_bytes
        return stream, frame

    def send_notice(self, method: int, args: Sequence[object], *, epoch: int = 0) -> bytes:
        """Bytes of a one-way call."""
        return encode_frame(_EVENT, 0, self._pack([method, 0, None, None, 0, 0, epoch, *args]))

    def send_reply(self, stream: int, result: object) -> bytes:
        """Answer a received call. Raises `ValueRefusedError`, with nothing changed, for a value that may not cross."""
        if stream not in self._incoming:
            raise LocalProtocolError(f"call {stream} is not being served")
        body = self._encode(result)
        self._incoming.discard(stream)
        return encode_frame(_RESP, stream, body)

    def send_error(self, stream: int, error: CallError) -> bytes:
        """Answer a received call, or a `CallTooLarge`, with an error; on stream 0 a failure to start.

        Raises `ValueRefusedError`, with nothing changed, for details that may not cross.
        """
        if stream != 0 and stream not in self._incoming:
            raise LocalProtocolError(f"call {stream} is not being served")
        body = self._encode(error.to_wire())
        self._incoming.discard(stream)
        return encode_frame(_ERR, stream, body)

    def cancel(self, stream: int, reason: str) -> bytes:
        """Give up a pending call; its late answer will be dropped. Empty when it is not pending."""
        limit = self._pending.pop(stream, None)
        if limit is None:
            return b""
        self._tombstones[stream] = limit
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
        if self._state is _OPEN:
            self._state = LinkState.CLOSED
        return waiting

    # -- receiving -------------------------------------------------------------------------------

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
        return CONTROL_FRAME_BYTES

    def _take_frame(self, kind: int, flags: int, stream: int, body: bytes, events: list[Event]) -> None:
        try:
            if kind not in KNOWN_TYPES:
                self._on_unknown(kind, flags, len(body), events)
                return
            value = self._decode(body)
            if kind == _RESP:
                if self._settle(stream, events):
                    events.append(ReplyReceived(stream, value))
            elif kind == _REQ:
                self._on_call(stream, value, events)
            elif kind == _EVENT:
                meta, args = read_meta(value)
                events.append(NoticeReceived(meta, args))
            elif kind == _ERR:
                self._on_error(stream, CallError.from_wire(value), events)
            elif kind == _CANCEL:
                self._on_cancel(stream, value, events)
            else:
                self._on_control(kind, value, events)
        except (MalformedMessageError, ValueRefusedError) as error:
            self._break(events, ErrorCode.PROTOCOL_VIOLATION, f"{_name(kind)} {stream}: {error}")

    def _settle(self, stream: int, events: list[Event]) -> bool:
        """Take an answered call off its table; true if its caller still waits."""
        if self._pending.pop(stream, None) is not None:
            return True
        if self._tombstones.pop(stream, None) is not None:
            self._late_answers += 1
            events.append(LateAnswerDropped(stream))
            return False
        raise MalformedMessageError("answers a call that was never made or is already answered")

    def _on_error(self, stream: int, error: CallError, events: list[Event]) -> None:
        if stream == 0 or self._settle(stream, events):
            events.append(ErrorReceived(stream, error))

    def _on_call(self, stream: int, value: Value, events: list[Event]) -> None:
        self._take_stream(stream)
        meta, args = read_meta(value)
        if meta.deadline_us == 0:
            raise MalformedMessageError("a call without a deadline")
        events.append(CallReceived(stream, meta, args))
        if self._early_cancels:
            self._apply_early_cancel(stream, events)

    def _take_stream(self, stream: int) -> None:
        if stream & 1 != self._peer_parity or not self._highest_received < stream <= MAX_STREAM:
            expected = "odd" if self._peer_parity else "even"
            raise MalformedMessageError(f"stream id {stream}, expected {expected} and above {self._highest_received}")
        self._highest_received = stream
        self._incoming.add(stream)

    def _apply_early_cancel(self, stream: int, events: list[Event]) -> None:
        """Tell of a cancel that overtook its call, and forget those whose calls can no longer come."""
        reason = self._early_cancels.get(stream)
        if reason is not None:
            events.append(CancelReceived(stream, reason))
        self._early_cancels = {later: why for later, why in self._early_cancels.items() if later > stream}

    def _on_cancel(self, stream: int, value: Value, events: list[Event]) -> None:
        reason = value if isinstance(value, str) else ""
        if stream in self._incoming:
            events.append(CancelReceived(stream, reason))
        elif stream & 1 != self._peer_parity or not 0 < stream <= MAX_STREAM:
            raise MalformedMessageError("cancels a call that this peer can never make")
        elif stream > self._highest_received:
            if len(self._early_cancels) >= self._limit:
                raise MalformedMessageError(f"more than {self._limit} cancels of unknown calls")
            self._early_cancels[stream] = reason

    def _on_control(self, kind: int, value: Value, events: list[Event]) -> None:
        if kind in _HANDSHAKE:
            events.append(HandshakeReceived(FrameType(kind), value))
        elif kind == FrameType.PING:
            events.append(PingReceived(_token(value)))
        elif kind == FrameType.PONG:
            if not isinstance(value, list) or len(value) != 2:
                raise MalformedMessageError("PONG is [token, facts]")
            events.append(PongReceived(_token(value[0]), value[1]))
        elif kind == FrameType.GOAWAY:
            events.append(_goaway(value))
        elif kind == FrameType.LOG:
            events.append(LogReceived(value))
        else:
            raise MalformedMessageError("no stream of data is open")

    def _on_unknown(self, kind: int, flags: int, length: int, events: list[Event]) -> None:
        if flags & FLAG_CRITICAL:
            raise MalformedMessageError("a critical frame of a type unknown to this version")
        events.append(FrameSkipped(kind, length))

    def _on_oversized(self, frame: Oversized, events: list[Event]) -> None:
        kind, stream = frame.type, frame.stream
        text = f"{_name(kind)} of {frame.length} bytes, the limit is {frame.limit}"
        try:
            if kind in (_RESP, _ERR):
                self._on_error(stream, CallError(ErrorCode.FRAME_TOO_LARGE, text, executed=Executed.YES), events)
            elif kind == _REQ:
                self._take_stream(stream)
                events.append(CallTooLarge(stream, frame.length, frame.limit))
                if self._early_cancels:
                    self._apply_early_cancel(stream, events)
            elif kind in _HANDSHAKE or kind in _UNOPENED:
                raise MalformedMessageError(text)
            else:
                self._on_unknown(kind, frame.flags, frame.length, events)
        except MalformedMessageError as error:
            self._break(events, ErrorCode.PROTOCOL_VIOLATION, f"{_name(kind)} {stream}: {error}")

    def _on_violation(self, violation: Violation, events: list[Event]) -> None:
        self._break(events, ErrorCode(violation.code), violation.message)

    def _break(self, events: list[Event], code: ErrorCode, message: str) -> None:
        self._state = LinkState.BROKEN
        events.append(ViolationFound(code, message))


_REQUEST_BYTES: Final = max(spec.request_bytes for spec in METHODS.values())


def _name(frame_type: int) -> str:
    return FrameType(frame_type).name if frame_type in KNOWN_TYPES else f"frame type {frame_type}"


def _token(value: Value) -> int:
    if type(value) is not int:
        raise MalformedMessageError("a ping's token is an integer")
    return value


def _goaway(value: Value) -> GoAwayReceived:
    if not isinstance(value, list) or len(value) != 3:
        raise MalformedMessageError("GOAWAY is [last stream, code, message]")
    last, code, message = value
    if type(last) is not int or not isinstance(code, str) or not isinstance(message, str):
        raise MalformedMessageError("GOAWAY is [last stream, code, message]")
    return GoAwayReceived(last, code, message)
