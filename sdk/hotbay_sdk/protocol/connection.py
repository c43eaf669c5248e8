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

import enum
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

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
    CallMeta,
    ErrorCode,
    Executed,
    MalformedMessageError,
    read_meta,
)
from hotbay_sdk.protocol.values import Value, ValueRefusedError, check_value, pack, pack_checked, unpack

MAX_STREAM: Final = 2**31 - 1
DEFAULT_MAX_OUTSTANDING: Final = 1024
"""Calls of one end that may be without an answer, tombstones included."""


class Role(enum.Enum):
    """Which end this is. A plugin trusts its host; a host trusts nobody."""

    HOST = "host"
    PLUGIN = "plugin"


class LinkState(enum.Enum):
    """Whether a link may still be used."""

    OPEN = "open"
    BROKEN = "broken"
    CLOSED = "closed"


class CallLimitError(Exception):
    """Refused before a byte was written: too many calls without an answer, or no stream ids left."""


class LocalProtocolError(Exception):
    """This end's own code broke the protocol: a bug, never caught."""


class HandshakeReceived(NamedTuple):
    """ARMED, GO, HELLO, WELCOME or READY, with its decoded, unchecked body."""

    type: FrameType
    body: Value


class CallReceived(NamedTuple):
    """The peer calls. Answer with `send_reply` or `send_error` exactly once."""

    stream: int
    meta: CallMeta
    args: list[Value]


class NoticeReceived(NamedTuple):
    """A one-way call."""

    meta: CallMeta
    args: list[Value]


class CancelReceived(NamedTuple):
    """The peer no longer wants the answer of this call; it is owed one all the same (CANCELLED)."""

    stream: int
    reason: str


class ReplyReceived(NamedTuple):
    """The answer of a pending call; the call is settled."""

    stream: int
    result: Value


class ErrorReceived(NamedTuple):
    """The failure of a pending call; the call is settled."""

    stream: int
    error: CallError


class LateAnswerDropped(NamedTuple):
    """An answer to a call that was cancelled before it came."""

    stream: int


class CallTooLarge(NamedTuple):
    """A call over its size limit was skipped. Answer it with `send_error`."""

    stream: int
    length: int
    limit: int


class PingReceived(NamedTuple):
    """Answer with `send_pong` and the same token."""

    token: int


class PongReceived(NamedTuple):
    """The answer to a ping, with the peer's own figures, unchecked."""

    token: int
    facts: Value


class GoAwayReceived(NamedTuple):
    """The peer takes no calls beyond `last_stream` any more."""

    last_stream: int
    code: str
    message: str


class LogReceived(NamedTuple):
    """A structured log record, unchecked."""

    record: Value


class FrameSkipped(NamedTuple):
    """A frame of a type that this version does not know, or an oversized answer-less one."""

    type: int
    length: int


class ViolationFound(NamedTuple):
    """The last event of a link: the peer broke the protocol."""

    code: ErrorCode
    message: str


Event = (
    HandshakeReceived
    | CallReceived
    | NoticeReceived
    | CancelReceived
    | ReplyReceived
    | ErrorReceived
    | LateAnswerDropped
    | CallTooLarge
    | PingReceived
    | PongReceived
    | GoAwayReceived
    | LogReceived
    | FrameSkipped
    | ViolationFound
)

_HANDSHAKE: Final = frozenset(
    {FrameType.ARMED, FrameType.GO, FrameType.HELLO, FrameType.WELCOME, FrameType.READY}
)
_UNOPENED: Final = frozenset({FrameType.DATA, FrameType.END, FrameType.CREDIT})


