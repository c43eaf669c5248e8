"""When endpoints are due, and how the interval grows and shrinks with the load."""

from itertools import pairwise

import pytest
from hotbay.datalayer.scraping.schedule import (
    CALM,
    CALM_BUSY,
    CALM_LATE,
    CALM_WINDOWS,
    FAILING_S,
    LONGEST_S,
    MOST_SHARE,
    PATIENCE,
    TOO_BUSY,
    TOO_LATE,
    WORTH,
    Load,
    Pressure,
    failing_factor,
    measured,
    most_factor,
    next_due,
    own_factor,
    start_delay_s,
    step,
)
from hypothesis import given
from hypothesis import strategies as st

IDLE = Load(0.0, 0.0)
loads = st.builds(Load, busy=st.floats(0, 1), late=st.floats(0, 1))


def after(pressure: Pressure, load: Load, windows: int, most: float = 40.0) -> Pressure:
    for _ in range(windows):
        pressure = step(pressure, load, most)
    return pressure


def test_a_thousand_endpoints_start_one_after_the_other_and_in_the_same_order_in_every_run() -> None:
    delays = [start_delay_s(f"default/e{number}", 0.05, 1000) for number in range(1000)]
    assert delays == [start_delay_s(f"default/e{number}", 0.05, 1000) for number in range(1000)]
    assert min(delays) >= 0
    assert max(delays) < 1.0
    # No tenth of the second has a quarter more or less than its share; and on the grid of 50 ms it is alike.
    for window_s in (1.0, 0.05):
        counts = [sum(int(delay % window_s / window_s * 10) == tenth for delay in delays) for tenth in range(10)]
        assert 65 <= min(counts) <= max(counts) <= 135


@pytest.mark.parametrize(("interval_s", "count", "within_s"), [(0.05, 1, 0.05), (3600.0, 1, 1.0), (0.05, 3000, 3.0)])
def test_a_first_page_comes_soon_whatever_the_interval(interval_s: float, count: int, within_s: float) -> None:
    delays = [start_delay_s(str(number), interval_s, count) for number in range(200)]
    assert within_s * 0.9 < max(delays) < within_s


@pytest.mark.parametrize("interval_s", [0.05, 0.3, 1.0, 5.0])
def test_an_endpoint_that_fails_is_asked_less_often_from_its_third_failure_on_and_at_least_each_second(
    interval_s: float,
) -> None:
    factors = [failing_factor("default/a", failures, interval_s) for failures in range(40)]
    assert factors[:PATIENCE] == [1.0] * PATIENCE
    for failures, factor in enumerate(factors[PATIENCE:], start=1):
        grown_s = min(FAILING_S, interval_s * 2.0**failures)
        assert max(interval_s, 0.75 * grown_s) <= factor * interval_s <= max(interval_s, grown_s)
    assert failing_factor("default/a", 10**9, interval_s) * interval_s <= max(interval_s, FAILING_S)


def test_endpoints_that_failed_together_are_asked_apart_and_in_every_run_alike() -> None:
    factors = [failing_factor(f"default/{number}", 20, 0.05) for number in range(100)]
    assert len(set(factors)) == 100
    assert max(factors) - min(factors) > 3.0
    assert factors == [failing_factor(f"default/{number}", 20, 0.05) for number in range(100)]


@pytest.mark.parametrize(("now", "due"), [(10.0, 10.05), (10.049, 10.05), (10.06, 10.1), (11.0, 11.05), (9.0, 10.05)])
def test_points_of_the_grid_that_passed_are_left_out(now: float, due: float) -> None:
    assert next_due(10.0, 0.05, now) == pytest.approx(due)


@given(st.floats(0, 1e6), st.floats(0.05, 100), st.floats(0, 1e4))
def test_the_next_point_is_on_the_grid_and_not_past_by_more_than_rounding(
    due: float, interval_s: float, late_s: float
) -> None:
    found = next_due(due, interval_s, due + late_s)
    assert found >= due + late_s - 1e-6
    assert found <= due + late_s + interval_s + 1e-6
    assert ((found - due) / interval_s) == pytest.approx(round((found - due) / interval_s), abs=1e-4)


