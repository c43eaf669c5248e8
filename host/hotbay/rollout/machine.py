"""The rollout of one plugin as a table: what each event does in each phase. Pure.

    IDLE → FETCHING → STAGING → LAUNCHING → SHADOW → CANARY → CUTOVER → GUARD → RETIRING → IDLE

`step(state, event, now)` gives the next state and the effects that a shell carries out in order. The table says
which phases an event may lead to; a pair that it does not list raises `IllegalTransition`, which is our own fault.
What comes late (about an attempt that is over) is listed, and changes nothing.

1. At most two processes of a plugin exist. Until CUTOVER is over, what is live is not touched; the cut over is one
   effect, answered before anything else happens.
2. A fault of the package quarantines its digest, and so does a fault of the plugin on trial or on guard. A fault at a
   start is tried again, with pauses, until the budget is used up: then the digest is quarantined, or, with nothing
   else to run, disabled. Downloads, disks, capacity and kills from outside only pause.
3. Before CANARY the newest version takes the candidate's place (a few times in a row at most); in CANARY it waits for
   the verdict, and in GUARD for the end. So it does with a download: after a few in a row one goes on to its end.
4. In GUARD, whatever goes wrong with the live one brings the previous one back in the same step.
5. What was live comes back before anything newer is tried.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hotbay.rollout import trials
from hotbay.rollout.choice import choose, is_barred, may_run, supersedes
from hotbay.rollout.effects import Effect
from hotbay.rollout.resting import approve, fetch_failed, fetched, rest, settle
from hotbay.rollout.state import (
    Abort,
    Approve,
    AskedToGo,
    Broke,
    Cause,
    Command,
    Ended,
    Event,
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
    Staged,
    State,
    Tick,
)
from hotbay.rollout.turn import FREE, RESTING, Turn

__all__ = ["COMMANDS", "TABLE", "IllegalTransition", "Rule", "step"]


class IllegalTransition(Exception):
    """This event cannot happen in this phase: our own code is wrong."""


def step(state: State, event: Event, now: float) -> tuple[State, tuple[Effect, ...]]:
    """One event. `now` never goes back. Raises `IllegalTransition` for a pair that the table does not list."""
    rule = TABLE.get((state.phase, type(event)))
    if rule is None:
        raise IllegalTransition(f"{type(event).__name__} while {state.phase.name}")
    turn = Turn(state, now)
    rule.act(turn, event)
    settle(turn)
    after = turn.state
    if after.phase is not state.phase and after.phase not in rule.to:
        raise IllegalTransition(f"{type(event).__name__} led from {state.phase.name} to {after.phase.name}")
    return after, tuple(turn.effects)


@dataclass(frozen=True, slots=True)
class Rule:
    """What an event does, and the phases besides the same one that it may lead to."""

    act: Callable[[Turn, Event], None]
    to: frozenset[Phase]


# -- what events do ----------------------------------------------------------------------------------


def _known(turn: Turn, event: Event) -> None:
    assert isinstance(event, Known)
    if not turn.learn(event.facts):
        return
    state = turn.state
    if state.phase is Phase.GUARD:
        _reconsider_guard(turn)
    elif state.candidate is not None:
        _reconsider_candidate(turn)
    else:
        rest(turn)


def _reconsider_guard(turn: Turn) -> None:
    state = turn.state
    if not state.facts.runs:
        turn.end_trial()
        turn.dismiss("previous")
        rest(turn)
    elif is_barred(state):
        trials.go_back(turn, Failure(Cause.OPERATOR, "UNTRUSTED", "it may not run any more"))


def _reconsider_candidate(turn: Turn) -> None:
    state = turn.state
    choice = choose(state, turn.now)
    if state.facts.runs and not supersedes(state, choice):
        if state.phase is Phase.LAUNCHING:
            trials.proceed(turn)
        return
    if state.facts.runs and may_run(state):
        turn.become(replaced=state.replaced + 1)
    trials.abandon(turn)
    rest(turn)


def _tick(turn: Turn, _event: Event) -> None:
    if turn.state.phase in FREE:
        rest(turn)


def _fetched(turn: Turn, event: Event) -> None:
    assert isinstance(event, Fetched)
    fetched(turn, event.n)


def _broke(turn: Turn, event: Event) -> None:
    assert isinstance(event, Broke)
    state = turn.state
    if state.fetch is not None and state.fetch.n == event.n:
        fetch_failed(turn, event.failure)
    elif state.candidate is not None and state.candidate.n == event.n and state.phase is Phase.STAGING:
        trials.fail_candidate(turn, event.failure)


def _staged(turn: Turn, event: Event) -> None:
    assert isinstance(event, Staged)
    candidate = turn.state.candidate
    if candidate is not None and candidate.n == event.n and turn.state.phase is Phase.STAGING:
        trials.launch(turn)


def _ready(turn: Turn, event: Event) -> None:
    assert isinstance(event, Ready)
    trials.ready(turn, event.n)


def _ended(turn: Turn, event: Event) -> None:
    assert isinstance(event, Ended)
    state, n = turn.state, event.n
    slots = (state.live, state.candidate, state.previous, state.spare)
    live, candidate, previous, spare = (a is not None and a.n == n for a in slots)
    if n in state.going:
        trials.gone(turn, n)
    elif event.finished and (live or candidate):
        trials.finish(turn, n)
    elif live:
        trials.lose_live(turn, event.failure)
    elif candidate:
        unknown = Failure(Cause.OUTSIDE, "CRASHED", "it ended before it was READY")
        trials.fail_candidate(turn, event.failure or unknown, has_process=False)
    elif previous:
        turn.become(previous=None)
    elif spare:
        trials.lose_spare(turn, event.failure)
    else:
        raise IllegalTransition(f"attempt {n} ended twice, or never was")


def _asked_to_go(turn: Turn, event: Event) -> None:
    assert isinstance(event, AskedToGo)
    trials.note_leaving(turn, event.n, event.failure)


def _judged(turn: Turn, event: Event) -> None:
    assert isinstance(event, Judged)
    state = turn.state
    on_trial = state.live if event.trial is Phase.GUARD else state.candidate
    if on_trial is None or on_trial.n != event.n or event.trial is not state.phase:
        return
    if event.failure is not None:
        trials.trial_failed(turn, event.failure)
    elif state.paused:
        turn.become(passed=True)
    else:
        trials.trial_passed(turn)


def _published(turn: Turn, event: Event) -> None:
    assert isinstance(event, Published)
    trials.took_over(turn)


def _refused(turn: Turn, event: Event) -> None:
    assert isinstance(event, Refused)
    trials.fail_candidate(turn, event.failure)


def _pause(turn: Turn, _event: Event) -> None:
    turn.become(paused=True)
    if turn.state.phase is Phase.STAGING:
        trials.put_off(turn)


def _resume(turn: Turn, _event: Event) -> None:
    passed = turn.state.passed
    turn.become(paused=False, passed=False)
    if passed:
        trials.trial_passed(turn)
    elif turn.state.phase is Phase.LAUNCHING:
        trials.proceed(turn)
    elif turn.state.phase in FREE:
        rest(turn)


def _promote(turn: Turn, _event: Event) -> None:
    trials.trial_passed(turn, promoted=True)


def _abort(turn: Turn, event: Event) -> None:
    assert isinstance(event, Abort)
    trials.trial_failed(turn, event.failure, who=event.who)


def _approve(turn: Turn, event: Event) -> None:
    assert isinstance(event, Approve)
    approve(turn, event.who)


def _forgive(turn: Turn, _event: Event) -> None:
    turn.become(holds={}, condemned=frozenset(), finished=frozenset())
    if turn.state.phase in FREE:
        rest(turn)


def _go_to(turn: Turn, event: Event) -> None:
    assert isinstance(event, GoTo)
    turn.become(direct=event.digest, asked_by=event.who)
    if turn.state.candidate is not None:
        trials.go_straight(turn)
    elif turn.state.phase in FREE:
        rest(turn)


# -- the table -------------------------------------------------------------------------------------

_FREE: Final = tuple(sorted(FREE))
_WORKING: Final = (Phase.STAGING, Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY)
_REST: Final = FREE | {Phase.STAGING}
"""Where a routine can go that has nothing under way: on to the next thing, or to waiting for it."""


def _rows(
    event: type[Event], act: Callable[[Turn, Event], None], phases: tuple[Phase, ...], *to: Phase
) -> dict[tuple[Phase, type[Event]], Rule]:
    return {(phase, event): Rule(act, frozenset(to)) for phase in phases}


_ON: Final = (Phase.SHADOW, Phase.CANARY, Phase.CUTOVER)

TABLE: Final[Mapping[tuple[Phase, type[Event]], Rule]] = {
    **_rows(Known, _known, _FREE, *_REST),
    **_rows(Known, _known, (Phase.STAGING, Phase.SHADOW, Phase.CANARY), *_REST),
    **_rows(Known, _known, (Phase.LAUNCHING,), *_REST, *_ON),
    **_rows(Known, _known, (Phase.GUARD,), *_REST, Phase.CUTOVER),
    **_rows(Tick, _tick, _FREE, *_REST),
    **_rows(Tick, _tick, (*_WORKING, Phase.GUARD)),
    **_rows(Fetched, _fetched, _FREE, *_REST),
    **_rows(Fetched, _fetched, (*_WORKING, Phase.GUARD)),
    **_rows(Broke, _broke, (*_FREE, Phase.STAGING), *_REST),
    **_rows(Broke, _broke, (Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY, Phase.GUARD)),
    **_rows(Staged, _staged, (Phase.STAGING,), Phase.LAUNCHING),
    **_rows(Staged, _staged, (*_FREE, Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY, Phase.GUARD)),
    **_rows(Ready, _ready, (Phase.LAUNCHING,), *_ON),
    **_rows(Ready, _ready, (*_FREE, Phase.STAGING, Phase.SHADOW, Phase.CANARY, Phase.GUARD)),
    **_rows(Ended, _ended, tuple(sorted(RESTING)), *_REST, Phase.LAUNCHING, Phase.CUTOVER),
    **_rows(Ended, _ended, (Phase.STAGING, Phase.LAUNCHING), *_REST),
    **_rows(Ended, _ended, (Phase.SHADOW, Phase.CANARY, Phase.RETIRING), *_REST),
    **_rows(Ended, _ended, (Phase.GUARD,), *_REST, Phase.CUTOVER),
    **_rows(AskedToGo, _asked_to_go, _FREE, *_REST),
    **_rows(AskedToGo, _asked_to_go, (*_WORKING, Phase.GUARD)),
    **_rows(Judged, _judged, (Phase.SHADOW,), Phase.CANARY, Phase.CUTOVER, *_REST),
    **_rows(Judged, _judged, (Phase.CANARY,), Phase.CUTOVER, *_REST),
    **_rows(Judged, _judged, (Phase.GUARD,), Phase.CUTOVER, *_REST),
    **_rows(Judged, _judged, (*_FREE, Phase.STAGING, Phase.LAUNCHING)),
    **_rows(Published, _published, (Phase.CUTOVER,), Phase.GUARD, *_REST),
    **_rows(Refused, _refused, (Phase.CUTOVER,), *_REST),
    **_rows(Pause, _pause, tuple(sorted(RESTING)), *RESTING),
    **_rows(Pause, _pause, (Phase.STAGING,), *_REST),
    **_rows(Pause, _pause, (Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY, Phase.GUARD, Phase.RETIRING)),
    **_rows(Resume, _resume, _FREE, *_REST),
    **_rows(Resume, _resume, (Phase.STAGING,)),
    **_rows(Resume, _resume, (Phase.LAUNCHING,), *_ON),
    **_rows(Resume, _resume, (Phase.SHADOW, Phase.CANARY), Phase.CANARY, Phase.CUTOVER),
    **_rows(Resume, _resume, (Phase.GUARD,), *_REST),
    **_rows(Promote, _promote, (Phase.SHADOW, Phase.CANARY), Phase.CUTOVER),
    **_rows(Promote, _promote, (Phase.GUARD,), *_REST),
    **_rows(Abort, _abort, _WORKING, *_REST),
    **_rows(Abort, _abort, (Phase.GUARD,), Phase.CUTOVER, *_REST),
    **_rows(Approve, _approve, (Phase.AWAITING_APPROVAL,), *_REST),
    **_rows(Forgive, _forgive, _FREE, *_REST),
    **_rows(Forgive, _forgive, (*_WORKING, Phase.GUARD)),
    **_rows(GoTo, _go_to, _FREE, *_REST),
    **_rows(GoTo, _go_to, (Phase.LAUNCHING, Phase.SHADOW, Phase.CANARY), Phase.CUTOVER),
    **_rows(GoTo, _go_to, (Phase.STAGING, Phase.GUARD)),
}

COMMANDS: Final[Mapping[type[Command], frozenset[Phase]]] = {
    command: frozenset(phase for phase, event in TABLE if event is command)
    for command in (Pause, Resume, Promote, Abort, Approve)
}
"""Where the operator's commands act; elsewhere there is nothing for them to act on."""
