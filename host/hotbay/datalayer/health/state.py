"""Values of passive health: one endpoint's, a pool's, the numbers they go by, the table of an endpoint's phases,
and what happens to them. Pure.

`availability` decides with them, and says where the numbers come from.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from hotbay.datalayer.health.reports import Report

__all__ = [
    "EMPTY_POOL",
    "NEVER",
    "NOTHING",
    "TABLE",
    "Cause",
    "Effect",
    "EjectionOff",
    "Event",
    "Gathered",
    "Health",
    "HealthLimits",
    "IllegalTransition",
    "Members",
    "Observed",
    "Phase",
    "Pool",
    "ProbeSent",
    "ProbeTaken",
    "ProbeUnused",
    "Reason",
    "Tick",
    "Usual",
    "Verdict",
    "advance",
]

NEVER: Final = float("-inf")
"""A time before every other."""


class Phase(enum.StrEnum):
    """Where an endpoint is. The value is what commands show."""

    ADMITTED = "admitted"
    EJECTED = "ejected"
    HALF_OPEN = "half-open"
    PROBING = "probing"


class Cause(enum.StrEnum):
    """What moves an endpoint from one phase to another."""

    FAILED = "failed"
    TIME_OVER = "time over"
    PROBE = "probe"
    UNUSED = "unused"
    ANSWERED = "answered"


class Reason(enum.StrEnum):
    """Why an endpoint was ejected; the value is a metric's label."""

    UNREACHABLE = "unreachable"
    SILENT = "silent"
    ERRORS = "errors"
    SLOW = "slow"
    PROBE = "probe"


class IllegalTransition(Exception):
    """This cannot happen in this phase: our own code is wrong."""


_P, _C = Phase, Cause

TABLE: Final[Mapping[tuple[Phase, Cause], Phase]] = MappingProxyType(
    {
        (_P.ADMITTED, _C.FAILED): _P.EJECTED,
        (_P.EJECTED, _C.TIME_OVER): _P.HALF_OPEN,
        (_P.HALF_OPEN, _C.PROBE): _P.PROBING,
        (_P.PROBING, _C.UNUSED): _P.HALF_OPEN,
        (_P.PROBING, _C.TIME_OVER): _P.HALF_OPEN,
        # A half-open endpoint is sent requests without a probe where nothing else is left.
        **{(phase, _C.ANSWERED): _P.ADMITTED for phase in (_P.HALF_OPEN, _P.PROBING)},
        **{(phase, _C.FAILED): _P.EJECTED for phase in (_P.HALF_OPEN, _P.PROBING)},
    }
)


def advance(phase: Phase, cause: Cause) -> Phase:
    """One move. Raises `IllegalTransition` for a pair that the table does not list."""
    after = TABLE.get((phase, cause))
    if after is None:
        raise IllegalTransition(f"{cause.name} in {phase.name}")
    return after


@dataclass(frozen=True, slots=True)
class HealthLimits:
    """When an endpoint is ejected, and for how long. See the module for the source of each number.

    Args:
        unreachable: attempts one after another without a connection, or without a byte of an answer; at least 1.
        silent_s: shortest wait for a first token that counts as no answer when its client gives it up,
        silent_whole_s: and for an answer that is no stream; `patience` says more.
        error_share: share of failed requests, 0 to 1, that ejects,
        min_requests: from so many requests in the last two intervals on.
        slow_factor: median time to first token, over the median of all endpoints' medians, that ejects,
        slow_s: if it is longer by this, too,
        min_samples: from so many streams in the last two intervals on, of at least three endpoints.
        interval_s: how long outcomes are gathered; one or two of these are looked at.
        base_s: first ejection; the nth takes n times that,
        max_s: but never longer.
        max_ejected: share of the active endpoints, 0 to 1, that may be out; one may be where this says less than one.
    """

    unreachable: int = 5
    error_share: float = 0.5
    min_requests: int = 10
    slow_factor: float = 5.0
    slow_s: float = 1.0
    min_samples: int = 20
    interval_s: float = 10.0
    base_s: float = 30.0
    max_s: float = 300.0
    max_ejected: float = 0.5
    silent_s: float = 2.0
    silent_whole_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Gathered:
    """Outcomes of one interval. `ttfts_s` are the last ones, a bounded number; `longest_ttft_s` is the longest of all."""

    requests: int = 0
    errors: int = 0
    ttfts_s: tuple[float, ...] = ()
    longest_ttft_s: float = 0.0


