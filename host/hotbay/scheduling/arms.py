"""How requests and calls are shared between a live generation and a candidate. Pure values and one pure choice.

A canary takes whole cycles, by a stable hash of the request's id: a request keeps its arm wherever it is decided, and
a larger share keeps whom a smaller one had. A shadow takes copies of calls, whose answers are compared and never used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from xxhash import xxh64_intdigest

from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import AnswerValue, Floats, Mask
from hotbay.scheduling.binding import Point
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.statistics import ArmStatistics

__all__ = ["AnswerPair", "Arms", "CanaryPlan", "Shadow", "in_canary"]

_HASHES: Final = 2**64


@dataclass(frozen=True, slots=True, eq=False)
class CanaryPlan:
    """The plan for the canary's share of requests.

    Args:
        plan: the candidate in place of the live generation.
        share: part of the requests, 0 to 1.
        salt: names the rollout. Another salt makes another choice of requests and begins new statistics.
    """

    plan: Plan
    share: float
    salt: str


@dataclass(frozen=True, slots=True)
class Arms:
    """Requests by arm since the canary with this salt was first published."""

    live: ArmStatistics
    canary: ArmStatistics


@dataclass(frozen=True, slots=True, eq=False)
class AnswerPair:
    """What two generations answered to the same question.

    Args:
        point: decides what `live` and `candidate` are. FILTER and SCREEN: bool per row, survivors, of all filters of the
            call. SCORE: float32 per row, in [0, 1]. PICK: rows, best first. PROFILE_HANDLER: names of profiles. PRODUCE:
            float32 per row, one number, or a tuple of one text. SATURATION: a number. ADMIT and REQUEST_HEADERS: words.
        ref: the binding's ref; at FILTER all of the call joined by "+", at PRODUCE the column after a slash.
        asked: bool per row, the candidates that both were asked about.
        totals: float32 per row, at PICK what both chose by.
    """

    point: Point
    ref: str
    asked: Mask
    live: AnswerValue
    candidate: AnswerValue
    totals: Floats | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Shadow:
    """Copies a share of one generation's calls to a candidate.

    Args:
        live: whose calls are copied.
        candidate: who gets the copies, with handles of its own by the names of the refs.
        plan: the plan with the candidate in place of `live`: its calls say what the candidate reads.
        sample: part of the calls, 0 to 1.
        on_comparison: told of each pair of answers, on the loop, after the request that was copied went on.
    """

    live: Generation
    candidate: Generation
    plan: Plan
    sample: float
    on_comparison: Callable[[AnswerPair], None]


def in_canary(request_id: str, salt: str, share: float) -> bool:
    """Whether a request belongs to the share (0 to 1). The same for the same id and salt, always and everywhere."""
    return xxh64_intdigest(f"{salt}\0{request_id}".encode()) < share * _HASHES