@pytest.mark.parametrize(
    ("load", "widens"),
    [
        (Load(TOO_BUSY, 0.0), True),
        (Load(TOO_BUSY - 0.001, 0.0), False),
        (Load(0.0, TOO_LATE), True),
        (Load(0.0, TOO_LATE - 0.001), False),
    ],
)
def test_the_interval_grows_from_the_limits_on(load: Load, widens: bool) -> None:
    assert (step(CALM, load, 40.0).factor > 1.0) is widens


@pytest.mark.parametrize(("polling", "widens"), [(WORTH, True), (WORTH - 0.001, False)])
def test_a_loop_that_others_keep_busy_costs_no_freshness(polling: float, widens: bool) -> None:
    assert (step(CALM, Load(1.0, 1.0, polling), 40.0).factor > 1.0) is widens
    # What polling takes at wider intervals says what it would take at those asked for.
    assert (step(Pressure(4.0), Load(1.0, 1.0, polling / 4), 40.0).factor > 4.0) is widens


def test_intervals_come_back_when_polling_is_no_longer_what_the_loop_is_busy_with() -> None:
    assert after(Pressure(8.0), Load(1.0, 1.0, 0.001), 20) == CALM


def test_a_saturated_loop_gets_air_in_few_windows_and_the_interval_ends_at_its_bound() -> None:
    factors = [CALM.factor]
    pressure = CALM
    for _ in range(20):
        pressure = step(pressure, Load(1.0, 1.0), most_factor(0.05))
        factors.append(pressure.factor)
    assert factors[3] > 3
    assert factors[-1] == pytest.approx(LONGEST_S / 0.05)
    assert all(later >= earlier for earlier, later in pairwise(factors))


@pytest.mark.parametrize(("interval_s", "most"), [(0.05, 40.0), (1.0, 2.0), (2.0, 1.0), (60.0, 1.0)])
def test_no_interval_grows_beyond_what_schedulers_take_for_known(interval_s: float, most: float) -> None:
    assert most_factor(interval_s) == pytest.approx(most)


def test_the_interval_shrinks_after_some_calm_windows_and_not_before() -> None:
    wide = Pressure(8.0)
    assert after(wide, IDLE, CALM_WINDOWS - 1).factor == 8.0
    assert after(wide, IDLE, CALM_WINDOWS).factor < 8.0
    assert after(wide, IDLE, 100 * CALM_WINDOWS) == CALM


@pytest.mark.parametrize(
    ("load", "calm"),
    [
        (Load(CALM_BUSY, CALM_LATE), True),
        (Load(CALM_BUSY + 0.001, 0.0), False),
        (Load(0.0, CALM_LATE + 0.001), False),
    ],
)
def test_only_calm_windows_in_a_row_count(load: Load, calm: bool) -> None:
    almost = after(Pressure(8.0), IDLE, CALM_WINDOWS - 1)
    assert (step(almost, load, 40.0).factor < 8.0) is calm
    if not calm:
        assert after(step(almost, load, 40.0), IDLE, CALM_WINDOWS - 1).factor == 8.0


@pytest.mark.parametrize(
    ("took_s", "ran_s", "load"),
    [
        (1.0, 0.25, Load(0.25, 0.5)),
        (2.99, 0.299, Load(pytest.approx(0.1), 0.5)),
        (3.0, 0.3, None),
        (3.0, 2.7, Load(pytest.approx(0.9), 0.5)),
        (1.0, 1.2, Load(1.0, 0.5)),
    ],
)
def test_a_window_in_which_the_process_was_stopped_says_nothing(took_s: float, ran_s: float, load: Load | None) -> None:
    assert measured(took_s, ran_s, 10, 5, took_s) == load
    assert measured(1.0, 0.0, 0, 0, 1.5) == IDLE
    assert measured(2.0, 1.0, 0, 0, 0.5) == Load(0.5, 0.0, 0.25)


