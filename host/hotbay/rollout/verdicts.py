"""Whether a candidate may go on: verdicts on shadow, canary and guard from what both generations did. Pure.

A figure breaks its bound when three things hold together: the candidate's share of bad trials is above the bound, it
is above the live generation's, and the evidence for the latter is at least `EVIDENCE`. So a breach can be called as
soon as it is plain and as often as anybody looks, and two equal generations are told apart once in a thousand figures.
Calls fail in batches, and a batch says one thing about its process however many requests it held: the evidence has to
stand by requests and by batches.

A p99 that is more than three times the live one's means that more than one in a hundred calls take longer than three
times the live p99: the same test, of calls over that limit.

Memory is no matter of chance: what a process says of itself is above its bound, or it is not. The bound is a multiple
of what the live process holds, and at least a distance above it, so that small processes may differ. A candidate that
has answered more calls than the live one ever did may hold more in proportion.
"""

import enum
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from hotbay.rollout.evidence import above_limit, above_other
from hotbay.rollout.gathered import Gathered
from hotbay.scheduling.arms import Arms
from hotbay.scheduling.statistics import CallStatistics, Latencies

__all__ = [
    "CanaryPolicy",
    "GuardPolicy",
    "Limits",
    "Memory",
    "Ruling",
    "ShadowPolicy",
    "Verdict",
    "canary_verdict",
    "guard_verdict",
    "shadow_verdict",
]

EVIDENCE: Final = 1000.0
"""One in this many comparisons of equals is called a breach: with the five figures of a canary, one rollout in 200."""
MIN_BASELINE: Final = 50
"""Trials of the live generation below which they say nothing: then the bound alone is what the candidate is held to."""


class Ruling(enum.StrEnum):
    """What to do now."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    FAIL = "fail"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A ruling and the figure that made it: after FAIL the one that broke its bound, else the one nearest to a breach.

    Args:
        figure: `failures`, `slow_calls`, `difference`, `refused`, `upstream_errors`, `slow_ttft`, `memory` or `untold`.
        candidate, live: shares of bad trials, 0 to 1; at `difference` the largest difference, and 0; at `memory` bytes; at
            `untold` discoveries and sources that have not told everything, and 0.
        bound: what `candidate` must not exceed.
        limit_s: at the slow figures, from what time on a trial counts.
        gathered: how far the trial is; no part of what the verdict says.
    """

    ruling: Ruling
    figure: str
    candidate: float
    live: float
    bound: float
    limit_s: float | None = None
    gathered: Gathered | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of all steps.

    Args:
        failures: share of calls, of requests refused and of requests that fail at their endpoint, 0 to 1.
        slow_factor: a call is slow above so many times the live p99,
        slow_s: and above this.
        ttft_factor: a first byte is slow above so many times the live 95th percentile,
        ttft_s: and above this; one in twenty may be.
        memory_factor: a process holds too much above so many times the live one's resident memory,
        memory_more_bytes: and above so much more than that.
    """

    failures: float = 0.01
    slow_factor: float = 3.0
    slow_s: float = 0.020
    ttft_factor: float = 2.0
    ttft_s: float = 0.050
    memory_factor: float = 2.0
    memory_more_bytes: int = 128 << 20


DEFAULT_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class ShadowPolicy:
    """Ends after `calls` compared calls or `for_s` seconds. `max_difference` None: differences never fail."""

    sample: float = 0.1
    calls: int = 200
    for_s: float = 2.0
    max_difference: float | None = None
    limits: Limits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class CanaryPolicy:
    """Ends after `for_s` seconds and `min_requests` requests of the canary, or after `at_most_s`.

    At night nobody may come: then nothing speaks against the candidate, and the guard still watches it.
    """

    share: float = 0.1
    for_s: float = 10.0
    min_requests: int = 100
    at_most_s: float = 300.0
    limits: Limits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class GuardPolicy:
    """Ends after `for_s` seconds and `calls` calls, or after `at_most_s`."""

    for_s: float = 30.0
    calls: int = 200
    at_most_s: float = 300.0
    limits: Limits = DEFAULT_LIMITS


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of both processes in bytes, as they say, and how many calls each has answered since its start.

    A process that said nothing sensible is not judged, and judges nobody.
    """

    candidate_bytes: float
    live_bytes: float
    candidate_calls: int
    live_calls: int


@dataclass(frozen=True, slots=True)
class _Held:
    """Memory against its bound."""

    held_bytes: float
    live_bytes: float
    bound_bytes: float

    @property
    def nearness(self) -> float:
        return self.held_bytes / self.bound_bytes

    def verdict(self, ruling: Ruling) -> Verdict:
        return Verdict(ruling, "memory", self.held_bytes, self.live_bytes, self.bound_bytes)


@dataclass(frozen=True, slots=True)
class _Trials:
    """Bad trials of both sides, by two ways of counting where one of them is too kind to bursts."""

    figure: str
    bound: float
    bad: int
    of: int
    other_bad: int
    other_of: int
    bursts: tuple[int, int, int, int] | None = None
    limit_s: float | None = None

    @property
    def rate(self) -> float:
        return self.bad / self.of if self.of else 0.0

    @property
    def other_rate(self) -> float:
        return self.other_bad / self.other_of if self.other_of else 0.0

    @property
    def broken(self) -> bool:
        if self.rate <= self.bound or self.rate <= self.other_rate:
            return False
        counts = [(self.bad, self.of, self.other_bad, self.other_of)]
        if self.bursts is not None:
            counts.append(self.bursts)
        return all(_evidence(*count, self.bound) >= EVIDENCE for count in counts)

    @property
    def nearness(self) -> float:
        return self.rate / self.bound

    def verdict(self, ruling: Ruling) -> Verdict:
        return Verdict(ruling, self.figure, self.rate, self.other_rate, self.bound, self.limit_s)


