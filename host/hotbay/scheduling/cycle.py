"""One run of the scheduler for one request: what comes before the profiles, profiles (filter, score, pick), and the verdict.

A cycle decides synchronously what comes next and returns the calls to make; the router makes them and
tells it when each is answered. It never waits, and ends in exactly one decision, be it that of `reject`.
It holds a lease on every generation of its plan from start to end; `answered` are the numbers of those that answered.
What was produced for a request lives as long as its cycle: nothing of it is kept for the next.

Phases; of what comes BEFORE, a plan has the stages that its configuration uses::

    BEFORE -> CHOOSE -> RUN -> PICK -> CHOOSE ... -> PROCESS -> SETTLE -> DONE
    (headers, shed,     (profile handler names         (handler  (headers
     screen, produce,    the profiles to run)           merges)   are set)
     admit)
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from hotbay_sdk.protocol.verdicts import HeaderEdits

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.batch import Datum, LastGood
from hotbay.scheduling.batch_picks import BatchPicks
from hotbay.scheduling.binding import Binding, Point, Policy
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.candidates import Candidates
from hotbay.scheduling.decision import BUSY, NO_ENDPOINTS, SHED, Arm, Decision, Rejected, joined
from hotbay.scheduling.explain import Notes, Ran
from hotbay.scheduling.plan import Before, Plan, Profile
from hotbay.scheduling.preference import NOT_CACHED, is_conditional
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.run_call import RunCall
from hotbay.scheduling.shares import Shares
from hotbay.scheduling.verdict import picked

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

_NO_EDITS: Final[dict[int, HeaderEdits]] = {}
_NOT_DRAINED: Final[Mapping[str, Rejected]] = {}
MAX_HANDLER_ROUNDS: Final = 8
"""Times that a profile handler may ask for profiles before the request fails."""


class Phase(enum.Enum):
    """What the cycle does when its outstanding calls are answered."""

    BEFORE = enum.auto()
    CHOOSE = enum.auto()
    CHOSEN = enum.auto()
    RUN = enum.auto()
    PICK = enum.auto()
    PICKED = enum.auto()
    PROCESS = enum.auto()
    SETTLE = enum.auto()
    DONE = enum.auto()

    # By identity, which is what members are equal by: an enum's own hash is Python code, and runs for every step.
    __hash__ = object.__hash__


class Cycle:
    """State of one decision. `next_calls`, `reject` and `finish` are called by the router only.

    `notes` and `ran` are what is told of it afterwards. `drained` says of each profile that found nothing why.
    """

    __slots__ = (
        "_asks_handler",
        "_done",
        "_phase",
        "_picks",
        "_profile",
        "_queue",
        "_rejected",
        "_rng",
        "_rounds",
        "_shares",
        "_stage",
        "answered",
        "arm",
        "begun_s",
        "candidates",
        "chosen",
        "data",
        "decision",
        "degraded",
        "drained",
        "edits",
        "ended",
        "ended_s",
        "kept",
        "last_good",
        "mask",
        "notes",
        "peer",
        "picked",
        "plan",
        "primary",
        "ran",
        "request",
        "results",
        "saturation",
        "snapshot",
        "target",
        "totals",
        "waiting",
    )

    def __init__(
        self,
        plan: Plan,
        snapshot: Snapshot,
        request: InferenceRequest,
        done: Callable[[Decision], None],
        *,
        picks: BatchPicks,
        last_good: LastGood,
        rng: np.random.Generator,
        shares: Shares,
        candidates: Candidates,
        begun_s: float = 0.0,
        arm: Arm | None = None,
    ) -> None:
        self.plan = plan
        self.snapshot = snapshot
        self.request = request
        self.candidates = candidates
        self.mask: Mask = candidates.base
        self.totals: Floats | None = None
        self.data: dict[str, Datum] = {}
        self.picked: list[int] | None = None
        self.results: dict[str, list[int] | None] = {}
        self.chosen: list[str] | None = None
        self.primary: str | None = None
        self.degraded: list[tuple[str, str]] = []
        self.drained: Mapping[str, Rejected] = _NOT_DRAINED
        self.edits: dict[int, HeaderEdits] = _NO_EDITS
        self.notes: Notes = []
        self.ran: list[Ran] = []
        self.peer = ""
        self.kept: Mask | None = None
        self.saturation = 0.0
        self.target: tuple[str, list[int]] | None = None
        self.last_good = last_good
        self.begun_s = begun_s
        self.arm = arm
        self.answered: list[int] = []
        self.waiting = 0
        self.ended = False
        self.ended_s = 0.0
        self.decision: Decision | None = None
        self._asks_handler = plan.handler.asks
        self._shares = shares
        self._done = done
        self._picks = picks
        self._rng = rng
        self._phase = Phase.BEFORE
        self._profile: Profile | None = None
        self._queue: list[str] = []
        self._rejected: Rejected | None = None
        self._rounds = 0
        self._stage = 0
        for generation in plan.generations:
            generation.acquire()
        for binding in plan.absent:
            self.degrade(binding, "UNAVAILABLE")

    @property
    def rejected(self) -> Rejected | None:
        """The refusal, once a fail_closed binding or an empty set decided it."""
        return self._rejected

    @property
    def probe(self) -> int | None:
        """The row that this cycle is to try again, if any."""
        return self.candidates.probe

    def degrade(self, binding: Binding, reason: str) -> None:
        """A failure policy decides: note it once per ref and reason, and apply what is not the same as doing nothing."""
        if (binding.ref, reason) not in self.degraded:
            self.degraded.append((binding.ref, reason))
        if binding.policy is Policy.NEUTRAL and binding.neutral:
            self._add(np.full(self.snapshot.rows, binding.neutral * binding.weight, np.float32))
        elif binding.policy is Policy.LAST_GOOD:
            membership, scores = self.last_good.get(binding.ref, (-1, None))
            if scores is not None and membership == self.snapshot.membership:
                self._add(scores * np.float32(binding.weight))
        elif binding.policy is Policy.FAIL_CLOSED and self._rejected is None:
            message = f"plugin '{binding.ref}' gave no usable answer ({reason}) and is bound fail_closed"
            refused = Rejected(503, "plugin-unavailable", message)
            drained = self.drained if binding.point is Point.PROFILE_HANDLER else {}
            self._rejected = joined(drained, message) or refused

    def reject(self, rejected: Rejected) -> None:
        """Decide so, whatever was found out until now."""
        self._rejected = rejected

    def set_attributes(self, attributes: Mapping[str, str | int | float]) -> None:
        """What a processor of request headers found out: the next one reads it, and so does whoever declares it."""
        self.request.attributes.update(attributes)

    def _add(self, scores: Floats) -> None:
        self.totals = scores if self.totals is None else self.totals + scores

    def next_calls(self) -> Sequence[RemoteCall]:
        """Advance as far as possible; return the calls to make now, or nothing when the cycle is done."""
        while self._phase is not Phase.DONE:
            if self._rejected is not None:
                self._phase = Phase.DONE
                break
            calls = _STEPS[self._phase](self)
            if calls:
                return calls
        return ()

    def finish(self, report: Callable[["Cycle"], None]) -> Decision:
        """Decide, give the leases back, `report`, and tell the caller; called once, when nothing is left to call.

        The caller is told also when `report` raises.
        """
        decision = self.decision = self._decision()
        self.ended = True
        self._phase = Phase.DONE
        try:
            for generation in self.plan.generations:
                generation.release()
            report(self)
        finally:
            self._done(decision)
        return decision

    # -- phases ----------------------------------------------------------------------------------

    def _before(self) -> Sequence[RemoteCall]:
        stages = self.plan.before
        if self._stage == len(stages):
            self._phase = Phase.CHOOSE
            return ()
        kind, calls = stages[self._stage]
        self._stage += 1
        if kind is Before.SATURATION:
            return calls if self.request.priority < 0 else ()
        if kind is Before.SHED and self.saturation >= 1.0:
            self._rejected = SHED
        elif kind is Before.SCREEN:
            self.mask = self.candidates.everyone()
        elif kind is Before.GIVE:
            self._give()
        elif kind is Before.SCREENED:
            self._take_screened()
        return calls

    def _give(self) -> None:
        for key, make in self.plan.gives:
            datum = make(self.request, self.snapshot)
            if datum is not None:
                self.data[key] = datum

    def _take_screened(self) -> None:
        if self.kept is not None:
            self.candidates = self.candidates.screened(self.kept)
            if not self.candidates.base.any() and not self.candidates.widen():
                self._rejected = NO_ENDPOINTS
        self.mask = self.candidates.base

    def _choose(self) -> Sequence[RemoteCall]:
        handler = self.plan.handler
        self._phase = Phase.CHOSEN
        self.chosen = None
        if handler.absent:
            self.degrade(handler.binding, "UNAVAILABLE")
        elif self._asks_handler:
            return self._ask_handler()
        return ()

    def _ask_handler(self) -> Sequence[RemoteCall]:
        handler = self.plan.handler
        if handler.choose is not None:
            chosen = handler.choose(self.request, self.results.keys())
            if isinstance(chosen, Rejected):
                self._rejected = chosen
            else:
                self.chosen = list(chosen)
            return ()
        return () if handler.pick is None else (handler.pick,)

    def _chosen(self) -> Sequence[RemoteCall]:
        """Take the handler's choice; without one (built-in, or its fallback) run the first profile once."""
        names = self.chosen
        if names is None:
            # A handler that did not answer is not asked again: it would cost the request a deadline each time.
            self._asks_handler = False
            names = [] if self.results else [next(iter(self.plan.profiles))]
        self._rounds += bool(names)
        self._queue = list(names)
        if self._rounds > MAX_HANDLER_ROUNDS:
            ref = self.plan.handler.binding.ref
            message = f"PROFILE_LOOP: profile handler '{ref}' asked for profiles more than {MAX_HANDLER_ROUNDS} times"
            self._rejected = Rejected(500, "profile-loop", message)
        elif names:
            self._start_profile()
        else:
            self._phase = Phase.PROCESS
        return ()

    def _start_profile(self) -> None:
        self._profile = self.plan.profiles[self._queue.pop(0)]
        self.mask = self.candidates.base
        self.totals = None
        self.picked = None
        self._stage = 0
        self._phase = Phase.RUN
        for binding in self._profile.absent:
            self.degrade(binding, "UNAVAILABLE")

    def _run(self) -> Sequence[RemoteCall]:
        profile = self._current()
        if self.mask is not self.candidates.base and not self.mask.any():
            if not self.candidates.widen():
                self.drained = {**self.drained, profile.name: _why_drained(profile, self._stage - 1)}
                return self._profile_ends(None, self.totals)
            self._queue.insert(0, profile.name)
            self._start_profile()
            return ()
        if self._stage < len(profile.stages):
            self._stage += 1
            return profile.stages[self._stage - 1]
        self._phase = Phase.PICK
        return ()

    def _pick(self) -> Sequence[RemoteCall]:
        picker = self._current().picker
        self._phase = Phase.PICKED
        self.mask = self.candidates.for_pick(self.mask, self._shares, self.snapshot)
        if picker.call is not None:
            return (picker.call,)
        return ()

    def _take_pick(self) -> Sequence[RemoteCall]:
        profile = self._current()
        rows = self.picked
        if rows is None:
            totals = np.zeros(self.snapshot.rows, np.float32) if self.totals is None else self.totals
            totals = self._picks.corrected(totals, self.snapshot, profile.weight_sum, profile.scraped_weight)
            rows = profile.picker.builtin(totals, self.mask, profile.picker.count, self._rng, profile.tie)
            return self._profile_ends(rows or None, totals)
        return self._profile_ends(rows, self.totals)

    def _profile_ends(self, rows: list[int] | None, totals: Floats | None) -> Sequence[RemoteCall]:
        name = self._current().name
        rows = self.results[name] = self.candidates.with_probe(rows)
        self.ran.append((name, self.mask, totals, rows))
        if rows:
            self.peer = self.snapshot.ids[rows[0]]
            if self.drained:
                self.drained = {other: why for other, why in self.drained.items() if other != name}
        if self._queue:
            self._start_profile()
        else:
            self._phase = Phase.CHOOSE if self._asks_handler else Phase.PROCESS
        return ()

    def _process(self) -> Sequence[RemoteCall]:
        self._phase = Phase.SETTLE
        process = self.plan.handler.process
        if process is not None and self._asks_handler and any(self.results.values()):
            return (process,)
        return ()

    def _settle(self) -> Sequence[RemoteCall]:
        """Now it is known where the request goes: whoever sets headers of it is asked."""
        self._phase = Phase.DONE
        results, name = self.results, self.primary
        if name is None and self.drained and self.plan.handler.process is not None:
            # The handler failed: of results that are not all there, only it knows which serve the request alone.
            return ()
        if name is None and len(results) == 1:
            [(name, rows)] = results.items()
        else:
            name = name or next((n for n, found in results.items() if found), None)
            rows = None if name is None else results.get(name)
        if not rows or name is None:
            return ()
        if is_conditional(self.request.headers) and not self._is_cached(rows[0]):
            self._rejected = NOT_CACHED
            return ()
        self.target = name, rows
        self._picks.add(rows[0], self.snapshot)
        self._shares.picked(rows[0], self.snapshot)
        if self.plan.edits:
            self.edits = {}
        return self.plan.edits

    def _is_cached(self, row: int) -> bool:
        match = self.plan.match
        return match is not None and match.matched_blocks(self.data, row) > 0

    def _current(self) -> Profile:
        assert self._profile is not None, "a profile is running in this phase"
        return self._profile

    # -- verdict ---------------------------------------------------------------------------------

    def _decision(self) -> Decision:
        if self._rejected is not None:
            return self._rejected if self.arm is None else self._rejected._replace(arm=self.arm)
        if self.target is not None:
            return picked(self, *self.target)
        if not self.results:
            return Rejected(500, "no-profile", "no scheduling profile was run for this request", self.arm)
        handler = self.plan.handler.binding.ref
        failed = [f"profile handler '{ref}' failed ({reason})" for ref, reason in self.degraded if ref == handler]
        return (joined(self.drained, *failed) or BUSY)._replace(arm=self.arm)


def _why_drained(profile: Profile, stage: int) -> Rejected:
    """What the filters of a stage mean by leaving nothing."""
    calls = profile.stages[stage] if stage >= 0 else ()
    return next((call.drained for call in calls if isinstance(call, RunCall)), BUSY)


_STEPS: Final[dict[Phase, Callable[[Cycle], Sequence[RemoteCall]]]] = {
    Phase.BEFORE: Cycle._before,
    Phase.CHOOSE: Cycle._choose,
    Phase.CHOSEN: Cycle._chosen,
    Phase.RUN: Cycle._run,
    Phase.PICK: Cycle._pick,
    Phase.PICKED: Cycle._take_pick,
    Phase.PROCESS: Cycle._process,
    Phase.SETTLE: Cycle._settle,
}
