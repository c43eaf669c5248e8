"""The rollout's machine, case by case: what each event leads to, by the ids of the cases that it must hold."""

import math
from dataclasses import dataclass, field, replace

import pytest
from hotbay.rollout.backoff import BackoffPolicy
from hotbay.rollout.effects import (
    Cancel,
    Condemn,
    CutOver,
    EndTrial,
    Failed,
    Fetch,
    HandOver,
    Kill,
    Launch,
    Record,
    Release,
    Retire,
    Stage,
    Trial,
)
from hotbay.rollout.machine import COMMANDS, TABLE, IllegalTransition, step
from hotbay.rollout.selection import Candidate, Pin, Policy
from hotbay.rollout.state import (
    Abort,
    Approve,
    AskedToGo,
    Broke,
    Build,
    Cause,
    Ended,
    Event,
    Facts,
    Failure,
    Fetched,
    Forgive,
    GoTo,
    Judged,
    Known,
    Pause,
    Phase,
    Promote,
    Published,
    Ready,
    Refused,
    Resume,
    Rules,
    Staged,
    State,
    Tick,
)

POLICY = Policy(platforms=("L", "J"))
BACKOFF = BackoffPolicy(first_s=1.0, factor=2.0, max_s=30.0)
BAD = Failure(Cause.PLUGIN, "START_FAILED")
KILLED = Failure(Cause.OUTSIDE, "CRASHED")


@dataclass
class Host:
    """Sends events and carries out the one effect that is answered at once."""

    rules: Rules = field(default_factory=lambda: Rules(backoff=BACKOFF))
    policy: Policy = POLICY
    state: State = field(default_factory=State)
    now: float = 0.0
    revision: int = 0
    builds: dict[str, Candidate] = field(default_factory=dict)
    flags: dict = field(default_factory=dict)
    all: list = field(default_factory=list)

    def send(self, event: Event) -> list:
        self.state, effects = step(self.state, event, self.now)
        done = list(effects)
        self.all += effects
        for effect in effects:
            if isinstance(effect, CutOver):
                done += self.send(Published(effect.n))
        return done

    def know(self, *texts: str) -> list:
        """`L2*` is platform L, rev 2, complete; `!` quarantined, `?` not granted; `L2b` is other content of that rev."""
        for text in texts:
            marks = text.strip("LJX0123456789abcdefgh")
            name = text.rstrip("*!?")
            rev = int("".join(c for c in name if c.isdigit()))
            self.builds[name] = Candidate(
                name, rev, name[0], complete="*" in marks, quarantined="!" in marks, granted="?" not in marks
            )
        return self.learn()

    def learn(self, **flags: object) -> list:
        self.flags |= flags
        self.revision += 1
        return self.send(
            Known(Facts(self.revision, tuple(self.builds.values()), self.policy, self.rules, **self.flags))
        )

    def up(self, *effects: object) -> list:
        """Let the candidate's check and start succeed."""
        candidate = self.state.candidate
        assert candidate is not None
        return [*self.send(Staged(candidate.n)), *self.send(Ready(candidate.n))]

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def live(self) -> str | None:
        return self.state.live.build.digest if self.state.live is not None else None

    def judge(self, failure: Failure | None = None) -> list:
        on_trial = self.state.live if self.phase is Phase.GUARD else self.state.candidate
        assert on_trial is not None
        return self.send(Judged(on_trial.n, self.phase, failure))

    def gone(self) -> list:
        (n,) = self.state.going
        return self.send(Ended(n))


def serving(text: str = "L1*", **rules: object) -> Host:
    host = Host(rules=replace(Rules(backoff=BACKOFF), **rules))
    host.know(text)
    host.up()
    assert host.phase is Phase.IDLE
    return host


def on_trial(phase: Phase, **rules: object) -> Host:
    """L1 live, L2 in this phase."""
    host = serving(**rules)
    host.know("L2*")
    if phase is Phase.STAGING:
        return host
    host.send(Staged(host.state.candidate.n))
    if phase is Phase.LAUNCHING:
        return host
    host.send(Ready(host.state.candidate.n))
    while host.phase is not phase:
        host.judge()
    return host


def test_whole_way_of_a_new_version() -> None:
    host = serving()
    told = host.know("L2*")
    assert told == [Stage(2, Build("L2", 2))]
    assert host.send(Staged(2)) == [Launch(2, Build("L2", 2), heir_of=1)]
    assert host.send(Ready(2)) == [Trial(2, Phase.SHADOW)]
    assert host.judge() == [EndTrial(2), Trial(2, Phase.CANARY)]
    assert host.live == "L1"
    assert host.judge() == [
        EndTrial(2),
        CutOver(2),
        Record(2, Build("L2", 2), "newer version", "hotbay"),
        Trial(2, Phase.GUARD),
    ]
    assert (host.live, host.phase) == ("L2", Phase.GUARD)
    assert host.judge() == [EndTrial(2), Retire(1)]
    assert host.phase is Phase.RETIRING
    assert host.gone() == []
    assert (host.live, host.phase, host.state.processes) == ("L2", Phase.IDLE, 1)


