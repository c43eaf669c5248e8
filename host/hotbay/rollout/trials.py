"""From a launched candidate to the one that is live, and back. Pure."""

import math
from dataclasses import replace

from hotbay.rollout.choice import is_barred
from hotbay.rollout.effects import Cancel, CutOver, EndTrial, Failed, HandOver, Launch, Record, Trial
from hotbay.rollout.resting import WENT_TO_IT, rest
from hotbay.rollout.state import Attempt, Cause, Failure, Life, Phase
from hotbay.rollout.turn import FREE, Turn

__all__ = [
    "abandon",
    "fail_candidate",
    "finish",
    "go_back",
    "go_straight",
    "gone",
    "launch",
    "lose_live",
    "lose_spare",
    "note_leaving",
    "proceed",
    "put_off",
    "ready",
    "took_over",
    "trial_failed",
    "trial_passed",
]


def launch(turn: Turn) -> None:
    """The candidate's environment is there: start it, or first let the live one go, where only one can be."""
    state = turn.state
    turn.become(phase=Phase.LAUNCHING)
    if state.facts.rules.handover and state.live is not None:
        turn.emit(HandOver(state.live.n))
        turn.become(live=None, before=state.live.build, going=state.going | {state.live.n}, held_calls=True)
    else:
        _start(turn)


def _start(turn: Turn) -> None:
    state, candidate = turn.state, turn.state.candidate
    assert candidate is not None, "a candidate is started"
    turn.become(candidate=replace(candidate, life=Life.STARTED))
    turn.emit(Launch(candidate.n, candidate.build, state.live.n if state.live is not None else None))


def ready(turn: Turn, n: int) -> None:
    """A process is READY: the candidate goes on, a spare stands by, any other was given up meanwhile."""
    state = turn.state
    if state.spare is not None and state.spare.n == n:
        turn.become(spare=replace(state.spare, life=Life.READY))
    elif state.candidate is not None and state.candidate.n == n and state.candidate.life is Life.STARTED:
        turn.become(candidate=replace(state.candidate, life=Life.READY))
        proceed(turn)


def proceed(turn: Turn) -> None:
    """Take a candidate that is READY on to its trial, or to the cut over where there is none; others wait."""
    state, candidate = turn.state, turn.state.candidate
    assert candidate is not None, "a candidate goes on"
    rules = state.facts.rules
    replaces = state.live is not None and not candidate.plain
    if candidate.life is not Life.READY or (replaces and state.paused):
        return
    if not replaces or is_barred(state) or not (rules.shadow or rules.canary):
        _cut_over(turn)
    elif not state.facts.blocked:
        phase = Phase.SHADOW if rules.shadow else Phase.CANARY
        turn.become(phase=phase)
        turn.emit(Trial(candidate.n, phase))


def go_straight(turn: Turn) -> None:
    """The operator wants a digest without trials: if it is the candidate's, it has none from here on."""
    state, candidate = turn.state, turn.state.candidate
    assert candidate is not None, "a candidate is under way"
    if candidate.build.digest != state.direct or candidate.plain:
        return
    turn.become(candidate=replace(candidate, plain=True, why=WENT_TO_IT, who=state.asked_by))
    if state.phase in (Phase.SHADOW, Phase.CANARY):
        trial_passed(turn, promoted=True)
    elif state.phase is Phase.LAUNCHING:
        proceed(turn)


def put_off(turn: Turn) -> None:
    """A pause begins: where only one process can be, a candidate that has not begun yet lets the live one be."""
    state, candidate = turn.state, turn.state.candidate
    assert candidate is not None, "a candidate is checked"
    if state.facts.rules.handover and state.live is not None and not candidate.plain:
        abandon(turn)
        rest(turn)


def _cut_over(turn: Turn) -> None:
    assert turn.state.candidate is not None, "a candidate takes over"
    turn.become(phase=Phase.CUTOVER)
    turn.emit(CutOver(turn.state.candidate.n))


def trial_passed(turn: Turn, *, promoted: bool = False) -> None:
    """Go on to the next step; `promoted`: past the trials that are left."""
    state = turn.state
    turn.end_trial()
    if state.phase is Phase.GUARD:
        turn.dismiss("previous")
        turn.become(before=None)
        rest(turn)
    elif state.phase is Phase.SHADOW and state.facts.rules.canary and not promoted:
        assert state.candidate is not None, "a candidate was on trial"
        turn.become(phase=Phase.CANARY)
        turn.emit(Trial(state.candidate.n, Phase.CANARY))
    else:
        _cut_over(turn)


def trial_failed(turn: Turn, failure: Failure, *, who: str = "hotbay") -> None:
    """The candidate goes, or the previous version comes back; `who` wants it so."""
    if turn.state.phase is Phase.GUARD:
        go_back(turn, failure, who=who)
    else:
        fail_candidate(turn, failure)


def took_over(turn: Turn) -> None:
    """The plan with the candidate is in force: it is live from here on, and watched if it is a new version."""
    state, old = turn.state, turn.state.live
    live = state.candidate
    assert live is not None, "a candidate takes over"
    last = state.last.digest if state.last is not None else state.facts.last
    watched = state.facts.rules.guard and not live.plain and (old is not None or state.held_calls)
    turn.healthy(live.build)
    if live.build.digest != last:
        turn.emit(Record(live.n, live.build, live.why, live.who))
    turn.become(
        live=live, candidate=None, last=live.build, passed=False, replaced=0, held_calls=False, direct=_left(turn)
    )
    if watched:
        before = old.build if old is not None else state.before
        turn.become(previous=old, before=before, phase=Phase.GUARD)
        turn.emit(Trial(live.n, Phase.GUARD))
        return
    turn.become(before=None)
    if old is not None:
        turn.emit_retire(old.n)
    rest(turn)


