"""The breaker: opens at the third failure of the last eight, lets probes through, closes on a good answer."""

from hotbay.rpc.limits import HISTORY, OPENS_AT, PROBE_INTERVAL_S, Breaker
from hypothesis import given
from hypothesis import strategies as st


def test_breaker_opens_at_the_third_failure_and_not_before() -> None:
    breaker = Breaker()
    for _ in range(OPENS_AT - 1):
        breaker.record(ok=False, now=0.0)
    assert breaker.allows(0.0)
    breaker.record(ok=False, now=0.0)
    assert breaker.open
    assert not breaker.allows(0.5 * PROBE_INTERVAL_S)


def test_failures_older_than_the_history_are_forgotten() -> None:
    breaker = Breaker()
    for _ in range(20):
        breaker.record(ok=False, now=0.0)
        for _ in range(HISTORY // (OPENS_AT - 1)):
            breaker.record(ok=True, now=0.0)
    assert not breaker.open


def test_one_probe_an_interval_and_a_good_one_closes() -> None:
    breaker = Breaker()
    for _ in range(OPENS_AT):
        breaker.record(ok=False, now=0.0)
    assert breaker.allows(PROBE_INTERVAL_S)
    assert not breaker.allows(PROBE_INTERVAL_S)
    breaker.record(ok=False, now=PROBE_INTERVAL_S)
    assert breaker.open
    assert breaker.allows(2 * PROBE_INTERVAL_S)
    breaker.record(ok=True, now=2 * PROBE_INTERVAL_S)
    assert not breaker.open
    assert breaker.allows(2 * PROBE_INTERVAL_S)


@given(st.lists(st.booleans(), max_size=100))
def test_breaker_agrees_with_counting_the_last_eight(outcomes: list[bool]) -> None:
    breaker = Breaker()
    for index, ok in enumerate(outcomes):
        breaker.record(ok=ok, now=0.0)
        recent = outcomes[: index + 1][-HISTORY:]
        assert breaker.open == (recent.count(False) >= OPENS_AT)
        if breaker.open:
            return
