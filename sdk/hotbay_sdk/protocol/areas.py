"""Layout of the memory in which a host shows columns of endpoints to its plugins. Pure: bytes in, numbers out.

An area holds the columns of one group, in a ring of slots. All numbers are little-endian; offsets count bytes.

=================  ======  ==========================================================================
where              type    what
=================  ======  ==========================================================================
0                  8 byte  `HOTBAYC1`
8                  u32     number of the area, as calls name it
12                 u32     capacity: rows that each column has room for
16                 u32     number of slots
20                 u32     number of columns, n
24                 u32     offset of slot 0
28                 u32     bytes of a slot: slot k begins at (offset of slot 0) + k x (bytes of a slot)
32                 32 byte zero
64 + 160 x i       u32     column i, from 0: offset of its first row, from the beginning of a slot
68 + 160 x i       u8      its format: `f` (0x66) float32, `q` (0x71) int64
69 + 160 x i       u8      length of its name in bytes
70 + 160 x i       154 b.  its name, UTF-8, then zeros
slot + 0           u64     stamp: which publication the slot holds, 0 while it is written
slot + 8           56 byte zero
slot + 64          arrays  the columns, each at its offset, which is a multiple of 64
=================  ======  ==========================================================================

Everything but the slots stays as it is for as long as the area exists. A slot is written so: stamp 0, columns, stamp.
Stamps only grow, so a stamp that is in place before and after a copy vouches for the copy. Rows beyond those of
the call's view hold anything.
"""

from __future__ import annotations

import struct
from _thread import allocate_lock

from hotbay_sdk.protocol.calls import ITEM_BYTES
from hotbay_sdk.protocol.declarations import NamedTuple
from hotbay_sdk.protocol.messages import MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Final

__all__ = ["AREA_MAGIC", "SLOTS", "AreaLayout", "ColumnPlace", "ordering", "plan_area", "read_layout"]

AREA_MAGIC: Final = b"HOTBAYC1"
SLOTS: Final = 4
"""Publications that a reader may be behind before what it was told of is overwritten."""
_HEADER: Final = struct.Struct("<8s6I")
_ENTRY: Final = struct.Struct("<IBB154s")
HEADER_BYTES: Final = 64
ENTRY_BYTES: Final = _ENTRY.size
ALIGNMENT_BYTES: Final = 64
SLOT_HEAD_BYTES: Final = 64


class ColumnPlace(NamedTuple):
    """A column's first row, in bytes from the beginning of a slot, and its format, `f` or `q`."""

    offset: int
    format: str


class AreaLayout(NamedTuple):
    """Where everything is in an area: slot k begins at byte `slots_at + k * slot_bytes`."""

    area: int
    capacity: int
    slots: int
    slots_at: int
    slot_bytes: int
    columns: Mapping[str, ColumnPlace]

    @property
    def size_bytes(self) -> int:
        """Size of the whole area."""
        return self.slots_at + self.slots * self.slot_bytes

    def head(self) -> bytes:
        """The bytes before slot 0."""
        packed = _HEADER.pack(
            AREA_MAGIC, self.area, self.capacity, self.slots, len(self.columns), self.slots_at, self.slot_bytes
        ).ljust(HEADER_BYTES, b"\0")
        for name, place in self.columns.items():
            text = name.encode()
            packed += _ENTRY.pack(place.offset, ord(place.format), len(text), text)
        return packed.ljust(self.slots_at, b"\0")


def plan_area(area: int, columns: Iterable[tuple[str, str]], capacity: int) -> AreaLayout:
    """Lay columns out, (name, format) each, in their order. Names have at most 154 bytes."""
    places: dict[str, ColumnPlace] = {}
    offset = SLOT_HEAD_BYTES
    for name, code in columns:
        places[name] = ColumnPlace(offset, code)
        offset += _aligned(capacity * ITEM_BYTES[code])
    slots_at = _aligned(HEADER_BYTES + ENTRY_BYTES * len(places))
    return AreaLayout(area, capacity, SLOTS, slots_at, offset, places)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def read_layout(memory: memoryview) -> AreaLayout:
    """Read the layout of an area. Raises `MalformedMessageError` for what is none of this version.

    A plugin trusts its host: beyond magic and size nothing is checked.
    """
    if len(memory) < HEADER_BYTES or bytes(memory[:8]) != AREA_MAGIC:
        raise MalformedMessageError(f"an area of shared columns begins with {AREA_MAGIC.decode()}")
    _, area, capacity, slots, count, slots_at, slot_bytes = _HEADER.unpack_from(memory)
    stated = max(HEADER_BYTES + ENTRY_BYTES * count, slots_at) + slots * slot_bytes
    if stated > len(memory):
        raise MalformedMessageError(f"area {area} has {len(memory)} bytes and states {stated}")
    places: dict[str, ColumnPlace] = {}
    for index in range(count):
        offset, code, length, text = _ENTRY.unpack_from(memory, HEADER_BYTES + ENTRY_BYTES * index)
        places[text[:length].decode()] = ColumnPlace(offset, chr(code))
    return AreaLayout(area, capacity, slots, slots_at, slot_bytes, places)


def ordering(machine: str) -> Callable[[], None]:
    """What both ends call between stamp and columns, so that a weakly ordered processor moves neither past the other.

    x86 needs nothing: it reads, and shows what it wrote, in order. `machine` is named as by `uname`.
    """
    return _nothing if machine in ("x86_64", "i686") else _fence


_FENCE: Final = allocate_lock()


def _fence() -> None:
    # What comes before the first release is done before the second acquisition.
    with _FENCE:
        pass
    with _FENCE:
        pass


def _nothing() -> None:
    pass
