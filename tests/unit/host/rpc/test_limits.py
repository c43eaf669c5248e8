"""The breaker: opens at three misses or more than three failures of the last eight, lets probes through, closes on a good answer."""

import pytest
from hotbay.rpc.limits import HISTORY, OPENS_ABOVE_FAILURES, OPENS_AT_MISSES, PROBE_INTERVAL_S, Answer, Breaker
from hypothesis import given
from hypothesis import strategies as st


def opened() -> Breaker:
    breaker = Breaker()
    for _ in range(OPENS_AT_MISSES):
        breaker.record(Answer.MISS, now=0.0)
    return breaker


@pytest.mark.parametrize(("answer", "at"), [(Answer.MISS, 3), (Answer.BAD, 4)])
def test_breaker_opens_at_its_number_of_failures_and_not_before(answer: Answer, at: int) -> None:
    breaker = Breaker()
    for _ in range(at - 1):
        breaker.record(answer, now=0.0)
    assert breaker.allows(0.0)
    breaker.record(answer, now=0.0)
    assert breaker.open
    assert not breaker.allows(0.5 * PROBE_INTERVAL_S)


def test_failures_older_than_the_history_are_forgotten() -> None:
    breaker = Breaker()
    for _ in range(20):
        breaker.record(Answer.MISS, now=0.0)
        for _ in range(HISTORY // (OPENS_AT_MISSES - 1)):
            breaker.record(Answer.GOOD, now=0.0)
    assert not breaker.open


def test_one_probe_an_interval_and_a_good_one_closes() -> None:
    breaker = opened()
    assert breaker.allows(PROBE_INTERVAL_S)
    assert not breaker.allows(PROBE_INTERVAL_S)
    breaker.record(Answer.MISS, now=PROBE_INTERVAL_S)
    assert breaker.open
    assert breaker.allows(2 * PROBE_INTERVAL_S)
    breaker.record(Answer.GOOD, now=2 * PROBE_INTERVAL_S)
    assert not breaker.open
    assert breaker.allows(2 * PROBE_INTERVAL_S)


def test_sign_of_life_brings_the_next_probe_forward_and_closes_nothing() -> None:
    breaker = opened()
    breaker.revived(0.1)
    assert breaker.open
    assert breaker.allows(0.1)
    assert not breaker.allows(0.1)


@given(st.lists(st.sampled_from(Answer), max_size=100))
def test_breaker_agrees_with_counting_the_last_eight(answers: list[Answer]) -> None:
    breaker = Breaker()
    for index, answer in enumerate(answers):
        breaker.record(answer, now=0.0)
        recent = answers[: index + 1][-HISTORY:]
        misses, failures = recent.count(Answer.MISS), len(recent) - recent.count(Answer.GOOD)
        assert breaker.open == (misses >= OPENS_AT_MISSES or failures > OPENS_ABOVE_FAILURES)
        if breaker.open:
            return
