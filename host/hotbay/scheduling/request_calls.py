"""Calls about a request before its profiles run: what its headers mean, how full the pool is, who is screened out, who is denied.

Pure. What a plugin says is held to the protocol's rules (`verdicts`); one bad answer fails one request's call.
"""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import TypeVar

import numpy as np
from hotbay_sdk.protocol import ErrorCode, MalformedMessageError, Method, Value
from hotbay_sdk.protocol.calls import mask_bytes
from hotbay_sdk.protocol.verdicts import Verdict, read_attributes, read_verdict

from hotbay.errors import printable
from hotbay.rpc.leases import Generation
from hotbay.scheduling.batch import (
    AnswerValue,
    BadResultError,
    Consumed,
    CycleState,
    Tally,
    candidate_bits,
    describe_size,
    request_columns,
    row_errors,
)
from hotbay.scheduling.binding import Binding, Point
from hotbay.scheduling.calls import RemoteCall, failed_at
from hotbay.scheduling.decision import Rejected

__all__ = ["AdmitCall", "HeadersCall", "SaturationCall", "ScreenCall", "each_answer", "refusal_of"]

Read = TypeVar("Read")


def refusal_of(verdict: Verdict) -> Rejected:
    """The refusal that a plugin's denial is."""
    return Rejected(
        verdict.status, verdict.reason, printable(verdict.message) or f"the request was denied: {verdict.reason}"
    )


def each_answer(
    call: RemoteCall,
    cycles: Sequence[CycleState],
    result: Value,
    tally: Tally,
    read: Callable[[Value], Read],
    take: Callable[[CycleState, Read], None],
) -> bool:
    """Check [answers, errors] and take the answer of each request; false when none could be used."""
    name = call.method.name.lower()
    if not isinstance(result, list) or len(result) != 2 or not isinstance(result[0], list):
        raise BadResultError(f"{name}: expected [answers, errors]")
    if len(result[0]) != len(cycles):
        raise BadResultError(f"{name}: expected answers for {len(cycles)} requests, found {len(result[0])}")
    errors = row_errors(result[1], 1, len(cycles))
    good = False
    for index, answer in enumerate(result[0]):
        code = errors.get((0, -1)) or errors.get((0, index))
        if code is not None:
            call.fail(cycles[index], code, tally)
            continue
        try:
            read_answer = read(answer)
        except MalformedMessageError:
            call.fail(cycles[index], str(ErrorCode.BAD_RESULT), tally)
            continue
        take(cycles[index], read_answer)
        good = True
    return good


class HeadersCall(RemoteCall):
    """One processor of request headers: sets attributes, or denies."""

    __slots__ = ()

    sends_view = False

    def __init__(self, generation: Generation, binding: Binding, *, fields: Sequence[str]) -> None:
        super().__init__(generation, Method.REQUEST_HEADERS, [binding], columns=(), fields=fields)

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `request_headers`."""
        return [self.handles[0], request_columns(cycles, self.fields, ())], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Set each request's attributes, or refuse it."""
        return each_answer(self, cycles, result, tally, read_attributes, _take_headers)

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """Names and values, sorted; or the denial's code."""
        if _failed(cycles, result, index):
            return {}
        found = read_attributes(_answer(result, index))
        said = (found.code,) if isinstance(found, Verdict) else tuple(sorted(f"{k}={v}" for k, v in found.items()))
        return {(Point.REQUEST_HEADERS, self.bindings[0].ref): said}


def _take_headers(cycle: CycleState, answer: "dict[str, str | int | float] | Verdict") -> None:
    if isinstance(answer, Verdict):
        cycle.reject(refusal_of(answer))
    elif answer:
        cycle.set_attributes(answer)


class SaturationCall(RemoteCall):
    """A detector's word on how full the pool is: one answer for all requests of a batch, which share its snapshot."""

    __slots__ = ()

    def __init__(self, generation: Generation, binding: Binding, *, columns: Sequence[str]) -> None:
        super().__init__(generation, Method.SATURATION, [binding], columns=columns, fields=())

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `saturation`."""
        return [self.handles[0], view], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Store the number, 0 or more."""
        if isinstance(result, bool) or not isinstance(result, float | int) or not isfinite(result) or result < 0:
            raise BadResultError("saturation: expected a finite number from 0 up")
        for cycle in cycles:
            cycle.saturation = float(result)
        return True

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """The number."""
        assert isinstance(result, float | int), "it was applied"
        return {(Point.SATURATION, self.bindings[0].ref): float(result)}


