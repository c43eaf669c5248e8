"""The package `flow-control`: how full detectors find a pool, and whom they let through."""

import math
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_flow_control import plugin
from hotbay_flow_control.durations import seconds
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

UTILIZATION, CONCURRENCY = "utilization-detector", "concurrency-detector"
Endpoints = Mapping[str, Mapping[str, float]]

ages = st.sampled_from([0.0, 0.1, 0.2, 0.21, 5.0, math.nan])
counts = st.integers(0, 40).map(float) | st.sampled_from([math.nan, -1.0])
shares = st.floats(0, 1, width=32) | st.just(math.nan)
engines = st.fixed_dictionaries({"waiting": counts, "kv_usage": shares, "age_waiting": ages, "age_kv_usage": ages})
pools = st.lists(engines, min_size=0, max_size=8)


@pytest.fixture(scope="module")
def shared() -> Iterator[PluginHarness]:
    """For property tests, which configure nothing."""
    with PluginHarness(plugin) as made:
        made.configure("saturated", UTILIZATION)
        made.configure("ignore", UTILIZATION, {"stalenessPolicy": "ignore"})
        made.configure("requests", CONCURRENCY, {"maxConcurrency": 10})
        yield made


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        yield made


def engine(waiting: float = 0, kv_usage: float = 0, age: float = 0.1, **others: float) -> dict[str, float]:
    return {"waiting": waiting, "kv_usage": kv_usage, "age_waiting": age, "age_kv_usage": age} | others


def named(pool: Sequence[Mapping[str, float]]) -> Endpoints:
    return {f"e{number}": figures for number, figures in enumerate(pool)}


# -- utilization-detector --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "saturation"),
    [
        ([engine(0, 0)], 0.0),
        ([engine(5, 0)], 1.0),
        ([engine(0, 0.8)], 1.0),
        ([engine(10, 0.4)], 2.0),
        ([engine(1, 0.4)], 0.5),
        ([engine(5, 0), engine(0, 0)], 0.5),
        ([engine(0, 0, age=0.25), engine(0, 0)], 0.5),
        ([engine(50, 1, age=0.25)], 1.0),
        ([{}], 1.0),
        ([], 1.0),
        ([engine(2.5, math.nan, age_kv_usage=math.nan)], 0.5),
        ([engine(math.nan, 0.4, age_waiting=math.nan)], 0.5),
        ([engine(0, 0, age_kv_usage=9)], 1.0),
        ([engine(0, math.nan, age_kv_usage=9)], 1.0),
    ],
)
def test_the_pool_is_as_full_as_its_endpoints_on_average(
    harness: PluginHarness, pool: list[dict[str, float]], saturation: float
) -> None:
    harness.configure("d", UTILIZATION)
    assert harness.saturation("d", named(pool)) == pytest.approx(saturation)


@pytest.mark.parametrize(
    ("age", "saturation"), [(0.1, 0.0), (0.2, 0.0), (0.201, 1.0)], ids=["fresh", "just fresh", "just stale"]
)
def test_figures_are_stale_beyond_the_threshold(harness: PluginHarness, age: float, saturation: float) -> None:
    harness.configure("d", UTILIZATION)
    assert harness.saturation("d", {"a": engine(age=age)}) == saturation
    harness.configure("d", UTILIZATION, {"metricsStalenessThreshold": "1m"})
    assert harness.saturation("d", {"a": engine(age=age)}) == 0.0


@pytest.mark.parametrize(("policy", "saturation", "alone"), [("saturated", 0.8, 1.0), ("ignore", 0.6, 0.0)])
def test_s11_frozen_figures_count_as_full_or_not_at_all(
    harness: PluginHarness, policy: str, saturation: float, alone: float
) -> None:
    harness.configure("d", UTILIZATION, {"stalenessPolicy": policy})
    frozen, live = engine(0, 0, age=60), engine(3, 0)
    assert harness.saturation("d", {"a": frozen, "b": live}) == pytest.approx(saturation)
    assert harness.dump_state("d") == {"endpoints": 2, "stale_endpoints": 1, "saturation": pytest.approx(saturation)}
    assert harness.keep("d", {"a": frozen, "b": live}) == [["b"]]
    assert harness.saturation("d", {"a": frozen}) == alone
    assert harness.keep("d", {"a": frozen}) == [["a"]]


