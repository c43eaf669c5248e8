"""Decides where requests go: takes the current plan and snapshot, runs a cycle, answers once.

Everything happens in callbacks on the running loop. `publish` is one assignment: cycles that began on
the plan before end on it. A defect, of this code or of a caller's `done`, costs the request in which it
shows: it is logged, the request is answered, and the cycle's leases are given back.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from hotbay.datalayer.snapshot import Snapshot
from hotbay.scheduling.batch import LastGood, Tally
from hotbay.scheduling.binding import Policy
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.cycle import BatchPicks, Cycle
from hotbay.scheduling.decision import Decision, Picked, Rejected
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.remote import Remote
from hotbay.scheduling.request import InferenceRequest

logger = logging.getLogger(__name__)


class Snapshots(Protocol):
    """Where the current endpoint snapshot stands."""

    @property
    def snapshot(self) -> Snapshot:
        """The latest publication."""


class Observer(Tally, Protocol):
    """Counts decisions."""

    def degraded(self, binding: str, reason: str) -> None:
        """Failure policies of one ref decided in one request, for one reason."""

    def decision(self, duration_s: float) -> None:
        """One decision was made, by a cycle: an endpoint or a refusal. Refusals without a cycle are not timed."""


class Router:
    """The scheduler. Lives on the loop that made it."""

    def __init__(self, snapshots: Snapshots, observer: Observer, *, seed: int | None = None) -> None:
        self._snapshots = snapshots
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._rng = np.random.default_rng(seed)
        self._picks = BatchPicks()
        self._picks_reset_due = False
        self._plan: Plan | None = None
        self._remotes: dict[int, Remote] = {}
        self._cycles: dict[int, Cycle] = {}
        self._last_good: LastGood = {}
        self._seen: Snapshot | None = None
        self._any_live = False

    @property
    def plan(self) -> Plan | None:
        """The plan that new requests take."""
        return self._plan

    @property
    def deciding(self) -> int:
        """Cycles that have begun and not ended."""
        return len(self._cycles)

    def publish(self, plan: Plan) -> None:
        """Make `plan` the current one. Generations that only older plans name get no new leases from here on."""
        kept = {number: remote for number, remote in self._remotes.items() if remote.generation.leases}
        for generation in plan.generations:
            known = self._remotes.get(generation.number)
            kept[generation.number] = known or Remote(generation, tally=self._observer, advance=self._answered)
        self._remotes = kept
        wanted = {b.ref for p in plan.profiles.values() for b in p.bindings if b.policy is Policy.LAST_GOOD}
        for ref in self._last_good.keys() - wanted:
            del self._last_good[ref]
        self._plan = plan

    def retire(self, generation: int) -> None:
        """Forget a generation: who still has a lease on it goes on by the failure policies."""
        self._remotes.pop(generation, None)

    def decide(self, request: InferenceRequest, done: Callable[[Decision], None]) -> None:
        """Decide for one request; `done` is called exactly once, now or later on this loop.

        A request is decided once at a time. What `done` raises is logged and changes nothing.
        """
        plan, snapshot = self._plan, self._snapshots.snapshot
        if plan is None:
            done(Rejected(503, "not-ready", "no scheduling plan is published yet"))
            return
        if snapshot is not self._seen:
            self._seen, self._any_live = snapshot, bool(snapshot.live.any())
        if not self._any_live:
            done(Rejected(503, "rejected-no-endpoints", "no endpoint is known that may take requests"))
            return
        cycle = Cycle(
            plan,
            snapshot,
            request,
            done,
            picks=self._picks,
            last_good=self._last_good,
            rng=self._rng,
            begun_s=time.perf_counter(),
        )
        self._cycles[id(request)] = cycle
        self._advance(cycle)

    def cancel(self, request: InferenceRequest) -> None:
        """The client has left: end the request's decision now, if it is being decided.

        `done` gets a refusal; plugins are told to stop once every request of their batch was cancelled.
        """
        cycle = self._cycles.get(id(request))
        if cycle is None:
            return
        self._reject(cycle, Rejected(499, "client-left", "the client left before the decision"))
        for generation in cycle.plan.generations:
            remote = self._remotes.get(generation.number)
            if remote is not None:
                remote.abandoned()

    def _advance(self, cycle: Cycle) -> None:
        try:
            self._step(cycle)
        except Exception:
            # Named boundary. Windows call this for one cycle after the other: the others must not pay.
            logger.exception("decision_failed", extra={"request": cycle.request.id})
            self._reject(cycle, Rejected(500, "scheduler-error", "the scheduler failed on this request"))

    def _reject(self, cycle: Cycle, rejected: Rejected) -> None:
        if cycle.ended:
            return
        cycle.reject(rejected)
        try:
            self._finish(cycle)
        except Exception:
            # Named boundary: the caller's `done`, or an observer; the cycle has ended all the same.
            logger.exception("refusal_failed", extra={"request": cycle.request.id})

    def _step(self, cycle: Cycle) -> None:
        while True:
            calls = cycle.next_calls()
            if not calls:
                self._finish(cycle)
                return
            cycle.waiting = sum([self._submit(cycle, call) for call in calls])
            if cycle.waiting:
                return

    def _submit(self, cycle: Cycle, call: RemoteCall) -> bool:
        remote = self._remotes.get(call.generation.number)
        if remote is not None:
            return remote.submit(cycle, call)
        call.fail(cycle, "UNAVAILABLE", self._observer)
        return False

    def _answered(self, cycle: Cycle) -> None:
        if cycle.ended:
            return
        cycle.waiting -= 1
        if cycle.waiting == 0:
            self._advance(cycle)

    def _finish(self, cycle: Cycle) -> None:
        self._cycles.pop(id(cycle.request), None)
        if not self._picks_reset_due:
            self._picks_reset_due = True
            self._loop.call_soon(self._reset_picks)
        decision = cycle.finish(self._report)
        if isinstance(decision, Picked):
            targets = [decision.endpoint.id]
            for learner in cycle.plan.learners:
                remote = self._remotes.get(learner.generation.number)
                if remote is not None:
                    remote.learn(learner, cycle, targets)

    def _report(self, cycle: Cycle) -> None:
        for binding, reason in cycle.degraded:
            self._observer.degraded(binding, reason)
        self._observer.decision(time.perf_counter() - cycle.begun_s)

    def _reset_picks(self) -> None:
        self._picks_reset_due = False
        self._picks.reset()