@pytest.mark.parametrize("off", ["shadow", "canary", "guard"])
def test_each_step_can_be_off(off: str) -> None:
    host = serving(**{off: False})
    host.know("L2*")
    host.up()
    phases = []
    while host.phase in (Phase.SHADOW, Phase.CANARY, Phase.GUARD):
        phases.append(str(host.phase))
        host.judge()
    assert phases == [p for p in ("shadow", "canary", "guard") if p != off]
    assert host.live == "L2"


def test_hb01_versions_that_disappear_change_nothing() -> None:
    host = serving()
    before = host.state.live
    host.builds["L1"] = replace(host.builds["L1"], fetchable=False)
    assert host.learn() == []
    host.builds.clear()
    assert host.learn() == []
    assert (host.state.live, host.phase) == (before, Phase.IDLE)


def test_hb02_another_set_of_hosts_moves_to_its_version() -> None:
    host = Host(policy=Policy(platforms=("J", "L")))
    host.know("J1*")
    host.up()
    host.know("L1*")
    assert host.phase is Phase.IDLE
    host.policy = Policy(platforms=("L",))
    host.learn()
    assert host.state.candidate.build.digest == "L1"
    host.know("L2*")
    host.gone() if host.state.going else None
    assert host.state.candidate.build.digest == "L2"


def test_hb03_other_content_of_the_live_revision_is_never_started() -> None:
    host = serving("L7b*")
    assert host.know("L7a*") == []
    for _ in range(3):
        host.send(Ended(host.state.live.n, BAD))
        host.now += 60
        host.send(Tick())
        assert host.state.candidate.build.digest == "L7b"
        host.up()


def test_hb07_plugin_that_is_referenced_first_starts_when_its_manifest_comes() -> None:
    host = Host()
    assert (host.learn(), host.phase) == ([], Phase.WAITING_FOR_DOWNLOAD)
    (fetch,) = host.know("L1")
    assert (fetch, host.phase) == (Fetch(1, Build("L1", 1)), Phase.FETCHING)
    host.know("L1*")
    host.send(Fetched(1))
    host.up()
    assert (host.live, host.phase) == ("L1", Phase.IDLE)


def test_hb09_hb11_live_serves_until_the_new_one_is_complete_and_ready() -> None:
    host = serving(shadow=False, canary=False, guard=False)
    (fetch,) = host.know("L2")
    assert (host.phase, host.live) == (Phase.FETCHING, "L1")
    host.know("L2*")
    assert (host.phase, host.live) == (Phase.STAGING, "L1")
    host.send(Fetched(fetch.n))
    host.send(Staged(host.state.candidate.n))
    assert host.live == "L1"
    host.send(Ready(host.state.candidate.n))
    assert host.live == "L2"


def test_hb12_two_swaps_within_one_shutdown_never_make_a_third_process() -> None:
    host = serving(shadow=False, canary=False, guard=False)
    host.know("L2*")
    host.up()
    assert host.phase is Phase.RETIRING
    host.know("L3*")
    host.know("L4*")
    assert (host.phase, host.state.processes) == (Phase.RETIRING, 2)
    host.gone()
    assert host.state.candidate.build.digest == "L4"


def lost_while_another_goes() -> Host:
    """L2 took over and died while L1 is still on its way out: it is to be started again after a pause."""
    host = serving(shadow=False, canary=False, guard=False)
    host.know("L2*")
    host.up()
    host.send(Ended(host.state.live.n, KILLED))
    assert (host.live, host.phase, host.state.processes) == (None, Phase.RETIRING, 1)
    return host


def test_what_died_while_an_older_one_retires_comes_back_after_its_pause_and_not_after_that_one() -> None:
    host = lost_while_another_goes()
    assert host.state.wake_at_s is not None
    host.now = host.state.wake_at_s
    assert host.send(Tick()) == [Stage(3, Build("L2", 2))]


def test_operator_who_enables_it_while_an_older_one_retires_waits_for_neither() -> None:
    host = lost_while_another_goes()
    assert host.send(Forgive()) == [Stage(3, Build("L2", 2))]


def test_hb13_plugin_taken_again_at_once_does_not_overlap() -> None:
    host = serving()
    assert host.learn(wanted=False) == [Retire(1)]
    assert host.learn(wanted=True) == []
    assert (host.phase, host.state.processes) == (Phase.RETIRING, 1)
    (stage,) = host.gone()
    assert stage == Stage(2, Build("L1", 1))


