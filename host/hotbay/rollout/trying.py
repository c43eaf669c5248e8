"""Carries out the trial of one routine: its share of the calls, the watch over its figures, and the end of both."""

from collections.abc import Callable
from functools import partial

import anyio

from hotbay.errors import InputError
from hotbay.rollout.boundary import Tasks
from hotbay.rollout.deployment import CanaryShare, ShadowSample
from hotbay.rollout.facts import plugin_of
from hotbay.rollout.rows import Row, VerdictShown
from hotbay.rollout.services import Services
from hotbay.rollout.state import Cause, Event, Failure, Judged, Phase
from hotbay.rollout.verdicts import Ruling, Verdict
from hotbay.rollout.watching import TrialWatch, failure_of_verdict
from hotbay.rpc.leases import Generation, Origin

__all__ = ["Trials"]


class Trials:
    """See the module. One trial at a time; `post` takes its verdict."""

    def __init__(self, row: Row, services: Services, tasks: Tasks, post: Callable[[Event], None]) -> None:
        self._row = row
        self._services = services
        self._tasks = tasks
        self._post = post
        self._scope = anyio.CancelScope()

    def begin(self, n: int, phase: Phase, candidate: Generation, live: Generation | None) -> None:
        """Begin the trial of an attempt. A plan that does not compile with it is its verdict."""
        salt = f"{self._row.plugin}#{candidate.number}"
        self._scope = anyio.CancelScope()
        self._row.verdict = None
        see = partial(self._see, phase, candidate.origin)
        try:
            part = self._services.deployment.part_of(self._row.plugin, candidate)
            counts = part.told if phase is Phase.CANARY else part.asked
            watch = TrialWatch(self._services, phase, candidate=candidate, live=live, salt=salt, counts=counts)
            self._share(phase, candidate, watch, salt)
        except InputError as error:
            failure = Failure(Cause.PLUGIN, "INVALID_PACKAGE", error.message, error.hint, self._services.random())
            self._post(Judged(n, phase, failure))
            return
        self._tasks.start_soon(self._judge, n, phase, watch, see, self._scope)

    def _share(self, phase: Phase, candidate: Generation, watch: TrialWatch, salt: str) -> None:
        policies, deployment, name = self._services.policies(), self._services.deployment, self._row.plugin
        if phase is Phase.SHADOW:
            deployment.shadow(ShadowSample(name, candidate, policies.shadow.sample, watch.compared))
        elif phase is Phase.CANARY:
            deployment.canary(CanaryShare(name, candidate, policies.canary.share, salt))

    async def _judge(
        self, n: int, phase: Phase, watch: TrialWatch, see: Callable[[Verdict], None], scope: anyio.CancelScope
    ) -> None:
        with scope:
            verdict = await watch.run(see)
            failure: Failure | None = None
            if verdict.ruling is Ruling.FAIL:
                plugin = plugin_of(self._row.plugin)
                failure = failure_of_verdict(phase, verdict, plugin=plugin, complaint=watch.complaint)
            self._post(Judged(n, phase, failure))

    def _see(self, phase: Phase, of: Origin, verdict: Verdict) -> None:
        self._row.verdict = VerdictShown(verdict, phase, of)

    def end(self) -> None:
        """Nothing is watched any more, and nothing shared."""
        self.stop()
        self._services.deployment.end_trial(self._row.plugin)

    def stop(self) -> None:
        """Nothing is watched any more; the shares stay as they are."""
        self._scope.cancel()