class Connection:
    """One end of one link. Not safe to use from two threads at once: its owner serialises.

    `feed` never raises on any input: what the peer did wrong comes as a `ViolationFound`, after the
    events of the frames before it. Methods that send return the bytes to write, in order.
    """

    __slots__ = (
        "_early_cancels",
        "_highest_received",
        "_incoming",
        "_late_answers",
        "_limit",
        "_next_stream",
        "_pending",
        "_reader",
        "_role",
        "_state",
        "_tombstones",
    )

    def __init__(self, role: Role, *, max_outstanding: int = DEFAULT_MAX_OUTSTANDING) -> None:
        self._role = role
        self._limit = max_outstanding
        self._reader = FrameReader(self._limit_of)
        self._next_stream = 1 if role is Role.HOST else 2
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
        return encode_frame(frame_type, 0, pack(body))

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
        if self._state is not LinkState.OPEN:
            raise LocalProtocolError(f"the link is {self._state.value}")
        if len(self._pending) + len(self._tombstones) >= self._limit:
            raise CallLimitError(f"{self._limit} calls are without an answer, the limit of this link")
        stream = self._next_stream
        if stream > MAX_STREAM:
            raise CallLimitError("the stream ids of this link are used up; the process must be replaced")
        body = pack([method, deadline_us, trace, tenant, attempt, parent, epoch, *args])
        if reply_limit_bytes is None:
            reply_limit_bytes = METHODS[method].reply_bytes
        frame = encode_frame(FrameType.REQ, stream, body)
        self._next_stream = stream + 2
        self._pending[stream] = reply_limit_bytes
        return stream, frame

    def send_notice(self, method: int, args: Sequence[object], *, epoch: int = 0) -> bytes:
        """Bytes of a one-way call."""
        return encode_frame(FrameType.EVENT, 0, pack([method, 0, None, None, 0, 0, epoch, *args]))

    def send_reply(self, stream: int, result: object) -> bytes:
        """Answer a received call. Raises `ValueRefusedError`, with nothing changed, for a value that may not cross."""
        if stream not in self._incoming:
            raise LocalProtocolError(f"call {stream} is not being served")
        body = pack_checked(result) if self._role is Role.PLUGIN else pack(result)
        self._incoming.discard(stream)
        return encode_frame(FrameType.RESP, stream, body)

    def send_error(self, stream: int, error: CallError) -> bytes:
        """Answer a received call, or a `CallTooLarge`, with an error."""
        self._incoming.discard(stream)
        return encode_frame(FrameType.ERR, stream, pack(error.to_wire()))

    def cancel(self, stream: int, reason: str) -> bytes:
        """Give up a pending call; its late answer will be dropped. Empty when it is not pending."""
        limit = self._pending.pop(stream, None)
        if limit is None:
            return b""
        self._tombstones[stream] = limit
        return encode_frame(FrameType.CANCEL, stream, pack(reason))

    def send_ping(self, token: int) -> bytes:
        """Bytes of a PING."""
        return encode_frame(FrameType.PING, 0, pack(token))

    def send_pong(self, token: int, facts: Mapping[str, Value]) -> bytes:
        """Bytes of the PONG that answers `token`."""
        return encode_frame(FrameType.PONG, 0, pack([token, facts]))

    def send_goaway(self, code: str, message: str) -> bytes:
        """Bytes of a GOAWAY that names the last stream this end has taken."""
        return encode_frame(FrameType.GOAWAY, 0, pack([self._highest_received, code, message[:4096]]))

    def send_log(self, record: Mapping[str, Value]) -> bytes:
        """Bytes of a LOG record."""
        return encode_frame(FrameType.LOG, 0, pack(record))

    def close(self) -> Sequence[int]:
        """End the link; return the streams whose callers still wait. Idempotent."""
        waiting = tuple(self._pending)
        self._pending.clear()
        self._tombstones.clear()
        self._incoming.clear()
        self._early_cancels.clear()
        if self._state is LinkState.OPEN:
            self._state = LinkState.CLOSED
        return waiting

    # -- receiving -------------------------------------------------------------------------------

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take the next bytes of the stream, split anyhow; return the events that they complete."""
        events: list[Event] = []
        if self._state is not LinkState.OPEN:
            return events
        for item in self._reader.feed(data):
            if isinstance(item, Frame):
                try:
                    self._on_frame(item, events)
                except (MalformedMessageError, ValueRefusedError) as error:
                    self._break(events, ErrorCode.PROTOCOL_VIOLATION, f"{_name(item.type)} {item.stream}: {error}")
            elif isinstance(item, Oversized):
                self._on_oversized(item, events)
            else:
                self._on_violation(item, events)
            if self._state is not LinkState.OPEN:
                break
        return events

    def _limit_of(self, frame_type: int, stream: int) -> int:
        if frame_type == FrameType.RESP:
            limit = self._pending.get(stream)
            if limit is None:
                limit = self._tombstones.get(stream, 0)
            return limit
        if frame_type in (FrameType.REQ, FrameType.EVENT) and self._role is Role.PLUGIN:
            return METHODS_REQUEST_BYTES
        return CONTROL_FRAME_BYTES

    def _on_frame(self, frame: Frame, events: list[Event]) -> None:
        kind = frame.type
        if kind == FrameType.RESP:
            result = unpack(frame.body)
            if self._role is Role.HOST:
                check_value(result)
            if self._settle(frame.stream, events):
                events.append(ReplyReceived(frame.stream, result))
        elif kind == FrameType.REQ:
            self._on_call(frame, events)
        elif kind == FrameType.EVENT:
            meta, args = read_meta(self._decode(frame))
            events.append(NoticeReceived(meta, args))
        elif kind == FrameType.ERR:
            error = CallError.from_wire(self._decode(frame))
            if self._settle(frame.stream, events):
                events.append(ErrorReceived(frame.stream, error))
        elif kind == FrameType.CANCEL:
            self._on_cancel(frame, events)
        else:
            self._on_control(frame, events)

    def _decode(self, frame: Frame) -> Value:
        value = unpack(frame.body)
        if self._role is Role.HOST:
            check_value(value)
        return value

    def _settle(self, stream: int, events: list[Event]) -> bool:
        """Take an answered call off its table; true if its caller still waits."""
        if self._pending.pop(stream, None) is not None:
            return True
        if self._tombstones.pop(stream, None) is not None:
            self._late_answers += 1
            events.append(LateAnswerDropped(stream))
            return False
        raise MalformedMessageError("answers a call that was never made or is already answered")

    def _on_call(self, frame: Frame, events: list[Event]) -> None:
        self._take_stream(frame.stream)
        meta, args = read_meta(self._decode(frame))
        if meta.deadline_us == 0:
            raise MalformedMessageError("a call without a deadline")
        self._incoming.add(frame.stream)
        events.append(CallReceived(frame.stream, meta, args))
        reason = self._early_cancels.pop(frame.stream, None)
        if reason is not None:
            events.append(CancelReceived(frame.stream, reason))

    def _take_stream(self, stream: int) -> None:
        odd_expected = self._role is Role.PLUGIN
        if (stream % 2 == 1) is not odd_expected or not self._highest_received < stream <= MAX_STREAM:
            raise MalformedMessageError(
                f"stream id {stream}, expected {'odd' if odd_expected else 'even'} and above {self._highest_received}"
            )
        self._highest_received = stream

    def _on_cancel(self, frame: Frame, events: list[Event]) -> None:
        reason = self._decode(frame)
        text = reason if isinstance(reason, str) else ""
        if frame.stream in self._incoming:
            events.append(CancelReceived(frame.stream, text))
        elif frame.stream > self._highest_received:
            if len(self._early_cancels) >= self._limit:
                raise MalformedMessageError(f"more than {self._limit} cancels of unknown calls")
            self._early_cancels[frame.stream] = text

    def _on_control(self, frame: Frame, events: list[Event]) -> None:
        kind = frame.type
        if kind in _HANDSHAKE:
            events.append(HandshakeReceived(FrameType(kind), self._decode(frame)))
        elif kind == FrameType.PING:
            events.append(PingReceived(_token(self._decode(frame))))
        elif kind == FrameType.PONG:
            body = self._decode(frame)
            if not isinstance(body, list) or len(body) != 2:
                raise MalformedMessageError("PONG is [token, facts]")
            events.append(PongReceived(_token(body[0]), body[1]))
        elif kind == FrameType.GOAWAY:
            events.append(_goaway(self._decode(frame)))
        elif kind == FrameType.LOG:
            events.append(LogReceived(self._decode(frame)))
        elif kind in _UNOPENED:
            raise MalformedMessageError("no stream of data is open")
        elif frame.flags & FLAG_CRITICAL:
            raise MalformedMessageError("a critical frame of a type unknown to this version")
        else:
            events.append(FrameSkipped(kind, len(frame.body)))

    def _on_oversized(self, frame: Oversized, events: list[Event]) -> None:
        text = f"{_name(frame.type)} of {frame.length} bytes, the limit is {frame.limit}"
        try:
            if frame.type in (FrameType.RESP, FrameType.ERR):
                if self._settle(frame.stream, events):
                    error = CallError(ErrorCode.FRAME_TOO_LARGE, text, executed=Executed.YES)
                    events.append(ErrorReceived(frame.stream, error))
            elif frame.type == FrameType.REQ:
                self._take_stream(frame.stream)
                events.append(CallTooLarge(frame.stream, frame.length, frame.limit))
            elif frame.type in _HANDSHAKE:
                raise MalformedMessageError(text)
            else:
                events.append(FrameSkipped(frame.type, frame.length))
        except MalformedMessageError as error:
            self._break(events, ErrorCode.PROTOCOL_VIOLATION, f"{_name(frame.type)} {frame.stream}: {error}")

    def _on_violation(self, violation: Violation, events: list[Event]) -> None:
        self._break(events, ErrorCode(violation.code), violation.message)

    def _break(self, events: list[Event], code: ErrorCode, message: str) -> None:
        self._state = LinkState.BROKEN
        events.append(ViolationFound(code, message))


METHODS_REQUEST_BYTES: Final = max(spec.request_bytes for spec in METHODS.values())


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
