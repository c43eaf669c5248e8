"""Which lookups begin, and what is told of a name meanwhile."""

import math
from itertools import count

import pytest
from hotbay.resolving.names import FRESH_S, GRACE_S, MAX_AGE_S, MAX_LOOKUPS, SOON_S, Names, Rank, Told
from hypothesis import given
from hypothesis import strategies as st

A = ("10.0.0.1", "10.0.0.2")
B = ("10.0.0.3",)


def answered(names: Names, name: str, addresses: tuple[str, ...], now: float) -> None:
    names.ask(name, now)
    assert list(names.begin(now)) == [name]
    names.answered(name, addresses, now)


def test_one_lookup_of_a_name_is_under_way_whoever_asks() -> None:
    names = Names()
    for now in (0.0, 1.0, 30.0):
        assert names.ask("a", now) == Told(wait_s=math.inf)
        assert list(names.begin(now)) == (["a"] if now == 0.0 else [])
        assert names.is_waited_for("a")
        assert names.running == 1
    assert names.answered("a", A, 31.0) == Told(A)
    assert (names.running, names.is_waited_for("a")) == (0, False)


def test_addresses_are_told_again_for_so_long_and_then_looked_up() -> None:
    names = Names()
    answered(names, "a", A, 10.0)
    assert names.ask("a", 10.0 + FRESH_S - 0.01) == Told(A)
    assert not names.begin(10.0)
    told = names.ask("a", 10.0 + FRESH_S)
    assert (told.addresses, told.wait_s) == (A, pytest.approx(GRACE_S))
    assert list(names.begin(11.0)) == ["a"]
    # Who comes while that lookup hangs waits for what is left of the grace, or not at all.
    assert names.ask("a", 11.0 + GRACE_S / 2).wait_s == pytest.approx(GRACE_S / 2)
    assert names.ask("a", 11.0 + GRACE_S) == Told(A)
    assert names.answered("a", B, 12.0) == Told(B)
    assert names.ask("a", 12.1) == Told(B)


def test_the_last_good_addresses_serve_for_so_long_and_no_longer() -> None:
    names = Names()
    answered(names, "a", A, 0.0)
    names.ask("a", MAX_AGE_S - 1.0)
    names.begin(MAX_AGE_S - 1.0)
    assert names.failed("a", "unknown", MAX_AGE_S - 0.5) == Told(A)
    assert names.ask("a", MAX_AGE_S - 0.01) == Told(A)
    assert names.ask("a", MAX_AGE_S) == Told(error="unknown")
    assert names.ask("a", MAX_AGE_S + 1.0) == Told(error="unknown", wait_s=math.inf)


def test_that_there_are_none_is_told_again_for_as_long() -> None:
    names = Names()
    names.ask("a", 0.0)
    names.begin(0.0)
    assert names.failed("a", "unknown", 5.0) == Told(error="unknown")
    assert names.ask("a", 5.0 + FRESH_S - 0.01) == Told(error="unknown")
    assert not names.begin(5.5)
    names.ask("a", 5.0 + FRESH_S)
    assert list(names.begin(6.0)) == ["a"]


def test_names_that_hang_hold_neither_new_names_nor_those_that_were_answered() -> None:
    names = Names()
    answered(names, "good", A, 0.0)
    stuck = [f"stuck{number}" for number in range(1000)]
    for name in stuck:
        names.ask(name, 1.0)
    hanging = list(names.begin(1.0))
    assert len(hanging) == 96
    names.ask("good", 2.0)
    assert list(names.begin(2.0)) == ["good"], "there is room for a name that was answered"
    names.answered("good", A, 2.0)
    # Ten seconds later each is of the last rank; then they hold fewer lookups, and others have room whatever comes.
    now, waits = 11.0, count()
    while len({it for it in stuck if names._names[it].rank is Rank.SLOW}) < len(stuck):
        assert next(waits) < 20
        for name in hanging:
            names.failed(name, "no answer", now)
        hanging = list(names.begin(now))
        now += 10.0
    for name in stuck:
        names.ask(name, now)
    hanging += names.begin(now)
    assert len(hanging) == names.running == 64
    for number in range(MAX_LOOKUPS):
        names.ask(f"new{number}", now)
    assert len(names.begin(now)) == 32
    names.ask("good", now)
    assert list(names.begin(now)) == ["good"]


def test_names_that_were_answered_and_hang_now_do_not_hold_new_ones() -> None:
    names = Names()
    for number in range(2 * MAX_LOOKUPS):
        answered(names, f"good{number}", A, 0.0)
    for number in range(2 * MAX_LOOKUPS):
        names.ask(f"good{number}", FRESH_S)
    assert len(names.begin(FRESH_S)) == 96
    assert not names.begin(FRESH_S)
    new = [f"new{number}" for number in range(2 * MAX_LOOKUPS)]
    for name in new:
        names.ask(name, 2.0)
    assert list(names.begin(2.0)) == new[:32], "there is room for names that nobody knows"
    assert names.running == MAX_LOOKUPS
    # What ends makes room for its own rank while both have more than is theirs alone.
    names.failed("new0", "unknown", 2.5)
    assert list(names.begin(2.5)) == [new[32]]
    names.failed("good0", "unknown", 3.0)
    assert list(names.begin(3.0)) == ["good96"]


@pytest.mark.parametrize(("took_s", "rank"), [(SOON_S - 0.01, Rank.ANSWERED), (SOON_S, Rank.SLOW)])
def test_a_name_is_ranked_by_how_long_its_last_lookup_took(took_s: float, rank: Rank) -> None:
    for is_good in (True, False):
        names = Names()
        names.ask("a", 100.0)
        names.begin(100.0)
        if is_good:
            names.answered("a", A, 100.0 + took_s)
        else:
            names.failed("a", "unknown", 100.0 + took_s)
        assert names._names["a"].rank is rank


def test_names_that_nobody_asks_for_any_more_are_forgotten() -> None:
    names = Names()
    for number in range(20_000):
        answered(names, f"n{number}", A, number * 1.0)
    assert len(names._names) <= 4096
    assert names.ask("n19999", 20_000.0).addresses == A


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(["ask", "good", "bad"]), st.floats(0, 5))))
def test_whatever_happens_lookups_are_bounded_and_a_name_is_looked_up_once(
    steps: list[tuple[int, str, float]],
) -> None:
    names, running, now = Names(), set[str](), 0.0
    for number, what, later_s in steps:
        now += later_s
        name = f"n{number}"
        if what == "ask":
            told = names.ask(name, now)
            assert told.addresses or told.error or told.wait_s == math.inf
        elif name in running:
            running.discard(name)
            told = names.answered(name, A, now) if what == "good" else names.failed(name, "x", now)
            assert told.addresses or told.error
        for begun in names.begin(now):
            assert begun not in running
            running.add(begun)
        assert names.running == len(running) <= MAX_LOOKUPS
