"""Memory that a run shares with its peer, sealed as a host seals it: nothing of it is believed afterwards."""

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from hotbay_sdk.protocol.areas import AreaLayout, plan_area
from hotbay_sdk.protocol.calls import column_format

__all__ = ["UNWRITTEN", "Memory", "columns_area", "scores_area"]

_FUTURE_WRITE: Final = 0x10
"""From linux/fcntl.h; the fcntl module of 3.11 does not name it."""
_FIXED: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_STAMP: Final = struct.Struct("<Q")
UNWRITTEN: Final = struct.pack("<I", 0x7FC0DEAD)
"""A number that no formula makes, all through an area that is to be written."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One area: `number` as calls name it, `descriptor` to pass, `map` to look at."""

    number: int
    descriptor: int
    map: mmap.mmap


@contextmanager
def scores_area(number: int, size_bytes: int) -> Iterator[Memory]:
    """An area that the peer writes, full of `UNWRITTEN`; `size_bytes` is a multiple of 4."""
    with _shared(number, UNWRITTEN * (size_bytes // len(UNWRITTEN)), read_only=False) as memory:
        yield memory


@contextmanager
def columns_area(number: int, columns: Mapping[str, bytes], stamps: Sequence[int], rows: int) -> Iterator[Memory]:
    """An area that the peer reads: the same columns in as many slots as there are stamps, four at most."""
    layout = plan_area(number, [(name, column_format(name) or "f") for name in columns], rows)
    with _shared(number, _content(layout, columns, stamps), read_only=True) as memory:
        yield memory


def _content(layout: AreaLayout, columns: Mapping[str, bytes], stamps: Sequence[int]) -> bytes:
    content = bytearray(layout.head().ljust(layout.size_bytes, b"\0"))
    for slot, stamp in enumerate(stamps):
        begin = layout.slots_at + slot * layout.slot_bytes
        _STAMP.pack_into(content, begin, stamp)
        for name, place in layout.columns.items():
            at = begin + place.offset
            content[at : at + len(columns[name])] = columns[name]
    return bytes(content)


@contextmanager
def _shared(number: int, content: bytes, *, read_only: bool) -> Iterator[Memory]:
    descriptor = os.memfd_create("hotbay-conformance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, len(content))
        with mmap.mmap(descriptor, len(content)) as memory:
            memory[:] = content
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _FIXED | (_FUTURE_WRITE if read_only else 0))
            passed = os.open(f"/proc/self/fd/{descriptor}", (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC)
            try:
                yield Memory(number, passed, memory)
            finally:
                os.close(passed)
    finally:
        os.close(descriptor)
