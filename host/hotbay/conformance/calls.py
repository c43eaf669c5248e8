"""Well-formed hot calls to whatever type a peer declares, and the shape that their results must have. Pure."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hotbay_sdk.protocol import CallError, ErrorCode, ErrorReceived, Method, ReplyReceived, TypeDeclaration, Value
from hotbay_sdk.protocol.calls import (
    ANY_COLUMN,
    INT64_SUFFIX,
    POINT_FILTER,
    POINT_SCORE,
    PROMPT_HASHES,
    REQUEST_SCOPE,
    SIDE_TABLES,
    TEXT_SCOPE,
    column_format,
    is_column_read,
    is_request_read,
    mask_bytes,
    run_reply_limit,
)
from hotbay_sdk.protocol.messages import HOT_FRAME_BYTES
from hotbay_sdk.protocol.tables import RowValue, encode_table
from hotbay_sdk.protocol.verdicts import read_attributes, read_parsed, read_verdict

from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, expect, well_formed

GENERATION: Final = 7
UNKNOWN_METHOD: Final = 255
ERROR_BYTES: Final = 16 * 1024
"""What the errors of a reply may add to it."""
PROFILE: Final = "default"
PROFILES: Final = ("decode", PROFILE)
"""Names of profiles that handlers are given: of two that are usual, for a handler may be made for either."""
PATH: Final = "/v1/chat/completions"
BODY: Final = b'{"model": "model", "messages": [{"role": "user", "content": "hello"}]}'

POINT_METHODS: Final = {
    "score": Method.RUN,
    "filter": Method.RUN,
    "pick": Method.PICK,
    "produce": Method.PRODUCE,
    "screen": Method.SCREEN,
    "admit": Method.ADMIT,
    "profile_handler": Method.PROFILE_PICK,
    "request_headers": Method.REQUEST_HEADERS,
    "saturation": Method.SATURATION,
    "parse": Method.PARSE,
}
"""Points that answer, in the order in which a probe prefers them."""

_OF_ENDPOINTS: Final = frozenset({"score", "filter", "pick", "produce", "screen", "admit"})
"""Points whose calls are of many requests, over the candidates of a view."""
_OF_REQUESTS: Final = _OF_ENDPOINTS | {"request_headers"}
"""Points whose calls are of many requests, and end with the errors of single ones."""

DATA_POINTS: Final = ("extract", "source", "discover", "watch", "poll")
"""Those of the data layer, whose calls travel on the control link."""

POLICY_POINTS: Final = ("fairness", "ordering", "usage_limit", "eviction_order", "eviction_filter")
"""Those that are declared, and that no host of this release calls."""

KNOWN_POINTS: Final = frozenset(
    {
        *POINT_METHODS,
        *DATA_POINTS,
        *POLICY_POINTS,
        *("pre_request", "response_headers", "response_body", "dump_state"),
    }
)

_FIELDS: Final[dict[str, Value]] = {
    "request.id": "conformance-1",
    "request.model": "model",
    "request.target_model": "model",
    "request.prompt": "user\0hello\0",
    "request.messages": [{"role": "user", "content": "hello"}],
    "request.tokens_estimate": 3,
    "request.priority": 0,
    "request.size": 64,
}

_FACTS: Final[dict[str, RowValue]] = {
    "texts": {"llm-d.ai/role": "decode", "team": "a"},
    "counts": {"adapter": 2},
    "text": "decode",
}
"""Kind of a side table's value → one."""

