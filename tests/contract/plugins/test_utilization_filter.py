"""The package `attributes`, `utilization-filter`: limits of what endpoints have to do."""

import math
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hotbay_attributes import plugin
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

TYPE = "utilization-filter"
COLUMNS = {
    "active-requests": "in_flight",
    "running-requests": "running",
    "waiting-queue": "waiting",
    "kv-cache-utilization": "kv_usage",
}

figures = st.floats(0, 50, width=32) | st.integers(0, 50).map(float) | st.sampled_from([math.nan, -1.0, math.inf])
endpoints = st.fixed_dictionaries({}, optional=dict.fromkeys(COLUMNS.values(), figures))
limits = st.sampled_from(list(COLUMNS)).flatmap(
    lambda metric: st.tuples(st.just(metric), st.floats(0, 1 if metric.startswith("kv") else 50, width=32))
)


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        yield made


def configured(*conditions: tuple[str, float], falls_back: bool = False) -> dict[str, object]:
    listed = [{"metric": metric, "maxValue": most} for metric, most in conditions]
    return {"conditions": listed, "fallbackOnEmpty": falls_back}


def kept(
    harness: PluginHarness,
    parameters: Mapping[str, object],
    rows: Sequence[Mapping[str, float]],
    members: Sequence[int] | None = None,
) -> list[int]:
    harness.configure("filter", TYPE, parameters)
    candidates = None if members is None else [f"e{row}" for row in members]
    (ids,) = harness.keep("filter", {f"e{row}": given for row, given in enumerate(rows)}, candidates=candidates)
    return [int(name[1:]) for name in ids]


@pytest.mark.parametrize(("falls_back", "expected"), [(True, [0, 1]), (False, [])])
def test_es14_when_all_exceed_it_keeps_all_or_none(
    harness: PluginHarness, falls_back: bool, expected: list[int]
) -> None:
    rows: list[dict[str, float]] = [{"waiting": 4}, {"waiting": 9}]
    assert kept(harness, configured(("waiting-queue", 3), falls_back=falls_back), rows) == expected


@pytest.mark.parametrize("metric", COLUMNS)
def test_a_figure_may_be_as_much_as_the_limit(harness: PluginHarness, metric: str) -> None:
    rows = [{COLUMNS[metric]: value} for value in (0.7, 0.8, 0.81)]
    assert kept(harness, configured((metric, 0.8)), rows) == [0, 1]
    assert kept(harness, configured((metric, 0)), [{COLUMNS[metric]: 0}, {COLUMNS[metric]: 0.001}]) == [0]


def test_all_conditions_have_to_hold(harness: PluginHarness) -> None:
    rows: list[dict[str, float]] = [
        {"running": 10, "waiting": 0},
        {"running": 41, "waiting": 0},
        {"running": 10, "waiting": 1},
    ]
    assert kept(harness, configured(("running-requests", 40), ("waiting-queue", 0)), rows) == [0]


@pytest.mark.parametrize("metric", COLUMNS)
@pytest.mark.parametrize("figure", [math.nan, -1, math.inf, None])
def test_s18_what_is_not_known_exceeds_nothing(harness: PluginHarness, metric: str, figure: float | None) -> None:
    rows: list[dict[str, float]] = [{} if figure is None else {COLUMNS[metric]: figure}, {COLUMNS[metric]: 5}]
    assert kept(harness, configured((metric, 0)), rows) == [0]


def test_only_candidates_decide_whether_anybody_is_left(harness: PluginHarness) -> None:
    rows: list[dict[str, float]] = [{"waiting": 0}, {"waiting": 9}, {"waiting": 8}]
    falls_back = configured(("waiting-queue", 3), falls_back=True)
    assert kept(harness, falls_back, rows) == [0]
    assert kept(harness, falls_back, rows, members=[1, 2]) == [1, 2]
    assert kept(harness, falls_back, rows, members=[]) == []
    harness.configure("filter", TYPE, falls_back)
    assert harness.keep("filter", {}) == []


@given(
    rows=st.lists(endpoints, min_size=1, max_size=6),
    conditions=st.lists(limits, min_size=1, max_size=3),
    falls_back=st.booleans(),
    data=st.data(),
)
def test_it_keeps_as_one_by_one(
    harness: PluginHarness,
    rows: list[dict[str, float]],
    conditions: list[tuple[str, float]],
    falls_back: bool,
    data: st.DataObject,
) -> None:
    members = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))

    def holds(given: Mapping[str, float], metric: str, most: float) -> bool:
        value = given.get(COLUMNS[metric], math.nan)
        return not math.isfinite(value) or value <= most

    expected = [row for row in members if all(holds(rows[row], *condition) for condition in conditions)]
    if not expected and falls_back:
        expected = members
    assert kept(harness, configured(*conditions, falls_back=falls_back), rows, members) == expected


@pytest.mark.parametrize(
    ("parameters", "path"),
    [
        ({}, "conditions"),
        ({"conditions": []}, "conditions"),
        ({"conditions": {}}, "conditions"),
        ({"conditions": [{"maxValue": 1}]}, "conditions[0].metric"),
        ({"conditions": [{"metric": "waiting-queue"}]}, "conditions[0].maxValue"),
        ({"conditions": [{"metric": "queue", "maxValue": 1}]}, "conditions[0].metric"),
        ({"conditions": [{"metric": "waiting-queue", "maxValue": -1}]}, "conditions[0].maxValue"),
        ({"conditions": [{"metric": "waiting-queue", "maxValue": "1"}]}, "conditions[0].maxValue"),
        ({"conditions": [{"metric": "kv-cache-utilization", "maxValue": 80}]}, "conditions[0].maxValue"),
        ({"conditions": [{"metric": "waiting-queue", "maxValue": 1, "x": 1}]}, "conditions[0].x"),
        (configured(("waiting-queue", 1)) | {"fallbackOnEmpty": 1}, "fallbackOnEmpty"),
        (configured(("waiting-queue", 1)) | {"fallback": True}, "fallback"),
    ],
)
def test_parameters_are_read_strictly(harness: PluginHarness, parameters: dict[str, object], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", TYPE, parameters)
    assert caught.value.path == path


@pytest.mark.parametrize("most", [0, 1])
def test_a_share_of_the_cache_is_0_to_1(harness: PluginHarness, most: float) -> None:
    assert kept(harness, configured(("kv-cache-utilization", most)), [{"kv_usage": most}]) == [0]


def test_a_pool_that_is_drained_by_it_is_busy() -> None:
    assert {declaration.type: declaration.drained for declaration in plugin.declarations}[TYPE] == "busy"
