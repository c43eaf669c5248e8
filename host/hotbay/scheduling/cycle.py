"""One run of the scheduler for one request: producers, profiles (filter, score, pick), and the verdict.

A cycle decides synchronously what comes next and returns the calls to make; the router makes them and
tells it when each is answered. It never waits, and ends in exactly one decision, be it that of `reject`.
It holds a lease on every generation of its plan from start to end; `answered` are the numbers of those that answered.

Phases::

    PRODUCE -> CHOOSE -> RUN -> PICK -> CHOOSE ... -> PROCESS -> DONE
               (profile handler names   |
                the profiles to run) <--+
"""

import enum
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.batch import LastGood
from hotbay.scheduling.binding import Binding, Policy
from hotbay.scheduling.builtin import SPREAD
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.candidates import Candidates
from hotbay.scheduling.decision import Arm, Decision, Picked, Rejected
from hotbay.scheduling.plan import Plan, Profile
from hotbay.scheduling.request import InferenceRequest
from hotbay.scheduling.shares import Shares

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

MAX_HANDLER_ROUNDS: Final = 8
"""Times that a profile handler is asked for more profiles before the request fails."""


class Phase(enum.Enum):
    """What the cycle does when its outstanding calls are answered."""

    PRODUCE = enum.auto()
    CHOOSE = enum.auto()
    CHOSEN = enum.auto()
    RUN = enum.auto()
    PICK = enum.auto()
    PICKED = enum.auto()
    PROCESS = enum.auto()
    DONE = enum.auto()


class BatchPicks:
    """Rows picked since the last reset: decisions that fall together share it, so that a batch does not herd."""

    __slots__ = ("_counts", "_membership")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._membership = -1

    def corrected(self, totals: Floats, snapshot: Snapshot, weight_sum: float) -> Floats:
        """Totals less `SPREAD` x weights for each earlier pick of the batch; the array itself when there is none."""
        if not self._counts or self._membership != snapshot.membership:
            return totals
        corrected = totals.copy()
        for row, count in self._counts.items():
            corrected[row] -= SPREAD * (weight_sum or 1.0) * count
        return corrected

    def add(self, row: int, snapshot: Snapshot) -> None:
        """Note a pick."""
        if self._membership != snapshot.membership:
            self._counts.clear()
            self._membership = snapshot.membership
        self._counts[row] = self._counts.get(row, 0) + 1

    def reset(self) -> None:
        """Begin a new batch."""
        self._counts.clear()


