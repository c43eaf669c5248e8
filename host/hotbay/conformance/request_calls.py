"""Well-formed calls around the scheduling cycle to whatever a type declares, and the form that their results must have. Pure.

What an author's code makes of a request is its own business: a call in which it raises is no broken rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hotbay_sdk.protocol import ErrorCode, ErrorReceived, Method, ReplyReceived, TypeDeclaration, Value
from hotbay_sdk.protocol.calls import ANY_COLUMN, InstanceFacts, column_name, wildcard_of
from hotbay_sdk.protocol.messages import METHODS
from hotbay_sdk.protocol.verdicts import CAUSES, RESERVED_HEADERS, is_header_name, read_edits

from hotbay.conformance.calls import PROFILE, Probe, Shape
from hotbay.conformance.verdict import BrokenRuleError, expect, well_formed

__all__ = ["REQUEST_POINTS", "TOLD_POINTS", "RequestProbe", "misfit", "unfit_facts"]

ANSWERED: Final = ("screen", "admit", "request_headers", "parse", "saturation", "profile_handler")
"""Points that a `Probe` calls."""
TOLD_POINTS: Final = {
    "pre_request": Method.PRE_REQUEST,
    "response_headers": Method.RESPONSE_HEADERS,
    "response_body": Method.RESPONSE_BODY,
}
"""Points that are told, and answer nothing but `pre_request` where headers are set."""
_OTHERS: Final = {**TOLD_POINTS, "dump_state": Method.DUMP_STATE}
REQUEST_POINTS: Final = (*ANSWERED, *_OTHERS)


@dataclass(frozen=True, slots=True)
class RequestProbe:
    """One configured instance, and one point at which it is called."""

    declaration: TypeDeclaration
    point: str
    handle: Value
    facts: InstanceFacts

    @property
    def called(self) -> str:
        """The call, for people."""
        return f"a well-formed call of {self.declaration.type} ({self.point})"

    @property
    def method(self) -> Method:
        return Method(self._probe.method) if self.point in ANSWERED else _OTHERS[self.point]

    @property
    def reply_limit(self) -> int:
        return METHODS[self.method].reply_bytes

    @property
    def answers(self) -> bool:
        """Whether it is called on the call link, and answers."""
        return self.point in ANSWERED or (self.point == "pre_request" and self.sets_headers)

    @property
    def sets_headers(self) -> bool:
        return bool(self.facts.request_headers or self.facts.response_headers)

    @property
    def _probe(self) -> Probe:
        point = self.point if self.point in ANSWERED else ""
        return Probe(self.declaration, point, self.handle, self.facts.block_tokens)

    def with_handle(self, handle: Value) -> "RequestProbe":
        return replace(self, handle=handle)

    def arguments(self, shape: Shape, epoch: int) -> list[Value]:
        """The arguments of a call, or of what is told."""
        if self.point in ANSWERED:
            return self._probe.arguments(shape, epoch)
        if self.point == "dump_state":
            return [self.handle]
        requests = self._probe.requests(shape)
        ids: list[Value] = ["default/0"]
        if self.point == "pre_request":
            pick: list[Value] = [ids, PROFILE, {PROFILE: ids}]
            return [self.handle, self._probe.view(shape, epoch), requests, [pick] * shape.requests]
        told: dict[str, Value] = {"endpoint": "default/0", "profile": PROFILE, "status": 200}
        told |= {"headers": {}} if self.point == "response_headers" else _BODY
        return [self.handle, requests, [told] * shape.requests]

    def batch(self, requests: int) -> int:
        """The largest batch up to `requests` that the method takes."""
        return self._probe.batch(requests) if self.point in ANSWERED else requests

    def check(self, answer: object, shape: Shape) -> None:
        """Raise `BrokenRuleError` unless this answers such a call."""
        if self.point in ANSWERED:
            self._probe.check(answer, shape)
            return
        if isinstance(answer, ErrorReceived):
            code = answer.error.code
            good = code is ErrorCode.PLUGIN_ERROR or (self.point == "dump_state" and code is ErrorCode.BAD_RESULT)
            expect(good, f"{self.called} failed with {code}: {answer.error.message[:400]}")
            return
        if not isinstance(answer, ReplyReceived):
            raise BrokenRuleError(f"{self.called} was answered after it was cancelled")
        if self.point == "pre_request":
            self._check_edits(answer.result, shape)

    def _check_edits(self, result: Value, shape: Shape) -> None:
        if not isinstance(result, list) or len(result) != 2:
            raise BrokenRuleError(f"{self.called}: the result is no array of 2")
        edits, errors = result
        if not isinstance(edits, list) or len(edits) != shape.requests:
            raise BrokenRuleError(f"{self.called}: not one item for each of {shape.requests} requests")
        request, response = frozenset(self.facts.request_headers), frozenset(self.facts.response_headers)
        for edit in edits:
            with well_formed(self.called):
                read_edits(edit, request=request, response=response)
        self._probe.check_errors(errors, shape)


_BODY: Final[dict[str, Value]] = {
    "bytes": 7,
    "chunks": 1,
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "cached_tokens": 0},
    "end": True,
    "cause": CAUSES[0],
    "first_byte": True,
    "ttft_us": 1000,
    "elapsed_us": 2000,
}


def misfit(declaration: TypeDeclaration) -> str:
    """What is wrong with what a type declares; empty for what fits."""
    points = declaration.points
    if declaration.drained != "busy" and "filter" not in points:
        return "drained, and it is no filter"
    if declaration.claims and "parse" not in points:
        return "claims, and it is no parser"
    if declaration.every_chunk and "response_body" not in points:
        return "every_chunk, and it is told of no response's body"
    wrong = [suffix for suffix in declaration.claims if not suffix.startswith("/")]
    if wrong:
        return f"the claim {wrong[0][:80]!r}, which is no end of a path"
    return _odd_column((*declaration.consumes, *declaration.optional), declaration.produces)


def _odd_column(consumed: Sequence[str], produced: Sequence[str]) -> str:
    for name in (name for name in consumed if name != ANY_COLUMN):
        if column_name(name) is None:
            return f"the column {name[:80]!r}, which is neither Key.field nor Key/producer.field"
    for name in produced:
        column = column_name(name)
        if column is None or column.producer:
            return f"the column {name[:80]!r}, which is not Key.field"
    return ""


def unfit_facts(declaration: TypeDeclaration, facts: InstanceFacts) -> str:
    """What is wrong with what an instance says of itself, held against its type; empty for what fits."""
    for name in facts.reads:
        if name not in declaration.reads and wildcard_of(name) not in declaration.reads:
            return f"reads {name[:80]!r}, which its type does not allow"
    for name in (*facts.consumes, *facts.optional):
        known = name in (*declaration.consumes, *declaration.optional)
        if column_name(name) is None or not (known or ANY_COLUMN in declaration.consumes):
            return f"consumes {name[:80]!r}, which its type does not allow"
    headers = (*facts.request_headers, *facts.response_headers)
    if headers and "pre_request" not in declaration.points:
        return "sets headers, and does not answer pre_request"
    for name in headers:
        if name in RESERVED_HEADERS:
            return f"sets the header {name!r}, which only the host sets"
        if not is_header_name(name):
            return f"sets the header {name[:80]!r}, which is no name in lower case"
    return ""
