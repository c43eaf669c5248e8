"""The package `standard`, what engines report: its formulas, over candidates only, for whatever an endpoint reports."""

import math
from collections.abc import Callable, Iterator

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
    "load-aware-scorer": "waiting",
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
    harness: PluginHarness, type_name: str, values: list[float], candidates: list[int] | None = None, *, ref: str = ""
) -> list[float]:
    endpoints = {f"e{row}": {COLUMNS[type_name]: value} for row, value in enumerate(values)}
    members = None if candidates is None else [f"e{row}" for row in candidates]
    (scores,) = harness.score(ref or type_name, endpoints, candidates=members, raw=True)
    return list(scores.values())


def is_known(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def lowest_best(value: float, values: list[float]) -> float:
    """(max - q) / (max - min) over those that are known; 1 where all are equal, 0.5 for an unknown one."""
    if not is_known(value):
        return 0.5
    known = [other for other in values if is_known(other)]
    return (max(known) - value) / (max(known) - min(known)) if max(known) > min(known) else 1.0


def free_share(value: float, values: list[float]) -> float:
    return min(1.0, max(0.0, 1 - value)) if is_known(value) else 0.5


def short_queue(value: float, values: list[float], threshold: int = 128) -> float:
    """0.5 for an empty queue, else 0.5 x (1 - min(q, t) / t)."""
    if not is_known(value) or value == 0:
        return 0.5
    return 0.5 * (1 - min(value, threshold) / threshold)


PLAIN: dict[str, Callable[[float, list[float]], float]] = {
    "queue-scorer": lowest_best,
    "running-requests-size-scorer": lowest_best,
    "kv-cache-utilization-scorer": free_share,
    "load-aware-scorer": short_queue,
}
"""The formulas for one endpoint among all candidates."""


@pytest.mark.parametrize("type_name", LOWEST_BEST)
def test_es02_s19_equal_figures_all_rate_1(harness: PluginHarness, type_name: str) -> None:
    assert score(harness, type_name, [5, 5]) == [1, 1]
    assert score(harness, type_name, [0, 0, 0]) == [1, 1, 1]
    assert score(harness, type_name, [7]) == [1]


def test_es03_kv_rates_the_free_share(harness: PluginHarness) -> None:
    assert score(harness, "kv-cache-utilization-scorer", [0.8, 0.5, 0]) == pytest.approx([0.2, 0.5, 1])


@pytest.mark.parametrize("type_name", LOWEST_BEST)
def test_the_lowest_rates_1_and_the_highest_0(harness: PluginHarness, type_name: str) -> None:
    assert score(harness, type_name, [10, 0, 5]) == [0, 1, 0.5]


@pytest.mark.parametrize(
    ("waiting", "rating"), [(0, 0.5), (1, 0.49609375), (32, 0.375), (64, 0.25), (127, 0.00390625), (128, 0), (129, 0)]
)
def test_load_aware_rates_half_down_to_0_at_128_waiting(harness: PluginHarness, waiting: float, rating: float) -> None:
    assert score(harness, "load-aware-scorer", [waiting]) == [rating]


def test_load_aware_takes_the_threshold_that_is_configured(harness: PluginHarness) -> None:
    harness.configure("ten", "load-aware-scorer", {"threshold": 10})
    assert score(harness, "load-aware-scorer", [0, 5, 9, 10, 11], ref="ten") == pytest.approx([0.5, 0.25, 0.05, 0, 0])


@pytest.mark.parametrize(("threshold", "rating"), [(-1, 0.25), (0, 0.25), (1, 0)])
def test_load_aware_takes_128_for_a_threshold_not_above_0(
    harness: PluginHarness, threshold: int, rating: float, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.configure("odd", "load-aware-scorer", {"threshold": threshold})
    assert score(harness, "load-aware-scorer", [64], ref="odd") == [rating]
    assert ("128 is used" in capsys.readouterr().err) is (threshold <= 0)


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


@pytest.mark.parametrize("type_name", COLUMNS)
def test_no_endpoint_at_all_is_rated_nothing(harness: PluginHarness, type_name: str) -> None:
    assert harness.score(type_name, {}) == []


def test_kv_outside_its_range_is_clamped_or_unknown(harness: PluginHarness) -> None:
    assert score(harness, "kv-cache-utilization-scorer", [1.5, -1, math.nan, math.inf]) == [0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("type_name", COLUMNS)
@pytest.mark.parametrize("figure", [-1, 1e18, -0.1, 37, 0])
def test_s18_absurd_figures_rate_within_0_and_1(harness: PluginHarness, type_name: str, figure: float) -> None:
    ratings = score(harness, type_name, [figure, 3, figure, 0.5])
    assert all(math.isfinite(rating) and 0 <= rating <= 1 for rating in ratings)
    if figure < 0:
        assert ratings[0] == ratings[2] == 0.5


@pytest.mark.parametrize("type_name", [name for name in COLUMNS if name != "load-aware-scorer"])
def test_parameters_are_refused(harness: PluginHarness, type_name: str) -> None:
    with pytest.raises(ParameterError):
        harness.configure("x", type_name, {"threshold": 1})


@pytest.mark.parametrize(
    ("parameters", "path"),
    [({"threshold": "128"}, "threshold"), ({"threshold": 1.5}, "threshold"), ({"treshold": 1}, "treshold")],
)
def test_load_aware_refuses_what_it_does_not_know(
    harness: PluginHarness, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", "load-aware-scorer", parameters)
    assert caught.value.path == path


@pytest.mark.parametrize("type_name", COLUMNS)
@given(values=figures)
def test_scores_are_within_0_and_1(harness: PluginHarness, type_name: str, values: list[float]) -> None:
    assert all(0 <= rating <= 1 for rating in score(harness, type_name, values))


@pytest.mark.parametrize("type_name", COLUMNS)
@given(values=figures, data=st.data())
def test_ratings_are_those_of_the_plain_formula(
    harness: PluginHarness, type_name: str, values: list[float], data: st.DataObject
) -> None:
    candidates = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    among = [values[row] for row in candidates]
    expected = [PLAIN[type_name](value, among) for value in among]
    assert score(harness, type_name, values, candidates) == pytest.approx(expected, abs=1e-6)


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
