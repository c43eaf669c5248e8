"""Watches a shadow, a canary or a guard until its figures give a verdict, and says which figure it was.

Crashes are no figures: whoever sees one acts at once. Here counts are read every `LOOK_S` and held against the bounds.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import anyio

from hotbay.rollout.comparison import Comparisons
from hotbay.rollout.services import Services
from hotbay.rollout.state import Cause, Failure, Phase
from hotbay.rollout.verdicts import Memory, Ruling, Verdict, canary_verdict, guard_verdict, shadow_verdict
from hotbay.rpc.leases import Generation
from hotbay.scheduling.arms import AnswerPair, Arms
from hotbay.scheduling.statistics import ArmStatistics, CallStatistics

logger = logging.getLogger(__name__)

LOOK_S: Final = 0.05

__all__ = ["TrialWatch", "failure_of_verdict", "verdict_text"]


class TrialWatch:
    """One trial. `live` is the generation to compare with, `candidate` the one on trial.

    `counts` is false where no request has to do with the candidate: its trial then ends with its time, and fails by what
    the data layer asked it for.
    """

    def __init__(
        self,
        services: Services,
        phase: Phase,
        *,
        candidate: Generation,
        live: Generation | None,
        salt: str,
        counts: bool = True,
    ) -> None:
        self._services = services
        self._phase = phase
        self._candidate = candidate
        self._live = live
        self._salt = salt
        self._counts = counts
        self._began_s = services.now()
        self._before = self._read(candidate)
        self._live_before = CallStatistics() if phase is Phase.GUARD else self._read(live)
        self._live_at_begin = self._read(live)
        self.comparisons = Comparisons()

    def compared(self, pair: AnswerPair) -> None:
        """Take one pair of answers of a shadow."""
        self.comparisons.add(pair)

    @property
    def complaint(self) -> str:
        """What the candidate said at its last failure."""
        return self._services.measures.complaint(self._candidate.number)

    async def run(self, seen: Callable[[Verdict], None]) -> Verdict:
        """Look until there is a verdict; `seen` gets every one on the way."""
        while True:
            verdict = self._rule()
            seen(verdict)
            if verdict.ruling is not Ruling.WAIT:
                return verdict
            await anyio.sleep(LOOK_S)

    def _read(self, generation: Generation | None) -> CallStatistics:
        found = self._services.measures.statistics(generation.number) if generation is not None else None
        return found or CallStatistics()

    def _memory(self) -> Memory | None:
        """What both processes said of their memory last, which may be some seconds old."""
        candidate, live = self._candidate, self._live
        if live is None:
            return None
        said = [side.client.figures.get("rss_bytes", 0) for side in (candidate, live)]
        return Memory(said[0], said[1], self._read(candidate).calls, self._read(live).calls)

    def _rule(self) -> Verdict:
        services, elapsed_s = self._services, self._services.now() - self._began_s
        policies = services.policies()
        candidate, memory = self._read(self._candidate).since(self._before), self._memory()
        if self._phase is Phase.GUARD:
            guard = policies.guard if self._counts else replace(policies.guard, calls=0)
            return guard_verdict(
                guard,
                elapsed_s=elapsed_s,
                before=self._live_at_begin,
                candidate=candidate,
                memory=memory,
                untold=len(self._candidate.untold),
            )
        live = self._read(self._live).since(self._live_before)
        if self._phase is Phase.SHADOW:
            return shadow_verdict(
                policies.shadow,
                elapsed_s=elapsed_s,
                live=live,
                candidate=candidate,
                largest_difference=self.comparisons.largest,
                memory=memory,
            )
        arms = services.measures.arms(self._salt) or Arms(ArmStatistics(), ArmStatistics())
        canary = policies.canary if self._counts else replace(policies.canary, min_requests=0)
        return canary_verdict(canary, elapsed_s=elapsed_s, live=live, candidate=candidate, arms=arms, memory=memory)


def verdict_text(phase: Phase, verdict: Verdict) -> str:
    """Which figure decided, in one line."""
    figure = verdict.figure.replace("_", " ")
    if verdict.figure == "untold":
        return f"{phase}: discoveries and sources that have not told everything {verdict.candidate:.0f}, allowed 0"
    if verdict.figure == "difference":
        return f"{phase}: largest difference {verdict.candidate:.3g}, allowed {verdict.bound:.3g}"
    if verdict.figure == "memory":
        held, live, bound = (f"{count / 2**20:.0f} MiB" for count in (verdict.candidate, verdict.live, verdict.bound))
        return f"{phase}: memory {held}, the live version's {live}, allowed {bound}"
    slower = f" over {verdict.limit_s * 1000:.0f} ms" if verdict.limit_s is not None else ""
    return (
        f"{phase}: {figure}{slower} {verdict.candidate:.1%}, the live version's {verdict.live:.1%},"
        f" allowed {verdict.bound:.1%}"
    )


def failure_of_verdict(phase: Phase, verdict: Verdict, *, plugin: str, complaint: str = "") -> Failure:
    """The failure of a trial, as the machine takes it. `complaint` is what the candidate said at its last failure."""
    is_told = complaint and verdict.figure in ("failures", "untold")
    return Failure(
        Cause.PLUGIN,
        "TRIAL_FAILED",
        f"{verdict_text(phase, verdict)}; the last one was {complaint}" if is_told else verdict_text(phase, verdict),
        f"see `hotbay logs {plugin}`, correct the version and publish it under a new rev; `hotbay quarantine clear` tries this"
        " one again",
    )
