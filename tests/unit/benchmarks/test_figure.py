"""How samples become rows: ratios within a round, medians over the rounds, goals."""

import pytest

from benchmarks.figure import Bound, Figure, Goal, evaluate

RATIO = Figure("G0", "a ratio", "product:p50_us", against="floor:p50_us", goal=Goal(Bound.AT_MOST, 3.0))


def test_evaluate_forms_ratios_within_the_round_when_the_machine_changes_speed():
    samples = {"product:p50_us": [20.0, 60.0, 21.0], "floor:p50_us": [10.0, 30.0, 10.0]}

    row = evaluate(RATIO, samples, {})

    assert (row.value, row.low, row.high) == (2.0, 2.0, 2.1)
    assert (row.absolute, row.floor) == (21.0, 10.0)
    assert row.met


def test_evaluate_gives_the_absolute_value_without_a_floor():
    row = evaluate(Figure("B0", "alone", "floor:p50_us"), {"floor:p50_us": [1.0, 3.0, 2.0]}, {})

    assert (row.value, row.floor, row.met) == (2.0, None, None)


@pytest.mark.parametrize("missing", ["product", "floor"])
def test_evaluate_says_why_when_a_probe_is_unavailable(missing: str):
    row = evaluate(RATIO, {"product:p50_us": [1.0], "floor:p50_us": [1.0]}, {missing: "no C compiler"})

    assert (row.value, row.met, row.missing) == (None, None, "no C compiler")


@pytest.mark.parametrize(
    ("bound", "value", "met"),
    [
        (Bound.AT_MOST, 3.0, True),
        (Bound.AT_MOST, 3.1, False),
        (Bound.AT_LEAST, 3.0, True),
        (Bound.AT_LEAST, 2.9, False),
    ],
)
def test_goal_holds_on_its_side(bound: Bound, value: float, met: bool):
    assert Goal(bound, 3.0).met(value) is met
