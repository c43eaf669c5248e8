"""Byte credits of the data that travels in DATA frames on one link: how much may be sent, how much may come.

Pure. Each end gives the other 64 KiB for a stream and 1 MiB for the link, and gives back what its
consumer took, in lumps. A sender never has more under way than its receiver agreed to keep, so that data
never fills the link before a control frame. Both windows give back at half, hence at least half of one is
open to a sender whose receiver has consumed everything: nobody waits for ever.
"""

from __future__ import annotations

from hotbay_sdk.protocol.control import LocalProtocolError
from hotbay_sdk.protocol.events import CreditReceived, DataDropped, DataEnded, DataReceived
from hotbay_sdk.protocol.frames import FLAG_LAST, FrameType, encode_frame
from hotbay_sdk.protocol.messages import METHODS, PIECE_BYTES, MalformedMessageError, Streams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    from hotbay_sdk.protocol.events import Event
    from hotbay_sdk.protocol.values import Value

STREAM_CREDIT_BYTES: Final = 64 * 1024
LINK_CREDIT_BYTES: Final = 1024 * 1024
MAX_CREDIT_BYTES: Final = 2**31 - 1
"""More in sum is a defect of the peer."""
LINK: Final = 0
"""The stream number that stands for the link as a whole in a CREDIT frame."""
STREAMED_METHODS: Final = {m: spec.streams for m, spec in METHODS.items() if spec.streams is not Streams.NONE}
"""Methods whose calls carry data, and which way."""


class DataSender:
    """What this end may send: credit of the link and of every stream that it has open."""

    __slots__ = ("_credit",)

    def __init__(self) -> None:
        self._credit = {LINK: LINK_CREDIT_BYTES}

    def open(self, stream: int) -> None:
        """Begin a stream with its first credit."""
        self._credit[stream] = STREAM_CREDIT_BYTES

    def is_open(self, stream: int) -> bool:
        """Whether the stream was begun and not ended."""
        return stream in self._credit

    def close(self, stream: int) -> None:
        """End a stream; what it did not use of its credit is void."""
        self._credit.pop(stream, None)

    def room(self, stream: int) -> int:
        """Bytes that the next piece may have: 0 while credit is awaited, or when the stream is not open."""
        return min(PIECE_BYTES, self._credit[LINK], self._credit.get(stream, 0))

    def spend(self, stream: int, count: int) -> None:
        """Take the credit of a piece that is sent."""
        self._credit[LINK] -= count
        self._credit[stream] -= count

    def grant(self, stream: int, count: int) -> None:
        """Take new credit; that of a stream which is over is dropped."""
        held = self._credit.get(stream)
        if held is None:
            return
        if held + count > MAX_CREDIT_BYTES:
            raise MalformedMessageError(f"credit of {held + count} bytes, more than {MAX_CREDIT_BYTES}")
        self._credit[stream] = held + count


class DataReceiver:
    """What the peer may send: its credit left, and what was consumed and not given back."""

    __slots__ = ("_consumed", "_credit")

    def __init__(self) -> None:
        self._credit = {LINK: LINK_CREDIT_BYTES}
        self._consumed = {LINK: 0}

    @property
    def open_count(self) -> int:
        """Streams on which the peer may send."""
        return len(self._credit) - 1

    def open(self, stream: int) -> None:
        """Let the peer send on a stream."""
        self._credit[stream] = STREAM_CREDIT_BYTES
        self._consumed[stream] = 0

    def is_open(self, stream: int) -> bool:
        """Whether the peer may send on the stream."""
        return stream in self._credit

    def close(self, stream: int) -> None:
        """The stream ended, or its call did."""
        self._credit.pop(stream, None)
        self._consumed.pop(stream, None)

    def take(self, stream: int, count: int) -> None:
        """Note a piece that came. Raises `MalformedMessageError` when it overdraws the credit."""
        held, link = self._credit.get(stream, STREAM_CREDIT_BYTES), self._credit[LINK]
        if count > min(held, link):
            raise MalformedMessageError(f"{count} bytes of data, the credit is {min(held, link)}")
        self._credit[LINK] = link - count
        if stream in self._credit:
            self._credit[stream] = held - count

    def consumed(self, stream: int, count: int) -> list[tuple[int, int]]:
        """Note what a consumer took; return the credit that is due, as (stream or `LINK`, bytes)."""
        due: list[tuple[int, int]] = []
        for key, window in {stream: STREAM_CREDIT_BYTES, LINK: LINK_CREDIT_BYTES}.items():
            if key not in self._consumed:
                continue
            self._consumed[key] += count
            back = self._consumed[key]
            if back * 2 >= window:
                self._consumed[key] = 0
                self._credit[key] += back
                due.append((key, back))
        return due


