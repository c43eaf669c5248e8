"""The package `attributes`: filter and scorer of an attribute that the operator names."""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from hotbay_attributes import plugin
from hotbay_attributes.figures import known_figures
from hotbay_sdk import ParameterError
from hotbay_sdk.testing import PluginHarness
from hypothesis import given
from hypothesis import strategies as st

FILTER, SCORER = "endpoint-attribute-filter", "endpoint-attribute-scorer"
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "LessThan": lambda value, bound: value < bound,
    "LessThanOrEqual": lambda value, bound: value <= bound,
    "GreaterThan": lambda value, bound: value > bound,
    "GreaterThanOrEqual": lambda value, bound: value >= bound,
    "Equal": lambda value, bound: value == bound,
    "NotEqual": lambda value, bound: value != bound,
}
LOWER, HIGHER = "linear_lower_is_better", "linear_higher_is_better"

known = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.integers(-5, 5).map(float)
figures = st.lists(known | st.sampled_from([math.nan, math.inf, -math.inf]), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def harness() -> Iterator[PluginHarness]:
    with PluginHarness(plugin) as made:
        yield made


def rows(values: Sequence[float]) -> dict[str, dict[str, float]]:
    return {f"e{row}": {"attribute.depth": value} for row, value in enumerate(values)}


def threshold(comparison: str, value: float, **more: object) -> dict[str, object]:
    algorithm = {"type": "threshold", "threshold": {"operator": comparison, "value": value}}
    return {"attribute": "depth", "algorithm": algorithm, **more}


def linear(kind: str, **normalization: object) -> dict[str, object]:
    algorithm: dict[str, object] = {"type": kind}
    if normalization:
        algorithm["normalization"] = normalization
    return {"attribute": "depth", "algorithm": algorithm}


def kept(
    harness: PluginHarness,
    parameters: Mapping[str, object],
    values: Sequence[float],
    members: Sequence[int] | None = None,
) -> list[int]:
    harness.configure("filter", FILTER, parameters)
    candidates = None if members is None else [f"e{row}" for row in members]
    (ids,) = harness.keep("filter", rows(values), candidates=candidates)
    return [int(name[1:]) for name in ids]


def rated(
    harness: PluginHarness,
    parameters: Mapping[str, object],
    values: Sequence[float],
    members: Sequence[int] | None = None,
) -> list[float]:
    harness.configure("scorer", SCORER, parameters)
    candidates = None if members is None else [f"e{row}" for row in members]
    (scores,) = harness.score("scorer", rows(values), candidates=candidates, raw=True)
    return list(scores.values())


def plain_share(value: float, lowest: float, highest: float, *, lower: bool) -> float:
    """(value - min) / (max - min), clamped; turned round if lower is better."""
    share = min(1.0, max(0.0, (value / 2 - lowest / 2) / (highest / 2 - lowest / 2)))
    return 1 - share if lower else share


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        ("LessThan", [0]),
        ("LessThanOrEqual", [0, 1]),
        ("GreaterThan", [2]),
        ("GreaterThanOrEqual", [1, 2]),
        ("Equal", [1]),
        ("NotEqual", [0, 2]),
    ],
)
@pytest.mark.parametrize("bound", [10, 0.1, -3])
def test_a_threshold_keeps_those_of_which_the_comparison_holds(
    harness: PluginHarness, comparison: str, expected: list[int], bound: float
) -> None:
    assert kept(harness, threshold(comparison, bound), [bound - 1, bound, bound + 1]) == expected


def test_those_without_the_attribute_pass_if_nothing_else_is_said(harness: PluginHarness) -> None:
    values = [5, math.nan, 20, math.inf]
    assert kept(harness, threshold("LessThan", 10), values) == [0, 1, 3]
    assert kept(harness, threshold("LessThan", 10, onMissing="Pass"), values) == [0, 1, 3]
    assert kept(harness, threshold("LessThan", 10, onMissing="Fail"), values) == [0]


@pytest.mark.parametrize("missing", ["Pass", "Fail"])
def test_an_attribute_that_nobody_makes_is_missing_everywhere(harness: PluginHarness, missing: str) -> None:
    harness.configure("filter", FILTER, threshold("Equal", -1, onMissing=missing))
    assert harness.keep("filter", {"a": {}, "b": {}}) == [["a", "b"] if missing == "Pass" else []]


def test_nobody_left_means_everybody_if_so_configured(harness: PluginHarness) -> None:
    none, everybody = threshold("LessThan", 10), threshold("LessThan", 10, fallbackOnEmpty=True)
    assert kept(harness, none, [20, 30]) == []
    assert kept(harness, everybody, [20, 30]) == [0, 1]
    assert kept(harness, everybody, [5, 20, 30]) == [0]
    assert kept(harness, everybody, [5, 20, 30], members=[1, 2]) == [1, 2]
    assert kept(harness, everybody, [5, 20], members=[]) == []


