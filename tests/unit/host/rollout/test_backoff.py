"""Backoff: delays, the reset by health, the budget."""

import pytest
from hotbay.rollout.backoff import BackoffPolicy, BackoffState, Disabled, Restart, became_ready, failed
from hypothesis import given
from hypothesis import strategies as st

POLICY = BackoffPolicy()
PATIENT = BackoffPolicy(budget_failures=10**6)
chances = st.floats(0, 1, exclude_max=True)


def delays(policy: BackoffPolicy, times: list[float], *, random: float = 0.0, counts: bool = True) -> list[float]:
    state, found = BackoffState(), []
    for now in times:
        state, verdict = failed(policy, state, now=now, random=random, counts=counts)
        assert isinstance(verdict, Restart)
        found.append(verdict.delay_s)
    return found


def test_delays_double_up_to_the_maximum() -> None:
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    assert delays(PATIENT, [0.0] * 11) == pytest.approx([step / 2 for step in expected])
    assert delays(PATIENT, [0.0] * 11, random=1 - 1e-12) == pytest.approx(expected)


@given(st.integers(0, 10**9), chances)
def test_delay_lies_in_the_upper_half_of_its_step(step: int, random: float) -> None:
    _, verdict = failed(PATIENT, BackoffState(step=step), now=0.0, random=random)
    assert isinstance(verdict, Restart)
    assert PATIENT.step_s(step) / 2 <= verdict.delay_s <= PATIENT.step_s(step) <= PATIENT.max_s


@pytest.mark.parametrize(("healthy_s", "delay_s"), [(59.9, 0.4), (60.0, 0.1), (3600.0, 0.1)])
def test_hb17_health_for_the_stable_window_resets_the_delay(healthy_s: float, delay_s: float) -> None:
    state = became_ready(BackoffState(step=2), now=100.0)
    _, verdict = failed(POLICY, state, now=100.0 + healthy_s, random=0.0)
    assert verdict == Restart(pytest.approx(delay_s / 2))


def test_health_counts_once() -> None:
    state = became_ready(BackoffState(step=5), now=0.0)
    state, _ = failed(PATIENT, state, now=60.0, random=0.0)
    _, verdict = failed(PATIENT, state, now=200.0, random=0.0)
    assert verdict == Restart(0.1)


def test_fifth_failure_in_ten_minutes_disables() -> None:
    state = BackoffState()
    for now in (0.0, 100.0, 200.0, 300.0):
        state, verdict = failed(POLICY, became_ready(state, now=now), now=now + 99, random=0.0)
        assert isinstance(verdict, Restart)
    assert failed(POLICY, state, now=698.9, random=0.0)[1] == Disabled(5)
    assert isinstance(failed(POLICY, state, now=699.0, random=0.0)[1], Restart)


def test_kill_from_outside_backs_off_and_never_disables() -> None:
    found = delays(POLICY, [float(n) for n in range(20)], counts=False)
    assert found[:3] == [0.05, 0.1, 0.2]
    assert found[-1] == 15.0


def test_kill_from_outside_leaves_the_count_alone() -> None:
    state = BackoffState(failures=(0.0, 1.0, 2.0, 3.0))
    state, verdict = failed(POLICY, state, now=4.0, random=0.0, counts=False)
    assert isinstance(verdict, Restart)
    assert failed(POLICY, state, now=5.0, random=0.0)[1] == Disabled(5)


@given(st.lists(st.tuples(st.floats(0, 500), st.booleans(), chances), max_size=40))
def test_disables_exactly_when_the_budget_is_used_up(history: list[tuple[float, bool, float]]) -> None:
    state, now, counted = BackoffState(), 0.0, list[float]()
    for gap, counts, random in history:
        now += gap
        state, verdict = failed(POLICY, state, now=now, random=random, counts=counts)
        counted += [now] if counts else []
        recent = [at for at in counted if now - at < POLICY.budget_within_s]
        assert isinstance(verdict, Disabled) == (counts and len(recent) >= POLICY.budget_failures)
        assert len(state.failures) <= len(history)


@pytest.mark.parametrize(
    "wrong", [{"first_s": 0.0}, {"first_s": 31.0}, {"factor": 0.5}, {"budget_failures": 0}, {"first_s": float("nan")}]
)
def test_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected 0 < first"):
        BackoffPolicy(**wrong)  # type: ignore[arg-type]  # one field at a time
