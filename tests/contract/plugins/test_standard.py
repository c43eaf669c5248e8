"""The package `standard`: its formulas, over candidates only, for whatever an endpoint reports."""

import math
from collections.abc import Iterator

import pytest
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hotbay_standard import plugin
from hypothesis import given
from hypothesis import strategies as st

COLUMNS = {
    "queue-scorer": "waiting",
    "running-requests-size-scorer": "running",
    "kv-cache-utilization-scorer": "kv_usage",
}
LOWEST_BEST = ("queue-scorer", "running-requests-size-scorer")

unknown = st.sampled_from([math.nan, math.inf, -math.inf, -1.0])
counts = st.floats(0, 2.0**100, width=32) | st.integers(0, 1000).map(float)
figures = st.lists(counts | unknown, min_size=1, max_size=12)


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        for type_name in COLUMNS:
            made.configure(type_name, type_name)
        yield made


def score(
    harness: PluginHarness, type_name: str, values: list[float], candidates: list[int] | None = None
) -> list[float]:
    endpoints = {f"e{row}": {COLUMNS[type_name]: value} for row, value in enumerate(values)}
    members = None if candidates is None else [f"e{row}" for row in candidates]
    (scores,) = harness.score(type_name, endpoints, candidates=members)
    return list(scores.values())


@pytest.mark.parametrize("type_name", LOWEST_BEST)
def test_es02_equal_figures_all_rate_1(harness: PluginHarness, type_name: str) -> None:
    assert score(harness, type_name, [5, 5]) == [1, 1]


def test_es03_kv_rates_the_free_share(harness: PluginHarness) -> None:
    assert score(harness, "kv-cache-utilization-scorer", [0.8, 0.5, 0]) == pytest.approx([0.2, 0.5, 1])


@pytest.mark.parametrize("type_name", LOWEST_BEST)
def test_the_lowest_rates_1_and_the_highest_0(harness: PluginHarness, type_name: str) -> None:
    assert score(harness, type_name, [10, 0, 5]) == [0, 1, 0.5]


@pytest.mark.parametrize("type_name", LOWEST_BEST)
@pytest.mark.parametrize("figure", [math.nan, -1, math.inf])
def test_an_unknown_row_rates_half_and_has_no_say(harness: PluginHarness, type_name: str, figure: float) -> None:
    assert score(harness, type_name, [10, figure, 0, 5]) == [0, 0.5, 1, 0.5]
    assert score(harness, type_name, [figure, 3]) == [0.5, 1]
    assert score(harness, type_name, [figure]) == [0.5]


@pytest.mark.parametrize("type_name", LOWEST_BEST)
def test_a_row_that_is_no_candidate_has_no_say(harness: PluginHarness, type_name: str) -> None:
    assert score(harness, type_name, [100, 10, 0, 5], candidates=[1, 3]) == [0, 1]
    assert score(harness, type_name, [100, 10, 0, 5], candidates=[]) == []


def test_kv_outside_its_range_is_clamped_or_unknown(harness: PluginHarness) -> None:
    assert score(harness, "kv-cache-utilization-scorer", [1.5, -1, math.nan, math.inf]) == [0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("type_name", COLUMNS)
def test_parameters_are_refused(harness: PluginHarness, type_name: str) -> None:
    with pytest.raises(ParameterError):
        harness.configure("x", type_name, {"threshold": 1})


@pytest.mark.parametrize("type_name", COLUMNS)
@given(values=figures)
def test_scores_are_within_0_and_1(harness: PluginHarness, type_name: str, values: list[float]) -> None:
    assert all(0 <= rating <= 1 for rating in score(harness, type_name, values))


@pytest.mark.parametrize("type_name", COLUMNS)
@given(values=figures, others=figures, data=st.data())
def test_masked_rows_are_ignored(
    harness: PluginHarness, type_name: str, values: list[float], others: list[float], data: st.DataObject
) -> None:
    mixed = data.draw(st.permutations([(value, True) for value in values] + [(value, False) for value in others]))
    candidates = [row for row, (_, member) in enumerate(mixed) if member]
    masked = score(harness, type_name, [value for value, _ in mixed], candidates)
    assert masked == score(harness, type_name, [value for value, member in mixed if member])


@pytest.mark.parametrize("type_name", COLUMNS)
@given(values=st.lists(counts, min_size=2, max_size=12))
def test_a_lower_figure_never_rates_lower(harness: PluginHarness, type_name: str, values: list[float]) -> None:
    ratings = score(harness, type_name, values)
    pairs = sorted(zip(values, ratings, strict=True))
    assert [rating for _, rating in pairs] == sorted(ratings, reverse=True)
