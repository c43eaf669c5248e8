"""Passive health: when an endpoint is out, for how long, how it comes back, and that never all are out."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hotbay.datalayer.health.availability import PROBE_PAUSE_S, step
from hotbay.datalayer.health.reports import Attempt, Report, Tally
from hotbay.datalayer.health.state import (
    EMPTY_POOL,
    TABLE,
    Cause,
    Effect,
    Event,
    HealthLimits,
    IllegalTransition,
    Members,
    Observed,
    Phase,
    Pool,
    ProbeSent,
    ProbeTaken,
    ProbeUnused,
    Reason,
    Tick,
    Verdict,
    advance,
)
from hypothesis import given
from hypothesis import strategies as st

LIMITS = HealthLimits()
NAMES = ("a", "b", "c", "d", "e")


def report(*attempts: Attempt, ttft_s: float | None = None, is_probe: bool = False) -> Report:
    tally = Tally(0)
    for attempt in attempts:
        tally.add(attempt, ttft_s, is_probe=is_probe)
    return tally.take()


DOWN = report(Attempt.UNREACHABLE)
GOOD = report(Attempt.ANSWERED)
BAD = report(Attempt.FAILED)
SILENT = report(Attempt.SILENT)
LOST = report(Attempt.UNTOLD, is_probe=True)


@dataclass
class World:
    """A pool over time."""

    limits: HealthLimits = LIMITS
    pool: Pool = EMPTY_POOL
    now: float = 1000.0
    told: list[Effect] = field(default_factory=list)

    def feed(self, *events: Event) -> "World":
        for event in events:
            self.pool, effects = step(self.pool, event, self.now, self.limits)
            self.told += effects
        return self

    def members(self, names: Iterable[str], cordoned: Iterable[str] = ()) -> "World":
        present = frozenset(names)
        return self.feed(Members(present, present - frozenset(cordoned)))

    def see(self, name: str, *reports: Report) -> "World":
        return self.feed(*(Observed({name: one}) for one in reports))

    def wait(self, seconds: float) -> "World":
        self.now += seconds
        return self.feed(Tick())

    def phase(self, name: str) -> Phase:
        return self.pool.endpoints[name].phase

    def ejected(self, name: str) -> "World":
        self.see(name, *[DOWN] * self.limits.unreachable)
        assert self.phase(name) is Phase.EJECTED
        return self


def world(*names: str, **limits: float) -> World:
    return World(HealthLimits(**limits)).members(names or NAMES)  # type: ignore[arg-type]


def test_each_pair_of_the_table_moves_and_no_other() -> None:
    for phase in Phase:
        for cause in Cause:
            if (phase, cause) in TABLE:
                assert advance(phase, cause) in Phase
            else:
                with pytest.raises(IllegalTransition):
                    advance(phase, cause)


def test_attempts_without_a_connection_eject_at_the_limit_and_not_before() -> None:
    it = world().see("a", *[DOWN] * 4)
    assert it.phase("a") is Phase.ADMITTED
    it.see("a", DOWN)
    assert it.phase("a") is Phase.EJECTED
    assert it.told == [Effect(Verdict.EJECTED, "a", Reason.UNREACHABLE, 30.0)]


@pytest.mark.parametrize(
    ("reports", "reason"),
    [
        ([SILENT] * 5, Reason.SILENT),
        ([DOWN] * 4 + [SILENT], Reason.SILENT),
        ([SILENT] * 4 + [DOWN], Reason.UNREACHABLE),
    ],
)
def test_attempts_that_got_no_byte_count_together_and_the_last_one_says_why(
    reports: list[Report], reason: Reason
) -> None:
    it = world().see("a", *reports[:-1])
    assert it.phase("a") is Phase.ADMITTED
    it.see("a", reports[-1])
    assert it.told == [Effect(Verdict.EJECTED, "a", reason, 30.0)]


def test_silent_endpoint_that_is_kept_goes_on_being_silent() -> None:
    it = world("a", "b").ejected("a").see("b", *[SILENT] * 5, GOOD, *[SILENT] * 5, LOST)
    assert it.pool.endpoints["b"].withheld is Reason.SILENT


@pytest.mark.parametrize("between", [GOOD, BAD])
def test_any_byte_between_them_begins_the_count_anew(between: Report) -> None:
    it = world(min_requests=1000).see("a", *[DOWN] * 4, between, *[DOWN] * 4)
    assert it.phase("a") is Phase.ADMITTED


def test_a_client_that_left_says_nothing() -> None:
    it = world().see("a", *[report(Attempt.UNTOLD)] * 50)
    assert it.phase("a") is Phase.ADMITTED
    assert it.pool.endpoints["a"].recent.requests == 0


def test_share_of_errors_ejects_from_enough_requests_on() -> None:
    it = world().see("a", *[GOOD] * 4, *[BAD] * 5)
    assert it.phase("a") is Phase.ADMITTED
    it.see("a", GOOD)
    assert it.phase("a") is Phase.EJECTED
    assert it.pool.endpoints["a"].reason is Reason.ERRORS


def test_share_of_errors_below_the_limit_is_nothing() -> None:
    it = world().see("a", *[GOOD, BAD, GOOD] * 30)
    assert it.phase("a") is Phase.ADMITTED


def test_errors_are_forgotten_after_two_intervals() -> None:
    it = world().see("a", *[BAD] * 9)
    for _ in range(3):
        it.wait(10.0)
    assert it.see("a", BAD).phase("a") is Phase.ADMITTED


def test_answers_that_break_off_count_as_errors() -> None:
    it = world().see("a", *[report(Attempt.ANSWERED, Attempt.BROKEN)] * 10)
    assert it.phase("a") is Phase.EJECTED


def slow(it: World, name: str, ttft_s: float, count: int = 20) -> None:
    it.see(name, *[report(Attempt.ANSWERED, ttft_s=ttft_s)] * count)


@pytest.mark.parametrize(("ttft_s", "out"), [(2.4, False), (2.6, True)])
def test_outlier_of_the_median_is_ejected(ttft_s: float, *, out: bool) -> None:
    it = world("a", "b", "c", slow_s=0.1)
    for name in ("a", "b"):
        slow(it, name, 0.5)
    slow(it, "c", ttft_s)
    it.wait(10.0)
    assert (it.phase("c") is Phase.EJECTED) is out


def test_outlier_by_milliseconds_stays() -> None:
    it = world("a", "b", "c")
    for name, ttft_s in (("a", 0.01), ("b", 0.01), ("c", 0.9)):
        slow(it, name, ttft_s)
    assert it.wait(10.0).phase("c") is Phase.ADMITTED


@pytest.mark.parametrize(("count", "names"), [(19, "abc"), (20, "ac")])
def test_too_few_samples_or_endpoints_compare_nothing(count: int, names: str) -> None:
    it = world(*names)
    for name in names[:-1]:
        slow(it, name, 0.1, count)
    slow(it, names[-1], 60.0, count)
    assert it.wait(10.0).phase(names[-1]) is Phase.ADMITTED


def test_only_the_slowest_goes_at_a_time() -> None:
    it = world("a", "b", "c", "d", "e", "f")
    for name, ttft_s in (("a", 0.1), ("b", 0.1), ("c", 0.1), ("d", 0.1), ("e", 60.0), ("f", 70.0)):
        slow(it, name, ttft_s)
    it.wait(10.0)
    assert (it.phase("e"), it.phase("f")) == (Phase.ADMITTED, Phase.EJECTED)


def test_slow_endpoint_comes_back_by_an_answer_that_is_in_time_only() -> None:
    it = world("a", "b", "c", "d")
    for name in ("a", "b", "c"):
        slow(it, name, 0.1)
    slow(it, "d", 60.0)
    it.wait(10.0).wait(30.0)
    assert it.phase("d") is Phase.HALF_OPEN
    for name in ("a", "b", "c"):
        slow(it, name, 0.1)
    it.feed(ProbeTaken("d")).see("d", report(Attempt.ANSWERED, ttft_s=50.0))
    assert (it.phase("d"), it.pool.endpoints["d"].reason) == (Phase.EJECTED, Reason.SLOW)
    for _ in range(6):
        it.wait(10.0)
        for name in ("a", "b", "c"):
            slow(it, name, 0.1)
    it.feed(ProbeTaken("d")).see("d", report(Attempt.ANSWERED, ttft_s=0.2))
    assert it.phase("d") is Phase.ADMITTED


def test_an_ejection_ends_in_one_request_at_a_time() -> None:
    it = world().ejected("a").wait(29.9)
    assert it.phase("a") is Phase.EJECTED
    assert it.wait(0.1).phase("a") is Phase.HALF_OPEN
    assert not it.pool.admits("a")
    assert it.feed(ProbeTaken("a")).phase("a") is Phase.PROBING
    with pytest.raises(IllegalTransition):
        it.feed(ProbeTaken("a"))


def test_probe_that_is_answered_brings_it_back_with_a_ramp_from_there() -> None:
    it = world().ejected("a").wait(30.0).feed(ProbeTaken("a")).see("a", GOOD)
    assert it.pool.admits("a")
    assert it.pool.endpoints["a"].since == it.now
    assert it.told[-1].verdict is Verdict.RETURNED


@pytest.mark.parametrize("failing", [DOWN, BAD, SILENT])
def test_probe_that_fails_ejects_for_longer_up_to_a_limit(failing: Report) -> None:
    it = world().ejected("a")
    for times in range(2, 14):
        it.now = it.pool.endpoints["a"].until
        it.feed(Tick(), ProbeTaken("a")).see("a", failing)
        assert it.told[-1] == Effect(Verdict.EJECTED, "a", Reason.PROBE, min(30.0 * times, 300.0))


def test_time_of_an_ejection_falls_while_the_endpoint_answers() -> None:
    it = world().ejected("a").wait(30.0).feed(ProbeTaken("a")).see("a", BAD)
    it.wait(60.0).feed(ProbeTaken("a")).see("a", GOOD)
    assert it.pool.endpoints["a"].ejections == 2
    for _ in range(7):
        it.wait(10.0)
    assert it.pool.endpoints["a"].ejections == 0
    assert it.ejected("a").told[-1].for_s == 30.0


def test_probe_that_was_not_used_is_given_to_another_request_after_a_pause() -> None:
    it = world().ejected("a").wait(30.0).feed(ProbeTaken("a"), ProbeUnused("a"))
    assert it.phase("a") is Phase.HALF_OPEN
    assert it.pool.endpoints["a"].until > it.now
    it.feed(ProbeTaken("a")).see("a", LOST)
    assert it.phase("a") is Phase.HALF_OPEN


def test_probes_whose_clients_leave_are_ever_rarer_until_one_tells() -> None:
    it = world().ejected("a").wait(30.0)
    asked_at = []
    while it.now - 1030.0 < 120.0:
        asked_at.append(it.now)
        it.feed(ProbeTaken("a"), ProbeSent("a")).see("a", LOST)
        assert it.phase("a") is Phase.HALF_OPEN
        it.now = it.pool.endpoints["a"].until
    pauses = [round(later - at, 6) for at, later in pairwise(asked_at)]
    assert pauses[:6] == [0.1, 0.4, 1.6, 6.4, 25.6, 30.0]
    it.feed(ProbeTaken("a"), ProbeSent("a")).see("a", GOOD)
    assert it.pool.endpoints["a"].lost == 0
    it.ejected("a").wait(60.0).feed(ProbeTaken("a"), ProbeSent("a")).see("a", LOST)
    assert it.pool.endpoints["a"].until == it.now + PROBE_PAUSE_S


def test_probe_that_was_never_sent_is_given_up_and_one_that_was_is_waited_for() -> None:
    it = world().ejected("a").wait(30.0).feed(ProbeTaken("a")).wait(29.0)
    assert it.phase("a") is Phase.PROBING
    assert it.wait(1.0).phase("a") is Phase.HALF_OPEN
    it.feed(ProbeTaken("a"), ProbeSent("a")).wait(10_000.0)
    assert it.phase("a") is Phase.PROBING


@pytest.mark.parametrize(("count", "most"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2), (10, 5)])
def test_half_of_the_pool_stays_and_never_the_last_one_goes(count: int, most: int) -> None:
    names = [f"e{number}" for number in range(count)]
    it = world(*names)
    for name in names:
        it.see(name, *[DOWN] * 20)
    assert sum(not it.pool.admits(name) for name in names) == most
    assert sum(one.verdict is Verdict.WITHHELD for one in it.told) == count - most


def test_room_is_counted_anew_as_endpoints_go_in_one_step() -> None:
    names = [f"e{number}" for number in range(10)]
    it = world(*names).feed(Observed({name: report(*[Attempt.UNREACHABLE] * 9) for name in names}))
    assert sum(not it.pool.admits(name) for name in names) == 5
    back = [name for name in names if not it.pool.admits(name)]
    it.wait(30.0).feed(*(ProbeTaken(name) for name in back))
    first, *others = (name for name in names if name not in back)
    # The first finds no room; then the others come back, and there is some.
    it.feed(Observed({first: DOWN} | dict.fromkeys(back, GOOD) | dict.fromkeys(others, DOWN)))
    assert [name for name in names if not it.pool.admits(name)] == others


def test_pool_that_fails_twice_as_large_costs_twice_as_much(calls: Callable[[Callable[[], object]], int]) -> None:
    def failing(count: int) -> int:
        it = world(*(f"e{number}" for number in range(count)))
        failed = Observed(dict.fromkeys(it.pool.endpoints, report(*[Attempt.UNREACHABLE] * 9)))
        return calls(lambda: it.feed(failed))

    assert failing(400) <= 2.5 * failing(200)


@pytest.mark.parametrize(("now", "out"), [([GOOD], False), ([LOST], False), ([BAD], True)])
def test_kept_endpoint_that_answers_again_stays_when_the_others_are_back(now: list[Report], *, out: bool) -> None:
    it = world("a", "b").see("a", *[BAD] * 10).see("b", *[BAD] * 10)
    assert (it.phase("a"), it.pool.endpoints["b"].withheld) == (Phase.EJECTED, Reason.ERRORS)
    it.wait(30.0).see("b", *[BAD] * 10, GOOD)
    it.feed(ProbeTaken("a")).see("a", GOOD).see("b", *now)
    assert it.phase("a") is Phase.ADMITTED
    assert (it.phase("b") is Phase.EJECTED) is out


def test_share_of_zero_ejects_nobody() -> None:
    assert world(max_ejected=0.0).see("a", *[DOWN] * 50).phase("a") is Phase.ADMITTED


def test_whole_share_leaves_one() -> None:
    it = world(max_ejected=1.0)
    for name in NAMES:
        it.see(name, *[DOWN] * 9)
    assert [it.pool.admits(name) for name in NAMES].count(True) == 1


def test_when_all_that_are_left_were_ejected_none_is() -> None:
    it = world("a", "b").ejected("a")
    assert not it.pool.admits("a")
    it.members(["a"])
    assert it.pool.panics
    assert it.pool.admits("a")
    it.members(["a", "b"], cordoned=["b"])
    assert it.pool.admits("a")
    assert not it.members(["a", "b"]).pool.admits("a")


def test_answers_in_panic_bring_a_half_open_endpoint_back() -> None:
    it = world("a", "b").ejected("a").members(["a"]).wait(30.0).see("a", GOOD)
    assert it.phase("a") is Phase.ADMITTED


def test_cordoned_endpoints_are_not_ejected_and_do_not_count() -> None:
    it = world().members(NAMES, cordoned=["a", "b", "c"])
    it.see("a", *[DOWN] * 9)
    assert it.phase("a") is Phase.ADMITTED
    it.ejected("d")
    assert it.see("e", *[DOWN] * 9).phase("e") is Phase.ADMITTED


def test_who_comes_back_is_somebody_new() -> None:
    it = world().ejected("a")
    before = it.pool.endpoints["a"].era
    it.members("bcde").members(NAMES)
    assert it.phase("a") is Phase.ADMITTED
    assert it.pool.endpoints["a"].era > before


def test_only_newcomers_and_those_let_in_again_begin_slowly() -> None:
    it = world("a", "b").wait(9.9).members("abc").wait(0.1).members("abcd")
    since = {name: it.pool.endpoints[name].since for name in "abcd"}
    assert {name for name, at in since.items() if at >= 0} == {"d"}
    assert since["d"] == it.now
    it.wait(5.0).members("abcd", cordoned="b").wait(5.0).members("abcd")
    assert (it.pool.endpoints["b"].since, it.pool.endpoints["a"].since < 0) == (it.now, True)


def test_a_pool_that_was_empty_begins_anew() -> None:
    it = world("a").wait(100.0).members("").wait(100.0).members("ab")
    assert all(health.since < 0 for health in it.pool.endpoints.values())


# -- whatever happens ------------------------------------------------------------------------------

KINDS = st.sampled_from(sorted(set(Attempt) - {Attempt.LATE}, key=lambda one: one.value))
REPORTS = st.builds(
    lambda kinds, ttft_s, is_probe: report(*kinds, ttft_s=ttft_s, is_probe=is_probe),
    st.lists(KINDS, min_size=1, max_size=12),
    st.sampled_from([None, 0.1, 0.3, 90.0]),
    st.booleans(),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("see"), st.sampled_from(NAMES), REPORTS),
        st.tuples(st.just("wait"), st.floats(0.0, 200.0), st.none()),
        st.tuples(st.just("probe"), st.sampled_from(NAMES), st.booleans()),
        st.tuples(st.just("members"), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES))),
    ),
    max_size=60,
)
NUMBERS = st.builds(
    HealthLimits,
    unreachable=st.integers(1, 6),
    min_requests=st.integers(1, 12),
    min_samples=st.integers(1, 4),
    max_ejected=st.floats(0.0, 1.0),
)


def act(it: World, what: str, first: object, second: object) -> None:
    match what, first, second:
        case "see", str() as name, Report() as seen:
            it.see(name, seen)
        case "wait", float() as seconds, _:
            it.wait(seconds)
        case "members", set() as present, set() as cordoned:
            it.members(present, cordoned)
        case "probe", str() as name, bool() as sent:
            if name in it.pool.endpoints and it.phase(name) is Phase.HALF_OPEN:
                it.feed(ProbeTaken(name), ProbeSent(name) if sent else ProbeUnused(name))


@given(steps=STEPS, limits=NUMBERS)
def test_never_all_are_ejected_and_at_most_the_share_by_ejecting(
    steps: list[tuple[str, object, object]], limits: HealthLimits
) -> None:
    it = World(limits).members(NAMES)
    for what, first, second in steps:
        out_before = {one for one in it.pool.active if it.phase(one) is not Phase.ADMITTED}
        act(it, what, first, second)
        active = it.pool.active
        assert not active or any(it.pool.admits(one) for one in active)
        out = {one for one in active if it.phase(one) is not Phase.ADMITTED}
        if what != "members" and out - out_before:
            assert len(out) <= min(max(1, int(len(active) * limits.max_ejected)), len(active) - 1)
            assert limits.max_ejected > 0


@given(steps=STEPS, limits=NUMBERS, name=st.sampled_from(NAMES))
def test_an_endpoint_that_answers_well_always_comes_back(
    steps: list[tuple[str, object, object]], limits: HealthLimits, name: str
) -> None:
    it = World(limits).members(NAMES)
    for what, first, second in steps:
        act(it, what, first, second)
    it.members(NAMES)
    # The longest ejection or pause, an unsent probe, and a request each time one is let through.
    for _ in range(4):
        it.wait(400.0)
        if it.phase(name) is Phase.HALF_OPEN:
            it.feed(ProbeTaken(name), ProbeSent(name))
        it.see(name, report(Attempt.ANSWERED, ttft_s=0.01))
    assert it.phase(name) is Phase.ADMITTED


@given(
    turns=st.lists(
        st.tuples(
            st.sampled_from([0.0, 1.0, 4.0, 10.0, 29.0, 30.0, 60.0]), st.sampled_from(["a", "b", "c"]), st.booleans()
        ),
        max_size=50,
    ),
    limits=NUMBERS,
)
def test_no_endpoint_flaps_faster_than_the_base_time(
    turns: list[tuple[float, str, bool]], limits: HealthLimits
) -> None:
    it = World(limits).members(NAMES)
    left_at: dict[str, float] = {}
    for seconds, name, is_well in turns:
        it.wait(seconds)
        before = it.phase(name)
        if before is Phase.HALF_OPEN:
            it.feed(ProbeTaken(name), ProbeSent(name))
        it.see(name, *[GOOD if is_well else DOWN] * 8)
        if before is Phase.ADMITTED and it.phase(name) is not Phase.ADMITTED:
            assert it.now - left_at.get(name, float("-inf")) >= limits.base_s
            left_at[name] = it.now
        elif before is not Phase.ADMITTED and it.phase(name) is Phase.ADMITTED:
            assert it.now - left_at[name] >= limits.base_s


@given(
    silences=st.lists(st.sampled_from([SILENT, LOST, DOWN]), min_size=1, max_size=60),
    gaps=st.lists(st.floats(0.0, 40.0), min_size=60, max_size=60),
)
def test_a_hung_endpoint_is_tried_by_one_request_at_a_time_and_by_few(
    silences: list[Report], gaps: list[float]
) -> None:
    """Whatever its clients do: at most ten probes in the first half minute, one for each base time after that."""
    it = world().ejected("a")
    began, probes = it.now, 0
    for silence, gap in zip(silences, gaps, strict=False):
        it.wait(gap)
        if it.phase("a") is Phase.HALF_OPEN and it.pool.endpoints["a"].until <= it.now:
            it.feed(ProbeTaken("a"), ProbeSent("a"))
            assert it.phase("a") is Phase.PROBING
            probes += 1
            it.see("a", silence)
        assert not it.pool.admits("a")
    assert probes <= 10 + (it.now - began) / 6.0
