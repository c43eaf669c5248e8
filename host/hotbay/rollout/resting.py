"""What a routine does that has nothing under way: begin the next thing, or say what it waits for. Pure."""

import math
from typing import Final

from hotbay.rollout.choice import Choice, choose, is_barred, may_fetch, overtakes
from hotbay.rollout.effects import Cancel, Failed, Fetch, Launch, Release, Stage
from hotbay.rollout.selection import Status
from hotbay.rollout.state import Attempt, Build, Cause, Failure, Hold, Life, Phase, State
from hotbay.rollout.turn import FREE, RESTING, Turn

__all__ = ["WENT_TO_IT", "approve", "fetch_failed", "fetched", "rest", "settle"]

WENT_TO_IT: Final = "the operator went to it"


def rest(turn: Turn) -> None:
    """Begin what is to be done now, if anything."""
    state = turn.state
    assert state.candidate is None, "nothing is under way"
    assert state.previous is None, "nothing is under way"
    if not state.facts.runs:
        turn.dismiss("spare")
        turn.dismiss("live")
        turn.become(emptying=True)
    if state.emptying or not state.facts.runs:
        turn.become(emptying=bool(turn.state.going))
    if turn.state.emptying or not state.facts.runs:
        turn.become(phase=Phase.RETIRING if turn.state.going else Phase.IDLE)
    else:
        _go_on(turn, choose(state, turn.now))
    if turn.state.held_calls and turn.state.phase is not Phase.STAGING:
        turn.emit(Release())
        turn.become(held_calls=False)


def _go_on(turn: Turn, choice: Choice) -> None:
    state = turn.state
    if choice.drop_live:
        turn.dismiss("spare")
        turn.dismiss("live")
        turn.become(emptying=True, phase=Phase.RETIRING)
    elif choice.start is not None and _may_begin(state, choice.start):
        if _has_room(state):
            _begin(turn, choice.start)
        else:
            turn.dismiss("spare")
            turn.become(phase=Phase.RETIRING)
    elif state.going:
        turn.become(phase=Phase.RETIRING)
    else:
        turn.become(phase=Phase.IDLE)
        _keep_spare(turn)


def _may_begin(state: State, build: Build) -> bool:
    live = state.live
    if live is None or is_barred(state) or build.digest in (live.build.digest, state.direct):
        return True
    if state.paused:
        return False
    return not state.facts.rules.approve or build.digest == state.approved


def _has_room(state: State) -> bool:
    if state.live is None and not state.facts.rules.handover:
        return state.processes <= 1
    return state.processes == (state.live is not None)


def _begin(turn: Turn, build: Build) -> None:
    state = turn.state
    candidate = Attempt(
        turn.next_attempt(),
        build,
        plain=state.live is None or is_barred(state) or build.digest in (state.live.build.digest, state.direct),
        why=_why(state, build),
        who=_who(state, build),
        platforms=state.facts.policy.platforms,
    )
    turn.become(candidate=candidate, phase=Phase.STAGING)
    turn.emit(Stage(candidate.n, build))


def _who(state: State, build: Build) -> str:
    if build.digest in (state.approved, state.direct):
        return state.asked_by
    return state.facts.pinned_by or "hotbay"


def _why(state: State, build: Build) -> str:
    live = state.live
    last = state.last.digest if state.last is not None else state.facts.last
    if live is None:
        return "restarted" if build.digest == last else "first version" if last is None else "what was live cannot run"
    if live.build.digest == build.digest:
        return "asked to be replaced" if live.leaving else "launch configuration changed"
    if is_barred(state):
        return "what was live may not run any more"
    if build.digest == state.direct:
        return WENT_TO_IT
    if state.facts.policy.pin is not None:
        return "pinned"
    return "newer version" if build.rev > live.build.rev else "selected"


# -- the spare -------------------------------------------------------------------------------------


def _keep_spare(turn: Turn) -> None:
    state = turn.state
    live, spare = state.live, state.spare
    if live is None:
        return
    rules = state.facts.rules
    wanted = rules.standby and not rules.handover and not live.leaving
    if spare is not None:
        if not wanted or spare.build != live.build:
            turn.dismiss("spare")
            turn.become(phase=Phase.RETIRING)
    elif wanted and _spare_due_s(state) <= turn.now:
        n = turn.next_attempt()
        turn.become(spare=Attempt(n, live.build, Life.STARTED, plain=True, why="the spare took over"))
        turn.emit(Launch(n, live.build, live.n))


