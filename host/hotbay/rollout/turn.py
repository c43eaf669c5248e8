"""One step of the machine under way: the state as it becomes, and the effects so far. Pure.

What failures cost is decided here: a quarantine, a pause that counts, or a pause that does not.
"""

import math
from dataclasses import replace
from typing import Any, Final

from hotbay.rollout.backoff import BackoffState, Restart, became_ready, failed
from hotbay.rollout.effects import Condemn, Effect, EndTrial, Kill, Retire
from hotbay.rollout.state import Build, Cause, Facts, Failure, Hold, Life, Phase, State

__all__ = ["FREE", "RESTING", "Turn"]

RESTING: Final = frozenset(
    {
        Phase.IDLE,
        Phase.FETCHING,
        Phase.WAITING_FOR_DOWNLOAD,
        Phase.AWAITING_GRANT,
        Phase.AWAITING_APPROVAL,
        Phase.BACKOFF,
        Phase.FAILED,
        Phase.DISABLED,
    }
)
"""Phases without a candidate and without a process on its way out: something else has to happen first."""
FREE: Final = RESTING | {Phase.RETIRING}
"""Phases without a candidate: the next thing may begin, if there is room for its process."""

_CONDEMNING: Final = frozenset({Cause.PACKAGE, Cause.OPERATOR})
_PAUSING: Final = frozenset({Cause.CAPACITY, Cause.OUTSIDE})


class Turn:
    """See the module. `state` is always whole: each method leaves it as it may stay."""

    def __init__(self, state: State, now: float) -> None:
        self.state = state
        self.now = now
        self.effects: list[Effect] = []

    def become(self, **changes: Any) -> None:
        """Change fields of the state."""
        self.state = replace(self.state, **changes)

    def emit(self, *effects: Effect) -> None:
        """Add effects, in the order in which they are to be carried out."""
        self.effects.extend(effects)

    def next_attempt(self) -> int:
        """A number for another attempt."""
        self.become(attempts=self.state.attempts + 1)
        return self.state.attempts

    def learn(self, facts: Facts) -> bool:
        """Take facts that are not older than what is known; say whether they were taken."""
        state = self.state
        if facts.revision < state.facts.revision:
            return False
        shown = {c.digest for c in facts.candidates if c.quarantined}
        there = {c.digest for c in facts.candidates}
        holds = {digest: hold for digest, hold in state.holds.items() if digest in there}
        finished = frozenset(build for build in state.finished if build.digest in there)
        self.become(facts=facts, condemned=state.condemned - shown, holds=holds, finished=finished)
        return True

    def dismiss(self, slot: str) -> None:
        """Retire what is in a slot, if anything; it is on its way out from here on."""
        attempt = getattr(self.state, slot)
        if attempt is not None:
            self.emit(Retire(attempt.n))
            self.become(**{slot: None}, going=self.state.going | {attempt.n})

    def emit_retire(self, n: int) -> None:
        """Retire a process that is in no slot any more."""
        self.emit(Retire(n))
        self.become(going=self.state.going | {n})

    def end_trial(self) -> None:
        """Nothing is on trial any more."""
        state = self.state
        on_trial = state.live if state.phase is Phase.GUARD else state.candidate
        if on_trial is not None and state.phase in (Phase.SHADOW, Phase.CANARY, Phase.GUARD):
            self.emit(EndTrial(on_trial.n))
        self.become(passed=False)

    def drop_candidate(self, *, has_process: bool = True) -> None:
        """Give the candidate up. Its process, if any, is on its way out."""
        candidate = self.state.candidate
        assert candidate is not None, "a candidate is given up"
        self.end_trial()
        self.become(candidate=None)
        if has_process and candidate.life is not Life.PLANNED:
            self.emit(Kill(candidate.n))
            self.become(going=self.state.going | {candidate.n})

    # -- what failures cost ----------------------------------------------------------------------

    def blame(self, build: Build, failure: Failure, *, on_trial: bool = False) -> None:
        """Quarantine a build, or let it pause."""
        if failure.cause in _CONDEMNING or (on_trial and failure.cause not in _PAUSING):
            self.condemn(build, failure)
            return
        self.hold(build, failure)
        live, hold = self.state.live, self.state.holds[build.digest]
        if math.isinf(hold.not_before_s) and live is not None and live.build.digest != build.digest:
            self.condemn(build, failure)

    def condemn(self, build: Build, failure: Failure) -> None:
        """Quarantine a build; until the facts show it, the state does."""
        self.emit(Condemn(build, failure))
        self.become(condemned=self.state.condemned | {build.digest})

    def hold(self, build: Build, failure: Failure) -> None:
        """Do not try a build for a while, or ever, when its budget of failures is used up."""
        state = self.state
        backoff, verdict = failed(
            state.facts.rules.backoff,
            state.holds.get(build.digest, Hold()).backoff,
            now=self.now,
            random=failure.chance,
            counts=failure.cause not in _PAUSING,
        )
        not_before_s = self.now + verdict.delay_s if isinstance(verdict, Restart) else math.inf
        self.become(holds={**state.holds, build.digest: Hold(backoff, not_before_s)})

    def healthy(self, build: Build) -> None:
        """A build is live: when it lasts, its row of pauses begins anew."""
        hold = self.state.holds.get(build.digest, Hold(BackoffState()))
        backoff = became_ready(hold.backoff, now=self.now)
        self.become(holds={**self.state.holds, build.digest: Hold(backoff, hold.not_before_s)})
