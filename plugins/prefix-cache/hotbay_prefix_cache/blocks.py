"""Which engine holds which blocks, by what engines tell. Pure; the caller guards it against overlapping calls.

A slot is one cache: one rank of one source. A block is held as long as any medium and any full-attention group of the slot
holds it. `_holders` maps a block's key to the set of slots that hold it, as an int whose bit is the slot; bit s is set if
and only if `_slots[s].vouchers` has the key. A sequence number that does not follow the last one empties its slot: what was
missed may have been a removal, and a number that goes back is an engine that has started again. Only a slot that came from
the version before this one meets messages that it knows already: those that were under way are passed over, up to the first new
one. They are few, and all that they store is there; else the engine has started again meanwhile, and the slot is emptied.
`keys` has a hash if and only if an entry has it; `repeats` has the number of further entries of a hash, where there are any.
"""

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from hotbay_prefix_cache.index import rows_of
from hotbay_prefix_cache.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineHash, Message
from hotbay_prefix_cache.tokens import ROOT, extra_bytes, next_key

MAX_SOURCES: Final = 4096
"""Caches that are followed; messages of further ones are ignored."""
MAX_STRANGERS: Final = 16
"""Caches that are followed though no endpoint is known to be theirs: an engine may speak before it is discovered."""
MAX_BLOCKS: Final = 262_144
"""Blocks that are known of one cache, 4 million tokens in blocks of 16; the oldest are forgotten first."""
MAX_OVERLAP: Final = 64
"""Messages that may have been under way to both versions of this package while one took over from the other."""
_FULL_ATTENTION: Final = frozenset({"", "full_attention", "mla_attention"})
"""Kinds of cache groups that hold whole prefixes. Others drop what is behind their window, and say nothing of a prefix."""

EntryName: TypeAlias = tuple[EngineHash, str, int]
"""How a slot knows an entry: the engine's hash, the medium, the group."""


class Slot:
    """One cache."""

    __slots__ = (
        *("block_tokens", "entries", "keys", "model", "rank", "repeats", "resumed", "sequence", "source", "vouchers"),
    )

    def __init__(self, source: str, rank: int = 0) -> None:
        self.source = source
        self.rank = rank
        self.resumed = False
        self.model = ""
        self.sequence = -1
        self.block_tokens = 0
        self.entries: OrderedDict[EntryName, int] = OrderedDict()
        self.keys: dict[EngineHash, int] = {}
        self.repeats: dict[EngineHash, int] = {}
        self.vouchers: dict[int, int] = {}


