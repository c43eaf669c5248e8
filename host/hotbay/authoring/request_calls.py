"""Calls of `hotbay call` around the scheduling cycle: their arguments, and what came back in an author's terms. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hotbay_sdk.protocol import MalformedMessageError, Method, Value
from hotbay_sdk.protocol.calls import InstanceFacts
from hotbay_sdk.protocol.verdicts import (
    Parsed,
    Verdict,
    read_attributes,
    read_edits,
    read_parsed,
    read_verdict,
)

from hotbay.authoring.arguments import Batch, survivors
from hotbay.errors import PluginFault
from hotbay.scheduling.fields import request_headers_of

__all__ = [
    "ANSWERED_POINTS",
    "TOLD_POINTS",
    "answered_rows",
    "arguments_of",
    "parse_arguments",
    "picks_of",
    "read_answer",
    "shown_parsed",
]

ANSWERED_POINTS: Final[Mapping[str, Method]] = {
    "screen": Method.SCREEN,
    "admit": Method.ADMIT,
    "request_headers": Method.REQUEST_HEADERS,
    "saturation": Method.SATURATION,
    "pre_request": Method.PRE_REQUEST,
}
"""Points that one call answers for the whole batch."""
TOLD_POINTS: Final[Mapping[str, Method]] = {
    "response_headers": Method.RESPONSE_HEADERS,
    "response_body": Method.RESPONSE_BODY,
}
"""Points that are told, and answer nothing."""
PROFILE: Final = "default"

_RESPONSE: Final[Mapping[str, Value]] = {"profile": PROFILE, "status": 200}
_BODY: Final[Mapping[str, Value]] = {
    "bytes": 512,
    "chunks": 4,
    "usage": {"prompt_tokens": 16, "completion_tokens": 4, "cached_tokens": 0},
    "end": True,
    "cause": "natural",
    "first_byte": True,
    "ttft_us": 100_000,
    "elapsed_us": 200_000,
}
"""What is told of a response: nobody has one to give."""


def arguments_of(point: str, handle: list[int], batch: Batch) -> list[Value]:
    """The arguments of one call, or of what is told."""
    if point in ("screen", "admit"):
        return [[*handle], batch.view(), batch.mask(), batch.request_columns()]
    if point == "request_headers":
        return [[*handle], batch.request_columns()]
    if point == "saturation":
        return [[*handle], batch.view()]
    if point == "pre_request":
        return [[*handle], batch.view(), batch.request_columns(), picks_of(batch)]
    response: dict[str, Value] = {"endpoint": next(iter(batch.members), ""), **_RESPONSE}
    told: dict[str, Value] = {**response, "headers": {}} if point == "response_headers" else {**response, **_BODY}
    return [[*handle], batch.request_columns(), [told] * len(batch.requests)]


def picks_of(batch: Batch) -> list[Value]:
    """All candidates are the targets of the only profile."""
    ids: list[Value] = [*batch.members]
    return [[ids, PROFILE, {PROFILE: ids}]] * len(batch.requests)


def parse_arguments(handle: list[int], batch: Batch) -> list[list[Value]]:
    """A call for each request, on the first path that the type claims. Headers cross that it reads."""
    wanted = request_headers_of(batch.reads)
    claims = batch.declaration.claims
    return [
        [
            [*handle],
            claims[0] if claims else request.path,
            {name: value for name, value in request.headers.items() if name in wanted},
            bytes(request.body),
        ]
        for request in batch.requests
    ]


def answered_rows(point: str, result: Value, batch: Batch) -> Sequence[object]:
    """What a call says of each request; of a pool, where it is about no request. Raises `PluginFault` BAD_RESULT."""
    if point == "screen":
        return survivors(result, batch)
    if point == "saturation":
        if not isinstance(result, float) or not 0.0 <= result < float("inf"):
            raise PluginFault("BAD_RESULT", f"a finite number from 0 up expected, found {result!r:.80}")
        return [{"saturation": result}]
    found = result[0] if isinstance(result, list) and result else None
    if not isinstance(found, list) or len(found) != len(batch.requests):
        raise PluginFault("BAD_RESULT", "one item for each request expected")
    return [read_answer(_shown, point, item, batch.facts) for item in found]


def read_answer(read: Callable[..., object], *arguments: object) -> object:
    """What `read` finds. Raises `PluginFault` BAD_RESULT for what is of another form."""
    try:
        return read(*arguments)
    except MalformedMessageError as error:
        raise PluginFault("BAD_RESULT", str(error)) from error


def shown_parsed(value: Value) -> object:
    """A parsed request, or the denial."""
    found = read_parsed(value)
    return found.to_wire() if isinstance(found, Parsed) else _denied(found)


def _shown(point: str, item: Value, facts: InstanceFacts) -> object:
    if point == "admit":
        verdict = read_verdict(item)
        return {"admitted": True} if verdict is None else _denied(verdict)
    if point == "request_headers":
        found = read_attributes(item)
        return _denied(found) if isinstance(found, Verdict) else found
    edits = read_edits(item, request=frozenset(facts.request_headers), response=frozenset(facts.response_headers))
    return {} if edits is None else {"request": dict(edits.request), "response": dict(edits.response)}


def _denied(verdict: Verdict) -> dict[str, object]:
    return {"status": verdict.status, "code": verdict.code, "reason": verdict.reason, "message": verdict.message}
