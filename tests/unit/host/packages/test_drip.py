"""When a download counts as stalled."""

from hotbay.packages.drip import Drip
from hypothesis import given
from hypothesis import strategies as st

PIECES = st.lists(st.tuples(st.integers(0, 5000), st.floats(0.0, 3.0)), max_size=50)


def test_window_begins_again_when_enough_has_come() -> None:
    drip = Drip.start(100.0, 2.0, now_s=10.0)
    assert (drip.needed_bytes, drip.deadline_s) == (200, 12.0)
    drip.received(199, 11.0)
    assert drip.deadline_s == 12.0
    drip.received(1, 11.5)
    assert drip.deadline_s == 13.5


def test_least_rate_is_a_byte_in_a_window() -> None:
    drip = Drip.start(0.0, 30.0, now_s=0.0)
    drip.received(1, 29.0)
    assert drip.deadline_s == 59.0


def test_time_that_is_not_the_sources_does_not_count() -> None:
    drip = Drip.start(100.0, 2.0, now_s=0.0)
    drip.paused(7.5)
    assert drip.deadline_s == 9.5


@given(PIECES)
def test_deadline_never_falls_and_is_at_most_a_window_ahead(pieces: list[tuple[int, float]]) -> None:
    drip, now_s = Drip.start(1000.0, 2.0, now_s=0.0), 0.0
    for count, elapsed_s in pieces:
        now_s += elapsed_s
        before = drip.deadline_s
        drip.received(count, now_s)
        assert before <= drip.deadline_s or drip.deadline_s == now_s + 2.0
        assert drip.deadline_s <= max(before, now_s + 2.0)


@given(PIECES)
def test_who_keeps_to_its_deadlines_is_as_fast_as_asked(pieces: list[tuple[int, float]]) -> None:
    """All full windows together: never slower than the rate, however the pieces fall."""
    drip, now_s, total = Drip.start(1000.0, 2.0, now_s=0.0), 0.0, 0
    for count, elapsed_s in pieces:
        now_s += elapsed_s
        if now_s > drip.deadline_s:
            return
        total += count
        drip.received(count, now_s)
        assert total >= 1000.0 * (now_s - 2.0) - 2000.0
