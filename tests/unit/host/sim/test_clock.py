"""The clock that tests turn by hand."""

from hotbay.sim.clock import ManualClock


def test_calls_come_in_the_order_of_their_times_each_at_its_own():
    clock = ManualClock(unix_of=100.0)
    seen = []
    for when in (3.0, 1.0, 2.0, 9.0):
        clock.call_at(when, lambda: seen.append(clock.now()))
    clock.advance(5.0)
    assert seen == [1.0, 2.0, 3.0]
    assert (clock.now(), clock.unix_of) == (5.0, 100.0)


def test_call_that_is_cancelled_does_not_come():
    clock = ManualClock()
    clock.call_at(1.0, lambda: 1 / 0).cancel()
    clock.advance(2.0)


def test_call_that_asks_for_another_gets_it_in_the_same_turn():
    clock = ManualClock()
    seen = []

    def again() -> None:
        seen.append(clock.now())
        if clock.now() < 3.0:
            clock.call_at(clock.now() + 1.0, again)

    clock.call_at(1.0, again)
    clock.advance(10.0)
    assert seen == [1.0, 2.0, 3.0]
