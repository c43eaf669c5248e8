"""Calls of a cycle to plugins: how a batch of cycles becomes arguments, and how an answer is checked and applied.

Pure. A call is part of an immutable plan and serves any number of batches. Every `apply` checks the
whole answer before it changes a cycle: `BadResultError` leaves all of them as they were.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from hotbay_sdk.protocol import ErrorCode, Method, Value
from hotbay_sdk.protocol.calls import MAX_TEXT_BYTES, REQUEST_SCOPE, TEXT_SCOPE

from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import (
    AnswerValue,
    BadResultError,
    Consumed,
    CycleState,
    Datum,
    Tally,
    candidate_bits,
    data_key,
    describe_size,
    request_columns,
    row_errors,
)
from hotbay.scheduling.binding import Binding, Point
from hotbay.scheduling.explain import CallFacts

MAX_BATCH: Final = 64
MAX_ARRAYS_BYTES: Final = 1024 * 1024
"""S x B x E x 4 of one batch's reply stays below this (hot-path, Batches)."""
BULKY_FIELDS: Final = ("request.prompt", "request.messages")
"""Fields, by how their names begin, that can be as long as the request's body."""
BULKY_COLUMN: Final = "/TokenizedPrompt.token_ids"
"""The end of the key of the column that can be: of the host's own producer, for what a plugin makes ends at `MAX_TEXT_BYTES`."""

Lane = int | tuple[int, str]
"""Which calls of a process go out one after the other: those of one method, or, of types that take overlapping calls,
those of one method and the same types."""