@given(st.floats(0.05, 20.0), st.floats(0.0, 0.3))
def test_a_steady_load_ends_at_one_interval(work: float, other: float) -> None:
    """`work` is what the pages would take of the loop at the interval asked for, `other` is what else there is."""
    pressure, factors = CALM, []
    for _ in range(400):
        busy = min(1.0, work / pressure.factor + other)
        pressure = step(pressure, Load(busy, 1.0 if busy >= 1.0 else 0.0), 40.0)
        factors.append(pressure.factor)
    assert len(set(factors[-100:])) == 1, "it neither grows nor shrinks any more"
    assert min(1.0, work / pressure.factor + other) < TOO_BUSY


@given(st.lists(loads, max_size=60), st.floats(1.0, 40.0))
def test_whatever_the_load_the_factor_stays_in_its_bounds(windows: list[Load], most: float) -> None:
    pressure = CALM
    for load in windows:
        pressure = step(pressure, load, most)
        assert 1.0 <= pressure.factor <= most
        assert 0 <= pressure.calm < CALM_WINDOWS


@pytest.mark.parametrize(
    ("factor", "cost_s", "expected"),
    [
        (1.0, 0.000_25, 1.0),
        (1.0, 0.0025, 1.0),
        (1.0, 0.003, 1.2),
        (1.2, 0.0025, 1.2),
        (1.0, 0.04, 16.0),
        (16.0, 0.021, 16.0),
        (16.0, 0.02, 8.0),
        (16.0, 0.000_25, 1.0),
        (1.0, 1.0, 40.0),
        (40.0, 1.0, 40.0),
    ],
)
def test_an_endpoint_whose_page_is_dear_is_asked_less_often(factor: float, cost_s: float, expected: float) -> None:
    assert own_factor(factor, cost_s, 0.05, 40.0) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0.05, 5.0))
def test_no_endpoint_takes_more_than_its_share_unless_its_interval_is_at_its_longest(
    costs_s: list[float], interval_s: float
) -> None:
    factor, most = 1.0, most_factor(interval_s)
    for cost_s in costs_s:
        factor = own_factor(factor, cost_s, interval_s, most)
        assert 1.0 <= factor <= most
        assert factor == most or cost_s <= MOST_SHARE * interval_s * factor * 1.001


@given(st.lists(st.floats(0.0005, 0.001), min_size=2, max_size=20).map(lambda them: [it * 10 for it in them]))
def test_costs_that_vary_by_less_than_half_settle(costs_s: list[float]) -> None:
    factor = own_factor(1.0, max(costs_s), 0.05, 40.0)
    for cost_s in costs_s:
        assert own_factor(factor, cost_s * 1.001, 0.05, 40.0) == pytest.approx(factor, rel=0.01)


@given(st.lists(st.tuples(st.floats(0, 0.0099), st.floats(0, 0.04)), min_size=20, max_size=60))
def test_m04_intervals_of_others_vary_by_less_than_a_fifth_beside_a_slow_endpoint(
    turns: list[tuple[float, float]],
) -> None:
    """A turn: how late the loop wakes the endpoint, less than a fifth of its interval, and how long its answer takes."""
    due = slow_due = 0.0
    asked, slow_asked = [], []
    for late_s, answer_s in turns:
        asked.append(due + late_s)
        due = next_due(due, 0.05, due + late_s + answer_s)
        # Beside it one whose answers take the whole budget: a question at a time, and its grid is nobody else's.
        if slow_due <= asked[-1]:
            slow_asked.append(slow_due)
            slow_due = next_due(slow_due, 0.05, slow_due + 1.0)
    assert all(abs(later - earlier - 0.05) < 0.2 * 0.05 for earlier, later in pairwise(asked))
    assert all(later - earlier > 1.0 - 1e-9 for earlier, later in pairwise(slow_asked))