def test_s02_an_empty_pool_says_that_there_are_no_endpoints(harness: PluginHarness) -> None:
    harness.configure("d", UTILIZATION)
    assert harness.saturation("d", {}) == 1.0
    assert harness.dump_state("d") == {"endpoints": 0, "stale_endpoints": 0, "saturation": 1.0}


@pytest.mark.parametrize(
    ("headroom", "kept"),
    [(0, ["a"]), (0.2, ["a", "b", "d"]), (10, ["a", "b", "c", "d"])],
)
def test_the_filter_keeps_what_is_under_both_thresholds_and_the_headroom(
    harness: PluginHarness, headroom: float, kept: list[str]
) -> None:
    harness.configure("d", UTILIZATION, {"headroom": headroom})
    pods = {"a": engine(4, 0.7), "b": engine(5, 0.7), "c": engine(7, 0.1), "d": engine(0, 0.8), "e": engine(age=9)}
    assert harness.keep("d", pods) == [kept]


def test_the_filter_keeps_all_candidates_where_none_passes(harness: PluginHarness) -> None:
    harness.configure("d", UTILIZATION)
    pods = {"a": engine(5, 0), "b": engine(0, 0.8), "c": engine(0, 0)}
    assert harness.keep("d", pods, candidates=["a", "b"]) == [["a", "b"]]
    assert harness.keep("d", pods, [{}, {}]) == [["c"], ["c"]]


def plain_row(figures: Mapping[str, float]) -> tuple[bool, float]:
    """Whether an endpoint can be judged, and how full it is: the formula for one endpoint."""
    judged, load = False, 0.0
    for name, threshold in (("waiting", 5), ("kv_usage", 0.8)):
        value, age = figures[name], figures[f"age_{name}"]
        known = value >= 0
        if age > 0.2000001 or (known and math.isnan(age)):
            return False, 1.0
        if known:
            judged, load = True, max(load, value / threshold)
    return judged, load if judged else 1.0


@given(pool=pools)
def test_saturation_equals_the_formula_of_one_endpoint(shared: PluginHarness, pool: list[dict[str, float]]) -> None:
    rows = [plain_row(figures) for figures in pool]
    expected = sum(load for _, load in rows) / len(rows) if rows else 1.0
    assert shared.saturation("saturated", named(pool)) == pytest.approx(expected, rel=1e-5)
    fresh = [load for judged, load in rows if judged]
    ignoring = 1.0 if not rows else sum(fresh) / len(fresh) if fresh else 0.0
    assert shared.saturation("ignore", named(pool)) == pytest.approx(ignoring, rel=1e-5)


@given(pool=st.lists(engines, min_size=1, max_size=8), data=st.data())
def test_the_filter_equals_the_formula_of_one_endpoint(
    shared: PluginHarness, pool: list[dict[str, float]], data: st.DataObject
) -> None:
    pods = named(pool)
    candidates = data.draw(st.lists(st.sampled_from(sorted(pods)), unique=True))
    (kept,) = shared.keep("saturated", pods, candidates=candidates)
    members = [name for name in pods if name in candidates]
    below = [name for name in members if plain_row(pods[name])[0] and plain_row(pods[name])[1] < 1 - 1e-6]
    at_limit = [name for name in members if abs(plain_row(pods[name])[1] - 1) <= 1e-6]
    if not at_limit:
        assert kept == (below or members)
    assert set(kept) <= set(members)
    assert bool(kept) is bool(members)