def test_plugin_that_sleeps_is_downloaded_and_started_by_its_first_use() -> None:
    host = Host()
    host.flags["asleep"] = True
    assert host.know("L1") == [Fetch(1, Build("L1", 1))]
    assert host.phase is Phase.FETCHING
    host.know("L1*")
    host.send(Fetched(1))
    assert (host.phase, host.state.wake_at_s) == (Phase.IDLE, None)
    assert host.learn(asleep=False) == [Stage(2, Build("L1", 1))]
    host.up()
    assert host.learn(asleep=True) == [Retire(2)]


@pytest.mark.parametrize("code", [Failure(Cause.PLUGIN, "CRASHED"), KILLED])
def test_hb14_what_ends_by_itself_is_started_again(code: Failure) -> None:
    host = serving()
    (told,) = host.send(Ended(1, code))
    assert (told.was_live, host.phase) == (True, Phase.BACKOFF)
    assert host.state.wake_at_s == pytest.approx(0.75)
    host.now = 0.75
    assert host.send(Tick()) == [Stage(2, Build("L1", 1))]


def test_hb17_health_for_longer_than_the_stable_window_begins_the_row_anew() -> None:
    host = serving()
    for _ in range(3):
        host.send(Ended(host.state.live.n, KILLED))
        host.now = host.state.wake_at_s
        host.send(Tick())
        host.up()
    host.now += 61
    began = host.now
    host.send(Ended(host.state.live.n, KILLED))
    assert host.state.wake_at_s - began == pytest.approx(0.75)


def test_hb20_another_order_of_the_same_hosts_restarts_nothing() -> None:
    host = serving("L1*")
    host.know("J1*")
    host.policy = Policy(platforms=("J", "L"))
    assert host.learn() == []
    assert host.live == "L1"
    host.know("L2*", "J2*")
    assert host.state.candidate.build.digest == "J2", "the order decides new selections"


def test_u08_newest_version_replaces_the_candidate_before_its_canary() -> None:
    for phase in (Phase.STAGING, Phase.LAUNCHING, Phase.SHADOW):
        host = on_trial(phase)
        told = host.know("L3*")
        if phase is Phase.STAGING:
            assert told == [Cancel(2), Stage(3, Build("L3", 3))]
        else:
            assert told[-1] == Kill(2)
            assert (host.phase, host.state.processes) == (Phase.RETIRING, 2)
            host.gone()
            assert host.state.candidate.build.digest == "L3"
    host = on_trial(Phase.CANARY)
    assert host.know("L3*") == []


def test_stream_of_versions_cannot_starve_the_cut_over() -> None:
    host = serving()
    for rev in range(2, 40):
        host.know(f"L{rev}*")
        host.send(Tick())
        if host.phase is Phase.STAGING:
            host.up()
        elif host.phase is Phase.RETIRING:
            host.gone()
        elif host.phase is Phase.SHADOW and rev % 2:
            continue
        else:
            host.judge()
        if host.live != "L1":
            break
    assert host.live != "L1"


def test_stream_of_versions_cannot_starve_the_download() -> None:
    """A version a second, and each takes longer than that: the fourth is let through, then the newest."""
    host = serving()
    told = [host.know(f"L{rev}") for rev in range(2, 40)]
    fetches = [effect for effects in told for effect in effects]
    assert fetches == [
        Fetch(2, Build("L2", 2)),
        Cancel(2),
        Fetch(3, Build("L3", 3)),
        Cancel(3),
        Fetch(4, Build("L4", 4)),
        Cancel(4),
        Fetch(5, Build("L5", 5)),
    ]
    host.know("L5*")
    host.send(Fetched(5))
    assert host.state.candidate.build.digest == "L5"
    assert host.state.fetch.build.digest == "L39"
    told = host.know("L40")
    assert told == [Cancel(host.state.fetch.n - 1), Fetch(host.state.fetch.n, Build("L40", 40))], "counted anew"


def test_download_that_was_let_through_and_failed_makes_way_for_the_newest() -> None:
    host = serving()
    for rev in range(2, 8):
        host.know(f"L{rev}")
    assert host.state.fetch.build.digest == "L5"
    host.send(Broke(host.state.fetch.n, Failure(Cause.CAPACITY, "FETCH_FAILED")))
    assert host.state.fetch.build.digest == "L7"


@pytest.mark.parametrize(
    "change",
    [{"fetchable": False}, {"quarantined": True}, {"denied": True}, {"granted": False}, {"platform": "X"}],
    ids=lambda change: next(iter(change)),
)
def test_download_that_was_let_through_is_given_up_when_its_version_may_not_run(change: dict) -> None:
    host = serving()
    for rev in range(2, 8):
        host.know(f"L{rev}")
    host.builds["L5"] = replace(host.builds["L5"], **change)
    told = host.learn()
    assert [type(effect) for effect in told] == [Cancel, Fetch]
    assert host.state.fetch.build.digest == "L7"


