"""The rollout's machine driven at random: a fake host carries its effects out, and invariants hold after every step.

The default lane runs a small number of steps; the slow lane at least 50,000.
"""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hotbay.rollout.backoff import BackoffPolicy
from hotbay.rollout.choice import MAX_REPLACED_IN_A_ROW, choose
from hotbay.rollout.effects import (
    Cancel,
    Condemn,
    CutOver,
    EndTrial,
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
from hotbay.rollout.machine import COMMANDS, step
from hotbay.rollout.selection import Candidate, Pin, Policy, select
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
    Life,
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
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

FAST = BackoffPolicy(first_s=1.0, factor=2.0, max_s=8.0, stable_s=20.0, budget_failures=3, budget_within_s=100.0)
CAUSES = st.sampled_from([Cause.PLUGIN, Cause.OUTSIDE, Cause.CAPACITY, Cause.PACKAGE])
STEPS = Counter[str]()


class Rollouts(RuleBasedStateMachine):
    """A fake world, clock and processes around one routine."""

    @initialize(
        shadow=st.booleans(),
        canary=st.booleans(),
        guard=st.booleans(),
        mode=st.sampled_from(["overlap", "overlap", "overlap", "handover", "standby", "approve"]),
    )
    def begin(self, *, shadow: bool, canary: bool, guard: bool, mode: str) -> None:
        self.now = 0.0
        self.state = State()
        self.builds: dict[str, Candidate] = {}
        self.rules = Rules(
            shadow, canary, guard, mode == "handover", mode == "approve", mode == "standby", backoff=FAST
        )
        self.policy = Policy(platforms=("L", "J"))
        self.flags = {"wanted": True, "asleep": False, "disabled": False, "blocked": False}
        self.launch = ""
        self.revision = 0
        self.serial = 0
        self.running: dict[int, Build] = {}
        self.leaving: set[int] = set()
        self.fetching: dict[int, Build] = {}
        self.staging: dict[int, Build] = {}
        self.launching: set[int] = set()
        self.trials: dict[int, Phase] = {}
        self.published: int | None = None
        self.calls_held = False
        self.condemned: set[str] = set()
        self.cleared = False
        self.overtaken = 0
        self.learn()

    # -- carrying out --------------------------------------------------------------------------

    def send(self, event: Event) -> None:
        queue = [event]
        while queue:
            event = queue.pop(0)
            before = self.state
            self.state, effects = step(before, event, self.now)
            STEPS["steps"] += 1
            STEPS[f"{before.phase.name}"] += 1
            answers: list[Event] = []
            for effect in effects:
                self.carry_out(effect, answers)
            queue = answers + queue
            self.check_step(before, event, effects)

    def carry_out(self, effect: object, answers: list[Event]) -> None:
        match effect:
            case Fetch(n, build):
                assert not self.fetching
                self.fetching[n] = build
            case Stage(n, build):
                assert self.builds[build.digest].complete
                self.staging[n] = build
            case Cancel(n):
                # Its task may have ended meanwhile: its event is late then.
                self.fetching.pop(n, None)
                self.staging.pop(n, None)
            case Launch(n, build, heir_of):
                assert heir_of is None or heir_of in self.running
                assert build.digest not in self.condemned, "a condemned digest is started"
                self.running[n] = build
                self.launching.add(n)
                STEPS["launches"] += 1
            case HandOver(n) | Retire(n) | Kill(n):
                assert n in self.running
                assert n not in self.leaving
                assert not (n == self.published and isinstance(effect, Kill)), "what answers is killed"
                self.leaving.add(n)
                self.launching.discard(n)
                self.calls_held |= isinstance(effect, HandOver)
            case Release():
                assert self.calls_held
                self.calls_held = False
            case _:
                self.carry_out_trial(effect, answers)

    def carry_out_trial(self, effect: object, answers: list[Event]) -> None:
        match effect:
            case Trial(n, phase):
                assert n not in self.trials
                self.trials[n] = phase
            case EndTrial(n):
                assert self.trials.pop(n, None) is not None
            case CutOver(n):
                self.cut_over(n, answers)
            case Condemn(build, _):
                self.condemned.add(build.digest)
                self.builds[build.digest] = replace(self.builds[build.digest], quarantined=True)
                answers.append(self.known())
            case Record():
                STEPS["records"] += 1

    def cut_over(self, n: int, answers: list[Event]) -> None:
        build = self.running[n]
        going_back = self.state.phase is Phase.CUTOVER and self.trials == {} and n < (self.published or 0)
        candidate = self.builds[build.digest]
        assert n not in self.launching
        assert candidate.complete
        assert going_back or not candidate.barred, "something barred becomes live"
        if self.refuse_next:
            self.refuse_next = False
            answers.insert(0, Refused(n, Failure(Cause.PLUGIN, "INVALID_PACKAGE")))
            return
        self.published = n
        self.calls_held = False
        STEPS["cut overs"] += 1
        answers.insert(0, Published(n))

    refuse_next = False

    def known(self) -> Known:
        self.revision += 1
        return Known(
            Facts(
                self.revision,
                tuple(self.builds.values()),
                self.policy,
                self.rules,
                self.launch,
                None,
                **self.flags,
            )
        )

    def learn(self) -> None:
        self.send(self.known())

    def check_step(self, before: State, event: Event, effects: tuple[object, ...]) -> None:
        state = self.state
        if before.live is not None and state.live is None and state.phase is not Phase.CUTOVER:
            died = isinstance(event, Ended) and event.n == before.live.n
            barred = self.builds[before.live.build.digest].barred or before.live.build.digest in state.condemned
            handed = any(isinstance(effect, HandOver) for effect in effects)
            assert died or barred or handed or not state.facts.runs, "the live one was let go for nothing"
        if before.phase is Phase.CANARY and state.candidate != before.candidate and isinstance(event, Known):
            assert before.candidate is not None
            mine = self.builds[before.candidate.build.digest]
            fit = select([mine], self.policy).live is not None and before.candidate.build.launch == self.launch
            assert not fit or not state.facts.runs, "something newer replaced a candidate in canary"
        if before.phase is Phase.GUARD and isinstance(event, Judged) and event.failure and before.previous:
            assert CutOver(before.previous.n) in effects, "not back in one step"
        self.check_download(before, event)
        if before.paused and any(isinstance(effect, HandOver) for effect in effects):
            assert before.candidate is not None
            assert before.candidate.plain, "a rollout goes on in a pause"
        assert state.attempts >= before.attempts

    def check_download(self, before: State, event: Event) -> None:
        """Newer versions cannot keep a download that may go on from its end."""
        old, new = before.fetch, self.state.fetch
        mine = self.builds[old.build.digest] if old is not None else None
        if old is None or mine is None or old == new:
            return
        if mine.complete or isinstance(event, Fetched | Broke):
            self.overtaken = 0
            return
        others = {c.digest for c in choose(self.state, self.now).selection.conflicts}
        live = before.live.build.rev if before.live is not None else 0
        fit = select([mine], self.policy).target is not None and mine.fetchable and mine.digest not in others
        if new is not None and fit and mine.rev > live:
            self.overtaken += 1
            STEPS["overtaken"] += 1
        assert self.overtaken <= MAX_REPLACED_IN_A_ROW, "a stream of versions starves the download"

    # -- the world -----------------------------------------------------------------------------

    @rule()
    def good_version(self) -> None:
        self.new_build(Candidate("", 0, "L", complete=True))

    @rule()
    def good_version_to_download(self) -> None:
        self.new_build(Candidate("", 0, "L"))

    def new_build(self, build: Candidate) -> None:
        self.serial += 1
        digest = f"d{self.serial}"
        self.builds[digest] = replace(build, digest=digest, rev=self.serial)
        self.learn()

    @rule(count=st.integers(1, 6))
    def all_goes_well(self, count: int) -> None:
        for _ in range(count):
            self.settle_one()

    @rule(count=st.integers(2, 4))
    def all_goes_well_without_verdicts(self, count: int) -> None:
        for _ in range(count):
            if not self.trials:
                self.settle_one()

    @rule(complete=st.booleans(), platform=st.sampled_from("LJX"), granted=st.integers(0, 5))
    def new_version(self, *, complete: bool, platform: str, granted: int) -> None:
        self.new_build(Candidate("", 0, platform, complete=complete, granted=granted > 0))

    @precondition(lambda self: self.builds)
    @rule(data=st.data())
    def conflict(self, data: st.DataObject) -> None:
        other = data.draw(st.sampled_from(sorted(self.builds)))
        self.serial += 1
        digest = data.draw(st.sampled_from("az")) + str(self.serial)
        self.builds[digest] = replace(self.builds[other], digest=digest, quarantined=False)
        self.learn()

    @precondition(lambda self: self.builds)
    @rule(data=st.data(), what=st.sampled_from(["denied", "granted", "fetchable"]))
    def change(self, data: st.DataObject, what: str) -> None:
        digest = data.draw(st.sampled_from(sorted(self.builds)))
        self.builds[digest] = replace(self.builds[digest], **{what: not getattr(self.builds[digest], what)})
        self.learn()

    @precondition(lambda self: self.condemned)
    @rule()
    def clear_quarantine(self) -> None:
        self.condemned.clear()
        self.builds = {d: replace(c, quarantined=False) for d, c in self.builds.items()}
        self.learn()
        self.send(Forgive())

    @precondition(lambda self: self.builds)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        digest = data.draw(st.sampled_from([None, *sorted(self.builds)]))
        self.policy = replace(self.policy, pin=None if digest is None else Pin(digest=digest))
        if digest is not None and data.draw(st.booleans()):
            self.learn()
            self.send(GoTo(digest, "op"))
        else:
            self.learn()

    @rule()
    def other_order_of_platforms(self) -> None:
        live = self.state.live
        self.policy = replace(self.policy, platforms=self.policy.platforms[::-1])
        self.learn()
        assert self.state.live == live, "another order of the same hosts restarts nothing"

    @rule(flag=st.sampled_from(["wanted", "asleep", "disabled", "blocked"]), rare=st.integers(0, 4))
    def switch(self, *, flag: str, rare: int) -> None:
        self.flags[flag] = (rare == 0) != (flag == "wanted")
        self.learn()

    @rule()
    def launch_configuration_changes(self) -> None:
        self.launch += "x"
        self.learn()

    @rule()
    def older_facts_arrive(self) -> None:
        before = self.state.facts
        self.send(Known(replace(before, revision=before.revision - 1, candidates=(), disabled=True)))
        assert self.state.facts == before

    # -- time, tasks and processes ---------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.3, 2.0, 30.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.send(Tick())

    @precondition(lambda self: self.fetching)
    @rule(cause=st.none() | CAUSES)
    def download_ends(self, cause: Cause | None) -> None:
        n, build = self.fetching.popitem()
        if cause is None:
            self.builds[build.digest] = replace(self.builds[build.digest], complete=True)
            self.learn()
            self.send(Fetched(n))
        else:
            self.send(Broke(n, Failure(cause, "FETCH_FAILED")))

    @precondition(lambda self: self.staging)
    @rule(cause=st.none() | CAUSES)
    def check_ends(self, cause: Cause | None) -> None:
        n, _ = self.staging.popitem()
        self.send(Staged(n) if cause is None else Broke(n, Failure(cause, "DIGEST_MISMATCH")))

    @precondition(lambda self: self.launching)
    @rule(data=st.data())
    def process_is_ready(self, data: st.DataObject) -> None:
        n = data.draw(st.sampled_from(sorted(self.launching)))
        self.launching.discard(n)
        self.send(Ready(n))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), cause=CAUSES)
    def process_dies(self, data: st.DataObject, cause: Cause) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.running))), Failure(cause, "CRASHED"))

    @precondition(lambda self: self.leaving)
    @rule(data=st.data())
    def process_goes(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.leaving))), None)

    @precondition(lambda self: self.state.live is not None or self.state.candidate is not None)
    @rule(rare=st.integers(0, 3))
    def one_shot_ends(self, rare: int) -> None:
        slots = (self.state.live, self.state.candidate)
        ready = [a.n for a in slots if a is not None and a.life is Life.READY and a.n not in self.leaving]
        if ready and rare == 0:
            self.end(ready[0], None, finished=True)

    def end(self, n: int, failure: Failure | None, *, finished: bool = False) -> None:
        del self.running[n]
        self.launching.discard(n)
        self.leaving.discard(n)
        if self.published == n:
            self.published = None
        self.send(Ended(n, failure, finished))

    @precondition(lambda self: self.trials)
    @rule(fails=st.booleans())
    def verdict(self, *, fails: bool) -> None:
        n, phase = next(iter(self.trials.items()))
        self.send(Judged(n, phase, Failure(Cause.PLUGIN, "DEADLINE_EXCEEDED") if fails else None))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def asks_to_go(self, data: st.DataObject) -> None:
        n = data.draw(st.sampled_from(sorted(self.running)))
        self.send(AskedToGo(n, Failure(Cause.OUTSIDE, "UNAVAILABLE")))

    @precondition(lambda self: self.state.attempts)
    @rule(n=st.integers(0, 3), kind=st.sampled_from([Staged, Ready, Fetched]))
    def late_event(self, n: int, kind: type[Staged] | type[Ready] | type[Fetched]) -> None:
        n = self.state.attempts - n
        known = (*self.fetching, *self.staging, *self.running)
        if n not in known:
            before = replace(self.state, wake_at_s=None)
            self.send(kind(n))
            assert replace(self.state, wake_at_s=None, phase=before.phase, facts=before.facts) == before

    @rule(
        command=st.sampled_from(
            [Pause(), Resume(), Resume(), Promote(), Abort(Failure(Cause.OPERATOR, "ABORTED")), Approve("op")]
        )
    )
    def command(self, command: Pause | Resume | Promote | Abort | Approve) -> None:
        if self.state.phase in COMMANDS[type(command)]:
            self.send(command)

    @rule()
    def plan_does_not_compile(self) -> None:
        self.refuse_next = True

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def at_most_two_processes(self) -> None:
        assert len(self.running) <= 2
        assert self.state.processes == len(self.running)
        assert self.state.going == self.leaving
        if self.rules.handover:
            serving = [
                a for a in (self.state.live, self.state.candidate) if a is not None and a.life is not Life.PLANNED
            ]
            assert len(serving) <= 1, "two processes that own the same thing"

    @invariant()
    def live_is_what_was_published(self) -> None:
        live = self.state.live
        assert live is None or (live.n == self.published and live.n in self.running)
        assert self.state.phase is not Phase.CUTOVER
        assert not self.calls_held or self.state.held_calls

    @invariant()
    def nothing_is_left_behind(self) -> None:
        state = self.state
        assert set(self.fetching) == ({state.fetch.n} if state.fetch else set())
        on_trial = dict.fromkeys((Phase.SHADOW, Phase.CANARY), state.candidate) | {Phase.GUARD: state.live}
        expected = on_trial.get(state.phase)
        assert set(self.trials) == ({expected.n} if expected else set())
        if state.phase is Phase.STAGING:
            assert state.candidate is not None
            assert set(self.staging) == {state.candidate.n}
        else:
            assert not self.staging
        assert (state.previous is None) or state.phase is Phase.GUARD

    def teardown(self) -> None:
        """Whatever happened: let everything go well from here, and the best version becomes live."""
        if not hasattr(self, "state") or self.state.phase is Phase.CUTOVER:
            return  # A step that failed is what is to be told.
        self.refuse_next = False
        self.flags = {"wanted": True, "asleep": False, "disabled": False, "blocked": False}
        self.rules = replace(self.rules, approve=False)
        self.learn()
        if self.state.paused:
            self.send(Resume())
        for _ in range(200):
            if not self.settle_one():
                break
        else:
            raise AssertionError(f"it never comes to rest: {self.state}")
        live = self.state.live
        choice = choose(self.state, self.now)
        conflicts = {c.digest for c in choice.selection.conflicts}
        candidates = [c for c in self.builds.values() if not self.is_out(c.digest) and c.digest not in conflicts]
        ended = {build.digest for build in self.state.finished if build.launch == self.launch}
        assert choice.start is None
        assert choice.fetch is None
        best = select(candidates, self.policy).live
        if best is not None and best.digest not in ended:
            assert live is not None, (best, self.state)
            assert live.build.rev >= best.rev or self.policy.pin is not None or live.platforms != self.policy.platforms

    def is_out(self, digest: str) -> bool:
        hold = self.state.holds.get(digest)
        return hold is not None and math.isinf(hold.not_before_s)

    def settle_one(self) -> bool:
        """Let one thing that is under way end well; false when nothing is."""
        if self.leaving:
            self.end(min(self.leaving), None)
        elif self.fetching:
            self.download_ends_well()
        elif self.staging:
            n, _ = self.staging.popitem()
            self.send(Staged(n))
        elif self.launching:
            self.launching.discard(n := min(self.launching))
            self.send(Ready(n))
        elif self.trials:
            n, phase = next(iter(self.trials.items()))
            self.send(Judged(n, phase))
        elif self.state.wake_at_s is not None:
            self.now = max(self.now, self.state.wake_at_s)
            self.send(Tick())
        else:
            return False
        return True

    def download_ends_well(self) -> None:
        n, build = self.fetching.popitem()
        self.builds[build.digest] = replace(self.builds[build.digest], complete=True)
        self.learn()
        self.send(Fetched(n))


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_model_check_of_fifty_thousand_steps() -> None:
    STEPS.clear()
    run_state_machine_as_test(
        Rollouts,
        settings=settings(
            max_examples=900, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert STEPS["steps"] >= 50_000
    assert set(Phase) <= {Phase[name] for name in STEPS if name in Phase.__members__}