class Cycle:
    """State of one decision. `next_calls`, `reject` and `finish` are called by the router only."""

    __slots__ = (
        "_asks_handler",
        "_candidates",
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
        "chosen",
        "data",
        "degraded",
        "ended",
        "last_good",
        "mask",
        "picked",
        "plan",
        "primary",
        "request",
        "results",
        "snapshot",
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
        self.mask: Mask = candidates.base
        self.totals: Floats | None = None
        self.data: dict[str, Floats | float] = {}
        self.picked: list[int] | None = None
        self.results: dict[str, list[int] | None] = {}
        self.chosen: list[str] | None = None
        self.primary: str | None = None
        self.degraded: list[tuple[str, str]] = []
        self.last_good = last_good
        self.begun_s = begun_s
        self.arm = arm
        self.answered: list[int] = []
        self.waiting = 0
        self.ended = False
        self._asks_handler = plan.handler.pick is not None
        self._candidates = candidates
        self._shares = shares
        self._done = done
        self._picks = picks
        self._rng = rng
        self._phase = Phase.PRODUCE
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
        return self._candidates.probe

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
            self._rejected = Rejected(
                503,
                "plugin-unavailable",
                f"plugin '{binding.ref}' gave no usable answer ({reason}) and is bound fail_closed",
            )

    def reject(self, rejected: Rejected) -> None:
        """Decide so, whatever was found out until now."""
        self._rejected = rejected

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
        decision = self._decision()
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

    def _produce(self) -> Sequence[RemoteCall]:
        if self._stage < len(self.plan.producers):
            self._stage += 1
            return self.plan.producers[self._stage - 1]
        self._phase = Phase.CHOOSE
        return ()

    def _choose(self) -> Sequence[RemoteCall]:
        handler = self.plan.handler
        self._phase = Phase.CHOSEN
        self.chosen = None
        self._rounds += 1
        if handler.absent:
            self.degrade(handler.binding, "UNAVAILABLE")
        elif handler.pick is not None and self._asks_handler:
            return (handler.pick,)
        return ()

    def _chosen(self) -> Sequence[RemoteCall]:
        """Take the handler's choice; without one (built-in, or its fallback) run the first profile once."""
        names = self.chosen
        if names is None:
            # A handler that did not answer is not asked again: it would cost the request a deadline each time.
            self._asks_handler = False
            names = [] if self.results else [next(iter(self.plan.profiles))]
        self._queue = [name for name in names if name not in self.results]
        if self._queue and self._rounds > MAX_HANDLER_ROUNDS:
            self._rejected = Rejected(500, "profile-handler-loop", "the profile handler never stopped asking for more")
        elif self._queue:
            self._start_profile()
        else:
            self._phase = Phase.PROCESS
        return ()

    def _start_profile(self) -> None:
        self._profile = self.plan.profiles[self._queue.pop(0)]
        self.mask = self._candidates.base
        self.totals = None
        self.picked = None
        self._stage = 0
        self._phase = Phase.RUN
        for binding in self._profile.absent:
            self.degrade(binding, "UNAVAILABLE")

    def _run(self) -> Sequence[RemoteCall]:
        profile = self._current()
        if self.mask is not self._candidates.base and not self.mask.any():
            if not self._candidates.widen():
                return self._profile_ends(None)
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
        self.mask = self._candidates.for_pick(self.mask, self._shares, self.snapshot)
        if picker.call is not None:
            return (picker.call,)
        return ()

    def _take_pick(self) -> Sequence[RemoteCall]:
        profile = self._current()
        rows = self.picked
        if rows is None:
            totals = np.zeros(self.snapshot.rows, np.float32) if self.totals is None else self.totals
            totals = self._picks.corrected(totals, self.snapshot, profile.weight_sum)
            rows = profile.picker.builtin(totals, self.mask, profile.picker.count, self._rng)
        return self._profile_ends(rows or None)

    def _profile_ends(self, rows: list[int] | None) -> Sequence[RemoteCall]:
        self.results[self._current().name] = self._candidates.with_probe(rows)
        if self._queue:
            self._start_profile()
        else:
            self._phase = Phase.CHOOSE if self._asks_handler else Phase.PROCESS
        return ()

    def _process(self) -> Sequence[RemoteCall]:
        self._phase = Phase.DONE
        process = self.plan.handler.process
        if process is not None and self._asks_handler and any(self.results.values()):
            return (process,)
        return ()

    def _current(self) -> Profile:
        assert self._profile is not None, "a profile is running in this phase"
        return self._profile

    # -- verdict ---------------------------------------------------------------------------------

    def _decision(self) -> Decision:
        if self._rejected is not None:
            return self._rejected if self.arm is None else self._rejected._replace(arm=self.arm)
        name = self.primary or next((n for n, rows in self.results.items() if rows), None)
        rows = self.results.get(name) if name is not None else None
        if not rows or name is None:
            if not self.results:
                return Rejected(500, "no-profile", "no scheduling profile was run for this request", self.arm)
            return Rejected(429, "rejected-saturated", "no endpoint is left after the filters: all are busy", self.arm)
        self._picks.add(rows[0], self.snapshot)
        self._shares.picked(rows[0], self.snapshot)
        endpoints = [e for e in (self.snapshot.endpoints[row] for row in rows) if e is not None]
        return Picked(endpoints[0], tuple(endpoints[1:]), name, tuple(self.degraded), self.arm)


_STEPS: Final[dict[Phase, Callable[[Cycle], Sequence[RemoteCall]]]] = {
    Phase.PRODUCE: Cycle._produce,
    Phase.CHOOSE: Cycle._choose,
    Phase.CHOSEN: Cycle._chosen,
    Phase.RUN: Cycle._run,
    Phase.PICK: Cycle._pick,
    Phase.PICKED: Cycle._take_pick,
    Phase.PROCESS: Cycle._process,
}
