"""Columns of snapshots in memory that plugin processes read: written once for all of them, when one first asks.

Columns are kept in groups: what engines say, what is in flight, and the attributes of each key, which is an attribute's
name up to its first full stop. The columns of a group that some process reads have an area with a ring of slots; a slot holds the group as it is in one snapshot
or in several that do not differ in it, stamped with the epoch of the first. Rows that fit, in whatever membership,
stay in their area; other columns or more rows make a new one. Who was passed an area keeps it however soon this end lets go.

Invariants: a slot is written by this object alone, and never again with a stamp that it had; a process is named an area
only after it acknowledged it, and is passed no group that its calls do not read; at most one message of them is out to
a process, and one that does not take it is sent its columns in calls for as long as it lives.
"""

import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Final

import numpy as np
import numpy.typing as npt
from hotbay_sdk.protocol.areas import AreaLayout, ordering, plan_area
from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX, INT64_SUFFIX

from hotbay.datalayer.tables.snapshot import Column, Snapshot
from hotbay.errors import HostError
from hotbay.rpc.leases import Generation
from hotbay.rpc.memfd import SharedArea
from hotbay.rpc.wire import Outcome

__all__ = ["FEATURE", "PassedAreas", "SharedColumns", "group_of", "wire_name"]

logger = logging.getLogger(__name__)

_keep_order: Final = ordering(os.uname().machine)
FEATURE: Final = "shared_snapshots"
"""What HELLO says of a plugin that takes areas."""
SHARED_FROM_BYTES: Final = 24 * 1024
"""Columns of one call that are smaller travel in it: below, that costs the same or less (decision 20)."""
LEAST_CAPACITY_ROWS: Final = 64
"""Below this a pool that grows would make areas for a page of memory each."""
SHRINKS_AT: Final = 4
"""A pool that has left so large a part of its rows gets a smaller area: one that comes and goes keeps it."""
MAX_AREAS_PER_CALL: Final = 4
"""Descriptors of one frame."""
MAX_AREAS_PASSED: Final = 256
"""To one process in its life, however often it is published anew: a hostile one may keep them all."""

ENGINE: Final = "engine"
IN_FLIGHT: Final = "inflight"
_COUNTED: Final = ("endpoint.in_flight", "endpoint.in_flight_tokens")
_DTYPES: Final[Mapping[str, npt.DTypeLike]] = {"f": np.float32, "q": np.int64}

Schema = tuple[tuple[str, str, str], ...]
"""Columns: name in a snapshot, name on the wire, format."""


def wire_name(name: str, column: Column) -> str | None:
    """A snapshot's column on the wire; None for one that has no name there."""
    if not name.startswith(ATTRIBUTE_PREFIX):
        return name
    if name.endswith(INT64_SUFFIX):
        return None
    return name + INT64_SUFFIX if column.dtype == np.int64 else name


def group_of(name: str) -> str:
    """The group of a column, by the name that types declare."""
    if name.startswith(ATTRIBUTE_PREFIX):
        return ".".join(name.split(".")[:2])
    return IN_FLIGHT if name in _COUNTED else ENGINE