def test_download_that_was_let_through_is_given_up_for_the_operators_pin() -> None:
    host = serving()
    for rev in range(2, 8):
        host.know(f"L{rev}")
    host.policy = replace(POLICY, pin=Pin(digest="L3"))
    host.learn()
    assert host.state.fetch.build.digest == "L3"


def test_u08_version_in_guard_is_watched_to_its_end() -> None:
    host = on_trial(Phase.GUARD)
    assert host.know("L3*") == []
    host.judge()
    host.gone()
    assert host.state.candidate.build.digest == "L3"


def test_u04_candidate_that_does_not_start_is_tried_with_pauses_and_then_quarantined() -> None:
    host = on_trial(Phase.LAUNCHING)
    starts = 1
    while True:
        told = host.send(Ended(host.state.candidate.n, BAD))
        assert host.live == "L1"
        if any(isinstance(effect, Condemn) for effect in told):
            break
        assert host.phase is Phase.BACKOFF
        host.now = host.state.wake_at_s
        host.send(Tick())
        host.send(Staged(host.state.candidate.n))
        starts += 1
    assert starts == 5
    assert (host.phase, host.live) == (Phase.IDLE, "L1")
    host.now += 10_000
    assert host.send(Tick()) == []


def test_package_that_is_wrong_in_itself_is_quarantined_at_once() -> None:
    host = on_trial(Phase.LAUNCHING)
    wrong = Failure(Cause.PACKAGE, "INVALID_PACKAGE")
    told = host.send(Ended(2, wrong))
    assert told == [Failed(Build("L2", 2), Phase.LAUNCHING, wrong), Condemn(Build("L2", 2), wrong)]
    host.now += 10_000
    assert host.send(Tick()) == []
    host.builds["L2"] = replace(host.builds["L2"], quarantined=True)
    host.learn()
    host.builds["L2"] = replace(host.builds["L2"], quarantined=False)
    assert host.learn() == [Stage(3, Build("L2", 2))], "the quarantine was cleared"


@pytest.mark.parametrize("phase", [Phase.STAGING, Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY, Phase.GUARD])
def test_capacity_and_kills_from_outside_quarantine_nothing(phase: Phase) -> None:
    host = on_trial(phase)
    tried = host.state.live if phase is Phase.GUARD else host.state.candidate
    event = (
        Broke(tried.n, Failure(Cause.CAPACITY, "RESOURCE_EXHAUSTED"))
        if phase is Phase.STAGING
        else Ended(tried.n, KILLED)
    )
    told = host.send(event)
    assert not any(isinstance(effect, Condemn) for effect in told)
    assert host.live == "L1"
    for _ in range(20):
        while host.state.going:
            host.gone()
        if host.state.candidate is None:
            host.now = host.state.wake_at_s
            host.send(Tick())
        host.send(Staged(host.state.candidate.n))
        host.send(Ended(host.state.candidate.n, KILLED))
        assert (host.live, host.phase) == ("L1", Phase.BACKOFF)


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.CANARY])
def test_fault_on_trial_quarantines_and_leaves_the_live_one_alone(phase: Phase) -> None:
    host = on_trial(phase)
    verdict = Failure(Cause.PLUGIN, "TRIAL_FAILED", "failures 30 %")
    told = host.judge(verdict)
    assert told == [
        EndTrial(2),
        Kill(2),
        Failed(Build("L2", 2), phase, verdict),
        Condemn(Build("L2", 2), verdict),
    ]
    host.gone()
    assert (host.live, host.phase) == ("L1", Phase.IDLE)


def test_u06_breach_in_guard_brings_the_previous_one_back_in_the_same_step() -> None:
    host = on_trial(Phase.GUARD)
    told = host.judge(Failure(Cause.PLUGIN, "TRIAL_FAILED"))
    assert told.index(CutOver(1)) < told.index(Retire(2)), "no cooperation of the bad one is waited for"
    assert (host.live, host.state.live.n, host.phase) == ("L1", 1, Phase.RETIRING)
    host.gone()
    assert (host.phase, host.state.processes) == (Phase.IDLE, 1)


def test_crash_in_guard_brings_the_previous_one_back_in_the_same_step() -> None:
    host = on_trial(Phase.GUARD)
    told = host.send(Ended(2, Failure(Cause.PLUGIN, "CRASHED")))
    assert CutOver(1) in told
    assert Condemn(Build("L2", 2), Failure(Cause.PLUGIN, "CRASHED")) in told
    assert (host.live, host.phase) == ("L1", Phase.IDLE)


