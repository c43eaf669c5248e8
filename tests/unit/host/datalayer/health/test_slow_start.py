"""The ramp of an endpoint that is new or back."""

import pytest
from hotbay.datalayer.health.slow_start import FIRST_SHARE, STEPS, ramp
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(("age_s", "share"), [(-1.0, 0.1), (0.0, 0.1), (15.0, 0.5), (29.9, 31 / 32), (30.0, 1.0)])
def test_share_grows_in_a_line_from_a_tenth(age_s: float, share: float) -> None:
    assert ramp(age_s, 30.0) == share


@pytest.mark.parametrize("window_s", [0.0, -1.0])
def test_without_a_window_the_share_is_whole(window_s: float) -> None:
    assert ramp(0.0, window_s) == 1.0


@given(st.lists(st.floats(0.0, 1e6), min_size=2), st.floats(1e-3, 1e6))
def test_share_never_falls_and_moves_in_few_steps(ages_s: list[float], window_s: float) -> None:
    shares = [ramp(age_s, window_s) for age_s in sorted(ages_s)]
    assert shares == sorted(shares)
    assert all(FIRST_SHARE <= share <= 1.0 for share in shares)
    assert len(set(shares)) <= STEPS + 1


def test_an_endpoint_that_was_always_there_has_its_whole_share() -> None:
    assert ramp(float("inf"), 30.0) == 1.0
