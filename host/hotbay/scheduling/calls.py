"""Calls of a cycle to plugins: how a batch of cycles becomes arguments, and how an answer is checked and applied.

Pure. A call is part of an immutable plan and serves any number of batches. Every `apply` checks the
whole answer before it changes a cycle: `BadResultError` leaves all of them as they were. B is the
number of cycles in the batch, E the rows of their common snapshot.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from hotbay.datalayer.snapshot import Snapshot
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import Binding, Policy
from hotbay.scheduling.fields import request_field
from hotbay.scheduling.request import InferenceRequest
from hotbay_sdk.protocol import ErrorCode, Method, Value
from hotbay_sdk.protocol.calls import POINT_FILTER, POINT_SCORE, mask_bytes, run_reply_limit

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

MAX_BATCH: Final = 64
MAX_SCORES_BYTES: Final = 1024 * 1024
"""S x B x E x 4 of one batch stays below this (hot-path, Batches)."""


class BadResultError(Exception):
    """A plugin's answer has the wrong shape. Says expected and found."""


class CycleState(Protocol):
    """What a call reads and writes of a cycle."""

    request: InferenceRequest
    snapshot: Snapshot
    mask: Mask
    totals: Floats | None
    data: dict[str, Floats | float]
    picked: list[int] | None
    results: dict[str, list[int] | None]
    chosen: list[str] | None
    primary: str | None

    def degrade(self, binding: Binding, reason: str) -> None:
        """Note that the binding's failure policy decided; a fail_closed binding rejects the request."""


class Tally(Protocol):
    """Counts what plugins did wrong without failing."""

    def invalid_scores(self, ref: str, count: int) -> None:
        """Scores that were not finite or outside [0, 1]."""

    def plugin_error(self, point: str, ref: str, code: str) -> None:
        """An answer, or a part of one, that a failure policy replaced."""


