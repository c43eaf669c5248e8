"""The call that most decisions are: consecutive filters, then scorers, of one profile in one process. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from hotbay_sdk.protocol import ErrorCode, Method, Value
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE, mask_bytes, run_reply_limit

from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import (
    AnswerValue,
    BadResultError,
    Consumed,
    CycleState,
    Floats,
    Mask,
    Tally,
    candidate_bits,
    describe_size,
    request_columns,
    row_errors,
)
from hotbay.scheduling.binding import Binding, Point, Policy
from hotbay.scheduling.calls import MAX_ARRAYS_BYTES, MAX_BATCH, RemoteCall
from hotbay.scheduling.decision import BUSY, Rejected

MAX_ERRORS_BYTES: Final = 16 * 1024
"""Room for the `errors` part of a reply beyond the scores (wire-protocol 10)."""


class RunCall(RemoteCall):
    """Consecutive filters, then scorers, of one profile answered by one process.

    `drained` is what it means when the filters leave nothing; all of them mean the same.
    """

    __slots__ = ("_keeps_last", "_steps", "_weights", "drained", "filters", "scorers")

    def __init__(
        self,
        generation: Generation,
        filters: Sequence[Binding],
        scorers: Sequence[Binding],
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed],
        profile: str = "",
        drained: Rejected = BUSY,
    ) -> None:
        super().__init__(
            generation,
            Method.RUN,
            [*filters, *scorers],
            columns=columns,
            fields=fields,
            consumed=consumed,
            profile=profile,
        )
        self.drained = drained
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self._weights = np.array([b.weight for b in scorers], dtype=np.float32)
        points = [POINT_FILTER] * len(filters) + [POINT_SCORE] * len(scorers)
        self._steps = list(zip(points, self.handles, strict=True))
        self._keeps_last = any(b.policy is Policy.LAST_GOOD for b in scorers)

    def batch_limit(self, rows: int) -> int:
        """Most cycles of a batch: 64, less where the scores would pass 1 MiB."""
        return max(1, min(MAX_BATCH, MAX_ARRAYS_BYTES // max(1, 4 * rows * len(self.scorers))))

    def scores_bytes(self, requests: int, rows: int) -> int:
        """S × B × E float32."""
        return 4 * len(self.scorers) * requests * rows

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `run`."""
        rows = cycles[0].snapshot.rows
        args: list[object] = [
            self._steps,
            view,
            candidate_bits(cycles),
            request_columns(cycles, self.fields, self.consumed),
        ]
        limit = run_reply_limit(len(self.scorers), len(cycles), rows)
        return args, limit + MAX_ERRORS_BYTES

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Narrow each cycle's candidates and add the weighted scores to its totals."""
        if not isinstance(result, list) or len(result) != 3:
            raise BadResultError("run: expected [bits, scores, errors]")
        errors = row_errors(result[2], len(self.bindings), len(cycles))
        kept = self._kept(result[0], cycles)
        scores = self._scores(result[1], cycles)
        whole = self._fold_errors(errors, len(cycles))
        if scores is not None:
            low, high = scores.min(initial=0.0), scores.max(initial=0.0)
            if not (low >= 0.0 and high <= 1.0):
                scores = self._sanitize(scores, cycles, kept, whole, tally)
        self._take(cycles, kept, scores, whole, tally)
        return len(whole) < len(self.bindings) * len(cycles)

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """Survivors of all filters together, and each scorer's scores, mended as for a decision."""
        assert isinstance(result, list), "it was applied"
        failed = self._fold_errors(row_errors(result[2], len(self.bindings), len(cycles)), len(cycles))
        kept, scores = self._kept(result[0], cycles), self._scores(result[1], cycles)
        found: dict[tuple[Point, str], AnswerValue] = {}
        steps = range(len(self.filters))
        if kept is not None and not any((step, index) in failed for step in steps):
            found[Point.FILTER, "+".join(binding.ref for binding in self.filters)] = kept[index]
        for step, binding in enumerate(self.scorers):
            if scores is not None and (len(self.filters) + step, index) not in failed:
                found[Point.SCORE, binding.ref] = np.nan_to_num(
                    scores[step, index], nan=0.0, posinf=0.0, neginf=0.0
                ).clip(0, 1)
        return found

    def _kept(self, bits: Value, cycles: Sequence[CycleState]) -> Mask | None:
        if not self.filters:
            return None
        rows = cycles[0].snapshot.rows
        expected = len(cycles) * mask_bytes(rows)
        if not isinstance(bits, bytes) or len(bits) != expected:
            raise BadResultError(f"run: expected {expected} bytes of filter bits, found {describe_size(bits)}")
        packed = np.frombuffer(bits, dtype=np.uint8).reshape(len(cycles), -1)
        return np.unpackbits(packed, axis=1, count=rows, bitorder="little").view(np.bool_)

    def _scores(self, raw: Value, cycles: Sequence[CycleState]) -> Floats | None:
        if not self.scorers:
            return None
        rows = cycles[0].snapshot.rows
        expected = self.scores_bytes(len(cycles), rows)
        if not isinstance(raw, bytes) or len(raw) != expected:
            raise BadResultError(f"run: expected {expected} bytes of scores, found {describe_size(raw)}")
        return np.frombuffer(raw, dtype="<f4").reshape(len(self.scorers), len(cycles), rows)

    def _fold_errors(self, errors: Mapping[tuple[int, int], str], requests: int) -> dict[tuple[int, int], str]:
        """Spread batch-wide errors over the requests."""
        spread: dict[tuple[int, int], str] = {}
        for (step, request), code in errors.items():
            for index in range(requests) if request < 0 else (request,):
                spread[step, index] = code
        return spread

    def _sanitize(
        self,
        scores: Floats,
        cycles: Sequence[CycleState],
        kept: Mask | None,
        failed: dict[tuple[int, int], str],
        tally: Tally,
    ) -> Floats:
        """Count and mend scores that are not finite or outside [0, 1]; all rows non-finite is BAD_RESULT."""
        masks = np.stack([cycle.mask for cycle in cycles])
        if kept is not None:
            masks = masks & kept
        finite = np.isfinite(scores)
        wrong = ~finite | (scores < 0.0) | (scores > 1.0)
        for index, binding in enumerate(self.scorers):
            count = int((wrong[index] & masks).sum())
            if count:
                tally.invalid_scores(binding.ref, count)
            for request in np.flatnonzero(~(finite[index] & masks).any(axis=1) & masks.any(axis=1)):
                failed[len(self.filters) + index, int(request)] = str(ErrorCode.BAD_RESULT)
        return np.clip(np.where(finite, scores, np.float32(0.0)), np.float32(0.0), np.float32(1.0))

    def _take(
        self,
        cycles: Sequence[CycleState],
        kept: Mask | None,
        scores: Floats | None,
        failed: Mapping[tuple[int, int], str],
        tally: Tally,
    ) -> None:
        if kept is not None:
            # A filter that failed for a request narrowed nothing in its row of the bits.
            for cycle, row in zip(cycles, kept, strict=True):
                cycle.mask = cycle.mask & row
        if scores is not None:
            if failed:
                scores = scores.copy()
                for step, request in failed:
                    if step >= len(self.filters):
                        scores[step - len(self.filters), request] = 0.0
            if self._keeps_last:
                self._remember(cycles[-1], scores, failed, len(cycles) - 1)
            shape = scores.shape
            weighted = (self._weights @ scores.reshape(shape[0], -1)).reshape(shape[1:])
            for cycle, row in zip(cycles, weighted, strict=True):
                cycle.totals = row if cycle.totals is None else cycle.totals + row
        for (step, request), code in failed.items():
            self._fail_binding(cycles[request], self.bindings[step], code, tally)

    def _remember(self, cycle: CycleState, scores: Floats, failed: Mapping[tuple[int, int], str], request: int) -> None:
        for index, binding in enumerate(self.scorers):
            if binding.policy is Policy.LAST_GOOD and (len(self.filters) + index, request) not in failed:
                cycle.last_good[binding.ref] = (cycle.snapshot.membership, scores[index, request].copy())
