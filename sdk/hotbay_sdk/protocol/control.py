"""The ends, states and errors of a link, and the frames that belong to no call: what each of them says. Pure."""

from __future__ import annotations

from hotbay_sdk.protocol.declarations import StrEnum
from hotbay_sdk.protocol.events import (
    CancelReceived,
    GoAwayReceived,
    HandshakeReceived,
    LogReceived,
    PingReceived,
    PongReceived,
)
from hotbay_sdk.protocol.frames import KNOWN_TYPES, FrameType
from hotbay_sdk.protocol.messages import MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from hotbay_sdk.protocol.events import Event
    from hotbay_sdk.protocol.values import Value

MAX_STREAM: Final = 2**31 - 1
"""The last stream id of a link."""
HANDSHAKE: Final = frozenset({FrameType.ARMED, FrameType.GO, FrameType.HELLO, FrameType.WELCOME, FrameType.READY})


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


class EarlyCancels(dict[int, str]):
    """Reasons of cancels that overtook their calls, by stream; at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def keep(self, stream: int, reason: str) -> None:
        """Remember a cancel. Raises `MalformedMessageError` when it is one too many."""
        if len(self) >= self._limit:
            raise MalformedMessageError(f"more than {self._limit} cancels of unknown calls")
        self[stream] = reason

    def apply(self, stream: int, events: list[Event]) -> None:
        """A call came: tell of its cancel, and forget those whose calls can no longer come."""
        reason = self.get(stream)
        if reason is not None:
            events.append(CancelReceived(stream, reason))
        for passed in [known for known in self if known <= stream]:
            del self[passed]


def control_event(kind: int, value: Value) -> Event:
    """The event of a handshake frame, PING, PONG, GOAWAY or LOG. Raises `MalformedMessageError`."""
    if kind in HANDSHAKE:
        return HandshakeReceived(FrameType(kind), value)
    if kind == FrameType.PING:
        return PingReceived(_token(value))
    if kind == FrameType.PONG:
        if not isinstance(value, list) or len(value) != 2:
            raise MalformedMessageError("PONG is [token, facts]")
        return PongReceived(_token(value[0]), value[1])
    if kind == FrameType.GOAWAY:
        return _goaway(value)
    return LogReceived(value)


def name_of(frame_type: int) -> str:
    """A frame type, for people."""
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