class RemoteCall(ABC):
    """Common part of all calls: which process, which method, by when.

    `facts` is what is kept of it to explain decisions: of a plan that is gone, nothing else is held. `overlap`: how many calls of its `lane` may be out at once, the smallest number that one of its types takes.
    """

    __slots__ = (
        "bindings",
        "bulky",
        "columns",
        "consumed",
        "deadline_s",
        "facts",
        "fields",
        "generation",
        "handles",
        "lane",
        "method",
        "overlap",
    )

    sends_view: ClassVar[bool] = True
    """Whether the arguments hold the endpoint view, so that the process knows it afterwards."""

    def __init__(
        self,
        generation: Generation,
        method: Method,
        bindings: Sequence[Binding],
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed] = (),
        profile: str = "",
    ) -> None:
        self.generation = generation
        self.method = method
        self.bindings = tuple(bindings)
        self.columns = tuple(columns)
        self.fields = tuple(fields)
        self.consumed = tuple(consumed)
        origin = generation.origin
        self.facts = CallFacts(method, self.bindings, profile, origin.plugin_id, origin.version, generation.number)
        self.bulky = any(name.startswith(BULKY_FIELDS) for name in fields) or any(
            column.key.endswith(BULKY_COLUMN) for column in consumed
        )
        self.deadline_s = min(b.deadline_s for b in bindings)
        types = {b.type for b in bindings}
        self.overlap = min(generation.types[name].concurrency if name in generation.types else 1 for name in types)
        self.lane: Lane = int(method) if self.overlap == 1 else (int(method), "+".join(sorted(types)))
        # Taken now: a reload gives refs new handles, and this plan's calls go on with theirs.
        self.handles = tuple((generation.number, generation.handles[b.ref]) for b in bindings)

    def batch_limit(self, rows: int) -> int:
        """Most cycles that one call may carry with `rows` endpoints."""
        return MAX_BATCH

    def scores_bytes(self, requests: int, rows: int) -> int:
        """Length of the scores in a reply to so many requests; 0 if it has none."""
        return 0

    @abstractmethod
    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments for the batch, and the longest reply to take (None: the method's own limit)."""

    @abstractmethod
    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Check and take the answer; false when all of it was unusable. Raises `BadResultError`."""

    @abstractmethod
    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """What a result that was applied says for one request of its batch, by point and ref, without what failed."""

    def fail(self, cycle: CycleState, reason: str, tally: Tally) -> None:
        """Let the failure policies answer for one cycle."""
        for binding in self.bindings:
            self._fail_binding(cycle, binding, reason, tally)

    def _fail_binding(self, cycle: CycleState, binding: Binding, reason: str, tally: Tally) -> None:
        tally.plugin_error(binding.point, binding.ref, reason)
        cycle.degrade(binding, reason)


class ProduceCall(RemoteCall):
    """One data producer. Its columns are kept under its ref's name: another's of the same name are others."""

    __slots__ = ("_keys",)

    def __init__(
        self,
        generation: Generation,
        binding: Binding,
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed],
        produces: Sequence[str],
    ) -> None:
        super().__init__(generation, Method.PRODUCE, [binding], columns=columns, fields=fields, consumed=consumed)
        self._keys = {name: data_key(binding.ref, name) for name in produces}

    def batch_limit(self, rows: int) -> int:
        """Most cycles of a batch: 64, less where the columns of the reply would pass 1 MiB."""
        return max(1, min(MAX_BATCH, MAX_ARRAYS_BYTES // max(1, 4 * rows * len(self._keys))))

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `produce`."""
        return [
            self.handles[0],
            view,
            candidate_bits(cycles),
            request_columns(cycles, self.fields, self.consumed),
        ], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Store each declared column in its cycle: an array of E, one number, or one text."""
        if not isinstance(result, list) or len(result) != 2 or not isinstance(result[0], dict):
            raise BadResultError("produce: expected [data, errors]")
        errors = row_errors(result[1], 1, len(cycles))
        columns = [self._column(name, raw, cycles) for name, raw in result[0].items()]
        everyone = (0, -1) in errors
        for index, cycle in enumerate(cycles):
            code = errors.get((0, -1)) if everyone else errors.get((0, index))
            if code is not None:
                self.fail(cycle, code, tally)
                continue
            for key, column in columns:
                datum = column[index]
                if datum is not None:
                    cycle.data[key] = datum
        return len(errors) < len(cycles) and not everyone

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """Columns, numbers and texts, each by `ref/column`."""
        assert isinstance(result, list), "it was applied"
        assert isinstance(result[0], dict), "it was applied"
        if failed_at(result[1], len(cycles), index):
            return {}
        found: dict[tuple[Point, str], AnswerValue] = {}
        for name, raw in result[0].items():
            key, column = self._column(name, raw, cycles)
            datum = column[index]
            if datum is not None:
                found[Point.PRODUCE, key] = (datum,) if isinstance(datum, str) else datum
        return found

    def _column(self, name: str, raw: Value, cycles: Sequence[CycleState]) -> tuple[str, Sequence[Datum | None]]:
        """Where a column of the reply is kept, and its value of each request."""
        rows, requests = cycles[0].snapshot.rows, len(cycles)
        declared = name.removesuffix(REQUEST_SCOPE).removesuffix(TEXT_SCOPE)
        key = self._keys.get(declared)
        if key is None:
            raise BadResultError(f"produce: column '{name}' was not declared")
        if name == declared + TEXT_SCOPE:
            return key, _texts(name, raw, requests)
        by_request = name == declared + REQUEST_SCOPE
        expected = 4 * requests if by_request else 4 * requests * rows
        if not isinstance(raw, bytes) or len(raw) != expected:
            raise BadResultError(f"produce: column '{name}' is {describe_size(raw)}, expected {expected} bytes")
        numbers = np.frombuffer(raw, dtype="<f4")
        return key, numbers.tolist() if by_request else list(numbers.reshape(requests, rows))


def _texts(name: str, raw: Value, requests: int) -> list[str | None]:
    if not isinstance(raw, list) or len(raw) != requests:
        raise BadResultError(f"produce: column '{name}' is {describe_size(raw)}, expected a list of {requests} texts")
    found: list[str | None] = []
    for item in raw:
        if item is not None and (not isinstance(item, str) or len(item.encode("utf-8", "replace")) > MAX_TEXT_BYTES):
            raise BadResultError(f"produce: column '{name}' holds texts of at most {MAX_TEXT_BYTES} bytes, or nil")
        found.append(item)
    return found


class PickCall(RemoteCall):
    """A picker in a process of its own."""

    __slots__ = ("_count",)

    def __init__(
        self,
        generation: Generation,
        binding: Binding,
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed] = (),
        count: int,
        profile: str = "",
    ) -> None:
        super().__init__(
            generation, Method.PICK, [binding], columns=columns, fields=fields, consumed=consumed, profile=profile
        )
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
            request_columns(cycles, self.fields, self.consumed),
            self._count,
        ], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Take each request's rows; rows that may not be chosen, or none at all, are a bad result."""
        if not isinstance(result, list) or len(result) != 2 or not isinstance(result[0], list):
            raise BadResultError("pick: expected [rows, errors]")
        if len(result[0]) != len(cycles):
            raise BadResultError(f"pick: expected rows for {len(cycles)} requests, found {len(result[0])}")
        errors = row_errors(result[1], 1, len(cycles))
        good = False
        for index, (cycle, rows) in enumerate(zip(cycles, result[0], strict=True)):
            code = errors.get((0, -1)) or errors.get((0, index))
            checked = None if code else self._checked(cycle, rows)
            if checked is None:
                self.fail(cycle, code or str(ErrorCode.BAD_RESULT), tally)
            else:
                cycle.picked = checked
                good = True
        return good

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """The rows picked; nothing when one of them is none of the snapshot's."""
        assert isinstance(result, list), "it was applied"
        assert isinstance(result[0], list), "it was applied"
        rows = result[0][index]
        if failed_at(result[1], len(cycles), index) or not isinstance(rows, list):
            return {}
        count = cycles[index].snapshot.rows
        picked = tuple(row for row in rows if type(row) is int and 0 <= row < count)
        return {(Point.PICK, self.bindings[0].ref): picked} if picked and len(picked) == len(rows) else {}

    def _checked(self, cycle: CycleState, rows: Value) -> list[int] | None:
        if not isinstance(rows, list) or not 0 < len(rows) <= self._count:
            return None
        picked: list[int] = []
        for row in rows:
            if type(row) is not int or not 0 <= row < cycle.snapshot.rows or not cycle.mask[row] or row in picked:
                return None
            picked.append(row)
        return picked


def failed_at(errors: Value, requests: int, index: int) -> bool:
    """Whether a reply of one step has an error for a request."""
    found = row_errors(errors, 1, requests)
    return (0, -1) in found or (0, index) in found