def _grouped(columns: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in columns:
        groups.setdefault(group_of(name), []).append(name)
    return groups


def _schema(snapshot: Snapshot, names: Iterable[str]) -> Schema:
    return tuple(
        (name, shown, "q" if column.dtype == np.int64 else "f")
        for name in names
        if (column := snapshot.columns.get(name)) is not None and (shown := wire_name(name, column)) is not None
    )


class _Slot:
    __slots__ = ("arrays", "held", "stamp")

    def __init__(self, arrays: Sequence[npt.NDArray[np.float32 | np.int64]]) -> None:
        self.arrays = arrays
        self.held: Sequence[Column | None] = [None] * len(arrays)
        self.stamp = 0


class Ring:
    """One area and what its slots hold. `number` is its name in calls. `close` ends it at this end."""

    __slots__ = ("_area", "_layout", "_names", "_newest", "_slots", "_stamps", "capacity", "number", "schema")

    def __init__(self, number: int, schema: Schema, capacity: int, make: Callable[[str, int], SharedArea]) -> None:
        """Make the area. Raises OSError."""
        self.number = number
        self.schema = schema
        self.capacity = capacity
        self._names = [name for name, _, _ in schema]
        self._layout = plan_area(number, [(shown, code) for _, shown, code in schema], capacity)
        self._area = make("hotbay-columns", self._layout.size_bytes)
        self._area.memory[: self._layout.slots_at] = self._layout.head()
        self._stamps = np.frombuffer(self._area.memory, np.uint64)
        self._slots = [_Slot(self._arrays(index)) for index in range(self._layout.slots)]
        self._newest = 0

    def _arrays(self, slot: int) -> list[npt.NDArray[np.float32 | np.int64]]:
        begin, places = _begin(self._layout, slot), self._layout.columns.values()
        return [
            np.frombuffer(self._area.memory, _DTYPES[place.format], self.capacity, begin + place.offset)
            for place in places
        ]

    @property
    def descriptor(self) -> int:
        """What is passed to processes."""
        return self._area.descriptor

    def fits(self, schema: Schema, rows: int) -> bool:
        """Whether snapshots of such columns and so many rows go on in this area."""
        return self.schema == schema and rows <= self.capacity <= max(LEAST_CAPACITY_ROWS, SHRINKS_AT * rows)

    def place(self, snapshot: Snapshot) -> tuple[int, int] | None:
        """Slot and stamp of the snapshot's columns, which are written if they are newer than all that is there.

        None for a snapshot that is too old.
        """
        columns = [snapshot.columns[name] for name in self._names]
        slots, newest = self._slots, self._newest
        for back in range(len(slots)):
            index = (newest - back) % len(slots)
            if all(map(is_, slots[index].held, columns)):
                return index, slots[index].stamp
            if back == 0 and snapshot.epoch > slots[newest].stamp:
                self._newest = (newest + 1) % len(slots)
                self._write(self._newest, columns, snapshot)
                return self._newest, snapshot.epoch
        return None

    def _write(self, index: int, columns: Sequence[Column], snapshot: Snapshot) -> None:
        slot, word = self._slots[index], _begin(self._layout, index) // 8
        self._stamps[word] = 0
        _keep_order()
        for array, held, column in zip(slot.arrays, slot.held, columns, strict=True):
            if held is not column:
                array[: snapshot.rows] = column
        _keep_order()
        self._stamps[word] = snapshot.epoch
        slot.held, slot.stamp = columns, snapshot.epoch

    def close(self) -> None:
        """Let go of the area: processes that have it keep it."""
        # An array that refers to a map keeps it from being closed.
        self._slots.clear()
        self._stamps = np.empty(0, np.uint64)
        self._area.close()


def _begin(layout: AreaLayout, slot: int) -> int:
    return layout.slots_at + slot * layout.slot_bytes


class SharedColumns:
    """The rings of one view of the endpoints.

    Args:
        make: makes an area of a name and a size in bytes; raises OSError where the kernel cannot.
        from_bytes: columns of one call that are smaller are not shared.
    """

    def __init__(
        self, make: Callable[[str, int], SharedArea] = SharedArea.snapshot, *, from_bytes: int = SHARED_FROM_BYTES
    ) -> None:
        self.from_bytes = from_bytes
        self._make = make
        self._rings: dict[str, Ring] = {}
        self._wanted: dict[str, list[str]] = {}
        self._made = 0
        self._newest = 0
        self.forgotten = 0
        """How often what had been asked for was let go of: who still wants it has to say so again."""
        self._seen: Snapshot | None = None
        self._places: dict[str, tuple[Ring, int, int] | None] = {}
        # Plugins read what lies there as it is.
        self._usable = sys.byteorder == "little"

    def want(self, group: str, columns: Iterable[str]) -> None:
        """Have these columns in the area of the group from now on."""
        wanted = self._wanted.setdefault(group, [])
        added = [name for name in columns if name not in wanted]
        if added:
            wanted += added
            self._places.pop(group, None)

    def next_number(self) -> int:
        """The number of an area that is about to be made: none had it before."""
        self._made += 1
        return self._made

    def place(self, snapshot: Snapshot, group: str) -> tuple[Ring, int, int] | None:
        """Ring, slot and stamp where the group's columns of a snapshot are; None where they are not and cannot be."""
        if snapshot is not self._seen:
            self._seen, self._places = snapshot, {}
            self._newest = max(self._newest, snapshot.epoch)
        if group not in self._places:
            self._places[group] = self._placed(snapshot, group)
        return self._places[group]

    def _placed(self, snapshot: Snapshot, group: str) -> tuple[Ring, int, int] | None:
        ring = self._ring(snapshot, group)
        found = None if ring is None else ring.place(snapshot)
        return None if ring is None or found is None else (ring, *found)

    def _ring(self, snapshot: Snapshot, group: str) -> Ring | None:
        ring, schema = self._rings.get(group), _schema(snapshot, self._wanted.get(group, ()))
        if ring is not None and ring.fits(schema, snapshot.rows):
            return ring
        if not self._usable or not schema or snapshot.rows == 0 or snapshot.epoch < self._newest:
            return None
        capacity = max(LEAST_CAPACITY_ROWS, 1 << (snapshot.rows - 1).bit_length())
        try:
            made = Ring(self.next_number(), schema, capacity, self._make)
        except OSError as error:
            self._usable = False
            logger.warning("snapshots_not_shared: %s; columns travel in calls", error)
            return None
        self._rings[group] = made
        if ring is not None:
            ring.close()
        return made

    def keep(self, groups: Collection[str]) -> None:
        """Let go of the areas of all other groups, and of who wanted them; who asks again gets a new one."""
        self._seen, self._places = None, {}
        for group in self._rings.keys() - groups:
            self._rings.pop(group).close()
        for group in self._wanted.keys() - groups:
            del self._wanted[group]
            self.forgotten += 1


class PassedAreas:
    """What one process was passed of the shared columns. `groups` are those that its calls have asked for."""

    __slots__ = (
        "_asking",
        "_by_columns",
        "_forgotten",
        "_generation",
        "_held",
        "_refused",
        "_shared",
        "_unwanted",
        "groups",
    )

    def __init__(self, generation: Generation, shared: SharedColumns) -> None:
        self.groups: set[str] = set()
        self._generation = generation
        self._shared = shared
        self._by_columns: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._forgotten = shared.forgotten
        self._held: dict[str, int] = {}
        self._unwanted: set[int] = set()
        self._asking = False
        self._refused = FEATURE not in generation.features

    def find(self, snapshot: Snapshot, columns: tuple[str, ...]) -> list[list[int]] | None:
        """[area, slot, stamp] of every group of the columns, as calls name them; None if they are to travel in the call.

        What is there and not held is passed, so that later calls find it. Columns that the snapshot does not have are
        nowhere.
        """
        if self._refused or 4 * snapshot.rows * len(columns) < self._shared.from_bytes:
            return None
        if self._forgotten != self._shared.forgotten:
            self._forgotten = self._shared.forgotten
            self._by_columns.clear()
        groups = self._by_columns.get(columns)
        if groups is None:
            groups = self._by_columns[columns] = self._groups(columns)
        places: list[list[int]] = []
        missing: dict[str, Ring] = {}
        for group in groups:
            found = self._shared.place(snapshot, group)
            if found is not None:
                ring, slot, stamp = found
                places.append([ring.number, slot, stamp])
                if self._held.get(group) != ring.number:
                    missing[group] = ring
            elif any(name in snapshot.columns for name in columns if group_of(name) == group):
                return None
        if missing:
            self._ask(missing)
            return None
        return places

    def _groups(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        grouped = _grouped(columns)
        for group, names in grouped.items():
            self._shared.want(group, names)
        self.groups |= grouped.keys()
        return tuple(grouped)

    def _ask(self, missing: Mapping[str, Ring]) -> None:
        if self._asking:
            return
        asked = dict(list(missing.items())[:MAX_AREAS_PER_CALL])
        if self._generation.areas_passed + len(asked) > MAX_AREAS_PASSED:
            self._give_up("it was passed as many as a process may have")
            return
        dropped = sorted(self._unwanted)

        def answered(outcome: Outcome) -> None:
            self._asking = False
            if isinstance(outcome, HostError):
                self._give_up(f"{outcome.code}: {outcome.message}")
                return
            self._unwanted.difference_update(dropped)
            for group, ring in asked.items():
                if group in self._held:
                    self._unwanted.add(self._held[group])
                self._held[group] = ring.number

        try:
            areas = {ring.number: ring.descriptor for ring in asked.values()}
            self._generation.client.share(areas, dropped, answered)
        except (HostError, OSError) as error:
            self._give_up(str(error))
        else:
            self._asking = True
            self._generation.areas_passed += len(asked)

    def _give_up(self, why: str) -> None:
        self._refused = True
        label = self._generation.client.label
        logger.info("snapshots_not_shared plugin=%s: %s; its columns travel in calls", label, why)
