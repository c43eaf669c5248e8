"""The answer's header that says why a request went where it went, for who asks with `x-hotbay-explain: 1`. Pure.

It names model servers, so that a host answers it only where its operator allows that. The value is ASCII JSON of at most
`MAX_BYTES`. What has no room is left out, endpoints from the worst total on, and `left_out` says how many.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.explained import Explained, ProfileRun, Step
from hotbay.scheduling.request import InferenceRequest

__all__ = ["EXPLAIN", "MAX_BYTES", "Explain", "explain_header", "header_of", "nothing"]

logger = logging.getLogger(__name__)

EXPLAIN: Final = "x-hotbay-explain"
MAX_BYTES: Final = 4096
_WANTED: Final = "1"
_MAX_SCORES: Final = 256
"""Endpoints of one profile that are tried at most: 4 KiB hold fewer."""
_PICKED_SHOWN: Final = 3
_NAME_SHOWN: Final = 200
_DIGITS: Final = 4
_NONE: Final[Mapping[bytes, bytes]] = MappingProxyType({})

Explain = Callable[[InferenceRequest, Picked | Rejected], Mapping[bytes, bytes]]
"""What to add to the head of a request's answer."""


def nothing(_request: InferenceRequest, _decision: Picked | Rejected) -> Mapping[bytes, bytes]:
    """Add nothing."""
    return _NONE


def header_of(find: Callable[[str], Explained | None], is_allowed: Callable[[], bool]) -> Explain:
    """What adds the header where it is asked for and allowed. `find` gives the latest decision for a request id.

    Never raises: a decision that cannot be told is answered without the header.
    """

    def explain(request: InferenceRequest, decision: Picked | Rejected) -> Mapping[bytes, bytes]:
        if request.headers.get(EXPLAIN) != _WANTED or not is_allowed():
            return _NONE
        try:
            return {EXPLAIN.encode(): _told(find(request.id), decision)}
        except Exception:
            # Named boundary: it is read out of answers as plugins gave them, and the client waits for its own.
            logger.exception("decision_not_explained")
            return _NONE

    return explain


def _told(told: Explained | None, decision: Picked | Rejected) -> bytes:
    # Ids are the clients' own: another's decision under the same one is none of this client's business.
    if told is None or told.decision is not decision:
        return b'{"error":"not kept"}'
    return explain_header(told)


def explain_header(told: Explained) -> bytes:
    """The value, with as many endpoints as have room."""
    runs = [_Run(told, run) for run in told.profiles]
    low, high = 0, min(_MAX_SCORES, max((len(run.ranked) for run in runs), default=0))
    while low < high:
        middle = (low + high + 1) // 2
        if len(_value(told, runs, middle)) <= MAX_BYTES:
            low = middle
        else:
            high = middle - 1
    value = _value(told, runs, low)
    return value if len(value) <= MAX_BYTES else _least(told)


class _Run:
    """One run of a profile, its endpoints in the order in which they are shown: what was picked first, then by total."""

    def __init__(self, told: Explained, run: ProfileRun) -> None:
        picked = run.picked or ()
        rest = frozenset(run.candidates).difference(picked)
        self.ranked = (*picked, *sorted(rest, key=lambda one: (-run.totals.get(one, 0.0), one)))
        self._profile = run.profile
        self._totals = run.totals
        self._scorers = [step for step in told.steps if step.profile == run.profile and step.scores is not None]

    def page(self, endpoints: int) -> dict[str, object]:
        """Of each of the best endpoints: its total, then what each scorer added to it."""
        page: dict[str, object] = {
            "profile": self._profile,
            "scorers": [step.refs[0] for step in self._scorers],
            "scores": {
                one: [_number(self._totals.get(one)), *(_number(step.added(one)) for step in self._scorers)]
                for one in self.ranked[:endpoints]
            },
        }
        if (left_out := len(self.ranked) - endpoints) > 0:
            page["left_out"] = left_out
        return page


def _value(told: Explained, runs: Sequence[_Run], endpoints: int) -> bytes:
    page: dict[str, object] = {
        **_result(told),
        "us": round(told.duration_us),
        "candidates": len(told.candidates),
        "steps": [_step(step) for step in told.steps],
        "profiles": [run.page(endpoints) for run in runs],
    }
    if told.degraded:
        page["degraded"] = [list(one) for one in told.degraded]
    if told.decision.arm is not None:
        page["canary"] = told.decision.arm.canary
    return _bytes(page)


def _least(told: Explained) -> bytes:
    """Without steps and profiles, which are too many for any endpoint of theirs to have room."""
    left_out = {"steps": len(told.steps), "profiles": len(told.profiles)}
    return _bytes({**_result(told), "us": round(told.duration_us), "left_out": left_out})


def _result(told: Explained) -> dict[str, object]:
    decision = told.decision
    if isinstance(decision, Picked):
        return {"picked": list(told.picked[:_PICKED_SHOWN]), "profile": decision.profile[:_NAME_SHOWN]}
    return {"status": decision.status, "reason": decision.reason[:_NAME_SHOWN]}


def _step(step: Step) -> dict[str, object]:
    page: dict[str, object] = {
        "point": str(step.point),
        "refs": list(step.refs),
        "generation": step.generation,
        "us": round(step.duration_us),
    }
    if step.survivors is not None:
        page["left"] = len(step.survivors)
    if step.error:
        page["error"] = step.error
    elif step.said:
        page["said"] = step.said
    return page


def _number(value: float | None) -> float | None:
    return None if value is None or value - value != 0.0 else round(value, _DIGITS)


def _bytes(page: Mapping[str, object]) -> bytes:
    # Names may have any character: what is not ASCII is escaped, and nothing in it ends a header.
    return json.dumps(page, separators=(",", ":"), ensure_ascii=True).encode()
