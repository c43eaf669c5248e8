"""The blocks of a simulated KV cache: handed out, shared by their hash, and reused in the order of their last use. Pure.

A block's hash stands for all tokens up to its end, so equal hashes mean equal prefixes. A block that nobody uses keeps
its hash until it is handed out again; the one that was given back longest ago goes first.

Invariants: a block is either in use or free, never both; used + free = all; a hash names at most one block, and a block
in at most one way.
"""

from collections.abc import Iterable, Sequence

__all__ = ["BlockPool"]


class BlockPool:
    """`count` blocks, all free. With `is_caching` off no block is ever found by its hash."""

    def __init__(self, count: int, *, is_caching: bool = True) -> None:
        self.count = count
        self._is_caching = is_caching
        self._free: dict[int, None] = dict.fromkeys(range(count))
        self._users = [0] * count
        self._hashes: list[int | None] = [None] * count
        self._by_hash: dict[int, int] = {}

    @property
    def free_count(self) -> int:
        return len(self._free)

    @property
    def used_count(self) -> int:
        return self.count - len(self._free)

    @property
    def cached_count(self) -> int:
        """Blocks that can be found by their hash, whether in use or not."""
        return len(self._by_hash)

    def find(self, hashes: Iterable[int]) -> list[int]:
        """The blocks of the longest known prefix. They are not taken by it."""
        found = []
        for name in hashes:
            block = self._by_hash.get(name)
            if block is None:
                break
            found.append(block)
        return found

    def idle_count(self, blocks: Sequence[int]) -> int:
        """How many of these nobody uses: so many fewer are free once they are taken."""
        return sum(1 for block in blocks if not self._users[block])

    def take(self, blocks: Iterable[int]) -> None:
        """Use these blocks, too."""
        for block in blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1

    def new(self, count: int) -> list[int]:
        """Use `count` free blocks, whose contents are lost. There must be as many."""
        assert count <= len(self._free), f"{count} blocks wanted, {len(self._free)} free"
        taken = []
        for _ in range(count):
            block = next(iter(self._free))
            del self._free[block]
            self._users[block] = 1
            name = self._hashes[block]
            if name is not None:
                del self._by_hash[name]
                self._hashes[block] = None
            taken.append(block)
        return taken

    def name(self, block: int, name: int) -> None:
        """Say what a block in use holds. Where another one holds the same, that one goes on being found."""
        if self._is_caching and self._hashes[block] is None and name not in self._by_hash:
            self._hashes[block] = name
            self._by_hash[name] = block

    def give_back(self, blocks: Sequence[int]) -> None:
        """Use these blocks no more: the last one is reused first, as a prefix is worth more than what follows it."""
        for block in reversed(blocks):
            self._users[block] -= 1
            assert self._users[block] >= 0, f"block {block} was given back twice"
            if not self._users[block]:
                self._free[block] = None
