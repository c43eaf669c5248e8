"""Passive health of a store's endpoints as it runs: gathers what requests report, decides, and tells the store.

`begin` and `ended` are called for every attempt of a request, `probe` for every decision: they count and look, no more.
`tick` decides, before each publication; what changed is in the next snapshot. While ejection is off nothing is counted,
told or shown, and nobody is probed. One loop's thread; the time is an argument.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, EndpointState
from hotbay.datalayer.health.availability import decides, step
from hotbay.datalayer.health.patience import Awaited, patience_s, weighed
from hotbay.datalayer.health.reports import Attempt, Tally
from hotbay.datalayer.health.slow_start import ramp
from hotbay.datalayer.health.state import (
    EMPTY_POOL,
    Effect,
    EjectionOff,
    Event,
    Health,
    HealthLimits,
    Members,
    Observed,
    Phase,
    Pool,
    ProbeSent,
    ProbeTaken,
    ProbeUnused,
    Reason,
    Tick,
    Verdict,
)

__all__ = ["DECIDE_S", "GONE", "AvailabilityStore", "HealthObserver", "HealthWatch"]

logger = logging.getLogger(__name__)

DECIDE_S: Final = 0.1
"""Reports are weighed this often, and at once where one of them may decide something."""

GONE: Final = 0
"""The era of an endpoint that there is not."""

CORDONED: Final = "cordoned"

_HEALTHY: Final = {Phase.ADMITTED: 1.0, Phase.HALF_OPEN: 0.5, Phase.PROBING: 0.5, Phase.EJECTED: 0.0}
_NO_LIMITS: Final = HealthLimits(max_ejected=0.0)


class AvailabilityStore(Protocol):
    """What of the endpoint store is needed."""

    def endpoints(self) -> Sequence[EndpointMetadata]:
        """All endpoints, with the operator's word over discovery's."""

    def subscribe(self, listener: Callable[[EndpointEvent], None]) -> Callable[[], None]:
        """Tell `listener` of each change of the endpoints, also of the operator's."""

    def set_availability(self, endpoint_id: str, *, healthy: float, slow_start: float, admits: bool) -> object:
        """Show both figures, 0 to 1, NaN where the first is not known; an endpoint that is not admitted is not live."""


class HealthObserver(Protocol):
    """Counts what was decided."""

    def ejected(self, reason: str) -> None: ...

    def ejection_withheld(self, reason: str) -> None: ...

    def probed(self, result: str) -> None: ...