def _spare_due_s(state: State) -> float:
    assert state.live is not None, "a spare is of what is live"
    return state.holds.get(state.live.build.digest, Hold()).not_before_s


# -- downloads -------------------------------------------------------------------------------------


def settle(turn: Turn) -> None:
    """After every step: download what is wanted and nothing else, name the phase, and set the clock."""
    state = turn.state
    choice = choose(state, turn.now) if state.facts.wanted and not state.facts.disabled else None
    wanted = choice.fetch if choice is not None else None
    if state.fetch is not None and (choice is None or overtakes(state, choice, turn.now)):
        if _is_complete(state, state.fetch.build):
            turn.become(overtaken=0)
        elif wanted is not None and choice is not None and may_fetch(state, choice, turn.now):
            turn.become(overtaken=state.overtaken + 1)
        turn.emit(Cancel(state.fetch.n))
        turn.become(fetch=None)
    if wanted is not None and turn.state.fetch is None:
        n = turn.next_attempt()
        turn.become(fetch=Attempt(n, wanted))
        turn.emit(Fetch(n, wanted))
    turn.become(wake_at_s=_wake_at_s(turn.state, choice, turn.now))
    if turn.state.phase in RESTING:
        turn.become(phase=_name(turn.state, choice))


def _wake_at_s(state: State, choice: Choice | None, now: float) -> float | None:
    times = [] if choice is None or choice.wake_at_s is None else [choice.wake_at_s]
    if state.facts.rules.standby and state.spare is None and state.live is not None:
        times.append(_spare_due_s(state))
    return min((t for t in times if now < t < math.inf), default=None)


def _name(state: State, choice: Choice | None) -> Phase:
    if choice is None or state.facts.asleep:
        return Phase.DISABLED if state.facts.disabled else Phase.FETCHING if state.fetch is not None else Phase.IDLE
    if choice.start is not None and not state.paused:
        return Phase.AWAITING_APPROVAL
    known = state.live is not None or state.last is not None or state.facts.last is not None
    names = (
        (state.fetch is not None and state.live is None, Phase.FETCHING),
        (choice.is_waiting, Phase.BACKOFF if known else Phase.FAILED),
        (state.fetch is not None, Phase.FETCHING),
        (bool(choice.selection.awaiting_grant), Phase.AWAITING_GRANT),
        (state.live is not None or state.last in state.finished, Phase.IDLE),
        (any(math.isinf(hold.not_before_s) for hold in state.holds.values()), Phase.DISABLED),
        (choice.selection.status is Status.QUARANTINED, Phase.FAILED),
    )
    return next((phase for holds, phase in names if holds), Phase.WAITING_FOR_DOWNLOAD)


def fetched(turn: Turn, n: int) -> None:
    """A download ended well. That it shows in the facts is the shell's duty; if it does not, there is a pause."""
    state = turn.state
    if state.fetch is None or state.fetch.n != n:
        return
    turn.become(fetch=None, overtaken=0)
    if not _is_complete(state, state.fetch.build):
        turn.hold(state.fetch.build, Failure(Cause.CAPACITY, "UNAVAILABLE"))
    if state.phase in FREE:
        rest(turn)


def _is_complete(state: State, build: Build) -> bool:
    return any(c.complete for c in state.facts.candidates if c.digest == build.digest)


def fetch_failed(turn: Turn, failure: Failure) -> None:
    """A download failed: a package that is wrong in itself is quarantined, for all else there is a pause."""
    fetch = turn.state.fetch
    assert fetch is not None, "a download was under way"
    turn.become(fetch=None, overtaken=0)
    turn.emit(Failed(fetch.build, Phase.FETCHING, failure))
    turn.blame(fetch.build, failure)
    if turn.state.phase in FREE:
        rest(turn)


def approve(turn: Turn, who: str) -> None:
    """Let what waits for the operator begin."""
    choice = choose(turn.state, turn.now)
    assert choice.start is not None, "something waits for approval"
    turn.become(approved=choice.start.digest, asked_by=who)
    rest(turn)
