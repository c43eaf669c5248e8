"""Which endpoint probably holds which prompt blocks. Pure; knows rows and hashes, nothing of requests.

`_holders` maps a block's hash to the set of rows that hold it, as an int whose bit r is row r;
`_recent` is one LRU of hashes per row. Both always say the same: bit r of `_holders[h]` is set if and
only if `h` is in `_recent[r]`, and no hash with an empty set stays.

`_recent[r][h]` is the request that alone vouches for the block, or 0: a request that is withdrawn takes away what
nobody but it was sent to compute, and nothing that another one shares.

Block hashes are chained, each over its predecessor, so equal hashes mean equal prefixes. A 0 separates
the prompts of a request with several: each is matched from its own beginning, the counts are summed.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

PROMPT_BOUNDARY: Final = 0

_BITS_OF_BYTE: Final = tuple(tuple(bit for bit in range(8) if byte >> bit & 1) for byte in range(256))
_FEW_ROWS: Final = 16
"""Below this many members, taking the lowest bit off the int again and again beats walking its bytes."""


def rows_of(rows: int) -> Iterator[int]:
    """Members of a bitset, ascending."""
    if rows.bit_count() < _FEW_ROWS:
        while rows:
            lowest = rows & -rows
            yield lowest.bit_length() - 1
            rows ^= lowest
        return
    for number, byte in enumerate(rows.to_bytes((rows.bit_length() + 7) // 8, "little")):
        for bit in _BITS_OF_BYTE[byte]:
            yield 8 * number + bit


class PrefixIndex:
    """Learns which row was sent which blocks; tells how many leading blocks of a prompt each row holds."""

    __slots__ = ("_holders", "_ids", "_recent")

    def __init__(self) -> None:
        self._holders: dict[int, int] = {}
        self._recent: dict[int, OrderedDict[int, int]] = {}
        self._ids: Sequence[str] = ()

    @property
    def block_count(self) -> int:
        """Different blocks that at least one row holds."""
        return len(self._holders)

    @property
    def ids(self) -> Sequence[str]:
        """The membership that was followed last."""
        return self._ids

    def held_by(self, row: int) -> Sequence[int]:
        """Blocks of a row, least recently used first."""
        return tuple(self._recent.get(row, ()))

    def follow(self, ids: Sequence[str]) -> None:
        """Take the current membership: what is known of a row whose endpoint has changed is dropped.

        `ids` must not change afterwards; the same object again is known to be no news.
        """
        if ids is self._ids:
            return
        known = self._ids
        for row in list(self._recent):
            if row >= len(ids) or ids[row] != known[row]:
                self._drop(row)
        self._ids = ids

    def row_of(self, endpoint_id: str) -> int | None:
        """The row of a member; None for an endpoint that is not, or no longer, one."""
        try:
            return self._ids.index(endpoint_id) if endpoint_id else None
        except ValueError:
            return None

    def match(self, hashes: Sequence[int]) -> dict[int, int]:
        """Leading blocks that each row holds, for the rows that hold any: the longest unbroken run from the start."""
        counts: dict[int, int] = {}
        if PROMPT_BOUNDARY in hashes:
            for prompt in _prompts(hashes):
                self._match_prompt(prompt, counts)
        else:
            self._match_prompt(hashes, counts)
        return counts

    def _match_prompt(self, hashes: Sequence[int], counts: dict[int, int]) -> None:
        if not hashes:
            return
        holders = self._holders
        alive = holders.get(hashes[0], 0)
        length = 1
        for block in islice(hashes, 1, None):
            if not alive:
                return
            still = holders.get(block, 0) & alive
            if still != alive:
                for row in rows_of(alive ^ still):
                    counts[row] = counts.get(row, 0) + length
                alive = still
            length += 1
        for row in rows_of(alive):
            counts[row] = counts.get(row, 0) + length

    def learn(self, row: int, hashes: Sequence[int], capacity: int, *, owner: int = 0) -> None:
        """Note that `row` now holds these blocks, and at most `capacity` (1 or more) in all.

        A prompt's last block is noted first, so that its first is the most recent one: a block is of no
        use without those before it, and must not outlive them. `owner` is the request's number for `withdraw`; 0 for
        what stays whatever becomes of the request.
        """
        recent = self._recent.setdefault(row, OrderedDict())
        holders, bit = self._holders, 1 << row
        for block in reversed(hashes):
            if block == PROMPT_BOUNDARY:
                continue
            if block in recent:
                recent.move_to_end(block)
                if recent[block] != owner:
                    recent[block] = 0
            else:
                recent[block] = owner
                holders[block] = holders.get(block, 0) | bit
        while len(recent) > capacity:
            self._release(recent.popitem(last=False)[0], bit)

    def withdraw(self, row: int, hashes: Sequence[int], owner: int) -> None:
        """Forget those of the blocks for which nobody but `owner` (not 0) vouches: it did not get that far."""
        recent = self._recent.get(row)
        if not recent:
            return
        for block in hashes:
            if recent.get(block) == owner:
                del recent[block]
                self._release(block, 1 << row)

    def clear(self, row: int) -> None:
        """Forget all that a row holds."""
        if row in self._recent:
            self._drop(row)

    def _release(self, block: int, bit: int) -> None:
        rest = self._holders[block] & ~bit
        if rest:
            self._holders[block] = rest
        else:
            del self._holders[block]

    def _drop(self, row: int) -> None:
        for block in self._recent.pop(row):
            self._release(block, 1 << row)


def _prompts(hashes: Sequence[int]) -> Iterator[Sequence[int]]:
    start = 0
    for position, block in enumerate(hashes):
        if block == PROMPT_BOUNDARY:
            yield hashes[start:position]
            start = position + 1
    yield hashes[start:]
