"""Where the requests of one burst go, so that a prompt which several of them share is computed once. Pure.

Requests of equal prompts are a group, which is placed as one; a single request is placed if it shares at least
`min_blocks` leading blocks with another one of the burst, and no single one is where that is 0. Groups come first, of each
kind the longest prompts first. A unit goes to the endpoint that shares the longest prefix with it among those placed
before it, as long as that one has less than its fair share of the burst, and else to the one with least of the burst.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from hotbay_prefix_cache.index import PROMPT_BOUNDARY, PrefixIndex

_ALL = 2**31
"""More blocks than any burst has: the index of one burst forgets nothing."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request of a burst.

    Args:
        hashes: block hashes of its prompt, as the host made them; without any it is placed nowhere.
        weight: what it adds to its endpoint's part of the burst: 1, or its tokens.
        candidates: ids of the endpoints that it may go to.
        running: requests that run there, by id, where that is known.
    """

    hashes: tuple[int, ...]
    weight: float
    candidates: frozenset[str]
    running: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Burst:
    ids: tuple[str, ...]
    running: Mapping[str, float]
    max_per_endpoint: float
    min_blocks: int
    fair_share: float
    index: PrefixIndex
    load: dict[str, float]

    def order(self, name: str) -> tuple[float, float, str]:
        """Smaller is better: less of the burst, less running, the name."""
        return self.load[name], self.running.get(name, 0.0), name


def place(burst: Sequence[Waiting], *, max_per_endpoint: int | None = None, min_blocks: int = 0) -> list[str | None]:
    """The endpoint of each request, None for those that are left to others.

    Args:
        burst: the requests, in the order in which they came.
        max_per_endpoint: most requests of one group that one endpoint gets, as long as others have room; None for any.
        min_blocks: leading blocks from which two different prompts belong together; 0: they never do.
    """
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, waiting in enumerate(burst):
        if _blocks(waiting.hashes):
            groups.setdefault(waiting.hashes, []).append(number)
    units = _units(groups, min_blocks)
    placed: list[str | None] = [None] * len(burst)
    total = sum(burst[number].weight for hashes in units for number in groups[hashes])
    ids = tuple(sorted(frozenset[str]().union(*(burst[groups[hashes][0]].candidates for hashes in units))))
    if not ids:
        return placed
    state = _Burst(
        ids=ids,
        running=_running(burst),
        max_per_endpoint=inf if max_per_endpoint is None else max_per_endpoint,
        min_blocks=min_blocks,
        fair_share=ceil(total / len(ids)),
        index=PrefixIndex(),
        load=dict.fromkeys(ids, 0.0),
    )
    state.index.follow(ids)
    for hashes in units:
        _place_unit(state, [(number, burst[number]) for number in groups[hashes]], placed)
    return placed


def _blocks(hashes: Sequence[int]) -> int:
    return len(hashes) - hashes.count(PROMPT_BOUNDARY)


def _units(groups: Mapping[tuple[int, ...], Sequence[int]], min_blocks: int) -> list[tuple[int, ...]]:
    """Prompts to place, in their order."""
    shared: Counter[tuple[int, ...]] = Counter()
    if min_blocks:
        for hashes, members in groups.items():
            if len(hashes) >= min_blocks:
                shared[hashes[:min_blocks]] += len(members)
    whole = [hashes for hashes, members in groups.items() if len(members) > 1]
    single = [
        hashes
        for hashes, members in groups.items()
        if len(members) == 1 and min_blocks and shared[hashes[:min_blocks]] > 1
    ]
    return [*sorted(whole, key=_blocks, reverse=True), *sorted(single, key=_blocks, reverse=True)]


def _running(burst: Sequence[Waiting]) -> Mapping[str, float]:
    """What the newest of them knows."""
    return burst[-1].running if burst else {}


def _place_unit(state: _Burst, members: Sequence[tuple[int, Waiting]], placed: list[str | None]) -> None:
    mine: Counter[str] = Counter()
    last: str | None = None
    for number, waiting in members:
        name = _choose(state, waiting, mine, last)
        if name is None:
            continue
        placed[number] = last = name
        mine[name] += 1
        state.load[name] += waiting.weight
    for name in mine:
        row = state.index.row_of(name)
        assert row is not None
        state.index.learn(row, members[0][1].hashes, _ALL)


def _choose(state: _Burst, waiting: Waiting, mine: Counter[str], last: str | None) -> str | None:
    able = [name for name in state.ids if name in waiting.candidates]
    room = [name for name in able if mine[name] < state.max_per_endpoint]
    if last in room:
        # A group fills one endpoint before it goes on to the next.
        return last
    if last is None and state.min_blocks:
        counts = {state.ids[row]: count for row, count in state.index.match(waiting.hashes).items()}
        near = [n for n in room if counts.get(n, 0) >= state.min_blocks and state.load[n] < state.fair_share]
        if near:
            return min(near, key=lambda name: (-counts[name], state.order(name)))
    return min(room or able, key=state.order, default=None)
