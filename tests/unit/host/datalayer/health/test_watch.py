"""Passive health over a real store: what snapshots show, who is probed, and what is told."""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.datalayer.health.state import HealthLimits, Phase
from hotbay.datalayer.health.watch import DECIDE_S, GONE, HealthWatch
from hotbay.datalayer.store import EndpointStore

T0 = 1000.0


@dataclass
class Seen:
    """What was counted."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def ejected(self, reason: str) -> None:
        self.counts["ejected", reason] += 1

    def ejection_withheld(self, reason: str) -> None:
        self.counts["withheld", reason] += 1

    def probed(self, result: str) -> None:
        self.counts["probed", result] += 1


class Watched:
    """A store of endpoints with a watch, at a time that a test moves."""

    def __init__(self, *names: str) -> None:
        self.limits: HealthLimits | None = HealthLimits()
        self.slow_start_s = 30.0
        self.store = EndpointStore()
        self.seen = Seen()
        self.watch = HealthWatch(
            self.store, self.seen, limits=lambda: self.limits, slow_start_s=lambda: self.slow_start_s
        )
        self.now = T0
        for name in names:
            self.add(name)
        self.tick()

    def add(self, name: str, **fields: object) -> None:
        endpoint = EndpointMetadata(f"default/{name}", name, "10.0.0.1", 1000 + len(self.store))
        self.store.upsert(replace(endpoint, **fields))  # type: ignore[arg-type]

    def tick(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.watch.tick(self.now)
        self.store.publish(self.now)

    def attempt(self, name: str, *attempts: Attempt) -> None:
        for attempt in attempts:
            era = self.watch.begin(f"default/{name}")
            self.watch.ended(f"default/{name}", era, attempt)

    def answer(self, name: str, ttft_s: float, count: int = 20) -> None:
        one = f"default/{name}"
        for _ in range(count):
            era = self.watch.begin(one)
            self.watch.heard(one)
            self.watch.ended(one, era, Attempt.ANSWERED, ttft_s)

    def silent(
        self,
        name: str,
        waited_s: float,
        *,
        awaited: Awaited = Awaited.TOKEN,
        attempt: Attempt = Attempt.SILENT,
        heard: bool = False,
        count: int = 5,
    ) -> None:
        """Attempts one after another that get no byte; `heard`: somebody else gets one meanwhile."""
        one = f"default/{name}"
        for _ in range(count):
            era, pieces = self.watch.begin(one), self.watch.pieces(one)
            if heard:
                self.watch.heard(one)
            self.watch.silent(one, era, attempt, pieces, awaited, waited_s)

    def eject(self, name: str) -> None:
        self.attempt(name, *[Attempt.UNREACHABLE] * 5)
        self.tick()
        assert not self.is_live(name)

    def is_live(self, name: str) -> bool:
        snapshot = self.store.snapshot
        return bool(snapshot.live[snapshot.row_of[f"default/{name}"]])

    def column(self, column: str, name: str) -> float:
        snapshot = self.store.snapshot
        return float(snapshot.columns[f"endpoint.{column}"][snapshot.row_of[f"default/{name}"]])


def test_ejection_is_in_the_next_snapshot() -> None:
    it = Watched("a", "b", "c")
    it.attempt("a", *[Attempt.UNREACHABLE] * 5)
    assert it.is_live("a")
    it.tick(0.02)
    assert not it.is_live("a")
    assert it.column("healthy", "a") == 0.0
    assert it.watch.ejected == ("default/a",)
    assert it.seen.counts == {("ejected", "unreachable"): 1}


def test_answers_alone_are_weighed_a_few_times_a_second() -> None:
    it = Watched("a", "b")
    it.attempt("a", Attempt.ANSWERED)
    it.tick(DECIDE_S / 2)
    assert it.column("healthy", "a") != 1.0
    it.tick(DECIDE_S)
    assert it.column("healthy", "a") == 1.0


def test_health_of_an_endpoint_without_requests_is_what_scraping_says() -> None:
    it = Watched("a")
    assert it.column("healthy", "a") != it.column("healthy", "a")


def test_what_began_before_an_ejection_says_nothing_after_it() -> None:
    it = Watched("a", "b")
    era = it.watch.begin("default/a")
    it.eject("a")
    it.tick(30.0)
    it.watch.ended("default/a", era, Attempt.ANSWERED)
    it.tick(DECIDE_S)
    health = it.watch.health("default/a")
    assert health is not None
    assert health.phase is Phase.HALF_OPEN


def test_probe_that_is_answered_brings_the_endpoint_back_slowly() -> None:
    it = Watched("a", "b")
    it.eject("a")
    assert it.watch.probe() is None
    it.tick(30.0)
    assert it.watch.probe() == "default/a"
    assert it.watch.probe() is None
    it.tick(DECIDE_S)
    assert it.watch.probe() is None
    it.attempt("a", Attempt.ANSWERED)
    it.tick()
    assert it.is_live("a")
    assert it.column("slow_start", "a") == pytest.approx(0.1)
    assert it.column("slow_start", "b") == 1.0
    it.tick(15.0)
    assert it.column("slow_start", "a") == 0.5
    it.tick(15.0)
    assert it.column("slow_start", "a") == 1.0
    assert it.seen.counts["probed", "answered"] == 1


def test_probe_that_fails_keeps_it_out_for_longer() -> None:
    it = Watched("a", "b")
    it.eject("a")
    it.tick(30.0)
    it.watch.probe()
    it.attempt("a", Attempt.FAILED)
    it.tick()
    it.tick(59.0)
    assert it.watch.probe() is None
    it.tick(1.0)
    assert it.watch.probe() == "default/a"
    assert it.seen.counts["probed", "failed"] == 1


def test_unused_probe_is_offered_again_after_a_pause() -> None:
    it = Watched("a", "b")
    it.eject("a")
    it.tick(30.0)
    it.watch.probe()
    it.watch.unused("default/a")
    it.tick(0.02)
    assert it.watch.probe() is None
    it.tick(DECIDE_S)
    assert it.watch.probe() == "default/a"


def test_probe_that_waits_long_for_its_answer_stays_the_only_one() -> None:
    it = Watched("a", "b")
    it.eject("a")
    it.tick(30.0)
    it.watch.probe()
    it.watch.begin("default/a")
    it.tick(250.0)
    assert it.watch.probe() is None


def test_the_last_one_is_never_ejected_and_the_operator_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched("a", "b")
    it.eject("a")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            it.attempt("b", *[Attempt.UNREACHABLE] * 9)
            it.tick(0.1)
    assert it.is_live("b")
    assert it.seen.counts["withheld", "unreachable"] == 1
    assert [record.message.split()[0] for record in caplog.records] == ["endpoint_ejection_withheld"]


def test_when_the_others_are_cordoned_those_that_were_ejected_are_let_in() -> None:
    it = Watched("a", "b")
    it.eject("a")
    it.store.override("default/b", state=EndpointState.CORDONED, weight=None)
    it.tick(0.02)
    assert (it.is_live("a"), it.is_live("b")) == (True, False)
    it.store.override("default/b", state=None, weight=None)
    it.tick(0.02)
    assert (it.is_live("a"), it.is_live("b")) == (False, True)


def test_endpoint_that_leaves_and_comes_back_between_two_ticks_is_a_new_one() -> None:
    it = Watched("a", "b")
    before = it.watch.begin("default/a")
    it.eject("a")
    endpoint = it.store.get("default/a")
    assert endpoint is not None
    it.store.delete("default/a")
    it.store.upsert(endpoint)
    it.tick(0.02)
    assert it.is_live("a")
    assert it.watch.begin("default/a") > before


def test_reports_of_an_endpoint_that_is_gone_are_ignored() -> None:
    it = Watched("a", "b")
    era = it.watch.begin("default/a")
    it.store.delete("default/a")
    it.tick(0.02)
    it.watch.ended("default/a", era, Attempt.UNREACHABLE)
    assert it.watch.begin("default/a") == GONE
    assert it.watch.health("default/a") is None
    it.watch.unused("default/a")


def test_s15_endpoint_that_flaps_is_never_ejected_by_what_it_was() -> None:
    it = Watched("a", "b", "c")
    for _ in range(1000):
        era = it.watch.begin("default/a")
        it.store.delete("default/a")
        it.tick(0.02)
        it.add("a")
        it.tick(0.02)
        it.watch.ended("default/a", era, Attempt.UNREACHABLE)
    it.tick(DECIDE_S)
    assert it.is_live("a")


def test_switched_off_nobody_is_ejected_and_who_is_out_is_let_in() -> None:
    it = Watched("a", "b")
    it.eject("a")
    it.limits = None
    it.tick(DECIDE_S)
    assert it.is_live("a")
    assert it.watch.ejected == ()
    it.attempt("b", *[Attempt.UNREACHABLE] * 50)
    it.tick(DECIDE_S)
    assert it.is_live("b")


def test_switched_off_nothing_is_counted_told_or_shown(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched("a", "b", "c")
    it.limits = None
    it.tick(60.0)
    caplog.clear()
    with caplog.at_level(logging.INFO, "hotbay.datalayer.health.watch"):
        for name in "abc":
            it.attempt(name, *[Attempt.UNREACHABLE] * 50, *[Attempt.FAILED] * 50)
        it.tick(DECIDE_S)
        it.tick(60.0)
    assert (it.seen.counts, caplog.messages) == ({}, [])
    assert it.watch.probe() is None
    health = it.watch.health("default/a")
    assert health is not None
    assert (health.phase, health.withheld) == (Phase.ADMITTED, None)
    assert it.column("healthy", "a") != it.column("healthy", "a"), "unknown, as scraping says"
    it.limits = HealthLimits()
    it.tick(DECIDE_S)
    it.attempt("a", *[Attempt.UNREACHABLE] * 4)
    it.tick(DECIDE_S)
    assert it.is_live("a"), "what came while it was off counts no more"
    it.eject("a")


@pytest.mark.parametrize("stage", ["ejected", "half-open", "probing"])
def test_switched_off_who_was_out_is_let_in_slowly_and_not_probed(stage: str) -> None:
    it = Watched("a", "b")
    it.eject("a")
    if stage != "ejected":
        it.tick(30.0)
    if stage == "probing":
        assert it.watch.probe() == "default/a"
    it.limits = None
    it.tick(60.0)
    assert it.watch.probe() is None
    assert it.watch.begin("default/a") != GONE
    it.watch.unused("default/a")
    assert it.is_live("a")
    assert (it.column("slow_start", "a"), it.column("slow_start", "b")) == (pytest.approx(0.1), 1.0)
    assert it.watch.counts()["admitted"] == 2


def test_endpoint_that_moves_is_a_new_one_that_begins_slowly() -> None:
    it = Watched("a", "b")
    it.tick(60.0)
    before = it.watch.begin("default/a")
    it.eject("a")
    endpoint = it.store.get("default/a")
    assert endpoint is not None
    it.store.upsert(replace(endpoint, address="10.0.0.2"))
    it.tick(0.02)
    assert it.is_live("a")
    assert it.watch.ejected == ()
    assert it.column("slow_start", "a") == pytest.approx(0.1)
    assert it.column("healthy", "a") != it.column("healthy", "a")
    assert it.watch.begin("default/a") > before
    it.watch.ended("default/a", before, Attempt.UNREACHABLE)
    it.tick(DECIDE_S)
    assert it.column("healthy", "a") != it.column("healthy", "a")


def test_failures_that_decide_nothing_are_weighed_with_the_answers() -> None:
    it = Watched("a", "b", "c")
    it.attempt("a", *[Attempt.UNREACHABLE] * 4)
    it.tick(DECIDE_S / 4)
    assert it.column("healthy", "a") != it.column("healthy", "a"), "not looked at yet"
    it.attempt("a", Attempt.UNREACHABLE)
    it.tick(DECIDE_S / 4)
    assert not it.is_live("a")


def test_share_of_errors_that_is_reached_is_weighed_at_once() -> None:
    it = Watched("a", "b", "c")
    it.attempt("a", *[Attempt.ANSWERED] * 5, *[Attempt.FAILED] * 4)
    it.tick(DECIDE_S / 4)
    assert it.is_live("a")
    it.attempt("a", Attempt.FAILED)
    it.tick(DECIDE_S / 4)
    assert not it.is_live("a")


def test_failures_of_one_that_is_kept_do_not_hurry() -> None:
    it = Watched("a", "b")
    it.eject("a")
    it.attempt("b", *[Attempt.UNREACHABLE] * 5)
    it.tick(DECIDE_S)
    health = it.watch.health("default/b")
    it.attempt("b", Attempt.UNREACHABLE)
    it.tick(DECIDE_S / 4)
    assert it.watch.health("default/b") is health
    it.tick(DECIDE_S)
    assert it.watch.health("default/b") is not health


def test_turn_of_twice_as_many_that_are_out_costs_twice_as_much(
    calls: Callable[[Callable[[], object]], int],
) -> None:
    def turn(count: int) -> int:
        names = [f"e{number}" for number in range(count)]
        it = Watched(*names)
        for name in names[: count // 2]:
            it.attempt(name, *[Attempt.UNREACHABLE] * 5)
        it.tick()
        for name in names[count // 2 :]:
            it.store.override(f"default/{name}", state=EndpointState.CORDONED, weight=None)
        cost = calls(lambda: it.tick(DECIDE_S))
        assert all(map(it.is_live, names[: count // 2])), "all that are left were ejected"
        return cost

    assert turn(400) <= 2.5 * turn(200)


def test_who_is_out_is_the_same_object_until_others_are() -> None:
    it = Watched("a", "b", "c", "d")
    it.eject("a")
    out = it.watch.ejected
    it.attempt("b", Attempt.ANSWERED)
    it.tick(DECIDE_S)
    assert it.watch.ejected is out
    it.eject("b")
    assert it.watch.ejected is not out


def test_newcomers_ramp_up_and_a_window_of_zero_ramps_nothing() -> None:
    it = Watched("a")
    it.tick(60.0)
    it.add("new")
    it.tick()
    assert it.column("slow_start", "new") == pytest.approx(0.1)
    it.slow_start_s = 0.0
    it.tick(DECIDE_S)
    assert it.column("slow_start", "new") == 1.0


def test_quiet_endpoints_cause_no_publication() -> None:
    it = Watched("a", "b")
    it.attempt("a", Attempt.ANSWERED)
    it.tick(DECIDE_S)
    epoch = it.store.snapshot.epoch
    for _ in range(4):
        it.attempt("a", Attempt.ANSWERED)
        it.tick(0.02)
    assert it.store.snapshot.epoch == epoch


def test_counts_are_by_phase_and_by_the_operators_word() -> None:
    it = Watched("a", "b", "c")
    it.add("d", state=EndpointState.CORDONED)
    it.add("e", weight=0.0)
    it.eject("a")
    counts = it.watch.counts()
    assert counts == {"admitted": 2, "ejected": 1, "half-open": 0, "probing": 0, "cordoned": 2}


# -- servers that accept and say nothing -----------------------------------------------------------


@pytest.mark.parametrize(
    ("awaited", "waited_s", "out"),
    [
        (Awaited.TOKEN, 9.9, False), (Awaited.TOKEN, 10.0, True),
        (Awaited.WHOLE, 59.9, False), (Awaited.WHOLE, 60.0, True),
        (Awaited.CONNECTION, 1.9, False), (Awaited.CONNECTION, 2.0, True),
    ],
)  # fmt: skip
def test_client_that_waited_long_without_a_byte_tells(awaited: Awaited, waited_s: float, *, out: bool) -> None:
    it = Watched("a", "b", "c")
    it.silent("a", waited_s, awaited=awaited)
    it.tick(0.02)
    assert it.is_live("a") is not out
    assert it.seen.counts == ({("ejected", "silent"): 1} if out else {})


@pytest.mark.parametrize(("waited_s", "out"), [(1.9, False), (2.0, True)])
def test_where_first_tokens_come_at_once_a_shorter_wait_tells(waited_s: float, *, out: bool) -> None:
    it = Watched("a", "b")
    it.answer("b", 0.02)
    it.tick(10.0)
    it.silent("a", waited_s)
    it.tick(0.02)
    assert it.is_live("a") is not out


@pytest.mark.parametrize("others", [2, 200])
@pytest.mark.parametrize(("waited_s", "out"), [(30.9, False), (31.0, True)])
def test_where_one_prompt_took_long_a_longer_wait_tells(waited_s: float, others: int, *, out: bool) -> None:
    it = Watched("a", "b")
    it.answer("b", 0.1)
    it.answer("a", 30.0, count=1)
    it.tick(DECIDE_S)
    it.answer("a", 0.1, count=others)
    it.tick(10.0)
    it.silent("a", waited_s)
    it.tick(0.02)
    assert it.is_live("a") is not out


def test_server_that_sends_somebody_else_a_byte_is_busy_and_not_silent() -> None:
    it = Watched("a", "b", "c")
    it.silent("a", 1000.0, heard=True, count=100)
    it.tick(DECIDE_S)
    assert it.is_live("a")
    assert it.seen.counts == {}


@pytest.mark.parametrize(
    ("heard", "count", "reason"), [(False, 4, ""), (False, 5, "silent"), (True, 9, ""), (True, 10, "errors")]
)
def test_time_that_is_over_tells_whatever_is_awaited(count: int, reason: str, *, heard: bool) -> None:
    it = Watched("a", "b", "c")
    it.silent("a", 0.1, attempt=Attempt.LATE, awaited=Awaited.WHOLE, heard=heard, count=count)
    it.tick(DECIDE_S)
    assert it.seen.counts == ({("ejected", reason): 1} if reason else {})


def test_probe_of_a_server_that_hangs_ejects_it_for_longer() -> None:
    it = Watched("a", "b", "c")
    it.answer("b", 0.02)
    it.tick(10.0)
    it.silent("a", 4.0)
    it.tick()
    for times in (2, 3, 4):
        it.tick(30.0 * (times - 1))
        assert it.watch.probe() == "default/a"
        assert it.watch.probe() is None
        # What is usual is known still, though nothing was answered meanwhile.
        it.silent("a", 4.0, count=1)
        it.tick()
        health = it.watch.health("default/a")
        assert health is not None
        assert (health.phase, health.until) == (Phase.EJECTED, it.now + 30.0 * times)


def test_all_servers_that_hang_at_once_are_asked_on_and_come_back() -> None:
    it = Watched("a", "b", "c", "d")
    for _ in range(3):
        for name in "abcd":
            it.silent(name, 15.0)
        it.tick(DECIDE_S)
    live = [name for name in "abcd" if it.is_live(name)]
    assert len(live) == 2
    assert it.seen.counts == {("ejected", "silent"): 2, ("withheld", "silent"): 2}
    it.tick(30.0)
    for _ in range(2):
        name = it.watch.probe()
        assert name is not None
        it.answer(name.removeprefix("default/"), 0.1, count=1)
    for name in live:
        it.answer(name, 0.1, count=1)
    it.tick(DECIDE_S)
    assert all(map(it.is_live, "abcd"))


def test_switched_off_silence_tells_nothing() -> None:
    it = Watched("a", "b")
    it.limits = None
    it.tick(DECIDE_S)
    it.silent("a", 1000.0, count=50)
    it.tick(DECIDE_S)
    assert it.is_live("a")