def test_kill_from_outside_in_guard_goes_back_without_a_quarantine() -> None:
    host = on_trial(Phase.GUARD)
    told = host.send(Ended(2, KILLED))
    assert CutOver(1) in told
    assert not any(isinstance(effect, Condemn) for effect in told)
    host.now = 10.0
    assert host.send(Tick()) == [Stage(3, Build("L2", 2))]


def test_previous_that_ends_in_guard_takes_the_way_back_with_it() -> None:
    host = on_trial(Phase.GUARD)
    host.send(Ended(1, KILLED))
    assert (host.phase, host.state.previous) == (Phase.GUARD, None)
    host.send(Ended(2, Failure(Cause.PLUGIN, "CRASHED")))
    assert (host.phase, host.state.candidate.build.digest) == (Phase.STAGING, "L1")


@pytest.mark.parametrize("phase", [Phase.STAGING, Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY])
def test_live_that_dies_comes_back_before_anything_newer(phase: Phase) -> None:
    host = on_trial(phase)
    host.send(Ended(1, KILLED))
    host.now = 60.0
    host.send(Tick())
    while host.state.going:
        host.gone()
    assert host.state.candidate.build.digest == "L1"


def test_first_version_that_fails_has_pauses_and_then_is_disabled() -> None:
    host = Host()
    host.know("L1*")
    for _ in range(4):
        host.send(Staged(host.state.candidate.n))
        host.send(Ended(host.state.candidate.n, BAD))
        assert host.phase is Phase.FAILED
        host.now = host.state.wake_at_s
        host.send(Tick())
    host.send(Staged(host.state.candidate.n))
    host.send(Ended(host.state.candidate.n, BAD))
    assert (host.phase, host.state.wake_at_s) == (Phase.DISABLED, None)
    assert host.send(Forgive()) == [Stage(6, Build("L1", 1))]


def test_l13_new_digest_is_tried_at_once_while_the_old_one_is_disabled() -> None:
    host = Host(rules=Rules(backoff=replace(BACKOFF, budget_failures=1)))
    host.know("L1*")
    host.send(Staged(1))
    host.send(Ended(1, BAD))
    assert host.phase is Phase.DISABLED
    assert host.know("L2*") == [Stage(2, Build("L2", 2))]


def test_older_version_steps_in_for_a_first_version_that_fails() -> None:
    host = Host()
    host.know("L1*", "L2*")
    host.send(Staged(1))
    host.send(Ended(1, BAD))
    assert host.state.candidate.build.digest == "L1"
    host.up()
    assert (host.live, host.phase) == ("L1", Phase.BACKOFF)


def test_five_failures_in_ten_minutes_disable_what_was_live() -> None:
    host = serving()
    for _ in range(5):
        host.send(Ended(host.state.live.n, Failure(Cause.PLUGIN, "CRASHED")))
        if host.state.wake_at_s is None:
            break
        host.now = host.state.wake_at_s
        host.send(Tick())
        host.up()
    assert host.phase is Phase.DISABLED
    assert sum(isinstance(effect, Launch) for effect in host.all) == 5


def test_what_was_live_before_the_host_started_comes_back_first() -> None:
    host = Host()
    host.flags["last"] = "L1"
    host.know("L1*", "L2*")
    assert host.state.candidate.build.digest == "L1"
    host.up()
    assert host.state.candidate.build.digest == "L2"
    host.up()
    assert host.phase is Phase.SHADOW


def test_u11_equal_content_restarts_nothing_and_other_launch_configuration_does() -> None:
    host = serving()
    assert [host.learn() for _ in range(20)] == [[]] * 20
    (stage,) = host.learn(launch="other")
    assert stage == Stage(2, Build("L1", 1, "other"))
    host.up()
    assert (host.live, host.phase) == ("L1", Phase.RETIRING), "no trial of equal content"


def test_plugin_that_asks_to_go_is_replaced_after_a_pause() -> None:
    host = serving()
    asked = Failure(Cause.OUTSIDE, "UNAVAILABLE")
    host.send(AskedToGo(1, asked))
    assert (host.phase, host.live) == (Phase.BACKOFF, "L1")
    assert host.send(AskedToGo(1, asked)) == []
    host.now = 1.0
    host.send(Tick())
    host.up()
    assert (host.state.live.n, host.phase) == (2, Phase.RETIRING)


def test_version_that_asks_for_more_waits_for_its_grant() -> None:
    host = serving()
    host.know("L2*?")
    assert (host.live, host.phase) == ("L1", Phase.AWAITING_GRANT)
    host.know("L2*")
    assert host.state.candidate.build.digest == "L2"


def test_what_may_not_run_any_more_is_stopped_at_once() -> None:
    host = serving()
    host.know("L1*?")
    assert (host.live, host.phase) == (None, Phase.RETIRING)
    host.gone()
    assert host.phase is Phase.AWAITING_GRANT