class HealthWatch:
    """See the module.

    Args:
        store: whose endpoints are watched.
        observer: counts.
        limits: in force now; None ejects nobody, lets in who is out, and forgets what was counted.
        slow_start_s: window of the ramp, in force now; 0 is none.
    """

    def __init__(
        self,
        store: AvailabilityStore,
        observer: HealthObserver,
        *,
        limits: Callable[[], HealthLimits | None] = HealthLimits,
        slow_start_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._store = store
        self._observer = observer
        self._limits = limits
        self._slow_start_s = slow_start_s
        self._pool: Pool = EMPTY_POOL
        self._in_force: HealthLimits | None = None
        self._tallies: dict[str, Tally] = {}
        self._counted: set[str] = set()
        self._servers: dict[str, tuple[object, ...]] = {}
        self._due: list[str] = []
        self._shown: dict[str, tuple[float | None, float, bool]] = {}
        self._out: Sequence[str] = ()
        self._probing: set[str] = set()
        self._left: set[str] = set()
        self._changed = True
        self._urgent = False
        self._decide_at = float("-inf")
        self._now = float("-inf")
        store.subscribe(self._follow)

    def _follow(self, event: EndpointEvent) -> None:
        """A server that leaves its id to another one has left as well."""
        self._changed = True
        one = event.endpoint
        before = self._servers.pop(one.id, None)
        if isinstance(event, Delete):
            self._left.add(one.id)
            return
        self._servers[one.id] = one.reached_at
        if before is not None and before != one.reached_at:
            self._left.add(one.id)

    # -- what requests say -----------------------------------------------------------------------

    def begin(self, endpoint_id: str) -> int:
        """An attempt begins; the number goes with what it reports: its endpoint's era, negative for the probe.

        Where all were ejected, requests go to an endpoint besides its probe: the first one that begins is the probe then.
        """
        tally = self._tallies.get(endpoint_id)
        if tally is None:
            return GONE
        if endpoint_id in self._probing:
            self._probing.discard(endpoint_id)
            if self._pool.endpoints[endpoint_id].phase is Phase.PROBING:
                self._step(ProbeSent(endpoint_id))
                return -tally.era
        return tally.era

    def heard(self, endpoint_id: str) -> None:
        """The endpoint sent somebody a piece of a body."""
        tally = self._tallies.get(endpoint_id)
        if tally is not None:
            tally.pieces += 1

    def pieces(self, endpoint_id: str) -> int:
        """How many it sent: an attempt that waits compares two looks."""
        tally = self._tallies.get(endpoint_id)
        return 0 if tally is None else tally.pieces

    def silent(
        self, endpoint_id: str, era: int, attempt: Attempt, pieces: int, awaited: Awaited, waited_s: float
    ) -> None:
        """An attempt ended without a byte of a body, SILENT or LATE; `pieces` as they were when it was sent."""
        limits, heard = self._in_force, self.pieces(endpoint_id) != pieces
        if limits is not None:
            longest_s = patience_s(awaited, self._pool.usual, limits)
            self.ended(endpoint_id, era, weighed(attempt, heard=heard, waited_s=waited_s, patience_s=longest_s))

    def ended(self, endpoint_id: str, era: int, attempt: Attempt, ttft_s: float | None = None) -> None:
        """An attempt is decided; `ttft_s` from its request's last byte to the first token, where it says that."""
        tally = self._tallies.get(endpoint_id)
        limits = self._in_force
        if tally is None or tally.era != abs(era) or limits is None:
            return
        tally.add(attempt, ttft_s, is_probe=era < 0)
        self._counted.add(endpoint_id)
        health = self._pool.endpoints[endpoint_id]
        if attempt is not Attempt.ANSWERED or health.phase is not Phase.ADMITTED:
            self._urgent = self._urgent or decides(health, tally, limits)

    # -- probes ----------------------------------------------------------------------------------

    def probe(self) -> str | None:
        """The endpoint that the next request is to try, if there is one. Whoever takes it sends it there or says `unused`."""
        if not self._due:
            return None
        endpoint_id = self._due.pop()
        self._step(ProbeTaken(endpoint_id))
        self._probing.add(endpoint_id)
        return endpoint_id

    def unused(self, endpoint_id: str) -> None:
        """The request that was to be the probe went elsewhere; nothing happens where another one is the probe already."""
        if endpoint_id in self._probing:
            self._probing.discard(endpoint_id)
            self._step(ProbeUnused(endpoint_id))

    @property
    def ejected(self) -> Sequence[str]:
        """Active endpoints that are not admitted: what a request may still go to when it can go nowhere else."""
        return self._out

    # -- decisions -------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Decide what is due at `now`, monotonic seconds, and tell the store what changed."""
        self._now = now
        self._take_limits()
        if self._changed:
            self._take_members()
        if not self._urgent and now < self._decide_at:
            return
        self._urgent = False
        self._decide_at = now + DECIDE_S
        tallies = {one: self._tallies.get(one) for one in self._counted}
        reports = {one: tally.take() for one, tally in tallies.items() if tally is not None and not tally.is_empty}
        self._counted.clear()
        if reports:
            self._step(Observed(reports))
        self._step(Tick())
        self._show()

    def _take_limits(self) -> None:
        limits = self._limits()
        if limits is None and self._in_force is not None:
            self._step(EjectionOff())
            self._urgent = True
        self._in_force = limits

    def _take_members(self) -> None:
        """Who left and came back meanwhile is another endpoint, which nothing is known of."""
        members = self._store.endpoints()
        present = frozenset(one.id for one in members)
        active = frozenset(one.id for one in members if one.state is EndpointState.ACTIVE and one.weight > 0)
        if back := self._left & present:
            self._step(Members(present - back, active - back))
        self._step(Members(present, active))
        for one in self._left:
            self._shown.pop(one, None)
        self._left.clear()
        self._changed = False
        self._urgent = True

    def health(self, endpoint_id: str) -> Health | None:
        """What is known of an endpoint, None when it is gone."""
        return self._pool.endpoints.get(endpoint_id)

    def admits(self, endpoint_id: str) -> bool:
        """Whether it gets requests, as far as its answers say."""
        return endpoint_id in self._pool.endpoints and self._pool.admits(endpoint_id)

    def counts(self) -> Mapping[str, int]:
        """Endpoints by phase; those that the operator keeps requests from count as `cordoned`, whatever their phase."""
        counts = dict.fromkeys([*map(str, Phase), CORDONED], 0)
        for one, health in self._pool.endpoints.items():
            counts[str(health.phase) if one in self._pool.active else CORDONED] += 1
        return counts

    def _step(self, event: Event) -> None:
        before = self._pool
        self._pool, effects = step(before, event, self._now, self._in_force or _NO_LIMITS)
        for effect in effects:
            self._tell(effect)
        if self._pool.eras != before.eras or isinstance(event, Members):
            self._begin_tallies(self._pool)

    def _begin_tallies(self, pool: Pool) -> None:
        for one in self._tallies.keys() - pool.endpoints.keys():
            del self._tallies[one]
        for one, health in pool.endpoints.items():
            tally = self._tallies.get(one)
            if tally is None or tally.era != health.era:
                # What was counted before says nothing of what is.
                self._tallies[one] = Tally(health.era)

    def _show(self) -> None:
        pool, now, window_s = self._pool, self._now, self._slow_start_s()
        due = []
        shown: dict[str, tuple[float | None, float, bool]] = {}
        for one, health in pool.endpoints.items():
            if health.phase is Phase.HALF_OPEN and health.until <= now and one in pool.active:
                due.append(one)
            admits = pool.admits(one)
            healthy = _HEALTHY[health.phase] if health.is_known else None
            slow_start = ramp(now - health.since, window_s)
            shown[one] = figures = (healthy, slow_start, admits)
            if self._shown.get(one) != figures:
                healthy = math.nan if healthy is None else healthy
                self._store.set_availability(one, healthy=healthy, slow_start=slow_start, admits=admits)
        self._shown = shown
        self._due = due
        out = tuple(one for one in pool.active if not shown[one][2])
        if out != self._out:
            # Another object only for others: who derives something of it looks at that.
            self._out = out

    def _tell(self, effect: Effect) -> None:
        reason = str(effect.reason or "")
        if effect.verdict is Verdict.EJECTED:
            self._observer.ejected(reason)
            logger.warning("endpoint_ejected id=%s reason=%s for_s=%g", effect.endpoint_id, reason, effect.for_s)
            if effect.reason is Reason.PROBE:
                self._observer.probed("failed")
        elif effect.verdict is Verdict.RETURNED:
            self._observer.probed("answered")
            logger.info("endpoint_returned id=%s", effect.endpoint_id)
        else:
            self._observer.ejection_withheld(reason)
            logger.warning(
                "endpoint_ejection_withheld id=%s reason=%s: too few would be left", effect.endpoint_id, reason
            )
