"""`approx-prefix-cache-producer` and `prefix-cache-scorer`: what is learned from PreRequest, and the rating of it."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from hotbay.scheduling.request import InferenceRequest
from hotbay_prefix_cache import plugin
from hotbay_prefix_cache.match_info import columns_of
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hotbay_standard import plugin as standard
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


def test_the_target_of_a_profile_prefill_learns_too(harness: PluginHarness) -> None:
    results = {"decode": ["a"], "prefill": ["c", "b"], "encode": ["b"]}
    harness.pre_request("producer", PODS, ["a"], {"prompt_hashes": [1, 2]}, profile="decode", results=results)
    harness.pre_request("producer", PODS, ["a"], {"prompt_hashes": [7]}, results={"decode": ["a"], "prefill": None})
    assert matched(harness, [1, 2]) == [2, 0, 2]
    assert matched(harness, [7]) == [1, 0, 0]


def test_what_a_request_without_a_first_byte_was_to_compute_is_withdrawn(harness: PluginHarness) -> None:
    learn(harness, "a", [1, 2])
    failed = {"id": "r2", "prompt_hashes": [1, 2, 3, 4]}
    results = {"decode": ["a"], "prefill": ["b"]}
    harness.pre_request("producer", PODS, ["a"], failed, results=results)
    assert matched(harness, [1, 2, 3, 4]) == [4, 4, 0]
    harness.withdrawn("producer", PODS, ["a"], failed, results=results)
    assert matched(harness, [1, 2, 3, 4]) == [2, 0, 0]


def test_what_another_request_shares_is_not_withdrawn(harness: PluginHarness) -> None:
    failed, other = ({"id": name, "prompt_hashes": hashes} for name, hashes in (("r1", [1, 2, 3]), ("r2", [1, 2, 9])))
    harness.pre_request("producer", PODS, ["a"], failed)
    harness.pre_request("producer", PODS, ["a"], other)
    harness.withdrawn("producer", PODS, ["a"], failed)
    harness.withdrawn("producer", PODS, ["gone"], other)
    assert matched(harness, [1, 2, 3]) == matched(harness, [1, 2]) == [2, 0, 0]
    assert matched(harness, [1, 2, 9]) == [3, 0, 0]


def test_state_is_shown_with_its_sizes(harness: PluginHarness) -> None:
    learn(harness, "a", [1, 2])
    learn(harness, "b", [1])
    assert harness.dump_state("producer") == {
        "blocks": 2,
        "endpoints": 3,
        "blocks_by_endpoint": {"a": 2, "b": 1, "c": 0},
    }


def hashes_of(text: str, block_tokens: int = 64, **fields: str) -> list[int]:
    """What a host makes of a prompt for the producer."""
    request = InferenceRequest(
        id="r",
        model="m1",
        path="/v1/completions",
        headers={},
        body=b"",
        payload={"prompt": text},
        **fields,
    )
    return array("Q", request.prompt_hashes(block_tokens)).tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"target_model": "m1"}, {"target_model": "m2"}),
        ({"lora": "X"}, {"cache_salt": "X"}),
        ({"cache_salt": "ab", "lora": "c"}, {"cache_salt": "a", "lora": "bc"}),
        ({"tenant": "t1"}, {"tenant": "t2"}),
    ],
    ids=["model", "lora or salt", "salt and lora", "tenant"],
)
def test_s34_prompts_of_another_model_adapter_salt_or_tenant_never_match(
    harness: PluginHarness, one: dict[str, str], other: dict[str, str]
) -> None:
    learn(harness, "a", hashes_of("x" * 1024, **one))
    assert matched(harness, hashes_of("x" * 1024, **other)) == [0, 0, 0]
    assert matched(harness, hashes_of("x" * 1024, **one)) == [4, 0, 0]


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 0), (63, 0), (64, 1), (65, 1)])
def test_s35_prompts_around_one_block_match_by_full_blocks(harness: PluginHarness, tokens: int, blocks: int) -> None:
    hashes = hashes_of("x" * 4 * tokens)
    learn(harness, "b", hashes)
    made = harness.produce("producer", PODS, [{"prompt_hashes": hashes}])
    assert (made[MATCHED], made[TOTAL]) == ([[0, blocks, 0]], [[blocks]])
    assert rate(harness, made[MATCHED][0], made[TOTAL][0][0]) == [0, min(blocks, 1), 0]


def test_s39_on_a_miss_load_decides(harness: PluginHarness) -> None:
    """The default profile: queue and KV use weigh 2, prefixes 3. A is busy and knows little, B idle and knows a lot."""
    pods = {"a": {"waiting": 50, "kv_usage": 0.5}, "b": {"waiting": 0, "kv_usage": 0.5}}
    learn(harness, "a", [1], pods)
    for start in range(1000, 2000, 10):
        learn(harness, "b", list(range(start, start + 10)), pods)
    wins = Counter[str]()
    with PluginHarness(standard) as engines:
        engines.configure("queue", "queue-scorer")
        engines.configure("kv", "kv-cache-utilization-scorer")
        for prompt in range(100):
            request = {"prompt_hashes": [10_000 + prompt]}
            made = harness.produce("producer", pods, [request])
            data = {MATCHED: made[MATCHED][0], TOTAL + "/request": made[TOTAL][0], BLOCK + "/request": made[BLOCK][0]}
            weighted = [
                (2, engines.score("queue", pods)[0]),
                (2, engines.score("kv", pods)[0]),
                (3, harness.score("scorer", pods, data=data)[0]),
            ]
            totals = {pod: sum(weight * scores[pod] for weight, scores in weighted) for pod in pods}
            wins[max(totals, key=totals.__getitem__)] += 1
            learn(harness, "b", [10_000 + prompt], pods)
    assert wins["b"] >= 80


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
@pytest.mark.parametrize(("configured", "reported"), [(128, 128), (1, 1), (0, 64), (-1, 64)])
def test_the_block_size_is_reported_and_left_to_us_where_it_is_none(name: str, configured: int, reported: int) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("producer", PRODUCER, {name: configured})
        assert harness.produce("producer", PODS, [{"prompt_hashes": [1]}])[BLOCK] == [[reported]]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"autoTune": 1}, "autoTune"),
        ({"autoTune": False, "blockSizeTokens": 0}, "blockSizeTokens"),
        ({"autoTune": False, "blockSizeTokens": -1}, "blockSizeTokens"),
        ({"autoTune": False, "blockSize": 0}, "blockSize"),
        ({"blockSizeTokens": 64.0}, "blockSizeTokens"),
        ({"blockSizeTokens": True}, "blockSizeTokens"),
        ({"blockSize": "64"}, "blockSize"),
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
        ({"prefixMatchInfoProducerName": 1}, "prefixMatchInfoProducerName"),
        ({"weight": 1}, "weight"),
    ],
)
def test_es11_bad_parameters_of_the_scorer_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("scorer", SCORER, parameters)
    assert caught.value.path == path


def test_a_named_producer_is_the_one_that_is_read() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("scorer", SCORER, {"prefixMatchInfoProducerName": "mine"})
        assert harness.facts("scorer").consumes == tuple(columns_of("mine"))
        matched, total, block = columns_of("mine")
        data = {matched: [5, 2], f"{total}/request": [10], f"{block}/request": [64], MATCHED: [0, 10]}
        (scores,) = harness.score("scorer", {"a": {}, "b": {}}, data=data)
        assert list(scores.values()) == pytest.approx([0.5, 0.2])


@given(
    st.lists(st.floats(-5, 2000, width=32) | st.just(math.nan), min_size=2, max_size=8),
    st.integers(1, 1000).map(float),
    st.integers(1, 4096),
    st.floats(0, 1),
    st.floats(0.01, 1e6),
)
def test_ratings_are_those_of_the_formula_row_by_row(
    match: list[float], total: float, block_tokens: int, weight: float, scale: float
) -> None:
    expected = []
    for count in match:
        share, length = min(1, count / total), min(1, count * block_tokens / scale)
        known = not math.isnan(count) and count > 0
        expected.append((1 - weight) * share + weight * length**2 if known else 0)
    with PluginHarness(plugin) as harness:
        harness.configure("scorer", SCORER, {"matchLengthWeight": weight, "matchLengthScaleTokens": scale})
        assert rate(harness, match, total, block_tokens) == pytest.approx(expected, abs=1e-6)


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
