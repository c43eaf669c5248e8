"""The process's end of memory that the host passed: copies of columns out of it, scores into it. Imported when some is.

A copy is taken before any of the author's code runs, and counts only if the slot's stamp was in place before and
after it: authors compute on what no writer can reach. The host's stamps only grow, so what was overwritten does not
come back, and trying again would find the same.
"""

from __future__ import annotations

import os
from mmap import MAP_SHARED, PROT_READ, PROT_WRITE, mmap

from hotbay_sdk.protocol.areas import ordering, read_layout
from hotbay_sdk.protocol.calls import ITEM_BYTES, declared_name
from hotbay_sdk.protocol.messages import CallError, ErrorCode, Executed, MalformedMessageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hotbay_sdk.protocol.values import Value


_keep_order = ordering(os.uname().machine)
_MAP_POPULATE = 0x8000
"""From linux/mman.h on x86 and ARM: a first read in a handler is to find its page there. No processor's meaning of
the bit does harm."""


class Area:
    """One area, mapped for reading. Its memory goes with this object."""

    __slots__ = ("_begins", "_memory", "_picked", "_stamps", "layout")

    def __init__(self, memory: memoryview) -> None:
        """Take an area's memory. Raises `MalformedMessageError`."""
        self.layout = read_layout(memory)
        self._begins = [self.layout.slots_at + slot * self.layout.slot_bytes for slot in range(self.layout.slots)]
        self._memory = memory
        self._stamps = memory[: self.layout.size_bytes].cast("Q")
        self._picked: tuple[Collection[str], list[tuple[str, int, int]]] = ((), [])

    @classmethod
    def of(cls, descriptor: int) -> Area:
        """Map a descriptor, which stays the caller's. Raises OSError and `MalformedMessageError`."""
        return cls(memoryview(mmap(descriptor, 0, flags=MAP_SHARED | _MAP_POPULATE, prot=PROT_READ)))

    def copy(self, slot: int, stamp: int, names: Collection[str], rows: int) -> dict[str, bytes] | None:
        """The columns of a publication that are among the declared `names`; None when the slot holds another one by now."""
        begin = self._begins[slot]
        word, stamps, memory = begin // 8, self._stamps, self._memory
        if rows > self.layout.capacity or stamps[word] != stamp:
            return None
        picked_for, picked = self._picked
        if picked_for is not names:
            picked = self._pick(names)
        _keep_order()
        copied = {name: bytes(memory[begin + at : begin + at + rows * size]) for name, at, size in picked}
        _keep_order()
        return copied if stamps[word] == stamp else None

    def _pick(self, names: Collection[str]) -> list[tuple[str, int, int]]:
        picked = [
            (name, place.offset, ITEM_BYTES[place.format])
            for name, place in self.layout.columns.items()
            if declared_name(name) in names
        ]
        # One assignment: a call that runs nested may take its view in another thread.
        self._picked = (names, picked)
        return picked


class Areas(dict[int, Area]):
    """The areas that the process was passed, by number. Changed by the control thread, read by those that take calls.

    `outputs` are those that it writes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[int, memoryview] = {}

    def take(self, args: Sequence[Value], descriptors: tuple[int, ...]) -> CallError | None:
        """Take what a call of `share` passes, and let go of what it names: all of it or nothing. Closes the descriptors."""
        try:
            added, dropped, written = _numbers(args, len(descriptors))
            by_number = dict(zip(added, descriptors, strict=True))
            made = {number: Area.of(by_number[number]) for number in added if number not in written}
            outputs = {number: _for_writing(by_number[number]) for number in added if number in written}
        except ValueError as error:
            # `MalformedMessageError`, and what an empty file is.
            return CallError(ErrorCode.PROTOCOL_VIOLATION, str(error), executed=Executed.NO)
        except OSError as error:
            return CallError(ErrorCode.UNAVAILABLE, f"cannot be mapped: {error.strerror}", executed=Executed.NO)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.update(made)
        self.outputs.update(outputs)
        for number in dropped:
            self.pop(number, None)
            self.outputs.pop(number, None)
        return None

    def write(self, where: Value, scores: Sequence[bytes]) -> int | None:
        """Write a reply's scores to the region `[area, offset, bytes]` of a call; their length in bytes.

        None if they are to be in the reply: they have another length, or the area is not held.
        """
        if not isinstance(where, list) or len(where) != 3:
            raise MalformedMessageError("a region is [area, offset, bytes]")
        number, at, size_bytes = where
        if type(number) is not int or type(at) is not int or type(size_bytes) is not int:
            raise MalformedMessageError("a region is three whole numbers")
        area = self.outputs.get(number)
        if area is None or sum(map(len, scores)) != size_bytes or not 0 <= at <= len(area) - size_bytes:
            return None
        for row in scores:
            area[at : at + len(row)] = row
            at += len(row)
        return size_bytes


def _for_writing(descriptor: int) -> memoryview:
    return memoryview(mmap(descriptor, 0, flags=MAP_SHARED, prot=PROT_READ | PROT_WRITE))


def _numbers(args: Sequence[Value], passed: int) -> tuple[list[int], list[int], list[int]]:
    if len(args) not in (2, 3) or not all(isinstance(part, list) for part in args):
        raise MalformedMessageError("share takes the numbers of areas passed, of areas to drop, and of those to write")
    parts = [[n for n in part if type(n) is int] for part in args if isinstance(part, list)]
    added, dropped, written = parts if len(parts) == 3 else (*parts, [])
    if len(added) != passed:
        raise MalformedMessageError(f"{len(added)} areas are named and {passed} passed")
    return added, dropped, written
