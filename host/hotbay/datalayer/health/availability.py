"""Which endpoints take requests, by what became of the requests that they got: passive health. Pure.

    ADMITTED → EJECTED → HALF_OPEN → PROBING → ADMITTED
                  ↑______________________|  (the probe failed)

An endpoint is ejected for one of three reasons: so many attempts without a connection or an answer's first byte one after
another, so large a share of failed requests (5xx, no first byte in time, an answer that broke off), or a time to first
token that is an outlier against the pool's median. It stays out for a time that grows with each ejection, then gets one
request at a time; one that is answered brings it back, one that is not ejects it again, for longer. One whose client left
too soon to tell (see `patience`) says nothing, and the next may go after a pause that grows with each of these.

The form and most numbers are those of Envoy's outlier detection (`envoy.config.cluster.v3.OutlierDetection`):
`consecutive_local_origin_failure` 5, `interval` 10 s, `base_ejection_time` 30 s times the ejections so far, at most
`max_ejection_time` 300 s, the count falling while the endpoint answers. What differs: the share of errors is looked at from
10 requests in two intervals on, not 50 in one, and acts at a half, not at 85 %, because a model server answers in a minute
what a web server answers in a second; `max_ejected` is a half, not 10 %, because pools are small; and where Envoy compares
success rates by their deviation, times to first token are compared with the median, which one slow member of a pool of
three does not move.

Invariants: at most `max_ejected` of the active endpoints are out, and never the last one; where all that are left were
ejected before the others went, none counts as ejected; from an ejection to the next admission of the same endpoint at
least `base_s` pass; what a request says that began before an ejection changes nothing after it.
"""

import statistics
from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from hotbay.datalayer.health.patience import learned
from hotbay.datalayer.health.reports import Report, Tally
from hotbay.datalayer.health.state import (
    NEVER,
    NOTHING,
    Cause,
    Effect,
    EjectionOff,
    Event,
    Gathered,
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
    Usual,
    Verdict,
    advance,
)

__all__ = ["decides", "step"]

PROBE_WITHIN_S: Final = 30.0
"""A request that was to be the probe and was never sent is given up after this; one that was sent always reports."""

PROBE_PAUSE_S: Final = 0.1
"""Between two requests that are offered to an endpoint and may not go there: each costs a decision of its own."""

_LOST_FACTOR: Final = 4.0
"""Of that pause with each probe whose client left, up to `base_s`: a server that hangs loses five clients in half a minute."""

_LOST_MOST: Final = 16
"""The pause is longer than any `base_s` then."""

_FOREVER: Final = float("inf")

MIN_COMPARED: Final = 3
"""Endpoints with enough samples: of two that differ nobody knows which one is the outlier."""

_SAMPLES_KEPT: Final = 64
"""Times to first token of one interval: a median of more says the same. The longest is kept besides."""


def step(pool: Pool, event: Event, now: float, limits: HealthLimits) -> tuple[Pool, tuple[Effect, ...]]:
    """One event at `now`, monotonic seconds that never go back; `limits` may be others than before."""
    turn = _Turn(pool, now, limits)
    match event:
        case Members():
            turn.members(event)
        case Observed():
            turn.observed(event)
        case Tick():
            turn.tick()
        case EjectionOff():
            turn.ejection_off()
        case ProbeTaken():
            turn.probe_taken(event)
        case ProbeSent():
            turn.probe_sent(event)
        case ProbeUnused():
            turn.probe_unused(event)
    return turn.pool(), tuple(turn.effects)


def decides(health: Health, counted: Tally, limits: HealthLimits) -> bool:
    """Whether an endpoint's phase may change by what was counted since the last `Observed`, so that it cannot wait."""
    if health.phase is not Phase.ADMITTED:
        return health.phase is not Phase.EJECTED
    if health.withheld is not None:
        return False
    run = counted.trailing if counted.reached else health.run + counted.trailing
    requests = health.recent.requests + health.earlier.requests + counted.requests
    errors = health.recent.errors + health.earlier.errors + counted.errors
    return run >= limits.unreachable or (
        0 < requests >= limits.min_requests and errors >= limits.error_share * requests
    )


