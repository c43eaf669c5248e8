"""The package `admission`: how likely a request is shed."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hotbay_admission import plugin
from hotbay_admission.formulas import saturation, shed_probability
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

ADMITTER = "probabilistic-admitter"
NAN = math.nan

figures = st.lists(
    st.tuples(
        st.integers(0, 50).map(float) | st.sampled_from([NAN, -1.0]), st.floats(0, 1) | st.just(NAN), st.booleans()
    ),
    max_size=8,
)


@pytest.fixture
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin, seed=11) as made:
        yield made


@pytest.mark.parametrize(
    ("sat", "probability"),
    [(0, 0), (0.08, 0.000983), (0.15, 0.02278), (0.2, 0.096), (0.3, 0.729), (0.32, 1.0), (1, 1), (2, 1), (1e300, 1)],
)
def test_the_probability_is_a_power_of_saturation(sat: float, probability: float) -> None:
    assert shed_probability(sat, 5, 300) == pytest.approx(probability, rel=1e-3)


@given(sat=st.floats(0, 1e6), power=st.floats(0.1, 1000), k=st.floats(0.001, 1e6))
def test_the_probability_is_one(sat: float, power: float, k: float) -> None:
    assert 0 <= shed_probability(sat, power, k) <= 1


@pytest.mark.parametrize(
    ("waiting", "kv_usage", "expected"),
    [
        ([5], [0], 1),
        ([0], [0.8], 1),
        ([1], [0.4], 0.5),
        ([10], [0.1], 2),
        ([0, 5], [0, 0], 0.5),
        ([NAN], [NAN], 1),
        ([NAN], [0.4], 0.5),
        ([1], [NAN], 0.2),
        ([-1], [NAN], 1),
        ([], [], 0),
    ],
)
def test_saturation_is_the_mean_of_the_fuller_resource(
    waiting: list[float], kv_usage: list[float], expected: float
) -> None:
    candidates = np.ones(len(waiting), np.bool_)
    found = saturation(np.array(waiting, float), np.array(kv_usage, float), candidates, 5, 0.8)
    assert found == pytest.approx(expected)


@given(rows=figures)
def test_saturation_equals_the_formula_of_one_endpoint(rows: list[tuple[float, float, bool]]) -> None:
    loads = []
    for waiting, kv_usage, member in rows:
        known = [value / limit for value, limit in ((waiting, 5), (kv_usage, 0.8)) if value >= 0]
        loads += [max(known, default=1.0)] if member else []
    columns = [np.array([row[n] for row in rows], float) for n in (0, 1)]
    members = np.array([row[2] for row in rows], np.bool_)
    expected = sum(loads) / len(loads) if loads else 0.0
    assert saturation(columns[0], columns[1], members, 5, 0.8) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("priority", "waiting", "admitted"),
    [(-1, 5, False), (0, 50, True), (7, 50, True), (-1, 0, True)],
    ids=["full", "standard", "critical", "idle"],
)
def test_only_what_may_be_shed_is(harness: PluginHarness, priority: int, waiting: float, admitted: bool) -> None:
    harness.configure("x", ADMITTER)
    (verdict,) = harness.admit("x", {"a": {"waiting": waiting, "kv_usage": 0}}, [{"priority": priority}])
    assert (verdict is None) is admitted
    if verdict is not None:
        assert (verdict.code, verdict.reason) == ("resource-exhausted", "rejected-saturated")
        assert "1.00" in verdict.message


def test_a_share_of_the_probability_is_shed(harness: PluginHarness) -> None:
    harness.configure("x", ADMITTER)
    verdicts = harness.admit("x", {"a": {"waiting": 0, "kv_usage": 0.24}}, [{"priority": -1}] * 1000)
    assert 680 <= sum(verdict is not None for verdict in verdicts) <= 780


def test_no_endpoints_shed_nobody(harness: PluginHarness) -> None:
    harness.configure("x", ADMITTER)
    assert harness.admit("x", {"a": {"waiting": 50}}, [{"priority": -1}], candidates=[]) == [None]


def test_parameters_shape_the_probability(harness: PluginHarness) -> None:
    harness.configure("x", ADMITTER, {"queueDepthThreshold": 10, "kvCacheUtilThreshold": 1, "power": 1, "k": 0.001})
    verdicts = harness.admit("x", {"a": {"waiting": 10, "kv_usage": 0.5}}, [{"priority": -1}] * 100)
    assert sum(verdict is not None for verdict in verdicts) <= 2


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({"queueDepthThreshold": 0}, "queueDepthThreshold"),
        ({"kvCacheUtilThreshold": 0}, "kvCacheUtilThreshold"),
        ({"kvCacheUtilThreshold": 1.01}, "kvCacheUtilThreshold"),
        ({"power": 0}, "power"),
        ({"k": 0}, "k"),
        ({"K": 1}, "K"),
    ],
)
def test_bad_parameters_are_refused_where_they_stand(
    harness: PluginHarness, parameters: dict[str, float], path: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        harness.configure("bad", ADMITTER, parameters)
    assert refused.value.path == path