def _evidence(bad: int, of: int, other_bad: int, other_of: int, bound: float) -> float:
    if other_of < MIN_BASELINE:
        return above_limit(bad, of, bound)
    return above_other(bad, of, other_bad, other_of)


def shadow_verdict(
    policy: ShadowPolicy,
    *,
    elapsed_s: float,
    live: CallStatistics,
    candidate: CallStatistics,
    largest_difference: float = 0.0,
    memory: Memory | None = None,
) -> Verdict:
    """Rule on a shadow. `live` and `candidate` count from its begin; `largest_difference` is `Comparisons.largest`."""
    trials = [*_calls(candidate, live, policy.limits)]
    gathered = Gathered("calls", candidate.calls, policy.calls, elapsed_s, policy.for_s)
    if policy.max_difference is not None and largest_difference > policy.max_difference:
        bound = policy.max_difference
        return Verdict(Ruling.FAIL, "difference", largest_difference, 0.0, bound, gathered=gathered)
    return _rule(trials, _held(memory, policy.limits), gathered)


def canary_verdict(
    policy: CanaryPolicy,
    *,
    elapsed_s: float,
    live: CallStatistics,
    candidate: CallStatistics,
    arms: Arms,
    memory: Memory | None = None,
) -> Verdict:
    """Rule on a canary: `live` and `candidate` count from its begin, `arms` by themselves."""
    limits, here, there = policy.limits, arms.canary, arms.live
    trials = [
        *_calls(candidate, live, limits),
        _Trials("refused", limits.failures, here.refused, here.requests, there.refused, there.requests),
        _Trials(
            "upstream_errors", limits.failures, here.upstream_errors, here.ended, there.upstream_errors, there.ended
        ),
        *_slow("slow_ttft", 0.05, here.ttft, there.ttft, factor=limits.ttft_factor, floor_s=limits.ttft_s),
    ]
    gathered = Gathered("requests", here.requests, policy.min_requests, elapsed_s, policy.for_s, policy.at_most_s)
    return _rule(trials, _held(memory, limits), gathered)


def guard_verdict(
    policy: GuardPolicy,
    *,
    elapsed_s: float,
    before: CallStatistics,
    candidate: CallStatistics,
    memory: Memory | None = None,
    untold: int = 0,
) -> Verdict:
    """Rule on the new live generation by its calls since the cut over; `before` are the previous one's until then.

    A crash is no matter of counts: whoever sees it goes back at once. While discoveries of it are `untold` the previous one
    is what is followed: it passes only when none is, and fails when some are to the end.
    """
    gathered = Gathered("calls", candidate.calls, policy.calls, elapsed_s, policy.for_s, policy.at_most_s)
    trials = [*_calls(candidate, before, policy.limits)]
    verdict = _rule(trials, _held(memory, policy.limits), gathered)
    if verdict.ruling is not Ruling.PASS or not untold:
        return verdict
    ruling = Ruling.FAIL if elapsed_s >= policy.at_most_s else Ruling.WAIT
    return Verdict(ruling, "untold", untold, 0.0, 0.0, gathered=gathered)


def _calls(candidate: CallStatistics, live: CallStatistics, limits: Limits) -> tuple[_Trials, ...]:
    failures = _Trials(
        "failures",
        limits.failures,
        candidate.failures,
        candidate.calls,
        live.failures,
        live.calls,
        bursts=(candidate.failed_batches, candidate.batches, live.failed_batches, live.batches),
    )
    slow = _slow(
        "slow_calls", 0.01, candidate.latencies, live.latencies, factor=limits.slow_factor, floor_s=limits.slow_s
    )
    return (failures, *slow)


def _slow(
    figure: str, bound: float, candidate: Latencies, live: Latencies, *, factor: float, floor_s: float
) -> tuple[_Trials, ...]:
    """Trials slower than `factor` times the live quantile that `bound` names; none without a live one to compare with."""
    usual_s = live.quantile_s(1.0 - bound)
    if usual_s is None or live.count < MIN_BASELINE:
        return ()
    limit_s = max(floor_s, factor * usual_s)
    bad, other_bad = candidate.above(limit_s), live.above(limit_s)
    return (_Trials(figure, bound, bad, candidate.count, other_bad, live.count, limit_s=limit_s),)


def _held(memory: Memory | None, limits: Limits) -> _Held | None:
    """None without two figures to compare: they are the processes' own words."""
    if memory is None or not (0 < memory.candidate_bytes < inf and 0 < memory.live_bytes < inf):
        return None
    grown = max(1.0, memory.candidate_calls / max(memory.live_calls, MIN_BASELINE))
    bound = max(limits.memory_factor * grown * memory.live_bytes, memory.live_bytes + limits.memory_more_bytes)
    return _Held(memory.candidate_bytes, memory.live_bytes, bound)


def _rule(trials: list[_Trials], held: _Held | None, gathered: Gathered) -> Verdict:
    figure: _Trials | _Held | None = next((t for t in trials if t.broken), None)
    if figure is None and held is not None and held.held_bytes > held.bound_bytes:
        figure = held
    if figure is not None:
        ruling = Ruling.FAIL
    else:
        figures: list[_Trials | _Held] = [*trials] if held is None else [*trials, held]
        figure = max(figures, key=lambda one: one.nearness)
        ruling = Ruling.PASS if gathered.enough else Ruling.WAIT
    return replace(figure.verdict(ruling), gathered=gathered)
