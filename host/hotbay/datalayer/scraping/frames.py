"""Frames of what a host and its scraping process say: one msgpack value after its length. Pure.

Invariant: bytes of a value are given up before anybody sees the value, so that one that nobody can read is met once.
"""

from collections.abc import Iterator
from typing import Final, cast

from hotbay_sdk.protocol.values import unpack

__all__ = ["Frames", "framed"]

_LENGTH_BYTES: Final = 4


def framed(body: bytes) -> bytes:
    """A packed value, with its length before it."""
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


class Frames:
    """Bytes to values, as they come."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[list[object]]:
        """The values that are whole now. Raises `ValueRefusedError` for what is none; none comes twice, whatever happens."""
        self._bytes += data
        while (value := self.next()) is not None:
            yield value

    def add(self, data: bytes) -> None:
        """So many bytes more, for `next`."""
        self._bytes += data

    @property
    def has_next(self) -> bool:
        """Whether a value is whole."""
        return len(self._bytes) >= self._end()

    def next(self) -> list[object] | None:
        """Take the next value that is whole. Raises `ValueRefusedError`; then it is taken, too."""
        if not self.has_next:
            return None
        end = self._end()
        body = bytes(self._bytes[_LENGTH_BYTES:end])
        del self._bytes[:end]
        return cast("list[object]", unpack(body))

    def _end(self) -> int:
        """Where the next value ends, or its length, if that is not there."""
        if len(self._bytes) < _LENGTH_BYTES:
            return _LENGTH_BYTES
        return _LENGTH_BYTES + int.from_bytes(self._bytes[:_LENGTH_BYTES], "little")
