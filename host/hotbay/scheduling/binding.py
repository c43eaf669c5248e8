"""What a plugin ref is bound to do at one extension point, and what happens when it does not. Pure."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class Point(enum.StrEnum):
    """Extension points that see requests, as READY spells them."""

    FILTER = "filter"
    SCORE = "score"
    PICK = "pick"
    PROFILE_HANDLER = "profile_handler"
    PRODUCE = "produce"
    PRE_REQUEST = "pre_request"
    REQUEST_HEADERS = "request_headers"
    PARSE = "parse"
    SCREEN = "screen"
    ADMIT = "admit"
    RESPONSE_HEADERS = "response_headers"
    RESPONSE_BODY = "response_body"
    SATURATION = "saturation"


class Policy(enum.StrEnum):
    """What stands in for an answer that did not come or cannot be used."""

    SKIP = "skip"
    NEUTRAL = "neutral"
    LAST_GOOD = "last_good"
    FALLBACK = "fallback"
    FAIL_CLOSED = "fail_closed"


DEFAULT_POLICIES: Final[Mapping[Point, Policy]] = {
    Point.FILTER: Policy.SKIP,
    Point.SCORE: Policy.NEUTRAL,
    Point.PICK: Policy.FALLBACK,
    Point.PROFILE_HANDLER: Policy.FALLBACK,
    Point.PRODUCE: Policy.SKIP,
    Point.PRE_REQUEST: Policy.SKIP,
    Point.REQUEST_HEADERS: Policy.SKIP,
    Point.PARSE: Policy.FAIL_CLOSED,
    Point.SCREEN: Policy.SKIP,
    Point.ADMIT: Policy.FAIL_CLOSED,
    Point.RESPONSE_HEADERS: Policy.SKIP,
    Point.RESPONSE_BODY: Policy.SKIP,
    Point.SATURATION: Policy.SKIP,
}

ALLOWED_POLICIES: Final[Mapping[Point, frozenset[Policy]]] = {
    Point.FILTER: frozenset({Policy.SKIP, Policy.FAIL_CLOSED}),
    Point.SCORE: frozenset({Policy.SKIP, Policy.NEUTRAL, Policy.LAST_GOOD, Policy.FAIL_CLOSED}),
    Point.PICK: frozenset({Policy.FALLBACK, Policy.FAIL_CLOSED}),
    Point.PROFILE_HANDLER: frozenset({Policy.FALLBACK, Policy.FAIL_CLOSED}),
    Point.PRODUCE: frozenset({Policy.SKIP, Policy.FAIL_CLOSED}),
    Point.PRE_REQUEST: frozenset({Policy.SKIP, Policy.FAIL_CLOSED}),
    Point.REQUEST_HEADERS: frozenset({Policy.SKIP, Policy.FAIL_CLOSED}),
    Point.PARSE: frozenset({Policy.FAIL_CLOSED}),
    Point.SCREEN: frozenset({Policy.SKIP, Policy.FAIL_CLOSED}),
    Point.ADMIT: frozenset({Policy.SKIP, Policy.FAIL_CLOSED}),
    Point.RESPONSE_HEADERS: frozenset({Policy.SKIP}),
    Point.RESPONSE_BODY: frozenset({Policy.SKIP}),
    Point.SATURATION: frozenset({Policy.SKIP, Policy.FAIL_CLOSED}),
}
"""`fail_closed` of PRE_REQUEST holds where it sets headers, before the request is sent: what is told after stops nothing."""

DEFAULT_DEADLINES_S: Final[Mapping[Point, float]] = {
    Point.FILTER: 0.050,
    Point.SCORE: 0.050,
    Point.PICK: 0.050,
    Point.PROFILE_HANDLER: 0.050,
    Point.PRODUCE: 0.400,
    Point.PRE_REQUEST: 0.050,
    Point.REQUEST_HEADERS: 0.100,
    Point.PARSE: 1.0,
    Point.SCREEN: 0.100,
    Point.ADMIT: 0.100,
    Point.RESPONSE_HEADERS: 1.0,
    Point.RESPONSE_BODY: 1.0,
    Point.SATURATION: 0.050,
}
"""Wire-protocol 17."""

NEUTRAL_SCORE: Final = 0.0


@dataclass(frozen=True, slots=True)
class BindingOptions:
    """The operator's wishes for one ref (HostConfig `bindings`); None means the point's default."""

    on_failure: Policy | None = None
    deadline_s: float | None = None
    neutral: float = NEUTRAL_SCORE


@dataclass(frozen=True, slots=True)
class Binding:
    """One ref at one extension point. `weight` and `neutral`, the stand-in score in [0, 1], matter at SCORE only."""

    ref: str
    type: str
    point: Point
    policy: Policy
    deadline_s: float
    weight: float = 1.0
    neutral: float = NEUTRAL_SCORE


def bind(ref: str, type_name: str, point: Point, options: BindingOptions, weight: float = 1.0) -> Binding:
    """Complete the operator's wishes with the point's defaults."""
    policy = options.on_failure
    if policy is None or policy not in ALLOWED_POLICIES[point]:
        policy = DEFAULT_POLICIES[point]
    deadline_s = DEFAULT_DEADLINES_S[point] if options.deadline_s is None else options.deadline_s
    return Binding(ref, type_name, point, policy, deadline_s, weight, options.neutral)
