"""Frames: the twelve-byte header, and the reader that cuts a byte stream into frames.

Pure. A frame's length is judged before a single byte of its body is kept, so a hostile length
costs nothing. `magic` is 0xF5, a byte that occurs in no UTF-8 text: stray output on the link is
noticed at its first byte.
"""

from __future__ import annotations

import struct

from hotbay_sdk.protocol.declarations import IntEnum, NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

PROTOCOL_VERSION: Final = 1
MAGIC: Final = 0xF5
HEADER: Final = struct.Struct(">BBBBII")
HEADER_BYTES: Final = HEADER.size
MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Hard cap of a frame body: a longer one closes the link. Most methods have a far lower limit."""


class FrameType(IntEnum):
    """What a frame carries. Unknown types are skipped unless flagged critical."""

    ARMED = 1
    GO = 2
    HELLO = 3
    WELCOME = 4
    READY = 5
    REQ = 6
    RESP = 7
    ERR = 8
    DATA = 9
    END = 10
    CANCEL = 11
    CREDIT = 12
    PING = 13
    PONG = 14
    GOAWAY = 15
    EVENT = 16
    LOG = 17


_pack_header: Final = HEADER.pack
_unpack_header: Final = HEADER.unpack_from

KNOWN_TYPES: Final = frozenset(int(t) for t in FrameType)

FLAG_LAST: Final = 0x01
"""Last frame of its stream."""
FLAG_DESCRIPTORS: Final = 0x02
"""The frame's first byte carried descriptors."""
FLAG_CRITICAL: Final = 0x80
"""A receiver that does not know the type must close the link instead of skipping the frame."""


class Frame(NamedTuple):
    """One whole frame. `body` is the msgpack payload, not yet decoded."""

    type: int
    flags: int
    stream: int
    body: bytes


class Oversized(NamedTuple):
    """A frame over the limit of its method: its body is being skipped, the link stays usable."""

    type: int
    flags: int
    stream: int
    length: int
    limit: int


class Violation(NamedTuple):
    """The peer broke the protocol; the link is unusable from this byte on."""

    code: str
    message: str


def encode_frame(frame_type: int, stream: int, body: bytes, flags: int = 0) -> bytes:
    """Return the frame as bytes. `stream` is 0 for frames that belong to no call."""
    return _pack_header(MAGIC, frame_type, flags, PROTOCOL_VERSION, stream, len(body)) + body


class FrameReader:
    """Cuts an arbitrarily split byte stream into frames; never raises on any input.

    `limit_of(type, stream)` gives the body limit in bytes of the frame whose header just arrived.
    After a `Violation` the reader is closed and returns nothing more.
    """

    __slots__ = ("_buffer", "_closed", "_limit_of", "_skip")

    def __init__(self, limit_of: Callable[[int, int], int]) -> None:
        self._limit_of = limit_of
        self._buffer = bytearray()
        self._skip = 0
        self._closed = False

    @property
    def mid_frame(self) -> bool:
        """True while a frame has begun and has not ended."""
        return bool(self._buffer) or self._skip > 0

    def whole(self, data: bytes | bytearray | memoryview) -> tuple[int, int, int, bytes] | None:
        """Type, flags, stream and body if `data` is exactly one acceptable frame; nothing is kept.

        None means that nothing happened and `feed` must judge the same bytes. Hot calls nearly always
        arrive like this, and cost neither a copy of the whole nor a list.
        """
        length = len(data) - HEADER_BYTES
        if length < 0 or self._buffer or self._skip or self._closed:
            return None
        magic, frame_type, flags, version, stream, stated = _unpack_header(data)
        if stated != length or magic != MAGIC or version != PROTOCOL_VERSION or length > MAX_FRAME_BYTES:
            return None
        if length > self._limit_of(frame_type, stream):
            return None
        body = data[HEADER_BYTES:]
        return frame_type, flags, stream, body if type(body) is bytes else bytes(body)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame | Oversized | Violation]:
        """Take the next bytes of the stream, in order; return what they complete."""
        out: list[Frame | Oversized | Violation] = []
        if self._closed:
            return out
        if self._buffer:
            self._buffer += data
            source: bytes | bytearray = self._buffer
        else:
            source = data if isinstance(data, bytes) else bytes(data)
        position = self._cut(source, out)
        if self._closed:
            self._buffer = bytearray()
        elif source is self._buffer:
            del self._buffer[:position]
        elif position < len(source):
            self._buffer = bytearray(source[position:])
        return out

    def _cut(self, source: bytes | bytearray, out: list[Frame | Oversized | Violation]) -> int:
        position, end = 0, len(source)
        while True:
            if self._skip:
                taken = min(self._skip, end - position)
                self._skip -= taken
                position += taken
            if position < end and source[position] != MAGIC:
                return self._close(out, f"byte 0x{source[position]:02x} where a frame should begin with 0xf5", end)
            if end - position < HEADER_BYTES:
                return position
            _, frame_type, flags, version, stream, length = _unpack_header(source, position)
            if version != PROTOCOL_VERSION:
                return self._close(out, f"frame version {version}, this end speaks {PROTOCOL_VERSION}", end)
            if length > MAX_FRAME_BYTES:
                return self._close(
                    out,
                    f"frame of {length} bytes, the hard cap is {MAX_FRAME_BYTES}",
                    end,
                    code="FRAME_TOO_LARGE",
                )
            limit = self._limit_of(frame_type, stream)
            if length > limit:
                out.append(Oversized(frame_type, flags, stream, length, limit))
                position += HEADER_BYTES
                self._skip = length
                continue
            body_start = position + HEADER_BYTES
            if end - body_start < length:
                return position
            position = body_start + length
            out.append(Frame(frame_type, flags, stream, bytes(source[body_start:position])))

    def _close(
        self, out: list[Frame | Oversized | Violation], message: str, end: int, *, code: str = "PROTOCOL_VIOLATION"
    ) -> int:
        self._closed = True
        out.append(Violation(code, message))
        return end
