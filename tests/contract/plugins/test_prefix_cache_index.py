"""The index of approx-prefix-cache-producer: its bounds, its agreement with plain lists, and its move to the next version."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from sys import getsizeof

import pytest
from hotbay_prefix_cache import plugin, state
from hotbay_prefix_cache.index import PrefixIndex, rows_of
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

PRODUCER = "approx-prefix-cache-producer"
MATCHED = "PrefixCacheMatchInfo.matched_blocks"
Endpoints = Mapping[str, Mapping[str, float]]
PODS: Endpoints = {"a": {}, "b": {}, "c": {}}


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("producer", PRODUCER)
        yield made


def matched(harness: PluginHarness, hashes: list[int], endpoints: Endpoints = PODS) -> list[float]:
    (row,) = harness.produce("producer", endpoints, [{"prompt_hashes": hashes}])[MATCHED]
    return row


def learn(harness: PluginHarness, target: str, hashes: list[int], endpoints: Endpoints = PODS) -> None:
    harness.pre_request("producer", endpoints, [target], {"prompt_hashes": hashes})


def test_s38_a_million_different_prompts_stay_within_the_cap() -> None:
    index, capacity, sizes = PrefixIndex(), 31_250, []
    index.follow(["a", "b"])
    for number in range(1, 1_000_001):
        index.learn(number & 1, (number,), capacity, owner=number)
        if number in (500_000, 1_000_000):
            sizes.append(getsizeof(index._holders) + sum(map(getsizeof, index._recent.values())))
    assert index.block_count == sum(len(index.held_by(row)) for row in (0, 1)) == 2 * capacity
    assert sizes[1] == pytest.approx(sizes[0], rel=0.1), "nothing else grows with what was forgotten"


@given(st.sets(st.integers(0, 300)))
def test_members_of_a_bitset_come_ascending(rows: set[int]) -> None:
    assert list(rows_of(sum(1 << row for row in rows))) == sorted(rows)


prompts = st.lists(st.integers(0, 6), max_size=6)
steps = st.lists(
    st.tuples(st.integers(0, 19), prompts, st.integers(1, 5), st.integers(0, 3), st.booleans())
    | st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=20, max_size=20),
    max_size=12,
)


@given(steps, prompts)
def test_the_index_agrees_with_one_of_plain_lists(
    history: list[tuple[int, list[int], int, int, bool] | list[str]], asked: list[int]
) -> None:
    index, ids = PrefixIndex(), [f"e{row}" for row in range(20)]
    index.follow(ids)
    model: dict[int, dict[int, int]] = {}
    for step in history:
        if isinstance(step, list):
            model = {row: held for row, held in model.items() if step[row] == ids[row]}
            ids = step
            index.follow(ids)
        else:
            row, prompt, capacity, owner, withdraws = step
            held = model.setdefault(row, {})
            if withdraws:
                if owner:
                    index.withdraw(row, prompt, owner)
                    model[row] = {b: who for b, who in held.items() if b not in prompt or who != owner}
                continue
            for block in reversed([block for block in prompt if block]):
                held[block] = owner if held.pop(block, owner) == owner else 0
            model[row] = dict(list(held.items())[-capacity:])
            index.learn(row, prompt, capacity, owner=owner)
    assert {row: list(index.held_by(row)) for row in range(20)} == {row: list(model.get(row, {})) for row in range(20)}
    assert index.block_count == len({block for held in model.values() for block in held})
    assert index.match(asked) == expected_match(model, asked)


def expected_match(model: dict[int, dict[int, int]], asked: list[int]) -> dict[int, int]:
    parts: list[list[int]] = [[]]
    for block in asked:
        if block:
            parts[-1].append(block)
        else:
            parts.append([])
    counts = {}
    for row, held in model.items():
        count = sum(next((i for i, block in enumerate(part) if block not in held), len(part)) for part in parts)
        if count:
            counts[row] = count
    return counts


# -- hand-over -------------------------------------------------------------------------------------


def heir(state: bytes, **parameters: int) -> PluginHarness:
    """The next version's process, with the last one's state."""
    made = PluginHarness(plugin)
    made.import_state(state)
    made.configure("producer", PRODUCER, parameters)
    return made


def test_the_index_moves_to_the_next_version_and_hits_as_before(harness: PluginHarness) -> None:
    prompts = [[n * 100 + block for block in range(1, 9)] for n in range(40)]
    for number, prompt in enumerate(prompts):
        learn(harness, "abc"[number % 3], prompt)
    before = [matched(harness, prompt) for prompt in prompts]
    with heir(harness.export_state()) as successor:
        assert successor.state_of("producer") == "imported"
        assert [matched(successor, prompt) for prompt in prompts] == before
        assert sum(map(sum, before)) == 40 * 8


def test_the_least_recently_used_block_is_still_the_first_to_go() -> None:
    with PluginHarness(plugin) as old:
        old.configure("producer", PRODUCER, {"lruCapacityPerServer": 3})
        learn(old, "a", [3, 2, 1])
        learn(old, "a", [2])
        state = old.export_state()
    with heir(state, lruCapacityPerServer=3) as successor:
        learn(successor, "a", [9])
        found = {block: matched(successor, [block])[0] for block in (1, 2, 3, 9)}
    assert found == {1: 0, 2: 1, 3: 1, 9: 1}


def test_endpoints_that_left_before_the_first_call_are_forgotten(harness: PluginHarness) -> None:
    learn(harness, "a", [1])
    learn(harness, "b", [1])
    with heir(harness.export_state()) as successor:
        assert matched(successor, [1], {"a": {}, "z": {}, "c": {}}) == [1, 0, 0]


def test_another_block_size_starts_cold(harness: PluginHarness) -> None:
    learn(harness, "a", [1])
    with heir(harness.export_state(), blockSizeTokens=32) as successor:
        assert "its blocks have 64 tokens, ours 32" in str(successor.state_of("producer"))
        assert matched(successor, [1]) == [0, 0, 0]
        learn(successor, "a", [5])
        assert matched(successor, [5]) == [1, 0, 0]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(1, 2**64 - 1), max_size=8)), max_size=20),
    st.integers(1, 40),
)
def test_any_index_is_the_same_after_the_move_however_its_bytes_are_cut(
    learned: list[tuple[int, list[int]]], size: int
) -> None:
    ids = ["a", "", "c/ü", "d", "e", "f"]
    index = PrefixIndex()
    index.follow(ids)
    for row, hashes in learned:
        if ids[row]:
            index.learn(row, hashes, 12)
    whole = b"".join(state.pieces(index, 16))
    moved = state.restored([whole[i : i + size] for i in range(0, len(whole), size)], 16, 12)
    assert list(moved.ids) == ids
    assert [moved.held_by(row) for row in range(6)] == [index.held_by(row) for row in range(6)]
    assert moved.block_count == index.block_count


@given(st.data())
def test_damaged_bytes_are_refused_or_an_index_never_anything_else(data: st.DataObject) -> None:
    index = PrefixIndex()
    index.follow(["a", "b"])
    index.learn(0, [1, 2, 3], 9)
    whole = b"".join(state.pieces(index, 16))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(state.StateRefusedError):
        state.restored([whole[:cut]], 16, 9)
    position, byte = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    damaged = whole[:position] + bytes([byte]) + whole[position + 1 :]
    with suppress(state.StateRefusedError):
        state.restored([damaged], 16, 9)