# -- concurrency-detector --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "saturation"),
    [("requests", 0.3), ("tokens", 0.55), ("hybrid", 0.55)],
    ids=["requests", "tokens", "hybrid"],
)
def test_what_is_in_flight_fills_the_pool(harness: PluginHarness, mode: str, saturation: float) -> None:
    parameters = {"concurrencyMode": mode, "maxConcurrency": 10, "maxTokenConcurrency": 1000}
    harness.configure("d", CONCURRENCY, parameters)
    pods = {"a": {"in_flight": 5, "in_flight_tokens": 100}, "b": {"in_flight": 1, "in_flight_tokens": 1000}}
    assert harness.saturation("d", pods) == pytest.approx(saturation)
    assert harness.dump_state("d") == {"endpoints": 2, "saturation": pytest.approx(saturation)}
    assert harness.saturation("d", {}) == 1.0
    assert harness.saturation("d", {"a": {}}) == 0.0


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({}, ["a", "b"]),
        ({"headroom": 0.1}, ["a", "b"]),
        ({"headroom": 0.2}, ["a", "b", "c"]),
        ({"concurrencyMode": "tokens"}, ["a", "c"]),
        ({"concurrencyMode": "hybrid"}, ["a"]),
    ],
)
def test_the_filter_drops_full_endpoints(
    harness: PluginHarness, parameters: dict[str, object], kept: list[str]
) -> None:
    harness.configure("d", CONCURRENCY, {"maxConcurrency": 10, "maxTokenConcurrency": 1000, **parameters})
    pods = {
        "a": {"in_flight": 9, "in_flight_tokens": 999},
        "b": {"in_flight": 0, "in_flight_tokens": 1200},
        "c": {"in_flight": 11, "in_flight_tokens": 0},
    }
    assert harness.keep("d", pods) == [kept]


def test_the_filter_may_leave_nobody(harness: PluginHarness) -> None:
    harness.configure("d", CONCURRENCY, {"maxConcurrency": 1})
    assert harness.keep("d", {"a": {"in_flight": 1}, "b": {}}, [{}, {}], candidates=["a"]) == [[], []]


@given(pool=st.lists(counts, max_size=8))
def test_s15_saturation_is_never_negative(shared: PluginHarness, pool: list[float]) -> None:
    expected = sum(max(0.0, count) for count in pool if not math.isnan(count)) / (10 * len(pool)) if pool else 1.0
    found = shared.saturation("requests", named([{"in_flight": count} for count in pool]))
    assert found == pytest.approx(expected)
    assert found >= 0


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_name", "parameters", "path"),
    [
        (UTILIZATION, {"queueDepthThreshold": 0}, "queueDepthThreshold"),
        (UTILIZATION, {"queueDepthThreshold": 1.5}, "queueDepthThreshold"),
        (UTILIZATION, {"kvCacheUtilThreshold": 0}, "kvCacheUtilThreshold"),
        (UTILIZATION, {"kvCacheUtilThreshold": 1.01}, "kvCacheUtilThreshold"),
        (UTILIZATION, {"headroom": -0.1}, "headroom"),
        (UTILIZATION, {"metricsStalenessThreshold": "soon"}, "metricsStalenessThreshold"),
        (UTILIZATION, {"metricsStalenessThreshold": "0s"}, "metricsStalenessThreshold"),
        (UTILIZATION, {"stalenessPolicy": "none"}, "stalenessPolicy"),
        (UTILIZATION, {"headrom": 1}, "headrom"),
        (CONCURRENCY, {"maxConcurrency": 0}, "maxConcurrency"),
        (CONCURRENCY, {"maxTokenConcurrency": 0}, "maxTokenConcurrency"),
        (CONCURRENCY, {"concurrencyMode": "both"}, "concurrencyMode"),
        (CONCURRENCY, {"headroom": -1}, "headroom"),
    ],
)
def test_bad_parameters_are_refused_where_they_stand(
    harness: PluginHarness, type_name: str, parameters: dict[str, object], path: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        harness.configure("bad", type_name, parameters)
    assert refused.value.path == path


@pytest.mark.parametrize(
    ("type_name", "parameters"),
    [
        (UTILIZATION, {"queueDepthThreshold": 1, "kvCacheUtilThreshold": 1, "headroom": 2}),
        (CONCURRENCY, {"maxConcurrency": 1, "maxTokenConcurrency": 1, "headroom": 2}),
    ],
)
def test_parameters_are_taken_up_to_their_limits(
    harness: PluginHarness, type_name: str, parameters: dict[str, object]
) -> None:
    harness.configure("d", type_name, parameters)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("200ms", 0.2), ("1m30s", 90), ("1.5h", 5400), ("10us", 1e-5), ("5µs", 5e-6), ("7ns", 7e-9), (".5s", 0.5)],
)
def test_durations_are_read(text: str, expected: float) -> None:
    assert seconds(text, "d") == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "5", "ms", "1s ", "-1s", "1d", "1s2", "0s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ParameterError) as refused:
        seconds(text, "d")
    assert refused.value.path == "d"
