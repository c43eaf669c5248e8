"""Built-in pickers as pure functions: EP08, EP10, EP11, S07, and what holds for any totals and masks."""

from collections import Counter

import numpy as np
import pytest
from hotbay.scheduling.builtin import PICKERS, TIE, max_score, uniform, weighted_random
from hypothesis import given
from hypothesis import strategies as st


def pick(
    picker, totals: list[float], count: int = 1, mask: list[bool] | None = None, seed: int = 3, tie: float = 0.0
) -> list[int]:
    allowed = np.array([True] * len(totals) if mask is None else mask)
    return picker(np.array(totals, np.float32), allowed, count, np.random.default_rng(seed), tie)


def test_max_score_takes_the_highest_ep08_ep10() -> None:
    assert pick(max_score, [10, 25, 15]) == [1]
    assert pick(max_score, [20, 25, 30], count=4) == [2, 1, 0]


@pytest.mark.parametrize("picker", [max_score, uniform, weighted_random])
def test_s07_ties_are_spread_over_3000_picks(picker) -> None:
    rng = np.random.default_rng(5)
    totals, mask = np.ones(3, np.float32), np.ones(3, np.bool_)
    picked = Counter(picker(totals, mask, 1, rng)[0] for _ in range(3000))
    assert all(850 <= picked[row] <= 1150 for row in range(3)), picked


def test_weighted_random_draws_by_weight_ep11() -> None:
    rng = np.random.default_rng(5)
    totals, mask = np.array([10, 90], np.float32), np.ones(2, np.bool_)
    picked = Counter(weighted_random(totals, mask, 1, rng)[0] for _ in range(10_000))
    assert picked[0] / 10_000 == pytest.approx(0.1, abs=0.05)


def test_weighted_random_prefers_any_positive_score_to_none() -> None:
    assert all(pick(weighted_random, [0.0, 1e-30, 0.0], seed=seed) == [1] for seed in range(50))


@given(
    rows=st.lists(st.tuples(st.floats(0, 7, width=32), st.booleans()), min_size=1, max_size=40),
    count=st.integers(1, 16),
    name=st.sampled_from(sorted(PICKERS)),
    seed=st.integers(0, 1000),
)
def test_any_picker_names_distinct_allowed_rows_and_as_many_as_there_are(
    rows: list[tuple[float, bool]], count: int, name: str, seed: int
) -> None:
    totals, mask = [score for score, _ in rows], [allowed for _, allowed in rows]
    picked = pick(PICKERS[name], totals, count, mask, seed)
    assert len(picked) == len(set(picked)) == min(count, sum(mask))
    assert all(mask[row] for row in picked)


def test_s10_totals_that_differ_by_float_noise_are_equal_and_others_are_not() -> None:
    within, beyond = 1.0 - TIE, 1.0 - 2 * TIE
    for count in (1, 2):
        first = Counter(pick(max_score, [1.0, within], count, seed=seed, tie=TIE)[0] for seed in range(400))
        assert all(150 <= first[row] <= 250 for row in (0, 1)), first
        apart = {pick(max_score, [beyond, 1.0], count, seed=seed, tie=TIE)[0] for seed in range(50)}
        assert apart == {1}


def test_s10_ties_hold_among_all_that_are_named() -> None:
    totals = [0.5, 1.0, 0.5 + TIE, 0.25]
    orders = {tuple(pick(max_score, totals, 4, seed=seed, tie=TIE)) for seed in range(50)}
    assert orders == {(1, 0, 2, 3), (1, 2, 0, 3)}


@given(
    scores=st.lists(st.floats(0, 1, width=32), min_size=1, max_size=8),
    weights=st.lists(st.floats(0, 100, width=32), min_size=8, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_s10_tie_allows_for_what_float32_sums_are_off_by(scores: list[float], weights: list[float], order) -> None:
    terms = [np.float32(w) * np.float32(s) for s, w in zip(scores, weights, strict=False)]
    shuffled = [*terms]
    order.shuffle(shuffled)
    sums = [float(np.add.accumulate(np.array(them, np.float32))[-1]) for them in (terms, shuffled)]
    assert abs(sums[0] - sums[1]) <= TIE * sum(weights[: len(scores)])
