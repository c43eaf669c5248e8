"""What a connection reports of the bytes it was fed. Pure values.

Bodies that a docstring calls unchecked have passed the rules for values, and nothing else.
"""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hotbay_sdk.protocol.frames import FrameType
    from hotbay_sdk.protocol.messages import CallError, CallMeta, ErrorCode
    from hotbay_sdk.protocol.values import Value


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


class StrayAnswer(NamedTuple):
    """An answer to a call that this end never made, or that was answered before. It is dropped."""

    stream: int


class CallRefused(NamedTuple):
    """A call that is not served: too large, unreadable, or one too many. Answer it with `send_error(stream, error)`."""

    stream: int
    error: CallError


class DataReceived(NamedTuple):
    """The next piece of a stream's data. Tell `consumed` when it is done with."""

    stream: int
    data: bytes


class DataDropped(NamedTuple):
    """A piece for a call that is cancelled or over. Tell `consumed` at once: its bytes are the link's credit."""

    stream: int
    length: int


class DataEnded(NamedTuple):
    """The sender of a stream's data has sent all of it."""

    stream: int


class CreditReceived(NamedTuple):
    """There is new credit; `stream` 0 is the link's. `room` says what may be sent now."""

    stream: int


class DescriptorsReceived(NamedTuple):
    """Descriptors that came with the frame of the event that follows. The receiver of this event owns them."""

    stream: int
    descriptors: tuple[int, ...]


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
    | StrayAnswer
    | CallRefused
    | DataReceived
    | DataDropped
    | DataEnded
    | CreditReceived
    | DescriptorsReceived
    | PingReceived
    | PongReceived
    | GoAwayReceived
    | LogReceived
    | FrameSkipped
    | ViolationFound
)
