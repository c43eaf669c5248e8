"""The package `prefix-cache`: an index that learns from PreRequest, and the rating of what it tells."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pytest
from hotbay_prefix_cache import plugin, state
from hotbay_prefix_cache.index import PrefixIndex, rows_of
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

PRODUCER, SCORER = "approx-prefix-cache-producer", "prefix-cache-scorer"
MATCHED, TOTAL, BLOCK = (
    f"PrefixCacheMatchInfo.{field}" for field in ("matched_blocks", "total_blocks", "block_size_tokens")
)
Endpoints = Mapping[str, Mapping[str, float]]

PODS: Endpoints = {"a": {}, "b": {}, "c": {}}


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("producer", PRODUCER)
        made.configure("scorer", SCORER)
        yield made


def matched(harness: PluginHarness, hashes: list[int], endpoints: Endpoints = PODS) -> list[float]:
    (row,) = harness.produce("producer", endpoints, [{"prompt_hashes": hashes}])[MATCHED]
    return row


def learn(harness: PluginHarness, target: str, hashes: list[int], endpoints: Endpoints = PODS) -> None:
    harness.pre_request("producer", endpoints, [target], {"prompt_hashes": hashes})


def rate(harness: PluginHarness, match: list[float], total: float = 10, block_tokens: float = 64) -> list[float]:
    endpoints = {f"e{row}": {} for row in range(len(match))}
    (scores,) = harness.score(
        "scorer", endpoints, data={MATCHED: match, TOTAL + "/request": [total], BLOCK + "/request": [block_tokens]}
    )
    return list(scores.values())


# -- producer --------------------------------------------------------------------------------------


def test_a_prompt_matches_where_it_was_sent(harness: PluginHarness) -> None:
    learn(harness, "b", [1, 2, 3])
    made = harness.produce("producer", PODS, [{"prompt_hashes": [1, 2, 9]}, {"prompt_hashes": [7]}, {}])
    assert made == {
        MATCHED: [[0, 2, 0], [0, 0, 0], [0, 0, 0]],
        TOTAL: [[3], [1], [0]],
        BLOCK: [[64], [64], [64]],
    }


def test_only_the_longest_unbroken_run_counts(harness: PluginHarness) -> None:
    learn(harness, "a", [1, 2, 3, 4])
    learn(harness, "b", [1])
    learn(harness, "b", [3, 4])
    assert matched(harness, [1, 2, 3, 4]) == [4, 1, 0]


def test_only_the_primary_target_learns(harness: PluginHarness) -> None:
    harness.pre_request("producer", PODS, ["a", "b"], {"prompt_hashes": [1]})
    harness.pre_request("producer", PODS, [], {"prompt_hashes": [2]})
    harness.pre_request("producer", PODS, ["gone"], {"prompt_hashes": [3]})
    assert [matched(harness, [block]) for block in (1, 2, 3)] == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


def test_ex02_the_lru_evicts_the_least_recently_used_block() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, {"lruCapacityPerServer": 2})
        for block in (1, 2, 3):
            learn(harness, "a", [block])
        assert [matched(harness, [block])[0] for block in (1, 2, 3)] == [0, 1, 1]
        learn(harness, "a", [2])
        learn(harness, "a", [4])
        assert [matched(harness, [block])[0] for block in (2, 3, 4)] == [1, 0, 1]


def test_a_prompt_longer_than_the_lru_keeps_its_beginning() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, {"lruCapacityPerServer": 2})
        learn(harness, "a", [1, 2, 3, 4])
        assert matched(harness, [1, 2, 3, 4])[0] == 2


def test_ex03_prompts_of_one_request_are_matched_each_from_its_beginning(harness: PluginHarness) -> None:
    learn(harness, "a", [1, 2, 0, 3, 4])
    made = harness.produce("producer", PODS, [{"prompt_hashes": [1, 2, 0, 5, 6]}, {"prompt_hashes": [5, 6, 0, 3, 4]}])
    assert made[MATCHED] == [[2, 0, 0], [2, 0, 0]]
    assert made[TOTAL] == [[4], [4]]


def test_an_endpoint_that_disappears_is_forgotten_and_its_row_starts_cold(harness: PluginHarness) -> None:
    learn(harness, "a", [1, 2])
    learn(harness, "b", [1])
    assert matched(harness, [1, 2], {"": {}, "b": {}, "c": {}}) == [0, 1, 0]
    assert matched(harness, [1, 2], {"d": {}, "b": {}, "c": {}}) == [0, 1, 0]
    assert matched(harness, [1, 2]) == [0, 1, 0]


def test_a_smaller_membership_is_followed(harness: PluginHarness) -> None:
    learn(harness, "c", [1])
    assert matched(harness, [1], {"a": {}}) == [0]
    assert matched(harness, [1]) == [0, 0, 0]


@pytest.mark.parametrize(("auto_tune", "kept"), [(True, 2), (False, 4)])
def test_a_reported_kv_cache_bounds_the_lru_if_tuned(auto_tune: bool, kept: int) -> None:
    pods = {"a": {"block_size": 16, "num_blocks": 8}, "b": {"block_size": -1, "num_blocks": -1}}
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, {"autoTune": auto_tune})
        for pod in pods:
            learn(harness, pod, [1, 2, 3, 4], pods)
        assert matched(harness, [1, 2, 3, 4], pods) == [kept, 4]


@pytest.mark.parametrize(
    ("parameters", "total"),
    [
        ({"maxPrefixTokensToMatch": 128}, 2),
        ({"maxPrefixTokensToMatch": 1}, 1),
        ({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 3}, 3),
        ({"maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0}, 5),
        ({"maxPrefixTokensToMatch": 128, "blockSize": 32}, 4),
        ({}, 5),
    ],
)
def test_the_matched_prefix_is_bounded(parameters: dict[str, int], total: int) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, parameters)
        learn(harness, "a", [1, 2, 3, 4, 5])
        made = harness.produce("producer", PODS, [{"prompt_hashes": [1, 2, 3, 4, 5]}])
        assert (made[MATCHED][0][0], made[TOTAL][0][0]) == (total, total)


@pytest.mark.parametrize("name", ["blockSizeTokens", "blockSize"])
def test_the_block_size_is_reported(name: str) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, {name: 128})
        assert harness.produce("producer", PODS, [{"prompt_hashes": [1]}])[BLOCK] == [[128]]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"autoTune": 1}, "autoTune"),
        ({"autoTune": False, "blockSizeTokens": 0}, "blockSizeTokens"),
        ({"blockSizeTokens": -1}, "blockSizeTokens"),
        ({"blockSizeTokens": 64.0}, "blockSizeTokens"),
        ({"blockSizeTokens": True}, "blockSizeTokens"),
        ({"blockSize": 0}, "blockSize"),
        ({"blockSize": 64, "blockSizeTokens": 64}, "blockSize"),
        ({"lruCapacityPerServer": 0}, "lruCapacityPerServer"),
        ({"maxPrefixTokensToMatch": -1}, "maxPrefixTokensToMatch"),
        ({"maxPrefixBlocksToMatch": "8"}, "maxPrefixBlocksToMatch"),
        ({"hashBlockSize": 64}, "hashBlockSize"),
    ],
)
def test_bad_parameters_of_the_producer_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("producer", PRODUCER, parameters)
    assert caught.value.path == path


# -- scorer ----------------------------------------------------------------------------------------


def test_es09_the_rating_is_the_matched_share(harness: PluginHarness) -> None:
    assert rate(harness, [5, 2]) == pytest.approx([0.5, 0.2])


def test_nothing_known_rates_0(harness: PluginHarness) -> None:
    assert harness.score("scorer", PODS) == [dict.fromkeys(PODS, 0)]
    assert rate(harness, [0, 0], total=0) == [0, 0]
    assert rate(harness, [math.nan, 5]) == [0, 0.5]


@pytest.mark.parametrize(
    ("weight", "scale", "expected"), [(1, 640, 0.25), (1, 160, 1), (0.5, 640, 0.375), (0, 640, 0.5)]
)
def test_the_length_of_a_match_counts_by_its_weight(weight: float, scale: float, expected: float) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("scorer", SCORER, {"matchLengthWeight": weight, "matchLengthScaleTokens": scale})
        assert rate(harness, [5, 0]) == pytest.approx([expected, 0])


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"matchLengthWeight": -0.1}, "matchLengthWeight"),
        ({"matchLengthWeight": 1.1}, "matchLengthWeight"),
        ({"matchLengthWeight": math.nan}, "matchLengthWeight"),
        ({"matchLengthWeight": True}, "matchLengthWeight"),
        ({"matchLengthScaleTokens": 0}, "matchLengthScaleTokens"),
        ({"matchLengthScaleTokens": "8k"}, "matchLengthScaleTokens"),
        ({"prefixMatchInfoProducerName": ""}, "prefixMatchInfoProducerName"),
        ({"weight": 1}, "weight"),
    ],
)
def test_es11_bad_parameters_of_the_scorer_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("scorer", SCORER, parameters)
    assert caught.value.path == path


@given(
    st.lists(st.floats(-5, 2000, width=32) | st.just(math.nan), min_size=2, max_size=8),
    st.floats(0, 1000, width=32),
    st.integers(0, 4096),
    st.floats(0, 1),
    st.floats(0.01, 1e6),
)
def test_ratings_are_within_0_and_1(
    match: list[float], total: float, block_tokens: int, weight: float, scale: float
) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("scorer", SCORER, {"matchLengthWeight": weight, "matchLengthScaleTokens": scale})
        assert all(0 <= rating <= 1 for rating in rate(harness, match, total, block_tokens))


# -- index -----------------------------------------------------------------------------------------


@given(st.sets(st.integers(0, 300)))
def test_members_of_a_bitset_come_ascending(rows: set[int]) -> None:
    assert list(rows_of(sum(1 << row for row in rows))) == sorted(rows)


prompts = st.lists(st.integers(0, 6), max_size=6)
steps = st.lists(
    st.tuples(st.integers(0, 19), prompts, st.integers(1, 5))
    | st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=20, max_size=20),
    max_size=12,
)


@given(steps, prompts)
def test_the_index_agrees_with_one_of_plain_lists(
    history: list[tuple[int, list[int], int] | list[str]], asked: list[int]
) -> None:
    index, ids = PrefixIndex(), [f"e{row}" for row in range(20)]
    index.follow(ids)
    model: dict[int, list[int]] = {}
    for step in history:
        if isinstance(step, list):
            model = {row: held for row, held in model.items() if step[row] == ids[row]}
            ids = step
            index.follow(ids)
        else:
            row, prompt, capacity = step
            held = model.setdefault(row, [])
            for block in reversed([block for block in prompt if block]):
                held[:] = [*(other for other in held if other != block), block]
            model[row] = held[-capacity:]
            index.learn(row, prompt, capacity)
    assert {row: list(index.held_by(row)) for row in range(20)} == {row: model.get(row, []) for row in range(20)}
    assert index.block_count == len({block for held in model.values() for block in held})
    assert index.match(asked) == expected_match(model, asked)


def expected_match(model: dict[int, list[int]], asked: list[int]) -> dict[int, int]:
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
