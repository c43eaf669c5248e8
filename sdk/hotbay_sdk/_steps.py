"""One step of a call: the author's method over a batch, its results packed, its faults noted.

A request whose method raised gets an entry in the errors, and zeros; the others are answered. A
filter that failed for a request does not narrow its candidates.
"""

from __future__ import annotations

from itertools import compress

from hotbay_sdk import _bits, _results
from hotbay_sdk._errors import BadResultError, Failed, attempt, fault_of
from hotbay_sdk._views import Endpoint, ScoredEndpoint
from hotbay_sdk.protocol.messages import ErrorCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from hotbay_sdk._async import AsyncRunner
    from hotbay_sdk._batch import Batch
    from hotbay_sdk._instances import Instance
    from hotbay_sdk._views import Endpoints, Request
    from hotbay_sdk.protocol.values import Value

    Column = bytes | list[str | None]

ERROR_BYTES_PER_REQUEST = 256
"""The share of a hot reply's size limit that is for errors (wire-protocol 10)."""
ERROR_FRAME_BYTES = 56
"""Bytes of one entry without its message: keys, code, step and request."""
WHOLE_BATCH = -1


class StepErrors:
    """The `errors` part of a reply."""

    __slots__ = ("_found", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: list[tuple[int, int, ErrorCode, str]] = []

    def note(self, instance: Instance, step: int, request: int, fault: BaseException) -> None:
        """Take an error. The frames of a step's first one go to the plugin's log, not over the wire."""
        error = fault_of(fault, with_traceback=False)
        if not any(found[0] == step for found in self._found):
            instance.context.logger.fault(fault)
        self._found.append((step, request, error.code, error.message))

    def to_wire(self) -> list[Value]:
        """Entries [step, request, error map], with messages cut to fit the reply's limit."""
        if not self._found:
            return []
        share = self._size * ERROR_BYTES_PER_REQUEST // len(self._found) - ERROR_FRAME_BYTES
        return [
            [step, request, {"code": str(code), "message": _cut(message, max(0, share))}]
            for step, request, code, message in self._found
        ]


def _cut(text: str, limit_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:limit_bytes].decode("utf-8", "ignore")


class AuthorCalls:
    """Runs methods of one instance, sync or async, and turns what they raise into `Failed`."""

    __slots__ = ("_runner", "_timeout_s", "instance")

    def __init__(self, instance: Instance, runner: AsyncRunner | None, timeout_s: float | None) -> None:
        self.instance = instance
        self._runner = runner
        self._timeout_s = timeout_s

    def one(self, name: str, *arguments: object) -> object:
        """One call of a method."""
        return self.each(name, [arguments])[0]

    def each(self, name: str, calls: Sequence[tuple[object, ...]]) -> list[object]:
        """A call of a method for each tuple of arguments; async ones run together."""
        method: Callable[..., Any] = getattr(self.instance.object, name)
        if name not in self.instance.spec.async_methods:
            return [attempt(method, *arguments) for arguments in calls]
        return self._together([_bound(method, arguments) for arguments in calls])

    def sweep(self, name: str, requests: Sequence[Request], candidates: Sequence[Sequence[Endpoint]]) -> list[object]:
        """A call of a method for each candidate of each request: one list of results a request."""
        method: Callable[..., Any] = getattr(self.instance.object, name)
        pairs = list(zip(requests, candidates, strict=True))
        if name not in self.instance.spec.async_methods:
            return [attempt(_swept, method, request, endpoints) for request, endpoints in pairs]
        return self._together([_awaited_sweep(method, request, endpoints) for request, endpoints in pairs])

    def _together(self, jobs: Sequence[Callable[[], Awaitable[object]]]) -> list[object]:
        assert self._runner is not None, "configure starts the loop with the first instance that has async methods"
        return self._runner.outcomes(jobs, self._timeout_s)


def _bound(method: Callable[..., Any], arguments: tuple[object, ...]) -> Callable[[], Awaitable[object]]:
    async def job() -> object:
        result: object = await method(*arguments)
        return result

    return job


def _swept(method: Callable[..., Any], request: Request, endpoints: Sequence[Endpoint]) -> list[object]:
    return [method(request, endpoint) for endpoint in endpoints]


def _awaited_sweep(
    method: Callable[..., Any], request: Request, endpoints: Sequence[Endpoint]
) -> Callable[[], Awaitable[object]]:
    async def job() -> object:
        return [await method(request, endpoint) for endpoint in endpoints]

    return job


def _candidates(endpoints: Endpoints, batch: Batch) -> tuple[list[list[int]], list[list[Endpoint]]]:
    """Candidate rows of each request, and their views."""
    rows = [list(compress(range(batch.view.rows), batch.flags(index))) for index in range(batch.size)]
    views = []
    for index, members in enumerate(rows):
        own = endpoints._for_request(index)
        views.append([Endpoint(own, row) for row in members])
    return rows, views


def score(calls: AuthorCalls, batch: Batch, errors: StepErrors, step: int) -> list[bytes]:
    """B rows of E float32."""
    instance = calls.instance
    (name,) = instance.spec.methods["score"]
    endpoints, requests = batch.endpoints(instance), batch.requests(instance)
    count = batch.view.rows
    blank = bytes(4 * count)
    if name == "score_batch":
        outcome = calls.one(name, requests, endpoints)
        if not isinstance(outcome, Failed):
            outcome = attempt(_results.matrix, outcome, batch.size, count, name)
        if isinstance(outcome, Failed):
            errors.note(instance, step, WHOLE_BATCH, outcome.fault)
            return [blank] * batch.size
        assert isinstance(outcome, list)
        return _blanked(outcome, batch)
    rows, views = _candidates(endpoints, batch)
    packed: list[bytes] = []
    for index, outcome in enumerate(calls.sweep(name, requests, views)):
        if not isinstance(outcome, Failed):
            outcome = attempt(_results.scores_row, outcome, rows[index], count)
        if isinstance(outcome, Failed):
            errors.note(instance, step, index, outcome.fault)
        packed.append(outcome if isinstance(outcome, bytes) else blank)
    return packed


def _blanked(rows: Sequence[bytes], batch: Batch) -> list[bytes]:
    everything = _bits.full(batch.view.rows)
    return [
        row if batch.masks[index] == everything else _bits.blank_outside(row, batch.flags(index))
        for index, row in enumerate(rows)
    ]


def keep(calls: AuthorCalls, batch: Batch, errors: StepErrors, step: int, point: str = "filter") -> None:
    """Narrow the batch's candidates by a filter, or by a screener."""
    instance = calls.instance
    (name,) = instance.spec.methods[point]
    endpoints, requests = batch.endpoints(instance), batch.requests(instance)
    if name.endswith("_batch"):
        outcome = calls.one(name, requests, endpoints)
        if not isinstance(outcome, Failed):
            outcome = attempt(_results.flag_rows, outcome, batch.size, batch.view.rows, name)
        if isinstance(outcome, Failed):
            errors.note(instance, step, WHOLE_BATCH, outcome.fault)
            return
        assert isinstance(outcome, list)
        batch.masks = [mask & kept for mask, kept in zip(batch.masks, outcome, strict=True)]
        return
    rows, views = _candidates(endpoints, batch)
    masks: list[int] = []
    for index, outcome in enumerate(calls.sweep(name, requests, views)):
        if not isinstance(outcome, Failed):
            outcome = attempt(_kept, outcome, rows[index], name)
        if isinstance(outcome, Failed):
            errors.note(instance, step, index, outcome.fault)
        masks.append(outcome if isinstance(outcome, int) else batch.masks[index])
    batch.masks = masks


def _kept(results: Sequence[object], rows: Sequence[int], name: str) -> int:
    mask = 0
    for row, result in zip(rows, results, strict=True):
        if _results.flag(result, name):
            mask |= 1 << row
    return mask


def pick(calls: AuthorCalls, batch: Batch, errors: StepErrors, *, totals: bytes, n: int) -> list[list[int]]:
    """Row numbers for each request, best first; none where there is no candidate."""
    instance = calls.instance
    endpoints, requests = batch.endpoints(instance), batch.requests(instance)
    scores = memoryview(totals).cast("f") if totals else memoryview(b"")
    rows = [list(compress(range(batch.view.rows), batch.flags(index))) for index in range(batch.size)]
    asked = [index for index, members in enumerate(rows) if members]
    arguments: list[tuple[object, ...]] = []
    for index in asked:
        own, start = endpoints._for_request(index), index * batch.view.rows
        members = [ScoredEndpoint(own, row, scores[start + row]) for row in rows[index]]
        arguments.append((requests[index], members, n))
    picked: list[list[int]] = [[] for _ in range(batch.size)]
    for index, outcome in zip(asked, calls.each("pick", arguments), strict=True):
        if not isinstance(outcome, Failed):
            outcome = attempt(_results.picked_rows, outcome, batch.masks[index], n)
        if isinstance(outcome, Failed):
            errors.note(instance, 0, index, outcome.fault)
        elif isinstance(outcome, list):
            picked[index] = outcome
    return picked


def produce(calls: AuthorCalls, batch: Batch, errors: StepErrors) -> dict[str, Column]:
    """Every declared column: B x E or B float32, or B texts."""
    instance = calls.instance
    scopes = instance.spec.produces
    count, size = batch.view.rows, batch.size
    blank: dict[str, Column] = {column: _blank(scope, count) for column, scope in scopes.items()}
    if not size or not count:
        return {column: item * size for column, item in blank.items()}
    endpoints, requests = batch.endpoints(instance), batch.requests(instance)
    (name,) = instance.spec.methods["produce"]
    if name == "produce_batch":
        outcome = calls.one(name, requests, endpoints)
        if not isinstance(outcome, Failed):
            outcome = attempt(_columns_of_batch, outcome, scopes, batch)
        if isinstance(outcome, Failed):
            errors.note(instance, 0, WHOLE_BATCH, outcome.fault)
        return outcome if isinstance(outcome, dict) else {column: item * size for column, item in blank.items()}
    parts: list[dict[str, Column]] = []
    own = [(request, endpoints._for_request(index)) for index, request in enumerate(requests)]
    for index, outcome in enumerate(calls.each(name, own)):
        if not isinstance(outcome, Failed):
            outcome = attempt(_columns_of_request, outcome, scopes, batch, index)
        if isinstance(outcome, Failed):
            errors.note(instance, 0, index, outcome.fault)
        parts.append(outcome if isinstance(outcome, dict) else blank)
    return {column: _joined([part[column] for part in parts]) for column in scopes}


def _blank(scope: str, rows: int) -> Column:
    """One request's part of a column that was not made."""
    return [None] if scope == "text" else bytes(4 * (rows if scope == "row" else 1))


def _joined(parts: Sequence[Column]) -> Column:
    if isinstance(parts[0], bytes):
        return b"".join(part for part in parts if isinstance(part, bytes))
    return [text for part in parts for text in part if not isinstance(text, int)]


def _declared(result: object, scopes: Mapping[str, str], what: str) -> dict[str, object]:
    if not isinstance(result, dict):
        raise BadResultError(f"{what} returned a {type(result).__name__}, expected a map of columns")
    if result.keys() != scopes.keys():
        found = ", ".join(sorted(ascii(key)[:80] for key in result)) or "none"
        raise BadResultError(f"{what} returned the columns {found}; declared are {', '.join(sorted(scopes))}")
    return result


def _columns_of_batch(result: object, scopes: Mapping[str, str], batch: Batch) -> dict[str, Column]:
    made: dict[str, Column] = {}
    for column, value in _declared(result, scopes, "produce_batch").items():
        what = f"produce_batch, column {column},"
        if scopes[column] == "row":
            made[column] = b"".join(_blanked(_results.matrix(value, batch.size, batch.view.rows, what), batch))
        elif scopes[column] == "text":
            made[column] = _results.texts(value, batch.size, what)
        else:
            made[column] = _results.vector(value, batch.size, what, "request")
    return made


def _columns_of_request(result: object, scopes: Mapping[str, str], batch: Batch, index: int) -> dict[str, Column]:
    made: dict[str, Column] = {}
    for column, value in _declared(result, scopes, "produce").items():
        what = f"produce, column {column},"
        if scopes[column] == "row":
            row = _results.vector(value, batch.view.rows, what, "endpoint")
            everything = batch.masks[index] == _bits.full(batch.view.rows)
            made[column] = row if everything else _bits.blank_outside(row, batch.flags(index))
        elif scopes[column] == "text":
            made[column] = _results.texts([value], 1, what)
        else:
            made[column] = _results.vector([value], 1, what, "request")
    return made