@given(
    values=figures,
    comparison=st.sampled_from(list(OPERATORS)),
    bound=known,
    missing=st.booleans(),
    falls_back=st.booleans(),
    data=st.data(),
)
def test_the_filter_keeps_as_one_by_one(
    harness: PluginHarness,
    values: list[float],
    comparison: str,
    bound: float,
    missing: bool,
    falls_back: bool,
    data: st.DataObject,
) -> None:
    members = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    parameters = threshold(comparison, bound, onMissing="Pass" if missing else "Fail", fallbackOnEmpty=falls_back)
    expected = [
        row for row in members if (OPERATORS[comparison](values[row], bound) if math.isfinite(values[row]) else missing)
    ]
    if not expected and falls_back:
        expected = members
    assert kept(harness, parameters, values, members) == expected


@pytest.mark.parametrize("spelling", ["attribute", "attributeKey"])
def test_the_greatest_or_the_least_of_the_candidates_rates_1(harness: PluginHarness, spelling: str) -> None:
    lower = {spelling: "depth", "algorithm": {"type": LOWER}}
    higher = {spelling: "depth", "algorithm": {"type": HIGHER, "normalization": {"adaptiveRange": {}}}}
    assert rated(harness, lower, [10, 0, 5]) == [0, 1, 0.5]
    assert rated(harness, higher, [10, 0, 5]) == [1, 0, 0.5]
    assert rated(harness, lower, [100, 10, 0, 5], members=[1, 2, 3]) == [0, 1, 0.5]


@pytest.mark.parametrize("kind", [LOWER, HIGHER])
def test_s19_equal_figures_all_rate_1(harness: PluginHarness, kind: str) -> None:
    assert rated(harness, linear(kind), [3, 3]) == [1, 1]
    assert rated(harness, linear(kind), [-3]) == [1]
    assert rated(harness, linear(kind), [3, math.nan, 3]) == [1, 0.5, 1]
    assert rated(harness, linear(kind), [math.nan]) == [0.5]
    assert rated(harness, linear(kind), [1, 2], members=[]) == []


def test_a_fixed_range_clamps(harness: PluginHarness) -> None:
    values = [-1, 0, 2, 10, 11, math.nan]
    higher = rated(harness, linear(HIGHER, fixedRange={"min": 0, "max": 10}), values)
    assert higher == pytest.approx([0, 0, 0.2, 1, 1, 0.5])
    lower = rated(harness, linear(LOWER, fixedRange={"min": 0, "max": 10}), values)
    assert lower == pytest.approx([1, 1, 0.8, 0, 0, 0.5])


def test_a_bound_that_is_left_out_is_0(harness: PluginHarness) -> None:
    assert rated(harness, linear(HIGHER, fixedRange={"max": 10}), [5]) == [0.5]
    assert rated(harness, linear(HIGHER, fixedRange={"min": -10}), [-5]) == [0.5]


def test_what_belongs_to_an_algorithm_may_stand_beside_its_type(harness: PluginHarness) -> None:
    flat = {"attribute": "depth", "algorithm": {"type": HIGHER, "fixedRange": {"min": 0, "max": 10}}}
    assert rated(harness, flat, [5]) == [0.5]
    flat = {"attribute": "depth", "algorithm": {"type": "threshold", "operator": "LessThan", "value": 10}}
    assert kept(harness, flat, [5, 10]) == [0]


@given(values=figures, lower=st.booleans(), data=st.data())
def test_s18_the_candidates_range_rates_as_the_plain_formula(
    harness: PluginHarness, values: list[float], lower: bool, data: st.DataObject
) -> None:
    members = sorted(data.draw(st.sets(st.integers(0, len(values) - 1))))
    found = rated(harness, linear(LOWER if lower else HIGHER), values, members)
    among = [values[row] for row in members if math.isfinite(values[row])]
    for row, rating in zip(members, found, strict=True):
        if not math.isfinite(values[row]):
            assert rating == 0.5
        elif min(among) == max(among):
            assert rating == 1
        else:
            assert rating == pytest.approx(plain_share(values[row], min(among), max(among), lower=lower), abs=1e-6)


@given(values=figures, lower=st.booleans(), ends=st.lists(known, min_size=2, max_size=2, unique=True))
def test_s18_a_fixed_range_rates_as_the_plain_formula(
    harness: PluginHarness, values: list[float], lower: bool, ends: list[float]
) -> None:
    lowest, highest = sorted(ends)
    fixed = {"min": lowest, "max": highest}
    found = rated(harness, linear(LOWER if lower else HIGHER, fixedRange=fixed), values)
    expected = [plain_share(value, lowest, highest, lower=lower) if math.isfinite(value) else 0.5 for value in values]
    assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("type_name", [FILTER, SCORER])