def test_disabled_plugin_is_stopped_and_stays_down() -> None:
    host = on_trial(Phase.SHADOW)
    told = host.learn(disabled=True)
    assert told == [EndTrial(2), Kill(2), Retire(1)]
    for n in (1, 2):
        host.send(Ended(n))
    assert (host.phase, host.state.processes) == (Phase.DISABLED, 0)
    assert host.learn(disabled=False) == [Stage(3, Build("L1", 1))], "what was live comes back first"


def test_u21_pin_goes_below_the_floor_and_a_go_to_skips_the_trials() -> None:
    host = serving("L5*")
    host.builds["L4"] = Candidate("L4", 4, "L")
    host.policy = replace(POLICY, floor_rev=5)
    assert host.learn() == []
    host.policy = replace(host.policy, pin=Pin(digest="L4"))
    (fetch,) = host.learn()
    assert fetch == Fetch(2, Build("L4", 4))
    host.know("L4*")
    host.send(Fetched(2))
    host.send(GoTo("L4", "op"))
    host.know("L4*")
    assert host.live == "L5"
    host.know("L6*")
    assert host.state.candidate.build.digest == "L4", "a watcher does not undo a pin"


def test_operator_goes_to_a_version_without_trials() -> None:
    host = serving("L5*")
    host.builds["L4"] = Candidate("L4", 4, "L", complete=True)
    host.send(GoTo("L4", "op"))
    host.policy = replace(POLICY, pin=Pin(digest="L4"))
    host.learn()
    host.up()
    assert (host.live, host.phase) == ("L4", Phase.RETIRING)
    assert Record(2, Build("L4", 4), "the operator went to it", "op") in host.all


@pytest.mark.parametrize("phase", [Phase.STAGING, Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY])
def test_operator_goes_to_a_version_that_is_under_way_already(phase: Phase) -> None:
    """The pin is known first: with it the way to the version began, with all its steps."""
    host = on_trial(phase)
    host.policy = replace(POLICY, pin=Pin(digest="L2"))
    host.learn(pinned_by="op")
    assert host.phase is phase
    told = host.send(GoTo("L2", "op"))
    if phase in (Phase.STAGING, Phase.LAUNCHING):
        assert told == []
        host.up()
    else:
        assert told[:2] == [EndTrial(2), CutOver(2)]
    assert (host.live, host.phase) == ("L2", Phase.RETIRING)
    assert Record(2, Build("L2", 2), "the operator went to it", "op") in host.all


def test_operator_goes_to_a_candidate_that_waits_for_the_trial_of_another_plugin() -> None:
    host = on_trial(Phase.LAUNCHING)
    host.learn(blocked=True)
    host.send(Ready(2))
    assert CutOver(2) in host.send(GoTo("L2", "op"))
    assert host.live == "L2"


def test_operator_who_goes_to_another_version_leaves_the_candidate_to_the_pin() -> None:
    host = on_trial(Phase.CANARY)
    assert host.send(GoTo("L1", "op")) == []
    assert (host.phase, host.state.candidate.build.digest) == (Phase.CANARY, "L2")


def test_history_says_who_pinned_what_became_live() -> None:
    host = serving(shadow=False, canary=False, guard=False)
    host.builds["L2"] = Candidate("L2", 2, "L", complete=True)
    host.policy = replace(POLICY, pin=Pin(digest="L2"))
    host.learn(pinned_by="ann")
    host.up()
    assert Record(2, Build("L2", 2), "pinned", "ann") in host.all
    host.gone()
    host.policy, host.flags["pinned_by"] = POLICY, None
    host.know("L3*")
    host.up()
    assert Record(3, Build("L3", 3), "newer version", "hotbay") in host.all


def test_history_says_who_rolled_back_and_that_the_guard_did() -> None:
    host = on_trial(Phase.GUARD)
    host.send(Abort(Failure(Cause.OPERATOR, "ROLLED_BACK"), "ann"))
    assert Record(1, Build("L1", 1), "went back: ROLLED_BACK", "ann") in host.all
    host = on_trial(Phase.GUARD)
    host.judge(Failure(Cause.PLUGIN, "TRIAL_FAILED"))
    assert Record(1, Build("L1", 1), "went back: TRIAL_FAILED", "hotbay") in host.all


def test_handover_that_is_paused_leaves_the_live_one_where_it_is() -> None:
    host = serving(handover=True)
    host.know("L2*")
    assert host.phase is Phase.STAGING
    assert host.send(Pause()) == [Cancel(2)]
    assert (host.live, host.phase, host.state.candidate) == ("L1", Phase.IDLE, None)
    assert host.send(Staged(2)) == []
    assert host.send(Resume()) == [Stage(3, Build("L2", 2))]
    assert host.send(Staged(3)) == [HandOver(1)]
    assert host.send(Pause()) == [], "the old one is on its way out: the new one has to come"
    host.gone()
    host.send(Ready(3))
    assert host.live == "L2"


