"""What all calls of a cycle share: the cycle as a call sees it, columns of a batch, and the checks of an answer.

Pure. B is the number of cycles in a batch, E the rows of their common snapshot.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from hotbay_sdk.protocol import ErrorCode, Value
from hotbay_sdk.protocol.calls import REQUEST_SCOPE, TEXT_SCOPE
from hotbay_sdk.protocol.verdicts import HeaderEdits

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.errors import printable
from hotbay.scheduling.binding import Binding
from hotbay.scheduling.decision import Rejected
from hotbay.scheduling.fields import PEER, request_field
from hotbay.scheduling.request import InferenceRequest

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


Datum = Floats | float | str
"""One request's value of a data column: a number per row, one number, or one text."""
AnswerValue = Mask | Floats | float | tuple[int, ...] | tuple[str, ...]
"""What a plugin says at one point: survivors, scores, a column or number, picked rows, names of profiles, a verdict."""
LastGood = dict[str, tuple[int, Floats]]
"""Ref of a scorer bound `last_good` -> membership and scores of its last answer."""


class BadResultError(Exception):
    """A plugin's answer has the wrong shape. Says expected and found."""


class Consumed(NamedTuple):
    """A data column as it crosses to who consumes it, and where cycles keep it."""

    name: str
    key: str


def data_key(producer: str, column: str) -> str:
    """Where a cycle keeps a producer's column."""
    return f"{producer}/{column}"


class CycleState(Protocol):
    """What a call reads and writes of a cycle.

    `drained` says of each profile that found nothing why, `peer` is the id of what the profile that ran before chose first, `kept` what screeners left so far, `target` the primary
    profile and its rows once they are decided, `edits` what was said of headers by the order of who said it.
    """

    request: InferenceRequest
    snapshot: Snapshot
    mask: Mask
    totals: Floats | None
    data: dict[str, Datum]
    picked: list[int] | None
    drained: Mapping[str, Rejected]
    results: dict[str, list[int] | None]
    chosen: list[str] | None
    primary: str | None
    peer: str
    kept: Mask | None
    saturation: float
    target: tuple[str, list[int]] | None
    edits: dict[int, HeaderEdits]
    last_good: "LastGood"

    def degrade(self, binding: Binding, reason: str) -> None:
        """Let the binding's failure policy decide, and note why."""

    def reject(self, rejected: Rejected) -> None:
        """Decide so, whatever was found out until now."""

    def set_attributes(self, attributes: Mapping[str, str | int | float]) -> None:
        """Set attributes of the request."""


class Tally(Protocol):
    """Counts what plugins did wrong without failing."""

    def invalid_scores(self, ref: str, count: int) -> None:
        """Scores that were not finite or outside [0, 1]."""

    def plugin_error(self, point: str, ref: str, code: str) -> None:
        """An answer, or a part of one, that a failure policy replaced."""

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        """Takes the duration of each call of a plugin by one method, in seconds."""


def candidate_bits(cycles: Sequence[CycleState]) -> bytes | None:
    """Candidates of a batch: nil when every row is one, a shared row of bits, or a row each."""
    first = cycles[0].mask
    if all(cycle.mask is first for cycle in cycles):
        if first.all():
            return None
        return np.packbits(first, bitorder="little").tobytes()
    return np.packbits(np.stack([cycle.mask for cycle in cycles]), axis=1, bitorder="little").tobytes()


def request_columns(cycles: Sequence[CycleState], fields: Sequence[str], consumed: Sequence[Consumed]) -> list[object]:
    """The `requests` argument: declared fields and consumed data, column by column."""
    values = _fields([cycle.request for cycle in cycles], fields)
    if PEER in values:
        values[PEER] = [cycle.peer for cycle in cycles]
    data: dict[str, bytes | list[str | None]] = {}
    for name, key in consumed:
        _add_column(data, name, [cycle.data.get(key) for cycle in cycles], cycles[0].snapshot.rows)
    return [len(cycles), [], None, values, data]


def _add_column(data: dict[str, bytes | list[str | None]], name: str, parts: Sequence[Datum | None], rows: int) -> None:
    """One consumed column of a batch; of requests whose producer failed it has NaN, or no text.

    A producer may answer in one scope for one batch and in another for the next. Texts go before numbers, which are then
    left out; numbers go by row if one of them does.
    """
    if any(isinstance(part, str) for part in parts):
        data[name + TEXT_SCOPE] = [part if isinstance(part, str) else None for part in parts]
        return
    numbers: list[Floats | float] = [np.nan if part is None or isinstance(part, str) else part for part in parts]
    if any(isinstance(part, np.ndarray) for part in parts):
        by_row = [np.broadcast_to(np.asarray(number, np.float32), rows) for number in numbers]
        data[name] = np.stack(by_row).astype("<f4").tobytes()
    elif any(part is not None for part in parts):
        data[name + REQUEST_SCOPE] = np.array(numbers, dtype="<f4").tobytes()


def notice_columns(requests: Sequence[InferenceRequest], fields: Sequence[str]) -> list[object]:
    """The `requests` argument of what is told of requests without a cycle: declared fields alone."""
    return [len(requests), [], None, _fields(requests, fields), {}]


def _fields(requests: Sequence[InferenceRequest], fields: Sequence[str]) -> dict[str, list[Value]]:
    return {name: [request_field(request, name) for request in requests] for name in fields}


def row_errors(value: Value, steps: int, requests: int) -> dict[tuple[int, int], str]:
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


def first_error(result: Value) -> str:
    """Code and message of the first error that a reply lists, cut and printable; empty where it lists none."""
    errors = result[-1] if isinstance(result, list) and result else None
    item = errors[0] if isinstance(errors, list) and errors else None
    error = item[-1] if isinstance(item, list) and item else None
    if not isinstance(error, dict):
        return ""
    code, message = error.get("code"), error.get("message")
    known = code if isinstance(code, str) and code in _CODES else str(ErrorCode.PLUGIN_ERROR)
    return complaint_text(known, message if isinstance(message, str) else "")


def complaint_text(code: str, message: str) -> str:
    """What a plugin said about a call, in one line, cut and printable: its words are anything."""
    text = f"{code}: {' '.join(message.split())}" if message else code
    return printable(text[:MAX_COMPLAINT_CHARS])


MAX_COMPLAINT_CHARS: Final = 300
"""Of one error's text: a line for status and quarantine. The plugin's log has all of it."""
_CODES: Final = frozenset(str(code) for code in ErrorCode)


def describe_size(value: Value) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__
