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
    MAX_STREAM,
    CallLimitError,
    LinkState,
    LocalProtocolError,
    Role,
)
from hotbay_sdk.protocol.frames import FLAG_DESCRIPTORS, FrameType, encode_frame
from hotbay_sdk.protocol.messages import METHODS
from hotbay_sdk.protocol.receiving import ReceivingEnd
from hotbay_sdk.protocol.streams import STREAMED_METHODS
from hotbay_sdk.protocol.values import Encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from hotbay_sdk.protocol.messages import CallError
    from hotbay_sdk.protocol.values import Value

DEFAULT_MAX_OUTSTANDING: Final = 1024
"""Calls of one end that may be without an answer, tombstones included."""

# Looking a member up on its enum costs more than the dictionary look-ups of a call together (Python 3.11).
_REQ: Final = int(FrameType.REQ)
_RESP: Final = int(FrameType.RESP)
_ERR: Final = int(FrameType.ERR)
_EVENT: Final = int(FrameType.EVENT)
_CANCEL: Final = int(FrameType.CANCEL)
_OPEN: Final = LinkState.OPEN


class Connection(ReceivingEnd):
    """One end of one link. Not safe to use from two threads at once: its owner serialises.

    `feed` never raises on any input: what the peer did wrong comes as a `ViolationFound`, after the
    events of the frames before it. Methods that send return the bytes to write, in order.

    Attributes:
        data: sends the data of calls, and gives credit for what came.
    """

    __slots__ = ("_encode", "_limit", "_pack")

    def __init__(
        self,
        role: Role,
        *,
        max_outstanding: int = DEFAULT_MAX_OUTSTANDING,
        max_incoming: int = DEFAULT_MAX_OUTSTANDING,
    ) -> None:
        encoder = Encoder()
        super().__init__(role, encoder.pack, max_outstanding, max_incoming)
        self._pack = encoder.pack
        self._encode = encoder.pack if role is Role.HOST else encoder.pack_checked
        self._limit = max_outstanding

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

    def take_descriptors(self, descriptors: tuple[int, ...]) -> None:
        """Note what came with the bytes that are fed next: the frame that begins in them and is flagged carries it.

        For a plugin alone. Its reader gets those of one frame at a time, because the kernel ends a read where
        descriptors were passed.
        """
        if self._peer_parity == 0:
            raise LocalProtocolError("a host takes no descriptors")
        self._descriptors.append(descriptors)

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
