"""Copies a sample of a live generation's calls to a candidate and pairs what both answer.

A copied request is never delayed by more than the making of the copy: the candidate's call goes out on its own, and
pairs are told after the request went on. Invariants: at most `MAX_PAIRS` copies wait, the oldest makes room; nothing
that a copy or its listener does reaches the request.
"""

import logging
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from hotbay_sdk.protocol import Value

from hotbay.scheduling.arms import AnswerPair, Shadow
from hotbay.scheduling.batch import AnswerValue, Floats
from hotbay.scheduling.binding import Point
from hotbay.scheduling.calls import RemoteCall
from hotbay.scheduling.copies import CycleCopy
from hotbay.scheduling.cycle import Cycle
from hotbay.scheduling.plan import Plan

__all__ = ["Copier"]

logger = logging.getLogger(__name__)

MAX_PAIRS: Final = 256
"""Copies that may wait for an answer: four full batches, more than a candidate that keeps its deadlines builds up."""

Answers = dict[tuple[Point, str], AnswerValue]


class Submit(Protocol):
    """The candidate's side: queues a copy, false when it failed at once."""

    def __call__(self, cycle: CycleCopy, call: RemoteCall, /) -> bool: ...


class _Pair:
    """A copied call until both answers are there."""

    __slots__ = ("candidate", "copy", "key", "live")

    def __init__(self, key: tuple[Cycle, RemoteCall], copy: CycleCopy) -> None:
        self.key = key
        self.copy = copy
        self.live: Answers | None = None
        self.candidate: Answers | None = None


class Copier:
    """One shadow of one plan. Watches the windows of both generations."""

    def __init__(self, shadow: Shadow, plan: Plan, submit: Submit, rng: np.random.Generator) -> None:
        others = {key: call for key, call in shadow.plan.calls.items() if call.generation is shadow.candidate}
        self._twins = {
            call: others[key] for key, call in plan.calls.items() if call.generation is shadow.live and key in others
        }
        self._shadow = shadow
        self._submit = submit
        self._rng = rng
        self._pairs: dict[tuple[Cycle, RemoteCall], _Pair] = {}
        self._copies: dict[CycleCopy, _Pair] = {}

    def copy(self, cycle: Cycle, call: RemoteCall) -> None:
        """Maybe copy a call that was queued and is still to go out."""
        twin = self._twins.get(call)
        if twin is None or self._rng.random() >= self._shadow.sample or (cycle, call) in self._pairs:
            return
        if len(self._pairs) >= MAX_PAIRS:
            self._drop(next(iter(self._pairs.values())))
        pair = _Pair((cycle, call), CycleCopy(cycle))
        self._pairs[pair.key] = pair
        self._copies[pair.copy] = pair
        try:
            submitted = self._submit(pair.copy, twin)
        except Exception:
            # Named boundary: a defect of the candidate's side must not cost the request that is copied.
            logger.exception("copy_failed plugin=%s", self._shadow.candidate.client.label)
            submitted = False
        if not submitted:
            self._drop(pair)

    def answered(self, call: RemoteCall, cycles: Sequence[Cycle | CycleCopy], result: Value) -> None:
        """Take one side's answers to a batch."""
        for index, cycle in enumerate(cycles):
            pair = self._copies.get(cycle) if isinstance(cycle, CycleCopy) else self._pairs.get((cycle, call))
            if pair is None:
                continue
            try:
                self._take(pair, call, cycles, result, index)
            except Exception:
                # Named boundary: answers are whatever two plugins made them, and the listener is not ours.
                logger.exception("comparison_failed plugin=%s", self._shadow.candidate.client.label)
                self._drop(pair)

    def _take(
        self, pair: _Pair, call: RemoteCall, cycles: Sequence[Cycle | CycleCopy], result: Value, index: int
    ) -> None:
        answers = call.read(cycles, result, index)
        if cycles[index] is pair.copy:
            pair.candidate = answers
        else:
            pair.live = answers
        if pair.live is None or pair.candidate is None:
            return
        self._drop(pair)
        copy = pair.copy
        for (point, ref), value in pair.live.items():
            other = pair.candidate.get((point, ref))
            if other is not None:
                self._shadow.on_comparison(AnswerPair(point, ref, copy.asked, value, other, _totals(copy, point)))

    def _drop(self, pair: _Pair) -> None:
        pair.copy.ended = True
        self._pairs.pop(pair.key, None)
        self._copies.pop(pair.copy, None)


def _totals(copy: CycleCopy, point: Point) -> Floats | None:
    """Totals by which a picker chose; a picker that nothing was scored for sees zeros."""
    if point is not Point.PICK:
        return None
    return np.zeros(copy.snapshot.rows, np.float32) if copy.totals is None else copy.totals
