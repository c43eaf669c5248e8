"""The longest time to first token counts, however many shorter ones there are; of those the last ones are kept."""

import pytest
from hotbay.datalayer.health.availability import step
from hotbay.datalayer.health.reports import Attempt, Report, Tally
from hotbay.datalayer.health.state import EMPTY_POOL, HealthLimits, Members, Observed, Pool, Tick
from hypothesis import given
from hypothesis import strategies as st

T0 = 1000.0
LIMITS = HealthLimits()
BUSY = 20
"""Streams a second of one endpoint."""


def told(*ttfts_s: float) -> Report:
    tally = Tally(0)
    for ttft_s in ttfts_s:
        tally.add(Attempt.ANSWERED, ttft_s)
    return tally.take()


def pool() -> Pool:
    names = frozenset("ab")
    return step(EMPTY_POOL, Members(names, names), T0, LIMITS)[0]


def second(before: Pool, now: float, *also_s: float) -> Pool:
    """Both endpoints answer their streams at once; `also_s` are times of another one that comes before them, at a."""
    reports = {"a": told(*also_s, *[0.1] * BUSY), "b": told(*[0.1] * BUSY)}
    return step(step(before, Observed(reports), now, LIMITS)[0], Tick(), now, LIMITS)[0]


@pytest.mark.parametrize("at_s", [1, 5, 9])
def test_one_long_first_token_among_hundreds_is_remembered_for_two_intervals(at_s: int) -> None:
    it, seen = pool(), []
    for number in range(40):
        it = second(it, T0 + number, *[30.0] * (number == at_s))
        if number % 10 == 0:
            seen.append(it.usual.patience_s)
    # The first tick ends an interval of nothing but the first second.
    assert seen == [2.0, 31.0, 31.0, 2.0]


@pytest.mark.parametrize("place", [0, 63, 64, 199])
def test_longest_of_more_than_are_kept_between_two_looks_is_told(place: int) -> None:
    times_s = [0.1] * 200
    times_s[place] = 30.0
    report = told(*times_s)
    assert report.longest_ttft_s == 30.0
    assert len(report.ttfts_s) == 64


@given(st.lists(st.floats(0.0, 1e4), max_size=200))
def test_samples_are_the_last_ones_and_are_taken_once(times_s: list[float]) -> None:
    tally = Tally(0)
    for time_s in times_s:
        tally.add(Attempt.ANSWERED, time_s)
    report = tally.take()
    assert report.ttfts_s == tuple(times_s[-64:])
    assert report.longest_ttft_s == max(times_s, default=0.0)
    assert tally.take() == Report()
    assert tally.is_empty