class RemoteCall(ABC):
    """Common part of all calls: which process, which method, by when."""

    __slots__ = ("bindings", "columns", "deadline_s", "generation", "handles", "method")

    def __init__(
        self,
        generation: Generation,
        method: Method,
        bindings: Sequence[Binding],
        columns: Sequence[str],
    ) -> None:
        self.generation = generation
        self.method = method
        self.bindings = tuple(bindings)
        self.columns = tuple(columns)
        self.deadline_s = min(b.deadline_s for b in bindings)
        # Taken now: a reload gives refs new handles, and this plan's calls go on with theirs.
        self.handles = tuple((generation.number, generation.handles[b.ref]) for b in bindings)

    def batch_limit(self, rows: int) -> int:
        """Most cycles that one call may carry with `rows` endpoints."""
        return MAX_BATCH

    @abstractmethod
    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments for the batch, and the longest reply to take (None: the method's own limit)."""

    @abstractmethod
    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Check and take the answer; false when part of it was unusable. Raises `BadResultError`."""

    def fail(self, cycle: CycleState, reason: str, tally: Tally) -> None:
        """Let the failure policies answer for one cycle."""
        for binding in self.bindings:
            tally.plugin_error(binding.point, binding.ref, reason)
            cycle.degrade(binding, reason)


def candidate_bits(cycles: Sequence[CycleState]) -> bytes | None:
    """Candidates of a batch: nil when every row is one, a shared row of bits, or a row each."""
    first = cycles[0].mask
    if all(cycle.mask is first for cycle in cycles):
        if first.all():
            return None
        return np.packbits(first, bitorder="little").tobytes()
    return np.packbits(np.stack([cycle.mask for cycle in cycles]), axis=1, bitorder="little").tobytes()


def request_columns(cycles: Sequence[CycleState], fields: Sequence[str], consumed: Sequence[str]) -> list[object]:
    """The `requests` argument: declared fields and consumed data, column by column."""
    values = {name: [request_field(cycle.request, name) for cycle in cycles] for name in fields}
    data: dict[str, bytes] = {}
    for name in consumed:
        column = _data_column([cycle.data.get(name) for cycle in cycles])
        if column is not None:
            data[name] = column
    return [len(cycles), [], None, values, data]


def _data_column(parts: Sequence["Floats | float | None"]) -> bytes | None:
    """One consumed column of a batch; requests whose producer failed get NaN; nil when all failed."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    if isinstance(known[0], np.ndarray):
        unknown = np.full_like(known[0], np.nan)
        return np.concatenate([unknown if part is None else part for part in parts], dtype=np.float32).tobytes()
    return np.array([np.nan if part is None else part for part in parts], dtype="<f4").tobytes()


def _row_errors(value: Value, steps: int, requests: int) -> dict[tuple[int, int], str]:
    """Check the `errors` part of a reply; key is (step, request), -1 for a whole batch."""
    if value is None or value == []:
        return {}
    if not isinstance(value, list) or len(value) > steps * (requests + 1):
        raise BadResultError("errors: expected a list of [step, request, error]")
    found: dict[tuple[int, int], str] = {}
    for item in value:
        if not isinstance(item, list) or len(item) != 3:
            raise BadResultError("errors: expected items [step, request, error]")
        step, request, error = item
        if type(step) is not int or type(request) is not int or not isinstance(error, dict):
            raise BadResultError("errors: expected items [step, request, error]")
        if not (0 <= step < steps and -1 <= request < requests):
            raise BadResultError(f"errors: step {step}, request {request} were not asked")
        code = error.get("code")
        found[step, request] = code if isinstance(code, str) and code in _CODES else str(ErrorCode.PLUGIN_ERROR)
    return found


_CODES: Final = frozenset(str(code) for code in ErrorCode)


class RunCall(RemoteCall):
    """Consecutive filters, then scorers, of one profile answered by one process."""

    __slots__ = ("_consumed", "_fields", "_keeps_last", "_last", "_steps", "_weights", "filters", "scorers")

    def __init__(
        self,
        generation: Generation,
        filters: Sequence[Binding],
        scorers: Sequence[Binding],
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[str],
    ) -> None:
        super().__init__(generation, Method.RUN, [*filters, *scorers], columns)
        self.filters = tuple(filters)
        self.scorers = tuple(scorers)
        self._fields = tuple(fields)
        self._consumed = tuple(consumed)
        self._weights = np.array([b.weight for b in scorers], dtype=np.float32)
        points = [POINT_FILTER] * len(filters) + [POINT_SCORE] * len(scorers)
        self._steps = list(zip(points, self.handles, strict=True))
        self._keeps_last = any(b.policy is Policy.LAST_GOOD for b in scorers)
        self._last: dict[str, tuple[int, Floats]] = {}

    def batch_limit(self, rows: int) -> int:
        """Most cycles of a batch: 64, less where the scores would pass 1 MiB."""
        return max(1, min(MAX_BATCH, MAX_SCORES_BYTES // max(1, 4 * rows * len(self.scorers))))

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `run`."""
        rows = cycles[0].snapshot.rows
        args: list[object] = [
            self._steps,
            view,
            candidate_bits(cycles),
            request_columns(cycles, self._fields, self._consumed),
        ]
        limit = run_reply_limit(len(self.scorers), len(cycles), rows)
        return args, limit + MAX_ERRORS_BYTES

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Narrow each cycle's candidates and add the weighted scores to its totals."""
        if not isinstance(result, list) or len(result) != 3:
            raise BadResultError("run: expected [bits, scores, errors]")
        errors = _row_errors(result[2], len(self.bindings), len(cycles))
        kept = self._kept(result[0], cycles)
        scores = self._scores(result[1], cycles)
        whole = self._fold_errors(errors, len(cycles))
        if scores is not None:
            low, high = scores.min(initial=0.0), scores.max(initial=0.0)
            if not (low >= 0.0 and high <= 1.0):
                scores = self._sanitize(scores, cycles, kept, whole, tally)
        self._take(cycles, kept, scores, whole, tally)
        return not whole

    def fail(self, cycle: CycleState, reason: str, tally: Tally) -> None:
        """Failure policies for every step; a last_good scorer repeats its last answer for this membership."""
        for binding in self.bindings:
            self._fail_step(cycle, binding, reason, tally)

    def _fail_step(self, cycle: CycleState, binding: Binding, reason: str, tally: Tally) -> None:
        tally.plugin_error(binding.point, binding.ref, reason)
        if binding.policy is Policy.LAST_GOOD:
            membership, scores = self._last.get(binding.ref, (-1, None))
            if scores is not None and membership == cycle.snapshot.membership:
                _add(cycle, scores * np.float32(binding.weight))
        elif binding.policy is Policy.NEUTRAL and binding.neutral:
            _add(cycle, np.full(cycle.snapshot.rows, binding.neutral * binding.weight, np.float32))
        cycle.degrade(binding, reason)

    def _kept(self, bits: Value, cycles: Sequence[CycleState]) -> Mask | None:
        if not self.filters:
            return None
        rows = cycles[0].snapshot.rows
        expected = len(cycles) * mask_bytes(rows)
        if not isinstance(bits, bytes) or len(bits) != expected:
            raise BadResultError(f"run: expected {expected} bytes of filter bits, found {_size(bits)}")
        packed = np.frombuffer(bits, dtype=np.uint8).reshape(len(cycles), -1)
        return np.unpackbits(packed, axis=1, count=rows, bitorder="little").view(np.bool_)

    def _scores(self, raw: Value, cycles: Sequence[CycleState]) -> Floats | None:
        if not self.scorers:
            return None
        rows = cycles[0].snapshot.rows
        expected = 4 * len(self.scorers) * len(cycles) * rows
        if not isinstance(raw, bytes) or len(raw) != expected:
            raise BadResultError(f"run: expected {expected} bytes of scores, found {_size(raw)}")
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
                self._remember(cycles[-1].snapshot.membership, scores, failed, len(cycles) - 1)
            shape = scores.shape
            weighted = (self._weights @ scores.reshape(shape[0], -1)).reshape(shape[1:])
            for cycle, row in zip(cycles, weighted, strict=True):
                _add(cycle, row)
        for (step, request), code in failed.items():
            self._fail_step(cycles[request], self.bindings[step], code, tally)

    def _remember(
        self, membership: int, scores: Floats, failed: Mapping[tuple[int, int], str], request: int
    ) -> None:
        for index, binding in enumerate(self.scorers):
            if (len(self.filters) + index, request) not in failed:
                self._last[binding.ref] = (membership, scores[index, request].copy())


MAX_ERRORS_BYTES: Final = 16 * 1024
"""Room for the `errors` part of a reply beyond the scores (wire-protocol 10)."""


def _add(cycle: CycleState, row: Floats) -> None:
    cycle.totals = row if cycle.totals is None else cycle.totals + row


def _size(value: Value) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__


class ProduceCall(RemoteCall):
    """One data producer."""

    __slots__ = ("_consumed", "_fields", "_produces")

    def __init__(
        self,
        generation: Generation,
        binding: Binding,
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[str],
        produces: Sequence[str],
    ) -> None:
        super().__init__(generation, Method.PRODUCE, [binding], columns)
        self._fields = tuple(fields)
        self._consumed = tuple(consumed)
        self._produces = frozenset(produces)

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `produce`."""
        return [
            self.handles[0],
            view,
            candidate_bits(cycles),
            request_columns(cycles, self._fields, self._consumed),
        ], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Store each declared column in its cycle: an array of E, or one number."""
        if not isinstance(result, list) or len(result) != 2 or not isinstance(result[0], dict):
            raise BadResultError("produce: expected [data, errors]")
        errors = _row_errors(result[1], 1, len(cycles))
        columns = {name: self._column(name, raw, cycles) for name, raw in result[0].items()}
        everyone = (0, -1) in errors
        for index, cycle in enumerate(cycles):
            code = errors.get((0, -1)) if everyone else errors.get((0, index))
            if code is not None:
                self.fail(cycle, code, tally)
                continue
            for name, column in columns.items():
                cycle.data[name] = column[index] if column.ndim == 2 else float(column[index])
        return not errors

    def _column(self, name: str, raw: Value, cycles: Sequence[CycleState]) -> Floats:
        rows, requests = cycles[0].snapshot.rows, len(cycles)
        if name not in self._produces:
            raise BadResultError(f"produce: column '{name}' was not declared")
        if not isinstance(raw, bytes) or len(raw) not in (4 * requests, 4 * requests * rows):
            raise BadResultError(
                f"produce: column '{name}' is {_size(raw)}, expected {4 * requests} or {4 * requests * rows}"
            )
        column = np.frombuffer(raw, dtype="<f4")
        return column if len(raw) == 4 * requests and rows != 1 else column.reshape(requests, rows)


class PickCall(RemoteCall):
    """A picker in a process of its own."""

    __slots__ = ("_count", "_fields")

    def __init__(
        self, generation: Generation, binding: Binding, *, columns: Sequence[str], fields: Sequence[str], count: int
    ) -> None:
        super().__init__(generation, Method.PICK, [binding], columns)
        self._fields = tuple(fields)
        self._count = count

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `pick`."""
        rows = cycles[0].snapshot.rows
        totals = [np.zeros(rows, np.float32) if c.totals is None else c.totals for c in cycles]
        return [
            self.handles[0],
            view,
            candidate_bits(cycles),
            np.concatenate(totals).astype("<f4").tobytes(),
            request_columns(cycles, self._fields, ()),
            self._count,
        ], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Take each request's rows; rows that may not be chosen, or none at all, are a bad result."""
        if not isinstance(result, list) or len(result) != 2 or not isinstance(result[0], list):
            raise BadResultError("pick: expected [rows, errors]")
        if len(result[0]) != len(cycles):
            raise BadResultError(f"pick: expected rows for {len(cycles)} requests, found {len(result[0])}")
        errors = _row_errors(result[1], 1, len(cycles))
        good = True
        for index, (cycle, rows) in enumerate(zip(cycles, result[0], strict=True)):
            code = errors.get((0, -1)) or errors.get((0, index))
            checked = None if code else self._checked(cycle, rows)
            if checked is None:
                self.fail(cycle, code or str(ErrorCode.BAD_RESULT), tally)
                good = False
            else:
                cycle.picked = checked
        return good

    def _checked(self, cycle: CycleState, rows: Value) -> list[int] | None:
        if not isinstance(rows, list) or not 0 < len(rows) <= self._count:
            return None
        picked: list[int] = []
        for row in rows:
            if type(row) is not int or not 0 <= row < cycle.snapshot.rows or not cycle.mask[row] or row in picked:
                return None
            picked.append(row)
        return picked


class ProfilePickCall(RemoteCall):
    """Asks a profile handler which profiles to run next."""

    __slots__ = ("_fields", "_profiles")

    def __init__(
        self, generation: Generation, binding: Binding, *, fields: Sequence[str], profiles: Sequence[str]
    ) -> None:
        super().__init__(generation, Method.PROFILE_PICK, [binding], ())
        self._fields = tuple(fields)
        self._profiles = tuple(profiles)

    def batch_limit(self, rows: int) -> int:
        """One: each request has results of its own."""
        return 1

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `profile_pick`."""
        requests = request_columns(cycles, self._fields, ())
        return [self.handles[0], requests, list(self._profiles), results_map(cycles[0])], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Store the names to run; a name that is no profile is a bad result."""
        if not isinstance(result, list) or any(name not in self._profiles for name in result):
            raise BadResultError(f"profile_pick: expected names among {', '.join(self._profiles)}")
        cycles[0].chosen = [str(name) for name in dict.fromkeys(str(name) for name in result)]
        return True


class ProfileProcessCall(RemoteCall):
    """Asks a profile handler which profile's result is the primary one."""

    __slots__ = ("_fields",)

    def __init__(self, generation: Generation, binding: Binding, *, fields: Sequence[str]) -> None:
        super().__init__(generation, Method.PROFILE_PROCESS, [binding], ())
        self._fields = tuple(fields)

    def batch_limit(self, rows: int) -> int:
        """One: each request has results of its own."""
        return 1

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `profile_process`."""
        requests = request_columns(cycles, self._fields, ())
        return [self.handles[0], requests, results_map(cycles[0])], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Store the primary profile; it must have a result."""
        primary = result.get("primary") if isinstance(result, dict) else None
        if not isinstance(primary, str) or not cycles[0].results.get(primary):
            raise BadResultError("profile_process: expected {primary: a profile that has a result, results}")
        cycles[0].primary = primary
        return True


def results_map(cycle: CycleState) -> dict[str, list[str] | None]:
    """Results so far, rows named by endpoint id."""
    ids = cycle.snapshot.ids
    return {
        name: None if rows is None else [ids[row] for row in rows] for name, rows in cycle.results.items()
    }