class _Turn:
    """One step under way: a copy of the pool that is changed in place."""

    def __init__(self, pool: Pool, now: float, limits: HealthLimits) -> None:
        self.before = pool
        self.now = now
        self.limits = limits
        self.endpoints = dict(pool.endpoints)
        self.active = pool.active
        self.eras = pool.eras
        self.begun_at = pool.begun_at
        self.turned_at = pool.turned_at
        self.pool_ttft_s = pool.pool_ttft_s
        self.usual = pool.usual
        self.effects: list[Effect] = []
        self._out: int | None = None

    def pool(self) -> Pool:
        return Pool(
            MappingProxyType(self.endpoints), self.active, self.eras, self.begun_at, self.turned_at, self.pool_ttft_s,
            self.usual, panics=bool(self.active) and not any(map(self._is_in, self.active)),
        )  # fmt: skip

    def _is_in(self, one: str) -> bool:
        return self.endpoints[one].phase is Phase.ADMITTED

    def next_era(self) -> int:
        self.eras += 1
        return self.eras

    # -- events ----------------------------------------------------------------------------------

    def members(self, event: Members) -> None:
        """Who comes into a pool that has been there for a while begins slowly, and so does who is let in again.

        A pool that begins is found bit by bit, by more than one discovery: its first members are all alike.
        """
        if not self.before.endpoints:
            self.begun_at = self.now
        since = self.now if self.now - self.begun_at >= self.limits.interval_s else NEVER
        self.endpoints = {
            one: self.endpoints.get(one) or Health(self.next_era(), since=since, eased_at=self.now)
            for one in sorted(event.present)
        }
        self.active = event.active & event.present
        for one in (self.active - self.before.active) & self.before.endpoints.keys() & self.endpoints.keys():
            self.endpoints[one] = replace(self.endpoints[one], since=since)

    def observed(self, event: Observed) -> None:
        for one, report in event.reports.items():
            health = self.endpoints.get(one)
            if health is None:
                continue
            if health.phase is Phase.ADMITTED:
                self.endpoints[one] = health = _with(health, report)
                reason = self._why_out(health, report)
                if reason is None:
                    if health.withheld is not None:
                        self.endpoints[one] = replace(health, withheld=None)
                elif not self._recovers(health, reason, report):
                    self._eject(one, reason)
            elif health.phase is not Phase.EJECTED:
                self._probed(one, health, report)

    def probe_taken(self, event: ProbeTaken) -> None:
        health = self.endpoints[event.endpoint_id]
        self._move(event.endpoint_id, health, Cause.PROBE, until=self.now + PROBE_WITHIN_S)

    def ejection_off(self) -> None:
        for one, health in self.endpoints.items():
            since = health.since if health.phase is Phase.ADMITTED else self.now
            self.endpoints[one] = Health(self.next_era(), since=since, eased_at=self.now)
        self.pool_ttft_s, self.usual = None, Usual()

    def probe_sent(self, event: ProbeSent) -> None:
        health = self.endpoints.get(event.endpoint_id)
        if health is not None and health.phase is Phase.PROBING:
            self.endpoints[event.endpoint_id] = replace(health, until=_FOREVER)

    def probe_unused(self, event: ProbeUnused) -> None:
        """Also of one whose time is over, or whose endpoint left."""
        health = self.endpoints.get(event.endpoint_id)
        if health is not None and health.phase is Phase.PROBING:
            self._move(event.endpoint_id, health, Cause.UNUSED, until=self.now + PROBE_PAUSE_S)

    def tick(self) -> None:
        for one, health in self.endpoints.items():
            if health.phase in (Phase.EJECTED, Phase.PROBING) and health.until <= self.now:
                self._move(one, health, Cause.TIME_OVER, until=self.now)
        if self.now - self.turned_at >= self.limits.interval_s:
            told = [self.endpoints[one] for one in self.active if self._is_in(one)]
            longest_s = max((health.longest_ttft_s for health in told), default=0.0)
            self.usual = learned(self.usual, [health.ttfts_s for health in told], longest_s, self.now, self.limits)
            self._compare()
            self._turn_over()
            self.turned_at = self.now

    # -- what is decided -------------------------------------------------------------------------

    def _why_out(self, health: Health, report: Report) -> Reason | None:
        if health.run >= self.limits.unreachable:
            # One that is kept goes on being out for what it was, as long as nothing says otherwise.
            is_silent = report.silent if report.trailing else health.withheld is Reason.SILENT
            return Reason.SILENT if is_silent else Reason.UNREACHABLE
        enough = health.recent.requests + health.earlier.requests >= self.limits.min_requests
        return Reason.ERRORS if enough and health.error_share >= self.limits.error_share else None

    def _recovers(self, health: Health, reason: Reason, report: Report) -> bool:
        """Whether one that was kept while all failed answers now: it does not go when the others are back."""
        fails = report.errors > 0 and report.errors >= self.limits.error_share * report.requests
        return health.withheld is not None and reason is Reason.ERRORS and not fails

    def _probed(self, one: str, health: Health, report: Report) -> None:
        if report.errors:
            self._eject(one, Reason.PROBE)
        elif not report.answered:
            self._probe_said_nothing(one, health, report)
        elif health.reason is Reason.SLOW and self._is_slow(report.longest_ttft_s):
            self._eject(one, Reason.PROBE)
        else:
            self._move(
                one, health, Cause.ANSWERED, since=self.now, eased_at=self.now, run=0, lost=0, recent=NOTHING,
                earlier=NOTHING,
            )  # fmt: skip
            self.effects.append(Effect(Verdict.RETURNED, one, health.reason))

    def _probe_said_nothing(self, one: str, health: Health, report: Report) -> None:
        """Only one that was sent makes the next one wait for longer."""
        if health.phase is not Phase.PROBING:
            return
        if report.lost:
            pause_s = min(PROBE_PAUSE_S * _LOST_FACTOR ** min(health.lost, _LOST_MOST), self.limits.base_s)
            self._move(one, health, Cause.UNUSED, until=self.now + pause_s, lost=health.lost + 1)
        elif report.unused:
            self._move(one, health, Cause.UNUSED, until=self.now + PROBE_PAUSE_S)

    def _is_slow(self, ttft_s: float) -> bool:
        return self.pool_ttft_s is not None and self._outlies(ttft_s, self.pool_ttft_s)

    def _outlies(self, ttft_s: float, pool_s: float) -> bool:
        return ttft_s > pool_s * self.limits.slow_factor and ttft_s - pool_s >= self.limits.slow_s

    def _eject(self, one: str, reason: Reason) -> None:
        """Send it out, if the floor lets it go. One that is out already goes on being out in any case."""
        health = self.endpoints[one]
        if health.phase is Phase.ADMITTED and not self._has_room(one):
            if health.withheld is None:
                self.effects.append(Effect(Verdict.WITHHELD, one, reason))
            self.endpoints[one] = replace(health, withheld=reason)
            return
        ejections = health.ejections + 1
        for_s = max(self.limits.base_s, min(self.limits.base_s * ejections, self.limits.max_s))
        # What brought it out first is what tells the operator, and what the next probe is judged by.
        told = reason if reason is not Reason.PROBE or health.reason is None else health.reason
        self._move(
            one, health, Cause.FAILED, era=self.next_era(), until=self.now + for_s, reason=told, ejections=ejections,
            eased_at=self.now, run=0, lost=0, recent=NOTHING, earlier=NOTHING, withheld=None,
        )  # fmt: skip
        self.effects.append(Effect(Verdict.EJECTED, one, reason, for_s))

    def _has_room(self, one: str) -> bool:
        if one not in self.active:
            return False
        if self._out is None:
            self._out = len(self.active) - sum(map(self._is_in, self.active))
        share = self.limits.max_ejected
        allowed = max(1, int(len(self.active) * share)) if share > 0 else 0
        return self._out < min(allowed, len(self.active) - 1)

    def _compare(self) -> None:
        """Eject at most one, the slowest: without it the others' median is another one."""
        medians = dict(self._medians())
        if len(medians) < MIN_COMPARED:
            self.pool_ttft_s = None
            return
        pool_s = self.pool_ttft_s = statistics.median(medians.values())
        slowest = max(medians, key=lambda one: medians[one])
        if self._outlies(medians[slowest], pool_s):
            self._eject(slowest, Reason.SLOW)

    def _medians(self) -> Iterator[tuple[str, float]]:
        for one in self.active:
            health = self.endpoints[one]
            if health.phase is Phase.ADMITTED and len(health.ttfts_s) >= self.limits.min_samples:
                yield one, statistics.median(health.ttfts_s)

    def _turn_over(self) -> None:
        for one, health in self.endpoints.items():
            if health.phase is not Phase.ADMITTED:
                continue
            eases = health.ejections > 0 and self.now - health.eased_at >= self.limits.base_s
            if eases or health.recent is not NOTHING or health.earlier is not NOTHING:
                self.endpoints[one] = replace(
                    health,
                    earlier=health.recent,
                    recent=NOTHING,
                    ejections=health.ejections - eases,
                    eased_at=self.now if eases else health.eased_at,
                )

    def _move(self, one: str, health: Health, cause: Cause, **changes: object) -> None:
        after = self.endpoints[one] = replace(health, phase=advance(health.phase, cause), **changes)  # type: ignore[arg-type]  # fields by name
        if self._out is not None and one in self.active:
            self._out += (health.phase is Phase.ADMITTED) - (after.phase is Phase.ADMITTED)


def _with(health: Health, report: Report) -> Health:
    recent = health.recent
    gathered = Gathered(
        recent.requests + report.requests,
        recent.errors + report.errors,
        (*recent.ttfts_s, *report.ttfts_s)[-_SAMPLES_KEPT:] if report.ttfts_s else recent.ttfts_s,
        max(recent.longest_ttft_s, report.longest_ttft_s),
    )
    run = report.trailing if report.reached else health.run + report.trailing
    return replace(health, recent=gathered, run=run)