class ScreenCall(RemoteCall):
    """One screener. All of them see the same endpoints; what all keep goes on."""

    __slots__ = ()

    def __init__(
        self, generation: Generation, binding: Binding, *, columns: Sequence[str], fields: Sequence[str]
    ) -> None:
        super().__init__(generation, Method.SCREEN, [binding], columns=columns, fields=fields)

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `screen`."""
        return [self.handles[0], view, candidate_bits(cycles), request_columns(cycles, self.fields, ())], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Narrow what each cycle keeps."""
        if not isinstance(result, list) or len(result) != 2:
            raise BadResultError("screen: expected [bits, errors]")
        errors = row_errors(result[1], 1, len(cycles))
        kept = self._kept(cycles, result[0])
        good = False
        for index, (cycle, row) in enumerate(zip(cycles, kept, strict=True)):
            code = errors.get((0, -1)) or errors.get((0, index))
            if code is not None:
                self.fail(cycle, code, tally)
            else:
                cycle.kept = row if cycle.kept is None else cycle.kept & row
                good = True
        return good

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """Survivors."""
        assert isinstance(result, list), "it was applied"
        if failed_at(result[1], len(cycles), index):
            return {}
        return {(Point.SCREEN, self.bindings[0].ref): self._kept(cycles, result[0])[index]}

    def _kept(self, cycles: Sequence[CycleState], bits: Value) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
        rows = cycles[0].snapshot.rows
        expected = len(cycles) * mask_bytes(rows)
        if not isinstance(bits, bytes) or len(bits) != expected:
            raise BadResultError(f"screen: expected {expected} bytes of bits, found {describe_size(bits)}")
        packed = np.frombuffer(bits, dtype=np.uint8).reshape(len(cycles), -1)
        return np.unpackbits(packed, axis=1, count=rows, bitorder="little").view(np.bool_)


class AdmitCall(RemoteCall):
    """One admitter: whether each request is served at all."""

    __slots__ = ()

    def __init__(
        self,
        generation: Generation,
        binding: Binding,
        *,
        columns: Sequence[str],
        fields: Sequence[str],
        consumed: Sequence[Consumed],
    ) -> None:
        super().__init__(generation, Method.ADMIT, [binding], columns=columns, fields=fields, consumed=consumed)

    def encode(self, cycles: Sequence[CycleState], view: list[object]) -> tuple[list[object], int | None]:
        """Arguments of `admit`."""
        requests = request_columns(cycles, self.fields, self.consumed)
        return [self.handles[0], view, candidate_bits(cycles), requests], None

    def apply(self, cycles: Sequence[CycleState], result: Value, tally: Tally) -> bool:
        """Refuse the requests that are denied."""
        return each_answer(self, cycles, result, tally, read_verdict, _take_verdict)

    def read(self, cycles: Sequence[CycleState], result: Value, index: int) -> dict[tuple[Point, str], AnswerValue]:
        """`admitted`, or the denial's code."""
        if _failed(cycles, result, index):
            return {}
        verdict = read_verdict(_answer(result, index))
        return {(Point.ADMIT, self.bindings[0].ref): ("admitted" if verdict is None else verdict.code,)}


def _take_verdict(cycle: CycleState, verdict: Verdict | None) -> None:
    if verdict is not None:
        cycle.reject(refusal_of(verdict))


def _failed(cycles: Sequence[CycleState], result: Value, index: int) -> bool:
    assert isinstance(result, list), "it was applied"
    return failed_at(result[1], len(cycles), index)


def _answer(result: Value, index: int) -> Value:
    """One request's answer of a result that was applied."""
    assert isinstance(result, list), "it was applied"
    assert isinstance(result[0], list), "it was applied"
    return result[0][index]
