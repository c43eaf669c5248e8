"""What precise types hand to the next version of this package: version 1 of their state. Pure.

A stream of msgpack arrays: ["slot", source, rank, model, sequence, tokens of a
block] for each cache, and after that its blocks, ["held", [[engine's hash, medium, group, key]…]]; at its end ["end"]. The estimate is not
handed on: it is of seconds to minutes, and the engines' word is what counts.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

import msgpack

from hotbay_prefix_cache.blocks import BlockIndex, Slot

VERSION: Final = 1
MAX_HANDED_BLOCKS: Final = 400_000
"""Blocks of all caches together, the newest of each: some 25 MB, well below what a host takes."""
_PIECE_BLOCKS: Final = 1024


class StateRefusedError(ValueError):
    """The bytes are no state of this form."""


def pieces(index: BlockIndex) -> Iterator[bytes]:
    """The state; calls may come between two pieces, so each tells of what is there when it is made."""
    numbers = [number for number, slot in enumerate(index.slots) if slot.source]
    share = MAX_HANDED_BLOCKS // max(1, len(numbers))
    for number in numbers:
        slot = index.slots[number]
        entries = list(islice(reversed(slot.entries.items()), share))[::-1]
        yield msgpack.packb(["slot", slot.source, slot.rank, slot.model, slot.sequence, slot.block_tokens])
        for start in range(0, len(entries), _PIECE_BLOCKS):
            held = [[*name, key] for name, key in entries[start : start + _PIECE_BLOCKS]]
            yield msgpack.packb(["held", held])
    yield msgpack.packb(["end"])


def restored(stream: Iterable[bytes]) -> BlockIndex:
    """The index of `pieces`, cut anyhow. Raises `StateRefusedError`."""
    unpacker = msgpack.Unpacker(raw=False, max_buffer_size=2**30)
    index, slot, ended = BlockIndex(), None, False
    try:
        for piece in stream:
            unpacker.feed(piece)
            for record in unpacker:
                ended = record == ["end"]
                slot = slot if ended else _take(record, index, slot)
    except (ValueError, TypeError, AttributeError, msgpack.exceptions.UnpackException) as error:
        raise StateRefusedError(f"is damaged: {error}") from error
    if not ended:
        raise StateRefusedError("is cut")
    return index


def _take(record: Any, index: BlockIndex, slot: int | None) -> int | None:
    kind, *rest = record
    if kind == "slot":
        source, rank, model, sequence, block_tokens = rest
        number = index.slot_of(str(source), int(rank)) if source else None
        if number is None:
            raise StateRefusedError("too many caches, or one without a name")
        _set(index.slots[number], str(model), int(sequence), int(block_tokens))
        return number
    if kind != "held" or slot is None:
        raise StateRefusedError(f"a record {kind!r:.40}")
    for block, medium, group, key in rest[0]:
        index.hold(slot, (block, str(medium), int(group)), int(key))
    return slot


def _set(slot: Slot, model: str, sequence: int, block_tokens: int) -> None:
    slot.model, slot.sequence, slot.block_tokens = model, sequence, block_tokens
    slot.resumed = True
