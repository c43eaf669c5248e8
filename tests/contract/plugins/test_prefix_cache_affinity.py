"""`prefix-cache-affinity-filter`: who holds most of the prompt is kept alone, unless that is too slow."""

import math
from collections.abc import Sequence

import pytest
from hotbay_prefix_cache import plugin
from hotbay_prefix_cache.affinity import kept_rows
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

TYPE = "prefix-cache-affinity-filter"
MATCHED, TOTAL = "PrefixCacheMatchInfo.matched_blocks", "PrefixCacheMatchInfo.total_blocks"
TTFT = "LatencyPredictionInfo.ttft_ms"
EVERYONE = ["a", "b", "c"]


def keep(
    matched: Sequence[float],
    *,
    tokens: Sequence[int] = (0, 0, 0),
    total: float = 10,
    ttft_ms: Sequence[float] | None = None,
    candidates: list[str] | None = None,
    seed: int = 0,
    **parameters: object,
) -> list[str]:
    pods = {name: {"in_flight_tokens": count} for name, count in zip(EVERYONE, tokens, strict=True)}
    data = {MATCHED: list(matched), f"{TOTAL}/request": [total]}
    if ttft_ms is not None:
        data[TTFT] = list(ttft_ms)
    with PluginHarness(plugin, seed=seed) as harness:
        harness.configure("filter", TYPE, parameters)
        (kept,) = harness.keep("filter", pods, candidates=candidates, data=data)
    return kept


@pytest.mark.parametrize(
    ("matched", "kept"),
    [
        ([8, 7, 0], ["a"]),
        ([7.9, 7, 0], EVERYONE),
        ([8, 9, 0], ["a", "b"]),
        ([10, 9, 8], EVERYONE),
        ([0, 0, 0], EVERYONE),
        ([math.nan, 8, 0], ["b"]),
    ],
    ids=["one at the threshold", "all below", "two", "all above", "nobody", "unknown"],
)
def test_endpoints_above_the_threshold_are_kept_alone(matched: list[float], kept: list[str]) -> None:
    assert keep(matched) == kept


def test_nothing_to_look_up_keeps_everybody() -> None:
    assert keep([0, 0, 0], total=0) == EVERYONE
    with PluginHarness(plugin) as harness:
        harness.configure("filter", TYPE)
        assert harness.keep("filter", {name: {} for name in EVERYONE}) == [EVERYONE]


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [({"affinityThreshold": 0.5}, ["a"]), ({"affinityThreshold": 0}, EVERYONE), ({"affinityThreshold": 1}, EVERYONE)],
    ids=["lower", "none", "all of it"],
)
def test_the_threshold_is_the_operators(parameters: dict[str, object], kept: list[str]) -> None:
    assert keep([5, 4, 0], **parameters) == kept


def test_only_candidates_are_kept_and_have_a_say() -> None:
    assert keep([9, 9, 0], candidates=["b", "c"]) == ["b"]
    assert keep([9, 0, 0], candidates=["b", "c"]) == ["b", "c"]
    assert keep([9, 0, 0], candidates=["b"]) == ["b"]


@pytest.mark.parametrize(("tokens", "kept"), [(1000, ["a"]), (1001, EVERYONE)])
def test_sticky_endpoints_that_are_slower_by_more_than_the_cap_lose_their_hold(tokens: int, kept: list[str]) -> None:
    busy = {"maxTTFTPenaltyMs": 500, "peakPrefillThroughput": 2000}
    assert keep([9, 0, 0], tokens=[tokens, 0, 4000], **busy) == kept


def test_the_best_of_each_side_is_compared() -> None:
    busy = {"maxTTFTPenaltyMs": 500, "peakPrefillThroughput": 2000}
    assert keep([9, 9, 0], tokens=[9000, 100, 0], **busy) == ["a", "b"]


def test_a_cap_of_0_never_gives_way() -> None:
    assert keep([9, 0, 0], tokens=[10**9, 0, 0], maxTTFTPenaltyMs=0) == ["a"]