@pytest.mark.parametrize(
    ("attribute", "is_right"),
    [
        ("a" * 128, True),
        ("a" * 129, False),
        ("vllm:x/y.z-1_", True),
        ("", False),
        ("a b", False),
        ("ä", False),
        (5, False),
    ],
    ids=["longest", "too long", "signs", "empty", "blank", "not ascii", "number"],
)
def test_attributes_have_names_that_columns_can_have(
    harness: PluginHarness, type_name: str, attribute: object, is_right: bool
) -> None:
    parameters = threshold("Equal", 1) if type_name == FILTER else linear(LOWER)
    named = {**parameters, "attribute": attribute, "producer": "core-metrics-extractor"}
    if is_right:
        harness.configure("x", type_name, named)
        return
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", type_name, named)
    assert caught.value.path == "attribute"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"attribute": None}, "attribute"),
        ({"producer": 1}, "producer"),
        ({"onMissing": "pass"}, "onMissing"),
        ({"fallbackOnEmpty": "yes"}, "fallbackOnEmpty"),
        ({"treshold": 1}, "treshold"),
        ({"algorithm": None}, "algorithm"),
        ({"algorithm": {}}, "algorithm.type"),
        ({"algorithm": {"type": "topK"}}, "algorithm.type"),
        ({"algorithm": {"type": "threshold"}}, "algorithm.operator"),
        ({"algorithm": {"type": "threshold", "operator": "Equal"}}, "algorithm.value"),
        ({"algorithm": {"type": "threshold", "threshold": []}}, "algorithm.threshold"),
        (
            {"algorithm": {"type": "threshold", "threshold": {"operator": "<", "value": 1}}},
            "algorithm.threshold.operator",
        ),
        ({"algorithm": {"type": "threshold", "threshold": {"operator": "Equal"}}}, "algorithm.threshold.value"),
        (
            {"algorithm": {"type": "threshold", "threshold": {"operator": "Equal", "value": True}}},
            "algorithm.threshold.value",
        ),
        (
            {"algorithm": {"type": "threshold", "threshold": {"operator": "Equal", "value": math.inf}}},
            "algorithm.threshold.value",
        ),
        (
            {"algorithm": {"type": "threshold", "threshold": {"operator": "Equal", "value": 1, "x": 1}}},
            "algorithm.threshold.x",
        ),
        (
            {"algorithm": {"type": "threshold", "threshold": {"operator": "Equal", "value": 1}, "value": 1}},
            "algorithm.value",
        ),
        ({"algorithm": {"type": "threshold", "percentile": 5}}, "algorithm.percentile"),
    ],
)
def test_the_filter_is_read_strictly(harness: PluginHarness, changes: dict[str, object], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", FILTER, {**threshold("Equal", 1), **changes})
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"attributeKey": "depth"}, "attributeKey"),
        ({"onMissing": "Pass"}, "onMissing"),
        ({"algorithm": "linear_lower_is_better"}, "algorithm"),
        ({"algorithm": {"type": "linear"}}, "algorithm.type"),
        (
            {"algorithm": {"type": LOWER, "normalization": {"adaptiveRange": {"min": 1}}}},
            "algorithm.normalization.adaptiveRange.min",
        ),
        ({"algorithm": {"type": LOWER, "normalization": {"fixedRange": 5}}}, "algorithm.normalization.fixedRange"),
        (
            {"algorithm": {"type": LOWER, "normalization": {"fixedRange": {"min": 1, "max": 1}}}},
            "algorithm.normalization.fixedRange",
        ),
        (
            {"algorithm": {"type": LOWER, "normalization": {"fixedRange": {"min": "0", "max": 1}}}},
            "algorithm.normalization.fixedRange.min",
        ),
        (
            {"algorithm": {"type": LOWER, "normalization": {"fixedRange": {"max": 1}, "adaptiveRange": {}}}},
            "algorithm.normalization.adaptiveRange",
        ),
        ({"algorithm": {"type": LOWER, "normalization": {}, "fixedRange": {"max": 1}}}, "algorithm.fixedRange"),
        ({"algorithm": {"type": LOWER, "normalisation": {}}}, "algorithm.normalisation"),
    ],
)
def test_the_scorer_is_read_strictly(harness: PluginHarness, changes: dict[str, object], path: str) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", SCORER, {**linear(LOWER), **changes})
    assert caught.value.path == path


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6))
def test_whole_numbers_are_known_but_for_minus_1(values: list[int]) -> None:
    found = known_figures(memoryview(array("q", values)))
    for value, figure in zip(values, found.tolist(), strict=True):
        assert math.isnan(figure) if value == -1 else figure == float(value)


@pytest.mark.parametrize("type_name", [FILTER, SCORER])
def test_an_attribute_has_to_be_named(harness: PluginHarness, type_name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        harness.configure("x", type_name, {"algorithm": {"type": "threshold", "operator": "Equal", "value": 1}})
    assert caught.value.path == "attribute"