NOTHING: Final = Gathered()


@dataclass(frozen=True, slots=True)
class Health:
    """One endpoint.

    Args:
        era: number of its time in or out; no two eras of a pool have the same. What began in another one is not counted.
        phase: see `Phase`.
        since: when it was admitted last; minus infinity for one that was always there. Slow start counts from here.
        until: end of an ejection, or of a probe that was not sent; of a half-open one, when the next probe may go.
        reason: why it was ejected last.
        ejections: that count towards the length of the next one.
        eased_at: when that count, or the phase, changed last.
        run: attempts one after another that got no byte.
        lost: probes one after another that were sent, and whose clients left before they said anything.
        withheld: why it would be out if the floor did not keep it.
    """

    era: int
    phase: Phase = Phase.ADMITTED
    since: float = NEVER
    until: float = NEVER
    reason: Reason | None = None
    ejections: int = 0
    eased_at: float = NEVER
    run: int = 0
    lost: int = 0
    recent: Gathered = NOTHING
    earlier: Gathered = NOTHING
    withheld: Reason | None = None

    @property
    def is_known(self) -> bool:
        """Whether requests say anything of it."""
        return self.phase is not Phase.ADMITTED or bool(self.recent.requests or self.earlier.requests)

    @property
    def error_share(self) -> float:
        """Share of failed requests in the last two intervals, 0 without any."""
        requests = self.recent.requests + self.earlier.requests
        return (self.recent.errors + self.earlier.errors) / requests if requests else 0.0

    @property
    def ttfts_s(self) -> tuple[float, ...]:
        """Times to first token of the last two intervals, a bounded number."""
        return self.earlier.ttfts_s + self.recent.ttfts_s

    @property
    def longest_ttft_s(self) -> float:
        """The longest of all in the last two intervals, 0 without any."""
        return max(self.earlier.longest_ttft_s, self.recent.longest_ttft_s)


@dataclass(frozen=True, slots=True)
class Usual:
    """For how long a silent stream says nothing, as enough streams of the pool told at `at` last; None where nothing is known."""

    patience_s: float | None = None
    at: float = NEVER


@dataclass(frozen=True, slots=True)
class Pool:
    """All endpoints by id. `active` are those that the operator lets take requests: neither cordoned nor of weight 0.

    `eras` is the number of the last era, `begun_at` when the pool got its first member, `turned_at` when an interval ended
    last; `pool_ttft_s` is the median of times to first token, None where too few tell. `panics`: all active endpoints were ejected, so that none counts as ejected.
    """

    endpoints: Mapping[str, Health]
    active: frozenset[str] = frozenset()
    eras: int = 0
    begun_at: float = NEVER
    turned_at: float = NEVER
    pool_ttft_s: float | None = None
    usual: Usual = Usual()
    panics: bool = False

    def admits(self, endpoint_id: str) -> bool:
        """Whether the endpoint may be picked, as far as its answers say."""
        return self.endpoints[endpoint_id].phase is Phase.ADMITTED or (endpoint_id in self.active and self.panics)


EMPTY_POOL: Final = Pool(MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Members:
    """The endpoints that there are, and those of them that may take requests."""

    present: frozenset[str]
    active: frozenset[str]


@dataclass(frozen=True, slots=True)
class Observed:
    """What became of requests, by endpoint; each report is of the endpoint's present era."""

    reports: Mapping[str, Report]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class EjectionOff:
    """Nobody is to be ejected: all begin anew, those that were out slowly."""


@dataclass(frozen=True, slots=True)
class ProbeTaken:
    """One request is about to go to a half-open endpoint."""

    endpoint_id: str


@dataclass(frozen=True, slots=True)
class ProbeSent:
    """It is on its way there, and will report."""

    endpoint_id: str


@dataclass(frozen=True, slots=True)
class ProbeUnused:
    """It went elsewhere."""

    endpoint_id: str


Event = Members | Observed | Tick | EjectionOff | ProbeTaken | ProbeSent | ProbeUnused


class Verdict(enum.StrEnum):
    """What was decided about an endpoint."""

    EJECTED = "ejected"
    RETURNED = "returned"
    WITHHELD = "withheld"


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to tell the operator. `for_s`: how long an ejection takes."""

    verdict: Verdict
    endpoint_id: str
    reason: Reason | None
    for_s: float = 0.0