@pytest.mark.parametrize("tokens", [[-1, 0, 0], [0, -1, -1]], ids=["sticky", "rest"])
def test_unknown_times_of_one_side_keep_everybody(tokens: list[int]) -> None:
    assert keep([9, 0, 0], tokens=tokens) == EVERYONE


@pytest.mark.parametrize(
    ("ttft_ms", "kept"),
    [
        ([600, 100, 200], ["a"]),
        ([600.5, 100, 200], EVERYONE),
        ([math.nan, 100, 200], EVERYONE),
        ([100, math.nan, math.nan], EVERYONE),
        (None, EVERYONE),
    ],
    ids=["at the cap", "above it", "sticky unknown", "rest unknown", "no producer"],
)
def test_predicted_times_are_used_where_asked_for(ttft_ms: list[float] | None, kept: list[str]) -> None:
    assert keep([9, 0, 0], ttft_ms=ttft_ms, ttftSource="latencyPredictor", maxTTFTPenaltyMs=500) == kept


@pytest.mark.parametrize(
    ("parameters", "optional"),
    [
        ({}, ()),
        ({"ttftSource": "latencyPredictor"}, (TTFT,)),
        ({"ttftSource": "latencyPredictor", "maxTTFTPenaltyMs": 0}, ()),
        (
            {"ttftSource": "latencyPredictor", "latencyPredictionInfoProducerName": "x"},
            ("LatencyPredictionInfo/x.ttft_ms",),
        ),
    ],
    ids=["estimated", "predicted", "never asked", "named"],
)
def test_predictions_are_consumed_only_where_they_matter(parameters: dict[str, object], optional: tuple[str]) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("filter", TYPE, parameters)
        assert harness.facts("filter").optional == optional


def test_exploration_draws_are_as_frequent_as_asked_and_repeat_by_seed() -> None:
    with PluginHarness(plugin, seed=7) as harness, PluginHarness(plugin, seed=7) as again:
        for each in (harness, again):
            each.configure("filter", TYPE, {"explorationProbability": 0.25})
        pods = {name: {"in_flight_tokens": 0} for name in EVERYONE}
        data = {MATCHED: [9, 0, 0] * 1000, f"{TOTAL}/request": [10] * 1000}
        first, second = (each.keep("filter", pods, [{}] * 1000, data=data) for each in (harness, again))
    assert first == second
    assert 200 < sum(kept == EVERYONE for kept in first) < 300


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"affinityThreshold": 1.01}, "affinityThreshold"),
        ({"affinityThreshold": -0.01}, "affinityThreshold"),
        ({"explorationProbability": 1.01}, "explorationProbability"),
        ({"maxTTFTPenaltyMs": -1}, "maxTTFTPenaltyMs"),
        ({"peakPrefillThroughput": -1}, "peakPrefillThroughput"),
        ({"peakPrefillThroughput": 0}, "peakPrefillThroughput"),
        ({"ttftSource": "guess"}, "ttftSource"),
        ({"threshold": 1}, "threshold"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_parameters_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("filter", TYPE, parameters)
    assert caught.value.path == path


def test_a_throughput_that_nobody_asks_for_may_be_0() -> None:
    assert keep([9, 0, 0], peakPrefillThroughput=0, maxTTFTPenaltyMs=0) == ["a"]


rows = st.dictionaries(st.integers(0, 9), st.floats(0, 1), min_size=1)


@given(rows, st.dictionaries(st.integers(0, 9), st.floats(0, 1e6)), st.floats(0.01, 1), st.floats(0, 1e6))
def test_kept_rows_are_all_or_the_sticky_ones_by_the_plain_definition(
    shares: dict[int, float], times: dict[int, float], threshold: float, cap_ms: float
) -> None:
    kept = kept_rows(shares, times, threshold=threshold, cap_ms=cap_ms)
    sticky = {row for row in shares if shares[row] >= threshold}
    rest = shares.keys() - sticky
    here, there = ({row: times[row] for row in side if row in times} for side in (sticky, rest))
    slow = bool(cap_ms and rest) and (not here or not there or min(here.values()) - min(there.values()) > cap_ms)
    assert set(kept) == (sticky if sticky and not slow else shares.keys())
