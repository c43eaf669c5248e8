"""Memory that answers arrive in. Pure."""

from typing import Final

__all__ = ["Buffers"]

_FIRST_BYTES: Final = 256 * 1024
"""Holds most pages; memory that is not written to is not taken from the machine."""
_MOST_KEPT: Final = 16
_LARGEST_KEPT_BYTES: Final = 1 << 20


class Buffers:
    """Buffers that connections lend while an answer arrives: few answers arrive at once, whatever the connections."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self) -> bytearray:
        return self._free.pop() if self._free else bytearray(_FIRST_BYTES)

    def give(self, buffer: bytearray) -> None:
        if len(self._free) < _MOST_KEPT and len(buffer) <= _LARGEST_KEPT_BYTES:
            self._free.append(buffer)