def test_handover_of_what_needs_no_trial_goes_on_in_a_pause() -> None:
    host = serving(handover=True)
    host.learn(launch="other")
    assert host.phase is Phase.STAGING
    assert host.send(Pause()) == []
    assert host.send(Staged(2)) == [HandOver(1)]


def test_handover_lets_the_old_one_go_before_the_new_one_starts() -> None:
    host = serving(handover=True, shadow=False, canary=False)
    host.know("L2*")
    assert host.send(Staged(2)) == [HandOver(1)]
    assert host.state.processes == 1
    assert host.send(Ended(1)) == [Launch(2, Build("L2", 2))]
    told = host.send(Ready(2))
    assert (host.phase, host.live) == (Phase.GUARD, "L2")
    assert not any(isinstance(effect, Release) for effect in told), "the cut over lets calls go"


def test_handover_that_fails_goes_back_to_the_old_version() -> None:
    host = serving(handover=True)
    host.know("L2*")
    host.send(Staged(2))
    host.send(Ended(1))
    host.send(Ended(2, BAD))
    assert (host.phase, host.state.candidate.build.digest) == (Phase.STAGING, "L1")
    host.up()
    assert host.live == "L1"


def test_spare_takes_over_in_the_same_step_and_another_one_is_started_after_the_pause() -> None:
    host = serving(standby=True)
    assert host.state.spare.n == 2
    host.send(Ready(2))
    told = host.send(Ended(1, KILLED))
    assert CutOver(2) in told
    assert (host.state.live.n, host.state.spare) == (2, None)
    host.now = host.state.wake_at_s
    host.send(Tick())
    assert host.state.spare.n == 3
    host.know("L2*")
    assert (host.phase, host.state.spare) == (Phase.RETIRING, None), "a candidate needs its place"
    host.gone()
    assert host.state.candidate.build.digest == "L2"


def test_approval_is_waited_for() -> None:
    host = serving(approve=True)
    assert (host.know("L2*"), host.phase) == ([], Phase.AWAITING_APPROVAL)
    assert host.send(Approve("me")) == [Stage(2, Build("L2", 2))]
    assert host.state.candidate.who == "me"


def test_pause_holds_a_verdict_back_and_a_failure_acts() -> None:
    host = on_trial(Phase.SHADOW)
    host.send(Pause())
    assert host.judge() == []
    assert host.phase is Phase.SHADOW
    assert host.send(Resume()) == [EndTrial(2), Trial(2, Phase.CANARY)]
    host.send(Pause())
    host.judge(BAD)
    assert host.phase is Phase.RETIRING


def test_pause_lets_nothing_new_begin_but_what_dies_come_back() -> None:
    host = serving()
    host.send(Pause())
    assert host.know("L2*") == []
    host.send(Ended(1, KILLED))
    host.now = 1.0
    host.send(Tick())
    assert host.state.candidate.build.digest == "L1"


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.CANARY])
def test_promote_ends_the_trials(phase: Phase) -> None:
    host = on_trial(phase)
    host.send(Promote())
    assert (host.phase, host.live) == (Phase.GUARD, "L2")
    host.send(Promote())
    assert (host.phase, host.live) == (Phase.RETIRING, "L2")


@pytest.mark.parametrize("phase", [Phase.STAGING, Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY, Phase.GUARD])
def test_abort_ends_with_the_old_version_and_a_quarantine(phase: Phase) -> None:
    host = on_trial(phase)
    told = host.send(Abort(Failure(Cause.OPERATOR, "ABORTED")))
    assert host.live == "L1"
    assert any(isinstance(effect, Condemn) for effect in told)
    while host.state.going:
        host.gone()
    assert host.phase is Phase.IDLE


def test_candidate_waits_for_the_trial_of_another_plugin() -> None:
    host = on_trial(Phase.LAUNCHING)
    host.learn(blocked=True)
    assert host.send(Ready(2)) == []
    assert host.phase is Phase.LAUNCHING
    assert host.learn(blocked=False) == [Trial(2, Phase.SHADOW)]


def test_plan_that_is_refused_leaves_the_live_one() -> None:
    host = serving(shadow=False, canary=False)
    host.know("L2*")
    host.send(Staged(2))
    state, effects = step(host.state, Ready(2), host.now)
    assert effects == (CutOver(2),)
    state, effects = step(state, Refused(2, Failure(Cause.PLUGIN, "INVALID_PACKAGE")), host.now)
    assert effects[0] == Kill(2)
    assert state.live.build.digest == "L1"


