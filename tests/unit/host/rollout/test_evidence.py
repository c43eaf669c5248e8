"""The likelihood ratios behind verdicts: never above 1 in expectation under the hypothesis, whatever is looked at."""

from math import comb

import numpy as np
import pytest
from hotbay.rollout.evidence import above_limit, above_other
from hypothesis import given
from hypothesis import strategies as st


@given(of=st.integers(1, 60), rate=st.floats(0.0, 1.0), limit=st.sampled_from((0.01, 0.05, 0.2)))
def test_evidence_above_a_limit_expects_at_most_one_below_it(of: int, rate: float, limit: float) -> None:
    rate *= limit
    expected = sum(
        comb(of, bad) * rate**bad * (1 - rate) ** (of - bad) * above_limit(bad, of, limit) for bad in range(of + 1)
    )
    assert expected <= 1.0 + 1e-9


@given(failures=st.integers(0, 40), here=st.integers(1, 500), there=st.integers(1, 500), factor=st.floats(0.0, 1.0))
def test_evidence_above_the_other_side_expects_at_most_one_when_it_fails_no_oftener(
    failures: int, here: int, there: int, factor: float
) -> None:
    share = factor * here / (factor * here + there)
    expected = sum(
        comb(failures, bad)
        * share**bad
        * (1 - share) ** (failures - bad)
        * above_other(bad, here, failures - bad, there)
        for bad in range(failures + 1)
    )
    assert expected <= 1.0 + 1e-9


def test_looking_after_every_failure_calls_equals_different_no_oftener_than_promised() -> None:
    """Ville's inequality, by 4000 seeded walks of 400 failures each: above 20 in at most one of 20."""
    rng = np.random.default_rng(20)
    crossed = 0
    for _ in range(4000):
        mine = np.cumsum(rng.random(400) < 0.1)
        looks = (2, 5, 10, 20, 40, 80, 120, 200, 300, 400)
        crossed += any(above_other(int(mine[n - 1]), 1000, n - int(mine[n - 1]), 9000) >= 20.0 for n in looks)
    assert crossed / 4000 <= 1 / 20


@pytest.mark.parametrize(("of", "other"), [(0, 10), (10, 0), (0, 0)])
def test_without_trials_on_either_side_nothing_is_said(of: int, other: int) -> None:
    assert above_other(0, of, 0, other) == 1.0


def test_overwhelming_counts_stay_finite() -> None:
    assert above_limit(10**6, 10**6, 0.01) == above_other(10**6, 10**6, 0, 10**6) == 1e12
