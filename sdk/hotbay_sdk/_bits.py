"""Candidate sets as Python integers: bit `row` of the integer is row `row` of the view. Pure.

Conversions between integers, wire bytes and one byte per row go through C-speed string functions
that are linear in the rows.
"""

from __future__ import annotations

_TO_ASCII = bytes([48]) + bytes([49]) * 255
"""0 → "0", anything else → "1"."""
_FROM_ASCII = bytes(1 if value == 49 else 0 for value in range(256))
_TO_ONES = bytes([0]) + bytes([255]) * 255


def full(rows: int) -> int:
    """Every row."""
    return (1 << rows) - 1


def to_flags(bits: int, rows: int) -> bytes:
    """One byte per row, 1 for a member."""
    return format(bits, f"0{rows}b").encode()[::-1].translate(_FROM_ASCII) if rows else b""


def from_flags(flags: bytes) -> int:
    """The inverse; any byte but 0 is a member."""
    return int(flags[::-1].translate(_TO_ASCII), 2) if flags else 0


def to_wire(bits: int, rows: int) -> bytes:
    """Packed bits, bit 0 of byte 0 is row 0."""
    return bits.to_bytes((rows + 7) // 8, "little")


def from_wire(packed: bytes) -> int:
    """The inverse."""
    return int.from_bytes(packed, "little")


def blank_outside(values: bytes, flags: bytes) -> bytes:
    """Set to zero every float32 of `values` whose row is no member; one row of values per call."""
    ones = flags.translate(_TO_ONES)
    spread = bytearray(4 * len(flags))
    for offset in range(4):
        spread[offset::4] = ones
    kept = int.from_bytes(values, "little") & int.from_bytes(spread, "little")
    return kept.to_bytes(len(values), "little")
