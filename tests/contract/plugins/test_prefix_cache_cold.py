"""`no-hit-lru-scorer`: prompts that nobody holds go to where such a prompt went longest ago."""

from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_prefix_cache import plugin
from hotbay_prefix_cache.cold import rank_ratings
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

TYPE = "no-hit-lru-scorer"
MATCHED = "PrefixCacheMatchInfo.matched_blocks"
PODS: Mapping[str, Mapping[str, float]] = {"a": {}, "b": {}, "c": {}}


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        made.configure("cold", TYPE)
        yield made


def rate(
    harness: PluginHarness,
    request_id: str = "r",
    hits: Sequence[float] = (0, 0, 0),
    candidates: list[str] | None = None,
    pods: Mapping[str, Mapping[str, float]] = PODS,
) -> list[float]:
    data = {MATCHED: list(hits)}
    (scores,) = harness.score("cold", pods, [{"id": request_id}], candidates=candidates, data=data)
    return list(scores.values())


def send(harness: PluginHarness, target: str, request_id: str = "r", **more: object) -> None:
    harness.pre_request("cold", PODS, [target], {"id": request_id}, **more)


def test_nobody_was_used_yet_and_the_order_of_rows_decides(harness: PluginHarness) -> None:
    assert rate(harness) == [1, 0.5, 0]


def test_who_was_used_longest_ago_is_rated_best_of_the_used_and_after_the_unused(harness: PluginHarness) -> None:
    for target in ("b", "a"):
        rate(harness)
        send(harness, target)
    assert rate(harness) == [0, 0.5, 1]
    rate(harness)
    send(harness, "c")
    assert rate(harness) == [0.5, 1, 0]


@pytest.mark.parametrize("hits", [(1, 0, 0), (0, 0, 3)])
def test_one_hit_makes_the_rating_neutral_and_the_request_none_that_counts(
    harness: PluginHarness, hits: tuple[float, ...]
) -> None:
    assert rate(harness, hits=hits) == [0.5, 0.5, 0.5]
    send(harness, "a")
    assert rate(harness) == [1, 0.5, 0]


def test_a_hit_of_an_endpoint_that_is_no_candidate_does_not_count(harness: PluginHarness) -> None:
    assert rate(harness, hits=(0, 0, 9), candidates=["a", "b"]) == [1, 0]


def test_one_candidate_rates_1(harness: PluginHarness) -> None:
    rate(harness)
    send(harness, "a")
    assert rate(harness, candidates=["a"]) == [1]


def test_without_data_every_request_is_cold(harness: PluginHarness) -> None:
    (scores,) = harness.score("cold", PODS, [{"id": "r"}])
    assert list(scores.values()) == [1, 0.5, 0]


def test_the_prefill_target_is_noted_too(harness: PluginHarness) -> None:
    rate(harness)
    send(harness, "b", profile="decode", results={"decode": ["b"], "prefill": ["a"]})
    assert rate(harness) == [0, 0.5, 1]


def test_a_request_that_is_cold_in_one_profile_and_warm_in_the_next_one_is_cold(harness: PluginHarness) -> None:
    rate(harness)
    rate(harness, hits=(1, 0, 0), candidates=["a"])
    send(harness, "b", profile="decode", results={"decode": ["b"], "prefill": ["a"]})
    assert rate(harness) == [0, 0.5, 1]


def test_a_request_that_was_not_rated_here_is_not_noted(harness: PluginHarness) -> None:
    send(harness, "a", request_id="other")
    assert rate(harness) == [1, 0.5, 0]


@pytest.mark.parametrize(("most", "expected"), [(1, [0.5, 1, 0]), (2, [0, 0.5, 1])])
def test_the_lru_forgets_the_oldest(most: int, expected: list[float]) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("cold", TYPE, {"lruSize": most})
        for target in ("b", "a"):
            rate(harness)
            send(harness, target)
        # With room for one alone b counts as never used, and comes before c by its row.
        assert rate(harness) == ([0, 1, 0.5] if most == 1 else expected)


def test_s21_an_endpoint_that_went_is_forgotten(harness: PluginHarness) -> None:
    rate(harness)
    send(harness, "a")
    rate(harness, hits=(0, 0), pods={"b": {}, "c": {}})
    assert rate(harness) == [1, 0.5, 0]


def test_the_order_moves_to_the_next_version(harness: PluginHarness) -> None:
    for target in ("b", "a"):
        rate(harness)
        send(harness, target)
    with PluginHarness(plugin) as successor:
        successor.import_state(harness.export_state())
        successor.configure("cold", TYPE)
        assert successor.state_of("cold") == "imported"
        assert rate(successor) == [0, 0.5, 1]
        assert successor.dump_state("cold") == {"endpoints": 2, "longest_ago_first": ["b", "a"]}


def test_requests_that_are_never_sent_are_forgotten(harness: PluginHarness) -> None:
    harness.score("cold", PODS, [{"id": str(number)} for number in range(8193)])
    send(harness, "a", "0")
    assert rate(harness) == [1, 0.5, 0]
    send(harness, "a", "2")
    assert rate(harness) == [0, 1, 0.5]


@pytest.mark.parametrize(
    ("parameters", "path"),
    [({"lruSize": -1}, "lruSize"), ({"lruSize": "8"}, "lruSize"), ({"size": 8}, "size")],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], path: str) -> None:
    with PluginHarness(plugin) as harness, pytest.raises(ParameterError) as caught:
        harness.configure("cold", TYPE, parameters)
    assert caught.value.path == path


@pytest.mark.parametrize("parameters", [{"lruSize": 0}, {"prefixPluginType": "x", "prefixPluginName": "y"}])
def test_parameters_without_effect_are_taken(parameters: dict[str, object]) -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("cold", TYPE, parameters)
        assert rate(harness) == [1, 0.5, 0]


def test_a_named_producer_is_the_one_that_is_read() -> None:
    with PluginHarness(plugin) as harness:
        harness.configure("cold", TYPE, {"prefixMatchInfoProducerName": "mine"})
        assert harness.facts("cold").consumes == ("PrefixCacheMatchInfo/mine.matched_blocks",)


@given(st.lists(st.integers(0, 9), unique=True, min_size=1), st.dictionaries(st.integers(0, 9), st.integers(0, 99)))
def test_ranks_are_those_of_the_plain_definition(candidates: list[int], last_use: dict[int, int]) -> None:
    never = [row for row in candidates if row not in last_use]
    used = sorted((row for row in candidates if row in last_use), key=lambda row: last_use[row])
    steps = max(1, len(candidates) - 1)
    expected = {row: max(0.0, 1 - rank / steps) for rank, row in enumerate([*never, *used])}
    assert rank_ratings(candidates, last_use) == pytest.approx(expected)