class DataStreams:
    """The data of one link in both directions. Methods that send return the bytes to write, in order.

    Args:
        pack: encodes a body.
    """

    __slots__ = ("_pack", "calls", "receiver", "sender")

    def __init__(self, pack: Callable[[object], bytes]) -> None:
        self.sender = DataSender()
        self.receiver = DataReceiver()
        self.calls: set[int] = set()
        """Calls that carry data and are not over."""
        self._pack = pack

    def room(self, stream: int) -> int:
        """Bytes that may be sent on a stream now; 0 also when it is over."""
        return self.sender.room(stream)

    def sending(self, stream: int) -> bool:
        """Whether this end may still send data on a stream, now or with later credit."""
        return self.sender.is_open(stream)

    def send(self, stream: int, piece: bytes) -> bytes:
        """The frame of the next piece of a stream's data, 1 byte to `room` long."""
        if not 0 < len(piece) <= self.sender.room(stream):
            raise LocalProtocolError(f"{len(piece)} bytes of data, the room is {self.sender.room(stream)}")
        self.sender.spend(stream, len(piece))
        return encode_frame(FrameType.DATA, stream, self._pack(piece))

    def send_end(self, stream: int) -> bytes:
        """The frame that ends a stream's data."""
        self.sender.close(stream)
        return encode_frame(FrameType.END, stream, self._pack(None))

    def consumed(self, stream: int, count: int) -> bytes:
        """Note that `count` bytes of a stream's data are done with; the CREDIT frames that are due, if any."""
        due = self.receiver.consumed(stream, count)
        return b"".join(encode_frame(FrameType.CREDIT, key, self._pack(back)) for key, back in due)

    def begin(self, method: int, stream: int, *, calling: bool) -> None:
        """A call of one of `STREAMED_METHODS` begins; `calling`: this end makes it."""
        self.calls.add(stream)
        if (STREAMED_METHODS[method] is Streams.REQUEST) is calling:
            self.sender.open(stream)
        else:
            self.receiver.open(stream)

    def end(self, stream: int) -> None:
        """A call is over, and with it its data."""
        self.calls.discard(stream)
        self.sender.close(stream)
        self.receiver.close(stream)

    def take_credit(self, stream: int, value: Value) -> Event:
        """The event of a CREDIT frame. Raises `MalformedMessageError`."""
        if type(value) is not int or value <= 0:
            raise MalformedMessageError("credit is a number of bytes above 0")
        self.sender.grant(stream, value)
        return CreditReceived(stream)

    def take_data(self, kind: int, flags: int, stream: int, value: Value) -> list[Event]:
        """The events of a DATA or END frame of a call that is or was. Raises `MalformedMessageError`."""
        events: list[Event] = []
        live = self.receiver.is_open(stream)
        if kind == FrameType.DATA:
            if not isinstance(value, bytes):
                raise MalformedMessageError("a piece of data is bytes")
            self.receiver.take(stream, len(value))
            events.append(DataReceived(stream, value) if live else DataDropped(stream, len(value)))
        if live and (kind == FrameType.END or flags & FLAG_LAST):
            self.receiver.close(stream)
            events.append(DataEnded(stream))
        return events