def _left(turn: Turn) -> str | None:
    """What the operator asked for directly, unless it is live now."""
    state = turn.state
    done = state.candidate is not None and state.candidate.build.digest == state.direct
    return None if done else state.direct


def go_back(turn: Turn, failure: Failure, *, bad: Attempt | None = None, who: str = "hotbay") -> None:
    """In GUARD: quarantine what is live, or let it pause, and put the previous version in its place."""
    state = turn.state
    blamed = bad or state.live
    assert blamed is not None, "something was live"
    turn.emit(EndTrial(blamed.n))
    turn.become(passed=False)
    if bad is None:
        turn.emit(Failed(blamed.build, Phase.GUARD, failure))
    turn.blame(blamed.build, failure, on_trial=True)
    if state.previous is not None:
        back = replace(state.previous, plain=True, why=f"went back: {failure.code}", who=who)
        turn.become(candidate=back, previous=None, before=None)
        _cut_over(turn)
        return
    if blamed.build.digest in turn.state.condemned and state.before is not None:
        turn.become(last=state.before)
    turn.become(before=None)
    rest(turn)


# -- ends ------------------------------------------------------------------------------------------


def lose_live(turn: Turn, failure: Failure | None) -> None:
    """What answered is gone: the spare or the previous version takes over, or it is started again."""
    state, lost = turn.state, turn.state.live
    assert lost is not None, "the live one is lost"
    cause = failure or Failure(Cause.OUTSIDE, "CRASHED")
    turn.emit(Failed(lost.build, state.phase, cause, was_live=True))
    turn.become(live=None)
    if state.phase is Phase.GUARD:
        go_back(turn, cause, bad=lost)
        return
    turn.hold(lost.build, cause)
    if state.candidate is not None:
        if state.candidate.build != lost.build:
            abandon(turn)
            rest(turn)
    elif state.spare is not None and math.isfinite(turn.state.holds[lost.build.digest].not_before_s):
        turn.become(candidate=state.spare, spare=None, phase=Phase.LAUNCHING)
        proceed(turn)
    else:
        turn.dismiss("spare")
        rest(turn)


def finish(turn: Turn, n: int) -> None:
    """What is meant to end has ended: its build is not started again, and what stood beside it goes on or goes."""
    state = turn.state
    if state.live is not None and state.live.n == n:
        turn.become(finished=state.finished | {state.live.build})
        if state.candidate is None:
            turn.end_trial()
        turn.become(live=None, before=None)
        turn.dismiss("previous")
        turn.dismiss("spare")
        if state.candidate is not None:
            abandon(turn)
    else:
        assert state.candidate is not None, "the live one or the candidate has ended"
        turn.become(finished=state.finished | {state.candidate.build})
        turn.drop_candidate(has_process=False)
    rest(turn)


def lose_spare(turn: Turn, failure: Failure | None) -> None:
    """The spare is gone; another one is started after a pause."""
    spare = turn.state.spare
    assert spare is not None, "the spare is lost"
    cause = replace(failure or Failure(Cause.OUTSIDE, "CRASHED"), cause=Cause.OUTSIDE)
    turn.emit(Failed(spare.build, turn.state.phase, cause))
    turn.become(spare=None)
    turn.hold(spare.build, cause)
    if turn.state.phase in FREE:
        rest(turn)


def fail_candidate(turn: Turn, failure: Failure, *, has_process: bool = True) -> None:
    """The candidate failed: what is live goes on."""
    state, candidate = turn.state, turn.state.candidate
    assert candidate is not None, "the candidate failed"
    if state.phase is Phase.STAGING and failure.cause is Cause.OPERATOR:
        turn.emit(Cancel(candidate.n))
    turn.drop_candidate(has_process=has_process)
    turn.emit(Failed(candidate.build, state.phase, failure))
    turn.blame(candidate.build, failure, on_trial=state.phase in (Phase.SHADOW, Phase.CANARY))
    rest(turn)


def abandon(turn: Turn) -> None:
    """Give the candidate up for no fault of its own."""
    candidate = turn.state.candidate
    assert candidate is not None, "a candidate is given up"
    if turn.state.phase is Phase.STAGING:
        turn.emit(Cancel(candidate.n))
    turn.drop_candidate()


def gone(turn: Turn, n: int) -> None:
    """A process that was told to go is gone: there is room."""
    turn.become(going=turn.state.going - {n})
    state = turn.state
    if state.candidate is not None:
        if state.phase is Phase.LAUNCHING and state.candidate.life is Life.PLANNED and not state.going:
            _start(turn)
    elif state.previous is None and state.phase is not Phase.GUARD:
        rest(turn)


def note_leaving(turn: Turn, n: int, failure: Failure) -> None:
    """A process asks to be replaced: it waits like one that failed, once, for it may ask at every start."""
    state = turn.state
    if state.spare is not None and state.spare.n == n:
        turn.dismiss("spare")
    elif state.live is not None and state.live.n == n and not state.live.leaving:
        turn.become(live=replace(state.live, leaving=True))
        turn.hold(state.live.build, replace(failure, cause=Cause.OUTSIDE))
        turn.emit(Failed(state.live.build, state.phase, failure))
    if turn.state.phase in FREE:
        rest(turn)
