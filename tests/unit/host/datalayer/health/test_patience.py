"""How long a wait without a byte has to be until it says something."""

import pytest
from hotbay.datalayer.health.patience import CONNECTION_S, Awaited, learned, patience_s, weighed
from hotbay.datalayer.health.reports import Attempt
from hotbay.datalayer.health.state import HealthLimits, Usual
from hypothesis import given
from hypothesis import strategies as st

T0 = 1000.0
LIMITS = HealthLimits()
SECONDS = st.floats(0.0, 1e4)
ATTEMPTS = st.sampled_from(list(Attempt))


def test_without_figures_there_is_nothing_usual() -> None:
    assert learned(Usual(), [(), ()], 0.0, T0, LIMITS) == Usual()
    assert patience_s(Awaited.TOKEN, Usual(), LIMITS) == LIMITS.slow_factor * LIMITS.silent_s == 10.0


def test_what_is_awaited_says_how_long() -> None:
    usual = Usual(7.0, T0)
    assert patience_s(Awaited.TOKEN, usual, LIMITS) == 7.0
    assert patience_s(Awaited.WHOLE, usual, LIMITS) == LIMITS.silent_whole_s
    assert patience_s(Awaited.CONNECTION, usual, LIMITS) == CONNECTION_S


@pytest.mark.parametrize(("counts", "seconds"), [((10, 9), 10.0), ((10, 10), 2.0), ((20, 0), 2.0)])
def test_so_many_streams_of_the_pool_tell_what_is_usual(counts: tuple[int, int], seconds: float) -> None:
    assert learned(Usual(), [(0.1,) * count for count in counts], 0.1, T0, LIMITS).patience_s == seconds


@pytest.mark.parametrize(
    ("times_s", "seconds"),
    [([0.1] * 20, 2.0), ([0.5] * 20, 2.5), ([0.1] * 19 + [30.0], 31.0), ([0.1, 30.0], 75.25), ([12.0], 60.0)],
)
def test_median_and_longest_time_say_how_long(times_s: list[float], seconds: float) -> None:
    assert learned(Usual(), [times_s], max(times_s), T0, LIMITS).patience_s == pytest.approx(seconds)


@pytest.mark.parametrize(("after_s", "seconds"), [(300.0, 2.0), (300.1, None)])
def test_what_was_usual_holds_while_hardly_anybody_is_answered(after_s: float, seconds: float | None) -> None:
    usual = learned(Usual(), [(0.1,) * 20], 0.1, T0, LIMITS)
    assert learned(usual, [(), ()], 0.0, T0 + after_s, LIMITS).patience_s == seconds


def test_long_prompt_among_few_counts_against_what_was_usual() -> None:
    usual = learned(Usual(2.0, T0), [(9.0,)], 9.0, T0 + 10.0, LIMITS)
    assert usual == Usual(10.0, T0)


def test_longest_time_says_how_long_though_no_sample_of_it_was_kept() -> None:
    assert learned(Usual(), [(0.1,) * 20], 30.0, T0, LIMITS).patience_s == 31.0


@given(
    times_s=st.lists(st.lists(SECONDS, max_size=30), min_size=1, max_size=9),
    before=st.builds(Usual, st.none() | SECONDS, st.floats(T0 - 1e3, T0)),
    silent_s=st.floats(0.1, 100.0),
)
def test_nothing_that_came_in_time_is_a_silence(times_s: list[list[float]], before: Usual, silent_s: float) -> None:
    limits = HealthLimits(silent_s=silent_s)
    longest_s = max((max(times) for times in times_s if times), default=0.0)
    patience = patience_s(Awaited.TOKEN, learned(before, times_s, longest_s, T0, limits), limits)
    assert all(time_s < patience for times in times_s for time_s in times)
    if before.patience_s is None or before.patience_s >= silent_s:
        assert patience >= silent_s


@given(attempt=ATTEMPTS, waited_s=SECONDS, longest_s=SECONDS)
def test_who_was_heard_is_never_silent_and_only_waits_are_weighed(
    attempt: Attempt, waited_s: float, longest_s: float
) -> None:
    heard = weighed(attempt, heard=True, waited_s=waited_s, patience_s=longest_s)
    assert heard not in (Attempt.SILENT, Attempt.LATE)
    unheard = weighed(attempt, heard=False, waited_s=waited_s, patience_s=longest_s)
    if attempt is Attempt.SILENT:
        assert unheard is (Attempt.SILENT if waited_s >= longest_s else Attempt.UNTOLD)
    elif attempt is Attempt.LATE:
        assert (heard, unheard) == (Attempt.FAILED, Attempt.SILENT)
    else:
        assert heard is unheard is attempt


@given(waits_s=st.tuples(SECONDS, SECONDS), longest_s=SECONDS)
def test_a_longer_wait_never_says_less(waits_s: tuple[float, float], longest_s: float) -> None:
    shorter, longer = (
        weighed(Attempt.SILENT, heard=False, waited_s=wait_s, patience_s=longest_s) for wait_s in sorted(waits_s)
    )
    assert shorter is not Attempt.SILENT or longer is Attempt.SILENT