__all__ = ["DATA_POINTS", "GENERATION", "KNOWN_POINTS", "UNKNOWN_METHOD", "Probe", "Shape", "choices", "choose"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch: requests, endpoint rows, and what the call says of candidates and free rows."""

    requests: int = 1
    rows: int = 2
    candidates: Value = None
    free_row: bool = False


def choose(declared: Sequence[TypeDeclaration]) -> tuple[TypeDeclaration, str]:
    """A type and a point of it that can be called; the point is empty where every type only listens."""
    return next(choices(declared), (declared[0], ""))


def choices(declared: Sequence[TypeDeclaration]) -> Iterator[tuple[TypeDeclaration, str]]:
    """Every type with every point of it that can be called, the best first."""
    for point in POINT_METHODS:
        yield from ((declaration, point) for declaration in declared if point in declaration.points)


def _are_texts(column: Value, count: int) -> bool:
    return (
        isinstance(column, list)
        and len(column) == count
        and all(item is None or isinstance(item, str) for item in column)
    )


@dataclass(frozen=True, slots=True)
class Probe:
    """One configured instance, and how it is called.

    An instance that only listens is stood in for by a method that does not exist: its answer is an error, and as good
    a sign of life as any.
    """

    declaration: TypeDeclaration
    point: str
    handle: Value
    block_tokens: int | None

    @property
    def method(self) -> int:
        return POINT_METHODS[self.point] if self.point else UNKNOWN_METHOD

    @property
    def sees_endpoints(self) -> bool:
        return self.point in _OF_ENDPOINTS

    @property
    def takes_view(self) -> bool:
        return self.sees_endpoints or self.point in ("profile_handler", "saturation")

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(
            name for name in self.declaration.reads if is_column_read(name) and not name.endswith(INT64_SUFFIX)
        )

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(name for name in self.declaration.reads if name in SIDE_TABLES)

    def batch(self, requests: int) -> int:
        """The largest batch up to `requests` that the method takes."""
        return requests if self.point in _OF_REQUESTS else 1

    def with_handle(self, handle: Value) -> "Probe":
        return Probe(self.declaration, self.point, handle, self.block_tokens)

    def arguments(self, shape: Shape, epoch: int, view: Value = None) -> list[Value]:
        """The method's arguments; `view` in the place of a whole one."""
        requests = self.requests(shape)
        view = self.view(shape, epoch) if view is None else view
        if self.method == Method.RUN:
            number = POINT_SCORE if self.point == "score" else POINT_FILTER
            return [[[number, self.handle]], view, shape.candidates, requests]
        if self.method == Method.PICK:
            totals = struct.pack("<f", 0.5) * (shape.requests * shape.rows)
            return [self.handle, view, shape.candidates, totals, requests, 2]
        if self.point in _OF_ENDPOINTS:
            return [self.handle, view, shape.candidates, requests]
        if self.method == Method.PARSE:
            path = self.declaration.claims[0] if self.declaration.claims else PATH
            return [self.handle, path, {}, BODY]
        rest: dict[str, list[Value]] = {
            "profile_handler": [self.handle, view, requests, [*PROFILES], {}],
            "request_headers": [self.handle, requests],
            "saturation": [self.handle, view],
        }
        return rest.get(self.point, [])

    def view(self, shape: Shape, epoch: int) -> list[Value]:
        """A whole view of its own membership."""
        ids: list[Value] = [f"default/{row}" for row in range(shape.rows)]
        if shape.free_row:
            ids[-1] = ""
        columns: dict[str, Value] = {
            name: struct.pack("<q", 16) * shape.rows
            if column_format(name) == "q"
            else struct.pack("<f", 0.5) * shape.rows
            for name in self.columns
        }
        whole: list[Value] = [epoch, shape.rows, epoch, ids, columns]
        if not self.tables:
            return whole
        tables: dict[str, Value] = {
            name: encode_table(name, [_FACTS[SIDE_TABLES[name]] if known else None for known in ids])
            for name in self.tables
        }
        return [*whole, None, [epoch, tables]]

    def requests(self, shape: Shape) -> list[Value]:
        """The batch."""
        fields: dict[str, Value] = {}
        for name in self.declaration.reads:
            if name == PROMPT_HASHES:
                if self.block_tokens:
                    fields[f"{name}/{self.block_tokens}"] = [struct.pack("<4Q", 1, 2, 3, 4)] * shape.requests
            elif is_request_read(name):
                fields[name] = [_FIELDS.get(name)] * shape.requests
        column = struct.pack("<f", 0.5) * (shape.requests * shape.rows)
        consumed = (name for name in self.declaration.consumes if name != ANY_COLUMN)
        data: dict[str, Value] = dict.fromkeys(consumed, column)
        return [shape.requests, [], None, fields, data]

    def reply_limit(self, shape: Shape) -> int:
        """Longest body of a reply."""
        if self.method == Method.RUN:
            return run_reply_limit(1, shape.requests, shape.rows) + ERROR_BYTES
        return HOT_FRAME_BYTES

    def check(self, answer: object, shape: Shape) -> None:
        """Raise `BrokenRuleError` unless this answers such a call."""
        if not self.point:
            expect(isinstance(answer, ErrorReceived), "a method that does not exist was answered with a result")
            return
        if isinstance(answer, ErrorReceived):
            if self.point not in _OF_REQUESTS and answer.error.code is ErrorCode.PLUGIN_ERROR:
                # Its author's code raised at what this run gives it, and there is no error of one request to say so.
                return
            raise BrokenRuleError(f"{self._called} failed with {answer.error.code}: {answer.error.message[:400]}")
        if not isinstance(answer, ReplyReceived):
            raise BrokenRuleError(f"{self._called} was answered after it was cancelled")
        self._check_result(answer.result, shape)

    @property
    def _called(self) -> str:
        return f"a well-formed call of {self.declaration.type} ({self.point})"

    def _check_result(self, result: Value, shape: Shape) -> None:
        if self.point in ("admit", "request_headers", "saturation", "parse"):
            self._check_request_result(result, shape)
        elif self.point == "screen":
            bits, errors = self._parts(result, 2)
            expect(
                isinstance(bits, bytes) and len(bits) == shape.requests * mask_bytes(shape.rows),
                f"{self._called}: bits of {shape.requests * mask_bytes(shape.rows)} bytes expected",
            )
            self.check_errors(errors, shape)
        elif self.method == Method.PROFILE_PICK:
            good = isinstance(result, list) and all(isinstance(name, str) for name in result)
            expect(good, f"{self._called}: the result is no list of profile names")
        elif self.method == Method.RUN:
            bits, scores, errors = self._parts(result, 3)
            self._check_run(bits, scores, shape)
            self.check_errors(errors, shape)
        elif self.method == Method.PICK:
            rows, errors = self._parts(result, 2)
            self._check_picks(rows, shape)
            self.check_errors(errors, shape)
        else:
            data, errors = self._parts(result, 2)
            self._check_data(data, shape)
            self.check_errors(errors, shape)

    def _check_request_result(self, result: Value, shape: Shape) -> None:
        with well_formed(self._called):
            if self.point == "parse":
                read_parsed(result)
                return
        if self.point == "saturation":
            good = isinstance(result, float) and 0.0 <= result < float("inf")
            expect(good, f"{self._called}: a finite float from 0 up expected, found {str(result)[:80]}")
            return
        items, errors = self._parts(result, 2)
        if not isinstance(items, list) or len(items) != shape.requests:
            raise BrokenRuleError(f"{self._called}: not one item for each of {shape.requests} requests")
        for item in items:
            with well_formed(self._called):
                read_verdict(item) if self.point == "admit" else read_attributes(item)
        self.check_errors(errors, shape)

    def _parts(self, result: Value, count: int) -> list[Value]:
        if not isinstance(result, list) or len(result) != count:
            raise BrokenRuleError(f"{self._called}: the result is no array of {count}")
        return result

    def _check_run(self, bits: Value, scores: Value, shape: Shape) -> None:
        score = self.point == "score"
        length = 4 * shape.requests * shape.rows if score else 0
        found = len(scores) if isinstance(scores, bytes) else type(scores).__name__
        expect(found == length, f"{self._called}: scores of {length} bytes expected, found {found}")
        wanted = None if score else shape.requests * mask_bytes(shape.rows)
        kept = len(bits) if isinstance(bits, bytes) else bits
        expect(kept == wanted, f"{self._called}: bits of {wanted} bytes expected, found {kept!r}")

    def _check_picks(self, rows: Value, shape: Shape) -> None:
        good = (
            isinstance(rows, list)
            and len(rows) == shape.requests
            and all(
                isinstance(chosen, list)
                and len(chosen) <= 2
                and len(set(map(str, chosen))) == len(chosen)
                and all(type(row) is int and 0 <= row < shape.rows for row in chosen)
                for chosen in rows
            )
        )
        expect(good, f"{self._called}: not one list of at most 2 different row numbers a request")

    def _check_data(self, data: Value, shape: Shape) -> None:
        if not isinstance(data, dict):
            raise BrokenRuleError(f"{self._called}: the data is no map")
        for name in self.declaration.produces:
            whole, one = data.get(name), data.get(name + REQUEST_SCOPE)
            good = isinstance(whole, bytes) and len(whole) == 4 * shape.requests * shape.rows
            good = good or (isinstance(one, bytes) and len(one) == 4 * shape.requests)
            good = good or _are_texts(data.get(name + TEXT_SCOPE), shape.requests)
            expect(
                good,
                f"{self._called}: no {name} of B × E numbers, nor {name}{REQUEST_SCOPE} of B, nor {name}{TEXT_SCOPE} of B texts",
            )

    def check_errors(self, errors: Value, shape: Shape) -> list[CallError]:
        """The errors of a result's last item, each of them well-formed."""
        if not isinstance(errors, list):
            raise BrokenRuleError(f"{self._called}: the errors are no list")
        found = []
        for entry in errors:
            if not isinstance(entry, list) or len(entry) != 3:
                raise BrokenRuleError(f"{self._called}: an error is [step, request, error]")
            step, request, error = entry
            numbered = type(step) is int and type(request) is int and step == 0 and -1 <= request < shape.requests
            expect(numbered, f"{self._called}: an error of step {step!r}, request {request!r}")
            with well_formed(f"{self._called}: an error"):
                found.append(CallError.from_wire(error))
        return found

    def needs_view(self) -> None:
        """Raise `InapplicableError` for a probe whose calls carry no view."""
        if not self.takes_view:
            raise InapplicableError("no type of this package is called with a view")

    def needs_endpoints(self) -> None:
        """Raise `InapplicableError` for a probe whose calls have no candidates."""
        if not self.sees_endpoints:
            raise InapplicableError("no type of this package is called with endpoints")
