"""Decides where requests go: takes the current plan and snapshot, runs a cycle, answers once.

Everything happens in callbacks on the running loop. `publish` is one assignment: cycles that began on
the plan before end on it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import numpy as np

from hotbay.datalayer.snapshot import Snapshot
from hotbay.scheduling.batch import Tally
from hotbay.scheduling.cycle import BatchPicks, Cycle
from hotbay.scheduling.decision import Decision, Picked, Rejected
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.remote import Remote
from hotbay.scheduling.request import InferenceRequest


class Snapshots(Protocol):
    """Where the current endpoint snapshot stands."""

    @property
    def snapshot(self) -> Snapshot:
        """The latest publication."""


class Observer(Tally, Protocol):
    """Counts decisions."""

    def degraded(self, binding: str, reason: str) -> None:
        """One failure policy decided in one request."""

    def decision(self, duration_s: float) -> None:
        """One decision was made."""


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
        self._deciding = 0
        self._seen: Snapshot | None = None
        self._any_live = False

    @property
    def plan(self) -> Plan | None:
        """The plan that new requests take."""
        return self._plan

    @property
    def deciding(self) -> int:
        """Cycles that have begun and not ended."""
        return self._deciding

    def publish(self, plan: Plan) -> None:
        """Make `plan` the current one. Generations that only older plans name get no new leases from here on."""
        for generation in plan.generations:
            if generation.number not in self._remotes:
                self._remotes[generation.number] = Remote(generation, tally=self._observer, advance=self._answered)
        self._plan = plan

    def retire(self, generation: int) -> None:
        """Forget a generation that has no lease left."""
        self._remotes.pop(generation, None)

    def decide(self, request: InferenceRequest, done: Callable[[Decision], None]) -> None:
        """Decide for one request; `done` is called exactly once, now or later on this loop."""
        plan, snapshot = self._plan, self._snapshots.snapshot
        if plan is None:
            done(Rejected(503, "not-ready", "no scheduling plan is published yet"))
            return
        if snapshot is not self._seen:
            self._seen, self._any_live = snapshot, bool(snapshot.live.any())
        if not self._any_live:
            done(Rejected(503, "rejected-no-endpoints", "no endpoint is known that may take requests"))
            return
        self._deciding += 1
        timed = _Timed(done, self._observer)
        self._advance(Cycle(plan, snapshot, request, timed, picks=self._picks, rng=self._rng))

    def _advance(self, cycle: Cycle) -> None:
        while True:
            calls = cycle.next_calls()
            if not calls:
                self._finish(cycle)
                return
            outstanding = 0
            for call in calls:
                if self._remotes[call.generation.number].submit(cycle, call):
                    outstanding += 1
            cycle.waiting = outstanding
            if outstanding:
                return

    def _answered(self, cycle: Cycle) -> None:
        cycle.waiting -= 1
        if cycle.waiting == 0:
            self._advance(cycle)

    def _finish(self, cycle: Cycle) -> None:
        self._deciding -= 1
        for binding, reason in cycle.degraded:
            self._observer.degraded(binding, reason)
        if not self._picks_reset_due:
            self._picks_reset_due = True
            self._loop.call_soon(self._reset_picks)
        learners = cycle.plan.learners
        decision = cycle.finish()
        if learners and isinstance(decision, Picked):
            targets = [decision.endpoint.id]
            for learner in learners:
                remote = self._remotes.get(learner.generation.number)
                if remote is not None:
                    remote.learn(learner, cycle, targets)

    def _reset_picks(self) -> None:
        self._picks_reset_due = False
        self._picks.reset()


class _Timed:
    """Caller's callback, with the time of the decision observed before it."""

    __slots__ = ("_begun", "_done", "_observer")

    def __init__(self, done: Callable[[Decision], None], observer: Observer) -> None:
        self._done = done
        self._observer = observer
        self._begun = time.perf_counter()

    def __call__(self, decision: Decision) -> None:
        self._observer.decision(time.perf_counter() - self._begun)
        self._done(decision)
