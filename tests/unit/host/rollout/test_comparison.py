"""How far two answers lie apart: against plain definitions, and over all pairs of a shadow."""

from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from hotbay.rollout.comparison import MAX_ROWS, Comparisons, compare, jaccard, kendall_tau_b, regret
from hotbay.scheduling.arms import AnswerPair
from hotbay.scheduling.binding import Point
from hypothesis import given
from hypothesis import strategies as st

ALL = np.ones(3, np.bool_)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def bools(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_tau_b_is_that_of_its_definition(values: list[tuple[int, int]]) -> None:
    pairs = list(combinations(values, 2))
    signs = [((a > c) - (a < c), (b > d) - (b < d)) for (a, b), (c, d) in pairs]
    ours, theirs = sum(x != 0 for x, _ in signs), sum(y != 0 for _, y in signs)
    expected = sum(x * y for x, y in signs) / sqrt(ours * theirs) if ours and theirs else float(ours == theirs)
    found = kendall_tau_b(np.array([a for a, _ in values], np.float64), np.array([b for _, b in values], np.float64))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("rows", [MAX_ROWS, MAX_ROWS + 1, 5000])
def test_tau_b_of_many_rows_looks_at_so_many_of_them_from_first_to_last(rows: int) -> None:
    ranks = np.arange(rows, dtype=np.float64)
    assert kendall_tau_b(ranks, ranks) == 1.0
    assert kendall_tau_b(ranks, -ranks) == -1.0


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=20))
def test_jaccard_is_that_of_sets(rows: list[tuple[bool, bool]]) -> None:
    ours = {i for i, (a, _) in enumerate(rows) if a}
    theirs = {i for i, (_, b) in enumerate(rows) if b}
    expected = len(ours & theirs) / len(ours | theirs) if ours | theirs else 1.0
    assert jaccard(bools(*(a for a, _ in rows)), bools(*(b for _, b in rows))) == expected


def test_regret_is_the_share_of_the_candidates_span() -> None:
    totals = floats(0.0, 0.5, 1.0, 9.0)
    asked = bools(1, 1, 1, 0)
    assert regret(totals, asked, 2, 1) == 0.5
    assert regret(totals, asked, 1, 2) == 0.0
    assert regret(floats(1, 1, 1), ALL, 0, 2) == 0.0
    assert regret(totals, bools(0, 0, 0, 0), 0, 1) == 0.0


@pytest.mark.parametrize(
    ("pair", "agreement", "difference"),
    [
        (AnswerPair(Point.FILTER, "f", bools(1, 1, 0), bools(1, 1, 1), bools(1, 0, 0)), 0.5, 0.5),
        (AnswerPair(Point.SCORE, "s", ALL, floats(0, 0.5, 1), floats(0, 0.25, 1)), 1.0, 0.25),
        (AnswerPair(Point.SCORE, "s", bools(1, 1, 0), floats(0, 1, 0), floats(0, 1, 1)), 1.0, 0.0),
        (AnswerPair(Point.SCORE, "s", bools(0, 0, 0), floats(0, 1, 0), floats(1, 1, 1)), 1.0, 0.0),
        (AnswerPair(Point.PICK, "p", ALL, (2, 1), (2, 0), floats(0, 1, 2)), 1.0, 0.0),
        (AnswerPair(Point.PICK, "p", ALL, (2,), (1,), floats(0, 1, 2)), 0.0, 0.5),
        (AnswerPair(Point.PROFILE_HANDLER, "h", ALL, ("a", "b"), ("a", "b")), 1.0, 0.0),
        (AnswerPair(Point.PROFILE_HANDLER, "h", ALL, ("a", "b"), ("b",)), 0.0, 1.0),
        (AnswerPair(Point.PRODUCE, "d/x", ALL, 3.0, 5.0), 0.0, 2.0),
        (AnswerPair(Point.PRODUCE, "d/x", ALL, 3.0, 3.0), 1.0, 0.0),
        (AnswerPair(Point.PRODUCE, "d/x", ALL, 3.0, floats(3, 3, 3)), 0.0, 1.0),
        (AnswerPair(Point.PRODUCE, "d/x", ALL, floats(1, np.nan, 3), floats(1, 0, 3)), 1.0, 0.0),
    ],
)
def test_pair_is_compared_by_its_point(pair: AnswerPair, agreement: float, difference: float) -> None:
    found = compare(pair)
    assert (found.agreement, found.difference) == (pytest.approx(agreement), pytest.approx(difference))


def test_comparisons_keep_means_and_extremes_and_columns_have_a_scale_of_their_own() -> None:
    comparisons = Comparisons()
    assert comparisons.largest == 0.0
    for other in (floats(0, 0.5, 1), floats(1, 0.5, 0)):
        comparisons.add(AnswerPair(Point.SCORE, "s", ALL, floats(0, 0.5, 1), other))
    comparisons.add(AnswerPair(Point.PRODUCE, "d/x", ALL, 0.0, 700.0))
    assert comparisons.pairs == 3
    assert comparisons.largest == 1.0
    assert comparisons.rows()["score:s"] == {
        "pairs": 2.0,
        "agreement": 0.0,
        "lowest_agreement": -1.0,
        "largest_difference": 1.0,
    }
