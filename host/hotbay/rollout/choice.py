"""What a routine should do next, from what is known, what runs and what failed before. Pure.

- What was live last comes back before anything newer is tried, until its budget of failures is used up.
- Of the rest, the first complete version that may be tried now is started; what is preferred to it is downloaded.
- A version that failed is left out until its pause is over; others step in, where something has to.
- What runs stays while it is what would be chosen under the order of platforms that it was chosen under: another
  order of the same hosts restarts nothing.
- What ran to its end, and is meant to, is not started again.
- What runs and is not chosen stays, until something else is; unless it is barred: then it goes at once.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from hotbay.rollout.selection import Candidate, Policy, Selection, by_digest, select
from hotbay.rollout.state import Build, Facts, Hold, Phase, State

__all__ = ["MAX_REPLACED_IN_A_ROW", "Choice", "choose", "is_barred", "may_fetch", "may_run", "overtakes", "supersedes"]

MAX_REPLACED_IN_A_ROW: Final = 3
"""Candidates that newer versions may replace before one of them is let through to its verdict, and downloads before one
is let through to its end."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`start` is to be run, `fetch` to be downloaded; `wake_at_s` is when there may be more to do.

    `drop_live`: what runs is barred and nothing can take its place. `selection` is the outcome without regard to
    failures, for status.
    """

    start: Build | None
    fetch: Build | None
    wake_at_s: float | None
    drop_live: bool
    selection: Selection

    @property
    def is_waiting(self) -> bool:
        """Whether something would be done now, had it not failed before."""
        return self.wake_at_s is not None


def choose(state: State, now: float) -> Choice:
    """Look at the live version and at what is known; the candidate under way has no say."""
    facts = state.facts
    known = by_digest(_known(facts, state.condemned))
    live = state.live
    anchor = live.build.digest if live is not None else state.last.digest if state.last is not None else facts.last
    policy = _policy(state, known)
    selection = select(known.values(), policy, live=known.get(anchor or ""))
    # Conflicts are not among the eligible: other content under a revision never steps in for the one that is kept.
    eligible = selection.eligible
    ended = {build.digest for build in state.finished if build.launch == facts.launch}
    if live is None and anchor in known and anchor not in ended and _may_come_back(known[anchor], policy, state):
        eligible = (known[anchor],)
    pick = _Pick(state, anchor, now)
    start, fetch = pick.run(eligible)
    return Choice(start, fetch, pick.wake_at_s, is_barred(state) and start is None, selection)


def is_barred(state: State) -> bool:
    """Whether what runs may not go on running."""
    live = state.live
    if live is None:
        return False
    if live.build.digest in state.condemned:
        return True
    return any(c.barred for c in state.facts.candidates if c.digest == live.build.digest)


def supersedes(state: State, choice: Choice) -> bool:
    """Whether the candidate that is being brought up is to be given up for what would be chosen now.

    With nothing live, only when it may not run any more; else for what is preferred, but not again and again: a
    stream of versions must not keep all of them from taking over.
    """
    candidate = state.candidate
    assert candidate is not None, "somebody is being replaced"
    if not may_run(state) or candidate.build.launch != state.facts.launch:
        return True
    if state.live is None or state.phase is Phase.CANARY or state.replaced >= MAX_REPLACED_IN_A_ROW:
        return False
    return choice.start is not None and choice.start != candidate.build


def may_run(state: State) -> bool:
    """Whether nothing speaks against the candidate itself."""
    candidate, facts = state.candidate, state.facts
    assert candidate is not None, "a candidate is asked about"
    mine = [c for c in _known(facts, state.condemned) if c.digest == candidate.build.digest]
    return select(mine, facts.policy).live is not None


def overtakes(state: State, choice: Choice, now: float) -> bool:
    """Whether the download under way is to be given up for what would be downloaded now, or for nothing.

    What is preferred to it takes its place, but not again and again: a stream of versions must not keep all of them
    from being complete.
    """
    fetch = state.fetch
    assert fetch is not None, "a download is under way"
    if choice.fetch is None or choice.fetch.digest == fetch.build.digest:
        return choice.fetch is None
    return state.overtaken < MAX_REPLACED_IN_A_ROW or not may_fetch(state, choice, now)


def may_fetch(state: State, choice: Choice, now: float) -> bool:
    """Whether the download under way would be of use, were nothing else there to be downloaded."""
    fetch, live = state.fetch, state.live
    assert fetch is not None, "a download is under way"
    for candidate in choice.selection.eligible:
        if live is not None and candidate.digest == live.build.digest:
            return False
        if candidate.digest == fetch.build.digest:
            held = state.holds.get(candidate.digest, Hold()).not_before_s > now
            return candidate.fetchable and not candidate.complete and not held
    return False


def _known(facts: Facts, condemned: frozenset[str]) -> Iterable[Candidate]:
    for candidate in facts.candidates:
        yield replace(candidate, quarantined=True) if candidate.digest in condemned else candidate


def _policy(state: State, known: dict[str, Candidate]) -> Policy:
    policy, live = state.facts.policy, state.live
    if live is None or live.platforms == policy.platforms or set(live.platforms) != set(policy.platforms):
        return policy
    before = replace(policy, platforms=live.platforms)
    target = select(known.values(), before, live=known.get(live.build.digest)).target
    return before if target is not None and target.digest == live.build.digest else policy


def _may_come_back(last: Candidate, policy: Policy, state: State) -> bool:
    hold = state.holds.get(last.digest)
    if hold is not None and math.isinf(hold.not_before_s):
        return False
    return select([last], policy).live is not None


class _Pick:
    """One run through the candidates that are eligible, in order of preference."""

    def __init__(self, state: State, anchor: str | None, now: float) -> None:
        self.wake_at_s: float | None = None
        self._state = state
        self._anchor = anchor
        self._now = now

    def run(self, eligible: Iterable[Candidate]) -> tuple[Build | None, Build | None]:
        """What to start and what to download."""
        fetch: Build | None = None
        for target in eligible:
            if not target.complete:
                if fetch is None and target.fetchable and not self._is_held(target):
                    fetch = self._build(target)
                continue
            if self._runs(target) or self._build(target) in self._state.finished:
                return None, fetch
            if not self._is_held(target):
                return self._build(target), fetch
            if target.digest == self._anchor and (self._state.live is not None or not self._is_out(target)):
                # What answers, or answered last, waits for its restart: nothing older takes its place.
                return None, fetch
        return None, fetch

    def _build(self, candidate: Candidate) -> Build:
        return Build(candidate.digest, candidate.rev, self._state.facts.launch)

    def _runs(self, target: Candidate) -> bool:
        live = self._state.live
        return live is not None and live.build == self._build(target) and not live.leaving

    def _is_out(self, candidate: Candidate) -> bool:
        hold = self._state.holds.get(candidate.digest)
        return hold is not None and math.isinf(hold.not_before_s)

    def _is_held(self, candidate: Candidate) -> bool:
        hold = self._state.holds.get(candidate.digest)
        if hold is None or hold.not_before_s <= self._now:
            return False
        if not math.isinf(hold.not_before_s):
            self.wake_at_s = hold.not_before_s if self.wake_at_s is None else min(self.wake_at_s, hold.not_before_s)
        return True