class BlockIndex:
    """Follows messages of engines; tells how many leading blocks of a prompt each slot holds."""

    __slots__ = ("_by_source", "_expected", "_expiring", "_free", "_holders", "_slots", "changes", "ignored", "lost")

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self._slots: list[Slot] = []
        self._free: list[int] = []
        self._by_source: dict[tuple[str, int], int] = {}
        self._expected: dict[int, dict[int, list[float]]] = {}
        self._expiring: deque[tuple[float, int, int]] = deque()
        self.changes = 0
        """Grows when slots come or go."""
        self.lost = 0
        """Times that a slot was emptied because messages were missed."""
        self.ignored = 0
        """Blocks whose predecessor nobody had told of, and messages of one source too many."""

    @property
    def block_count(self) -> int:
        """Different blocks that at least one slot holds."""
        return len(self._holders)

    @property
    def slots(self) -> Sequence[Slot]:
        """Every slot; its place is its number. One that is free has an empty source."""
        return self._slots

    def slot_of(self, source: str, rank: int = 0) -> int | None:
        """The slot of a source, made if there is room for one more."""
        number = self._by_source.get((source, rank))
        if number is not None:
            return number
        if self._free:
            number = self._free.pop()
            self._slots[number] = Slot(source, rank)
        elif len(self._slots) < MAX_SOURCES:
            number = len(self._slots)
            self._slots.append(Slot(source, rank))
        else:
            return None
        self._by_source[source, rank] = number
        self.changes += 1
        return number

    def release(self, number: int) -> None:
        """Forget a slot and what it holds."""
        slot = self._slots[number]
        self.empty(number)
        for key in [key for key, slots in self._expected.items() if number in slots]:
            self._expected[key][number].clear()
            self._tidy(key, number)
        del self._by_source[slot.source, slot.rank]
        self._slots[number] = Slot("")
        self._free.append(number)
        self.changes += 1

    def apply(self, message: Message) -> int | None:
        """Follow one message. The slot's number if it was emptied, so that whoever knows more of it forgets that, too."""
        number = self.slot_of(message.who, message.rank) if message.who else None
        if number is None:
            self.ignored += 1
            return None
        slot = self._slots[number]
        if slot.resumed and _was_under_way(slot, message):
            return None
        slot.resumed = False
        slot.model = message.model or slot.model
        emptied = slot.sequence >= 0 and message.sequence != slot.sequence + 1
        if emptied:
            self.lost += 1
            self.empty(number)
        slot.sequence = message.sequence
        for event in message.events:
            if isinstance(event, BlockStored):
                self._store(number, slot, event)
            elif isinstance(event, BlockRemoved):
                for block in event.hashes:
                    self._drop(number, slot, (block, event.medium, event.group))
            else:
                assert isinstance(event, AllBlocksCleared)
                emptied = True
                self.empty(number)
        return number if emptied else None

    def empty(self, number: int) -> None:
        """Forget all blocks of a slot."""
        slot = self._slots[number]
        for key in slot.vouchers:
            self._clear(number, key)
        slot.entries.clear()
        slot.keys.clear()
        slot.repeats.clear()
        slot.vouchers.clear()

    def hold(self, number: int, name: EntryName, key: int) -> None:
        """A slot holds a block, which its engine knows by `name`."""
        slot = self._slots[number]
        self._drop(number, slot, name)
        slot.entries[name] = key
        if name[0] in slot.keys:
            slot.repeats[name[0]] = slot.repeats.get(name[0], 0) + 1
        slot.keys[name[0]] = key
        slot.vouchers[key] = slot.vouchers.get(key, 0) + 1
        self._holders[key] = self._holders.get(key, 0) | 1 << number
        if len(slot.entries) > MAX_BLOCKS:
            self._drop(number, slot, next(iter(slot.entries)))

    def expect(self, number: int, keys: Sequence[int], until: float) -> None:
        """Count these blocks as held until then, though no engine has told so yet. `until` never goes back.

        Several may expect one block: it counts until the last of them does not any more.
        """
        for key in keys:
            self._expected.setdefault(key, {}).setdefault(number, []).append(until)
            self._expiring.append((until, key, number))

    def unexpect(self, number: int, keys: Sequence[int]) -> None:
        """Take back what was expected of a slot once: the earliest, so that nobody else's ends before its time."""
        for key in keys:
            expected = self._expected.get(key, {}).get(number)
            if expected:
                expected.pop(0)
                self._tidy(key, number)

    def expire(self, now: float) -> None:
        """Take back what was expected until before `now`."""
        while self._expiring and self._expiring[0][0] <= now:
            until, key, number = self._expiring.popleft()
            expected = self._expected.get(key, {}).get(number, [])
            if expected and expected[0] <= until:
                expected.pop(0)
                self._tidy(key, number)

    def match(self, keys: Iterator[int], among: int) -> dict[int, int]:
        """Leading blocks held, of the slots in the set `among`, for those that hold any: the longest unbroken run."""
        counts: dict[int, int] = {}
        alive, length = among, 0
        for key in keys:
            still = self._held(key) & alive
            if still != alive and length:
                for number in rows_of(alive ^ still):
                    counts[number] = length
            alive = still
            if not alive:
                return counts
            length += 1
        if length:
            for number in rows_of(alive):
                counts[number] = length
        return counts

    def _held(self, key: int) -> int:
        held = self._holders.get(key, 0)
        for number in self._expected.get(key, ()):
            held |= 1 << number
        return held

    def _tidy(self, key: int, number: int) -> None:
        slots = self._expected[key]
        if not slots[number]:
            del slots[number]
        if not slots:
            del self._expected[key]

    def _store(self, number: int, slot: Slot, event: BlockStored) -> None:
        if event.kind not in _FULL_ATTENTION:
            return
        key = ROOT if event.parent is None else slot.keys.get(event.parent)
        if key is None:
            self.ignored += len(event.hashes)
            return
        slot.block_tokens = event.block_tokens
        tokens, size = array("I", event.tokens), event.block_tokens
        adapter = [event.lora] if event.lora else None
        for position, block in enumerate(event.hashes):
            extra = adapter if event.extra is None else event.extra[position]
            try:
                key = next_key(key, tokens[position * size : (position + 1) * size], extra_bytes(extra))
            except ValueError:
                self.ignored += len(event.hashes) - position
                return
            self.hold(number, (block, event.medium, event.group), key)

    def _drop(self, number: int, slot: Slot, name: EntryName) -> None:
        key = slot.entries.pop(name, None)
        if key is None:
            return
        others = slot.repeats.pop(name[0], 0)
        if not others:
            del slot.keys[name[0]]
        elif others > 1:
            slot.repeats[name[0]] = others - 1
        left = slot.vouchers[key] - 1
        if left:
            slot.vouchers[key] = left
            return
        del slot.vouchers[key]
        self._clear(number, key)

    def _clear(self, number: int, key: int) -> None:
        rest = self._holders[key] & ~(1 << number)
        if rest:
            self._holders[key] = rest
        else:
            del self._holders[key]


def _was_under_way(slot: Slot, message: Message) -> bool:
    """Whether the version before this one, from which the slot came, has followed this message already."""
    if not 0 < message.sequence <= slot.sequence < message.sequence + MAX_OVERLAP:
        return False
    return all(
        (block, event.medium, event.group) in slot.entries
        for event in message.events
        if isinstance(event, BlockStored) and event.kind in _FULL_ATTENTION
        # Blocks without a known predecessor were ignored then, too.
        if event.parent is None or event.parent in slot.keys
        for block in event.hashes
    )


def whose(slots: Sequence[Slot], ids: Sequence[str], places: Mapping[str, str]) -> dict[int, tuple[int, ...]]:
    """Row → the slots of its endpoint.

    A source is the endpoint whose id it is, or whose `host:port`, or the only one of that host, or of that name
    (`places`: id → `host:port`). A source that is none of these is nobody's.
    """
    rows = {name: row for row, name in enumerate(ids) if name}
    exact: dict[str, int] = dict(rows)
    loose: dict[str, set[int]] = {}
    for name, row in rows.items():
        loose.setdefault(name.rpartition("/")[2], set()).add(row)
        if place := places.get(name):
            exact.setdefault(place, row)
            loose.setdefault(place.rpartition(":")[0].strip("[]"), set()).add(row)
    found: dict[int, list[int]] = {}
    for number, slot in enumerate(slots):
        near = {exact[slot.source]} if slot.source in exact else loose.get(slot.source, set())
        if slot.source and len(near) == 1:
            found.setdefault(next(iter(near)), []).append(number)
    return {row: tuple(numbers) for row, numbers in found.items()}