def test_between_a_cut_over_and_its_answer_nothing_else_happens() -> None:
    host = serving(shadow=False, canary=False)
    host.know("L2*")
    host.send(Staged(2))
    state, _ = step(host.state, Ready(2), host.now)
    for event in (Tick(), Ended(1, KILLED), Known(host.state.facts)):
        with pytest.raises(IllegalTransition, match="CUTOVER"):
            step(state, event, host.now)


def test_attempt_that_never_was_cannot_end() -> None:
    with pytest.raises(IllegalTransition, match="99"):
        serving().send(Ended(99))


def test_download_that_is_gone_wrong_is_tried_again_and_holds_nothing_up() -> None:
    host = serving()
    (fetch,) = host.know("L2")
    host.send(Broke(fetch.n, Failure(Cause.CAPACITY, "FETCH_FAILED")))
    assert (host.phase, host.live) == (Phase.BACKOFF, "L1")
    host.now = host.state.wake_at_s
    (again,) = host.send(Tick())
    assert again == Fetch(3, Build("L2", 2))
    told = host.know("L3")
    assert told == [Cancel(3), Fetch(4, Build("L3", 3))]


def test_newer_version_is_downloaded_while_another_one_is_on_guard() -> None:
    host = on_trial(Phase.GUARD)
    assert host.know("L3") == [Fetch(3, Build("L3", 3))]
    assert host.phase is Phase.GUARD


def test_older_facts_never_overwrite_newer_ones() -> None:
    host = serving()
    before = host.state
    state, effects = step(before, Known(replace(before.facts, revision=0, disabled=True)), host.now)
    assert (state, effects) == (before, ())


def test_u23_only_the_monotonic_clock_moves_a_rollout() -> None:
    host = serving()
    host.send(Ended(1, KILLED))
    assert math.isfinite(host.state.wake_at_s)
    for now in (0.1, 0.5, 0.74):
        host.now = now
        assert host.send(Tick()) == []
    host.now = 0.75
    assert host.send(Tick()) != []


def test_every_phase_can_be_reached_and_left() -> None:
    reached = {phase for rule in TABLE.values() for phase in rule.to}
    assert reached == set(Phase)
    assert all(any(rule.to - {phase} for (at, _), rule in TABLE.items() if at is phase) for phase in Phase)


def test_commands_act_somewhere() -> None:
    assert COMMANDS[Approve] == {Phase.AWAITING_APPROVAL}
    assert COMMANDS[Promote] == {Phase.SHADOW, Phase.CANARY, Phase.GUARD}


# -- packages that are meant to end ------------------------------------------------------------------


def finish(host: Host) -> list:
    return host.send(Ended(host.state.live.n, finished=True))


def test_one_shot_that_ended_is_not_started_again_and_has_not_failed() -> None:
    host = serving()
    told = finish(host)
    assert not any(isinstance(effect, Failed | Stage | Launch) for effect in told)
    assert (host.phase, host.live, host.state.processes) == (Phase.IDLE, None, 0)
    assert all(not hold.backoff.failures for hold in host.state.holds.values())
    assert host.state.wake_at_s is None
    assert host.learn() == []
    host.now += 1000.0
    assert host.send(Tick()) == []


def test_one_shot_starts_again_for_another_version_launch_configuration_or_the_operator() -> None:
    host = serving()
    finish(host)
    assert host.know("L2*") == [Stage(2, Build("L2", 2))]
    host.up()
    assert host.live == "L2"
    finish(host)
    assert host.learn(launch="other") == [Stage(3, Build("L2", 2, "other"))]
    host.up()
    finish(host)
    assert host.send(Forgive()) == [Stage(4, Build("L2", 2, "other"))]


def test_one_shot_that_ends_on_trial_leaves_the_live_one_and_is_not_quarantined() -> None:
    host = on_trial(Phase.SHADOW)
    told = host.send(Ended(host.state.candidate.n, finished=True))
    assert not any(isinstance(effect, Condemn | Failed) for effect in told)
    assert (host.phase, host.live, host.state.candidate) == (Phase.IDLE, "L1", None)


def test_one_shot_that_ends_on_guard_has_done_its_work() -> None:
    host = on_trial(Phase.GUARD)
    told = finish(host)
    assert EndTrial(2) in told
    assert Retire(1) in told
    assert not any(isinstance(effect, Condemn | CutOver) for effect in told)
    host.gone()
    assert (host.phase, host.live, host.state.processes) == (Phase.IDLE, None, 0)


def test_one_shot_that_ends_beside_a_candidate_makes_way_for_it() -> None:
    host = on_trial(Phase.CANARY)
    finish(host)
    host.gone()
    assert (host.phase, host.live) == (Phase.STAGING, None)
    host.up()
    assert host.live == "L2"
