"""Decides where requests go: takes the current plan and snapshot, runs a cycle, answers once.

Everything happens in callbacks on the running loop. `publish` is one assignment: cycles that began on
the plan before end on it. A defect, of this code or of a caller's `done`, costs the request in which it
shows: it is logged, the request is answered, and the cycle's leases are given back.

A rollout shares requests between generations here: a canary takes whole cycles, a shadow copies of calls,
mirrors the notices of learners; requests are held while a plugin is woken or exchanged. Invariants: every
cycle is answered by generations of its own plan only (`mixed` counts those that were not); what a shadow
or a mirror does changes no decision; without a rollout a request costs none of it.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.rpc.leases import Generation
from hotbay.scheduling.arms import Arms, CanaryPlan, Shadow
from hotbay.scheduling.batch import LastGood, Tally, complaint_text
from hotbay.scheduling.batch_picks import BatchPicks
from hotbay.scheduling.binding import Policy
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.canary import Canary
from hotbay.scheduling.candidates import EVERYBODY, Admission, Pool
from hotbay.scheduling.cycle import Cycle
from hotbay.scheduling.decision import Arm, Decision, Picked, Rejected
from hotbay.scheduling.explain import Traces
from hotbay.scheduling.explained import Explained, explained
from hotbay.scheduling.mirrors import Mirrors
from hotbay.scheduling.notices import Notices
from hotbay.scheduling.parsing import ParseDone, Parsers
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.remote import Remote
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.response_facts import ResponseFacts, ResponseWants
from hotbay.scheduling.responses import Responses
from hotbay.scheduling.shadowing import Copier
from hotbay.scheduling.shared_view import SharedColumns
from hotbay.scheduling.shares import Shares
from hotbay.scheduling.statistics import CallCounters, CallStatistics
from hotbay.scheduling.verdict import picked
from hotbay.scheduling.waking import WAKE_WITHIN_S, Waking
from hotbay.scheduling.window import Asker

logger = logging.getLogger(__name__)

CLIENT_LEFT: Final = 499
NO_MIRRORS: Final[Mapping[int, Sequence[Generation]]] = MappingProxyType({})


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

    def mixed_cycle(self) -> None:
        """A cycle was answered by a generation that is not of its plan."""

    def held(self, count: int) -> None:
        """So many requests wait for a plugin now."""


class Router:
    """The scheduler. Lives on the loop that made it.

    Set `wake` to be told of plugins that a request needs and that are dormant in the plan: it is called once per plugin
    id until a plan is published in which that plugin is not dormant.
    """

    def __init__(
        self,
        snapshots: Snapshots,
        observer: Observer,
        *,
        admission: Admission = EVERYBODY,
        seed: int | None = None,
        wake_within_s: float = WAKE_WITHIN_S,
    ) -> None:
        self.mixed = 0
        self._snapshots = snapshots
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._rng = np.random.default_rng(seed)
        self._admission = admission
        self._shares = Shares()
        self._picks = BatchPicks()
        self._picks_reset_due = False
        self._plan: Plan | None = None
        self._remotes: dict[int, Remote] = {}
        self._shared = SharedColumns()
        self._cycles: dict[int, Cycle] = {}
        self._last_good: LastGood = {}
        self._counters: dict[int, CallCounters] = {}
        self._canary = Canary()
        self._copiers: dict[int, Copier] = {}
        self._traces = Traces()
        self._decided: list[Cycle] = []
        self._responses = Responses(self._plan_for, self._notices_of, lambda: snapshots.snapshot)
        self._parsers = Parsers(self.called)
        self._waking = Waking(self._begin, changed=observer.held, wake_within_s=wake_within_s)
        self._retired: set[int] = set()
        """Generations that were retired while plans still name them; such a plan does not bring them back."""
        self._pool = Pool(admission)

    @property
    def wake(self) -> Callable[[str], None] | None:
        """Told of plugins that a request needs and that are dormant in the plan."""
        return self._waking.wake

    @wake.setter
    def wake(self, wake: Callable[[str], None] | None) -> None:
        self._waking.wake = wake

    @property
    def plan(self) -> Plan | None:
        """The plan that new requests take."""
        return self._plan

    @property
    def deciding(self) -> int:
        """Cycles that have begun and not ended."""
        return len(self._cycles)

    @property
    def held(self) -> int:
        """Requests that wait for a plugin to be woken or exchanged."""
        return len(self._waking.held)

    def publish(
        self,
        plan: Plan,
        *,
        canary: CanaryPlan | None = None,
        shadows: Sequence[Shadow] = (),
        mirrors: Mapping[int, Sequence[Generation]] = NO_MIRRORS,
    ) -> None:
        """Make `plan` the current one, and exactly these the canary, shadows and mirrors.

        Generations that only older plans name get no new leases from here on. `mirrors` names, by the number of a
        generation, those that are told what its learners are told. Whoever publishes during a rollout passes its parts
        each time; a canary with the salt of the one before goes on with its statistics.
        """
        plans = (plan,) if canary is None else (plan, canary.plan)
        mirrored = [generation for others in mirrors.values() for generation in others]
        used = [*(g for p in plans for g in p.generations), *(s.candidate for s in shadows), *mirrored]
        kept = {number: remote for number, remote in self._remotes.items() if remote.generation.leases}
        self._retired.intersection_update([generation.number for generation in used])
        for generation in used:
            if generation.number in self._retired:
                continue
            kept[generation.number] = self._remotes.get(generation.number) or self._remote(generation)
        self._let_go(self._remotes.keys() - kept.keys())
        self._remotes = kept
        self._shared.keep({group for remote in kept.values() for group in remote.groups})
        self._set_shadows(plan, shadows, plans)
        self._canary.published(canary)
        self._responses.published(plans, Mirrors(mirrors))
        self._parsers.published(plan.parsers)
        wanted = {b.ref for p in plan.profiles.values() for b in p.bindings if b.policy is Policy.LAST_GOOD}
        for ref in self._last_good.keys() - wanted:
            del self._last_good[ref]
        self._plan = plan
        self._waking.published(plan.dormant)

    def _remote(self, generation: Generation) -> Remote:
        counters = self._counters.setdefault(generation.number, CallCounters(self._observer))
        return Remote(generation, counters=counters, advance=self._answered, shared=self._shared)

    def _let_go(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._remotes[number].close()

    def _set_shadows(self, plan: Plan, shadows: Sequence[Shadow], plans: Sequence[Plan]) -> None:
        for remote in self._remotes.values():
            remote.watch(None)
        self._copiers = {}
        for shadow in shadows:
            live, candidate = (self._remotes.get(g.number) for g in (shadow.live, shadow.candidate))
            if live is not None and candidate is not None:
                copier = self._copiers[shadow.live.number] = Copier(shadow, plan, candidate.submit, self._rng)
                live.watch(copier)
                candidate.watch(copier)
        only_compared = {s.candidate.number for s in shadows}.difference(*(p.numbers for p in plans))
        for number, remote in self._remotes.items():
            remote.counters.quiet = number in only_compared

    # -- what a rollout asks -------------------------------------------------------------------------

    def statistics(self, generation: int) -> CallStatistics | None:
        """Calls of a generation since it was first published; None when it is unknown or retired."""
        counters = self._counters.get(generation)
        return None if counters is None else counters.read()

    def called(
        self, generation: int, point: str, ref: str, *, duration_s: float, code: str = "", complaint: str = ""
    ) -> None:
        """Count a call that is no part of a decision, as one of the data layer; with `code` it failed."""
        counters = self._counters.get(generation)
        if counters is not None:
            counters.called(point, ref, duration_s, code, complaint_text(code, complaint))

    def complaint(self, generation: int) -> str:
        """Code and text of the generation's last failure; empty without one. A plugin's words, cut and printable."""
        counters = self._counters.get(generation)
        return "" if counters is None else counters.complaint

    def broken(self) -> list[tuple[str, str]]:
        """The plugins that answer and are not asked for now because calls kept failing: id, and `complaint`."""
        found = [self._remotes.get(g.number) for g in (self._plan.generations if self._plan is not None else ())]
        return [(r.generation.origin.plugin_id, r.counters.complaint) for r in found if r is not None and r.is_broken]

    def arms(self, salt: str) -> Arms | None:
        """Requests by arm of the canary with this salt, if it is the latest one."""
        return self._canary.read(salt)

    def outcome(self, decision: Picked, *, failed: bool, ttft_s: float | None) -> None:
        """A picked request is over: whether it failed at its endpoint, and after what time its answer began, if it did."""
        self._canary.ended(decision, failed=failed, ttft_s=ttft_s)

    def explain(self, request_id: str) -> Explained | None:
        """Why the latest decision for a request came out so; None when it is not kept, or not any more.

        The newest decisions are kept, as many as fit into bounds of count and bytes; refusals without a cycle are not.
        """
        found = self.decisions.find(request_id)
        return None if found is None else explained(found)

    @property
    def decisions(self) -> Traces:
        """The decisions that are kept, down to the latest."""
        self._keep_decided()
        return self._traces

    # -- what becomes of requests --------------------------------------------------------------------

    @property
    def hears_responses(self) -> ResponseWants:
        """What somebody wants to know of responses now: of the rest the front door need not tell."""
        return self._responses.wants

    def sent(self, request: InferenceRequest, decision: Picked, endpoint_id: str) -> None:
        """A request is on its way to this endpoint, by a decision for it: learners are told.

        To be called once for each endpoint that a request is sent to, and for none that it is not.
        """
        self._responses.sent(request, decision, endpoint_id)

    def withdraw(self, request: InferenceRequest, decision: Picked, endpoint_id: str) -> None:
        """A request that was sent to this endpoint ended there without a first byte: what was learned of it does not hold."""
        self._responses.withdraw(request, decision, endpoint_id)

    def response_headers(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, status: int, headers: Mapping[str, str]
    ) -> None:
        """A response began. `headers` by names in lower case, at least those of `hears_responses`."""
        self._responses.headers(request, decision, endpoint_id, status, headers)

    def response_body(
        self, request: InferenceRequest, decision: Picked, endpoint_id: str, facts: ResponseFacts
    ) -> None:
        """A response goes on, or ends: then once, whatever the end is, for every endpoint that the request was `sent` to.

        And once for a request that was decided and sent nowhere: who set headers of it may keep something for it.
        """
        self._responses.body(request, decision, endpoint_id, facts)

    # -- parsers -------------------------------------------------------------------------------------

    @property
    def parsers(self) -> Sequence[tuple[str, str]]:
        """(path suffix, ref) of the plan's parsers in processes, in the order of the configuration; "" is any path."""
        return self._parsers.claims

    def parse(self, ref: str, path: str, headers: Mapping[str, str], body: bytes, done: ParseDone) -> None:
        """Ask a parser what a request is; `done` gets it, or a refusal, exactly once, now or later on this loop.

        `headers` by names in lower case; those that the parser declares cross.
        """
        self._parsers.parse(ref, path, headers, body, done)

    def _plan_for(self, arm: Arm | None) -> Plan | None:
        return self._canary.plan_of(arm, self._plan)

    def _notices_of(self, generation: int) -> Notices | None:
        remote = self._remotes.get(generation)
        return None if remote is None else remote.notices

    def quiesce(self, generation: int, *, within_s: float) -> None:
        """Hold new requests, each for at most `within_s` seconds, until `resume`. What has begun goes on.

        A request that waited so long, or found too many waiting, is decided by the plan of that moment.
        """
        self._waking.quiesce(generation, within_s)

    def resume(self, generation: int) -> None:
        """Take back `quiesce`; held requests are decided by the current plan. May be called again."""
        self._waking.resume(generation)

    # -- requests ------------------------------------------------------------------------------------

    def retire(self, generation: int) -> None:
        """Forget a generation: who still has a lease on it goes on by the failure policies.

        Plans that name it and are published before one that does not count nothing for it any more.
        """
        if generation in self._remotes:
            self._retired.add(generation)
        self._let_go({generation} & self._remotes.keys())
        self._remotes.pop(generation, None)
        self._counters.pop(generation, None)

    def close(self) -> None:
        """No request follows: let go of the memory that plugins read. What they have they keep."""
        self._let_go(self._remotes)
        self._remotes.clear()
        self._shared.keep(())

    def decide(self, request: InferenceRequest, done: Callable[[Decision], None]) -> None:
        """Decide for one request; `done` is called exactly once, now or later on this loop.

        A request is decided once at a time. What `done` raises is logged and changes nothing.
        """
        if self._waking.hold_s and self._waking.hold(request, done):
            return
        self._begin(request, done)

    def _begin(self, request: InferenceRequest, done: Callable[[Decision], None]) -> None:
        plan, snapshot = self._plan, self._snapshots.snapshot
        if plan is None:
            _refuse(request, done, Rejected(503, "not-ready", "no scheduling plan is published yet"))
            return
        candidates = self._pool.candidates(snapshot, request.avoid)
        if candidates is None:
            refused = Rejected(503, "rejected-no-endpoints", "no endpoint is known that may take requests")
            _refuse(request, done, refused)
            return
        arm, last_good = None, self._last_good
        if self._canary.is_on:
            arm = self._canary.arm_of(request.id)
            if arm.canary:
                plan, last_good = self._canary.plan_of(arm, plan) or plan, self._canary.last_good
        cycle = Cycle(
            plan,
            snapshot,
            request,
            done,
            picks=self._picks,
            last_good=last_good,
            rng=self._rng,
            shares=self._shares,
            candidates=candidates,
            begun_s=time.perf_counter(),
            arm=arm,
        )
        self._cycles[id(request)] = cycle
        self._advance(cycle)

    def cancel(self, request: InferenceRequest) -> None:
        """The client has left: end the request's decision now, if it is being decided.

        `done` gets a refusal; plugins are told to stop once every request of their batch was cancelled.
        """
        cycle = self._cycles.get(id(request))
        if cycle is None:
            done = self._waking.held.cancel(request)
            if done is not None:
                _refuse(request, done, Rejected(CLIENT_LEFT, "client-left", "the client left before the decision"))
            return
        self._reject(cycle, Rejected(CLIENT_LEFT, "client-left", "the client left before the decision"))
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
        if remote is None:
            call.fail(cycle, "UNAVAILABLE", self._observer)
            return False
        submitted = remote.submit(cycle, call)
        # After the live one: its batch goes out first.
        if self._copiers and submitted and (copier := self._copiers.get(call.generation.number)) is not None:
            copier.copy(cycle, call)
        return submitted

    def _answered(self, cycle: Asker) -> None:
        if cycle.ended:
            return
        cycle.waiting -= 1
        if cycle.waiting == 0 and isinstance(cycle, Cycle):
            self._advance(cycle)

    def _finish(self, cycle: Cycle) -> None:
        self._cycles.pop(id(cycle.request), None)
        if not self._picks_reset_due:
            self._picks_reset_due = True
            self._loop.call_soon(self._reset_picks)
        decision = cycle.finish(self._report)
        if isinstance(decision, Rejected) and cycle.target is not None and cycle.plan.edits:
            # Who sets headers was asked for them, and may keep something for a request of which nobody else tells the end.
            self._responses.unsent(cycle.request, picked(cycle, *cycle.target), is_left=decision.status == CLIENT_LEFT)
        self._settle_probe(cycle, decision)
        if not cycle.plan.numbers.issuperset(cycle.answered):
            self.mixed += 1
            self._observer.mixed_cycle()
            logger.error("cycle_mixed request=%s answered=%s", cycle.request.id, cycle.answered)
        if cycle.arm is not None and not cycle.request.avoid:
            # A request that goes elsewhere after a failed connection is the same request.
            duration_s, refused = cycle.ended_s - cycle.begun_s, isinstance(decision, Rejected)
            self._canary.decided(cycle.arm, duration_s, refused=refused, degraded=cycle.degraded)

    def _settle_probe(self, cycle: Cycle, decision: Decision) -> None:
        """A probe that filters kept out, or that was refused, is somebody else's."""
        if cycle.probe is None:
            return
        endpoint_id = cycle.snapshot.ids[cycle.probe]
        if isinstance(decision, Rejected) or decision.endpoint.id != endpoint_id:
            self._admission.unused(endpoint_id)

    def _report(self, cycle: Cycle) -> None:
        cycle.ended_s = time.perf_counter()
        # Before the caller is told, who may ask at once why.
        self._decided.append(cycle)
        for binding, reason in cycle.degraded:
            self._observer.degraded(binding, reason)
        self._observer.decision(cycle.ended_s - cycle.begun_s)

    def _reset_picks(self) -> None:
        self._picks_reset_due = False
        self._picks.reset()
        self._keep_decided()

    def _keep_decided(self) -> None:
        # Once for all decisions of a tick: no request waits for it.
        decided, self._decided = self._decided, []
        self._traces.keep(decided, self._admission.ejected)


def _refuse(request: InferenceRequest, done: Callable[[Decision], None], rejected: Rejected) -> None:
    """Refuse a request of which no cycle began."""
    try:
        done(rejected)
    except Exception:
        # Named boundary: the caller's `done`. Whoever lets this request go has others to let go, too.
        logger.exception("refusal_failed", extra={"request": request.id})
