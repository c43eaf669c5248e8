"""Well-formed calls of the data layer to whatever a type declares, and the form that their results must have. Pure.

What an author's code makes of a payload is its own business: a call in which it raises is no broken rule. What it answers
is held against what the type declared, as a host does.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hotbay_sdk.protocol import ErrorCode, ErrorReceived, Method, ReplyReceived, TypeDeclaration, Value
from hotbay_sdk.protocol.messages import CONTROL_FRAME_BYTES, METHODS, RUN_METHODS

from hotbay.conformance.calls import DATA_POINTS
from hotbay.conformance.verdict import BrokenRuleError, expect

__all__ = ["DataProbe", "data_points", "misfit"]

POLLED: Final = ("metrics", "models", "json", "text", "bytes")
ENDPOINT_EVENTS: Final = "endpoint"
OBJECT_EVENTS: Final = "object:"
FIRST_EVENT: Final = 5
"""A process that takes the place of another begins with the number that its predecessor had come to."""

MAX_ENDPOINTS: Final = 10_000
MAX_ID_CHARS: Final = 512
MAX_VALUE_BYTES: Final = 64 * 1024
MAX_OF_ENDPOINT_BYTES: Final = 256 * 1024
_NUMBER_BYTES: Final = 16
_REPLY_BYTES: Final = 4096
"""What a host adds to the longest reply that declared kinds can make, so that what is not declared can be named."""

_MAX_INT: Final = 2**63 - 1
"""What crosses may be an uint64."""

_RUNS: Final = {point: method for method, point in RUN_METHODS.items()}
_ENDPOINT: Final[dict[str, Value]] = {
    "id": "default/conformance",
    "name": "conformance",
    "address": "127.0.0.1",
    "port": 9,
    "scheme": "http",
    "labels": {"team": "a"},
    "state": "active",
    "weight": 1,
}


def data_points(declared: Sequence[TypeDeclaration]) -> Iterator[tuple[TypeDeclaration, str]]:
    """Every type with every point of the data layer that it answers."""
    for declaration in declared:
        yield from ((declaration, point) for point in DATA_POINTS if point in declaration.points)


def misfit(declaration: TypeDeclaration, point: str) -> str:
    """What is wrong with what a type declares for a point of the data layer; empty for what fits."""
    data = declaration.data
    polled, events = data.payload in POLLED, _is_of_events(data.payload)
    fits = {
        "extract": polled or events,
        "source": events,
        "watch": events and data.payload != ENDPOINT_EVENTS,
        "poll": polled,
    }
    if not fits.get(point, True):
        return f"payload {data.payload[:80]!r}"
    if point == "extract" and not data.attributes:
        return "no attributes"
    return "families, and its payload is not metrics" if data.families and data.payload != "metrics" else ""


def _is_of_events(payload: str) -> bool:
    parts = payload.removeprefix(OBJECT_EVENTS).split("/")
    return payload == ENDPOINT_EVENTS or (payload.startswith(OBJECT_EVENTS) and len(parts) == 3 and all(parts[1:]))


@dataclass(frozen=True, slots=True)
class DataProbe:
    """One configured instance, and one point at which it is called."""

    declaration: TypeDeclaration
    point: str
    handle: Value

    @property
    def method(self) -> Method:
        if self.point in _RUNS:
            return Method(_RUNS[self.point])
        if self.point == "extract":
            return Method.EVENT_EXTRACT if self.takes_events else Method.POLL_EXTRACT
        return Method.SOURCE_NOTIFY if self.point == "source" else Method.SOURCE_POLL

    @property
    def payload(self) -> str:
        return self.declaration.data.payload

    @property
    def takes_events(self) -> bool:
        return self.point in ("extract", "source") and _is_of_events(self.payload)

    @property
    def runs(self) -> bool:
        """Whether its call goes on until it is cancelled."""
        return self.point in _RUNS

    def with_handle(self, handle: Value) -> "DataProbe":
        return replace(self, handle=handle)

    def calls(self) -> list[list[Value]]:
        """Arguments of calls that may follow each other in this order."""
        if self.runs:
            return [[self.handle]]
        if self.point == "poll":
            return [[self.handle, dict(_ENDPOINT)]]
        if self.takes_events:
            return [[self.handle, FIRST_EVENT + index, event] for index, event in enumerate(self._events())]
        return [[self.handle, dict(_ENDPOINT), payload] for payload in self._payloads()]

    def _payloads(self) -> list[Value]:
        if self.payload == "metrics":
            labels: dict[str, Value] = {"engine": "0"}
            # A page need not have what a type asks for.
            series: list[Value] = [[labels, 1.0], [labels, 0.0]]
            page: dict[str, Value] = dict.fromkeys(self.declaration.data.families, series)
            return [page, {}]
        if self.payload == "models":
            models: list[Value] = [{"id": "model"}, {"id": "adapter", "parent": "model"}]
            return [models]
        document: dict[str, Value] = {}
        rest: dict[str, Value] = {"json": document, "text": "conformance", "bytes": b"conformance"}
        return [rest[self.payload]]

    def _events(self) -> list[Value]:
        if self.payload == ENDPOINT_EVENTS:
            changed = {**_ENDPOINT, "labels": {}}
            told = [("add_or_update", _ENDPOINT), ("add_or_update", changed), ("delete", changed)]
            return [{"type": kind, "endpoint": dict(endpoint)} for kind, endpoint in told]
        group, version, kind = self.payload.removeprefix(OBJECT_EVENTS).split("/")
        thing: dict[str, Value] = {
            "apiVersion": f"{group}/{version}" if group else version,
            "kind": kind,
            "metadata": {"name": "conformance", "namespace": "default"},
        }
        named: dict[str, Value] = {"kind": f"{group}/{version}/{kind}", "key": "default/conformance"}
        kinds = ("add_or_update", "add_or_update", "delete")
        return [{"type": told, **named, "object": dict(thing)} for told in kinds]

    @property
    def reply_limit(self) -> int:
        """Longest body of a reply: of a poll's extractor what its declared kinds can make, of a poll what its payload may."""
        if self.point == "poll" and self.payload in ("json", "models"):
            return CONTROL_FRAME_BYTES
        if self.method is not Method.POLL_EXTRACT:
            return METHODS[self.method].reply_bytes
        each = (
            len(name) + _NUMBER_BYTES + (MAX_VALUE_BYTES if kind == "value" else _NUMBER_BYTES)
            for name, kind in self.declaration.data.attributes.items()
        )
        return min(CONTROL_FRAME_BYTES, _REPLY_BYTES + sum(each))

    def check(self, answer: object, args: Sequence[Value]) -> bool:
        """Whether the call was answered with a result, which is then of the right form; its author's code may raise."""
        if isinstance(answer, ErrorReceived):
            code = answer.error.code
            expect(code is ErrorCode.PLUGIN_ERROR, f"{self.called} failed with {code}: {answer.error.message[:400]}")
            return False
        if not isinstance(answer, ReplyReceived):
            raise BrokenRuleError(f"{self.called} was answered after it was cancelled")
        self._check_result(answer.result, args)
        return True

    @property
    def called(self) -> str:
        """The call, for people."""
        return f"a well-formed call of {self.declaration.type} ({self.method.name.lower()})"

    def _check_result(self, result: Value, args: Sequence[Value]) -> None:
        if self.method is Method.POLL_EXTRACT:
            _check_attributes(result, self.declaration.data.attributes, self.called)
        elif self.method is Method.EVENT_EXTRACT:
            self._check_endpoints(result)
        elif self.method is Method.SOURCE_NOTIFY:
            self._check_event(result, args[2])
        else:
            self._check_polled(result)

    def _check_endpoints(self, result: Value) -> None:
        if not isinstance(result, dict):
            raise BrokenRuleError(
                f"{self.called}: expected a map from endpoint ids to attributes, found {_kind(result)}"
            )
        expect(
            len(result) <= MAX_ENDPOINTS, f"{self.called}: {len(result)} endpoints, at most {MAX_ENDPOINTS} are taken"
        )
        for endpoint_id, found in result.items():
            expect(
                0 < len(endpoint_id) <= MAX_ID_CHARS, f"{self.called}: an endpoint id of {len(endpoint_id)} characters"
            )
            _check_attributes(found, self.declaration.data.attributes, f"{self.called}, endpoint {endpoint_id[:80]!r}")

    def _check_event(self, result: Value, event: Value) -> None:
        if result is None:
            return
        expect(isinstance(result, dict), f"{self.called}: expected the event or nil, found {_kind(result)}")
        assert isinstance(result, dict)
        assert isinstance(event, dict)
        named = str(result.get("type"))[:60]
        expect(named in ("add_or_update", "delete"), f"{self.called}: an event of type {named!r}")
        what = "endpoint" if self.payload == ENDPOINT_EVENTS else "object"
        told, given = result.get(what), event[what]
        expect(isinstance(told, dict), f"{self.called}: the event has no {what}")
        assert isinstance(told, dict)
        assert isinstance(given, dict)
        if what == "endpoint":
            expect(told.get("id") == given["id"], f"{self.called}: an event of another endpoint than was given")
            labels = told.get("labels", {})
            texts = isinstance(labels, dict) and all(isinstance(label, str) for label in labels.values())
            expect(texts, f"{self.called}: labels are a map of texts")

    def _check_polled(self, result: Value) -> None:
        forms = {"text": str, "bytes": bytes, "metrics": str | bytes}
        form = forms.get(self.payload)
        expect(form is None or isinstance(result, form), f"{self.called}: {_kind(result)} as {self.payload}")
        if self.payload == "models":
            good = isinstance(result, list) and all(_is_model(entry) for entry in result)
            expect(good, f"{self.called}: models are a list of {{id}} and {{id, parent}}")


def _check_attributes(found: Value, declared: Mapping[str, str], what: str) -> None:
    """Raise `BrokenRuleError` unless these are attributes of one endpoint, of the declared names and kinds."""
    if not isinstance(found, dict):
        raise BrokenRuleError(f"{what}: expected a map of attributes, found {_kind(found)}")
    for name, value in found.items():
        kind = declared.get(name)
        if kind is None:
            known = ", ".join(sorted(declared))[:300]
            raise BrokenRuleError(f"{what}: attribute {name[:128]!r}, and the type declares {known}")
        if value is not None:
            _check_value(name, value, kind, what)
    whole = sum(len(name) + _size(value) for name, value in found.items() if value is not None)
    limit = f"at most {MAX_OF_ENDPOINT_BYTES} are kept of one endpoint"
    expect(whole <= MAX_OF_ENDPOINT_BYTES, f"{what}: attributes of {whole} bytes, {limit}")


def _check_value(name: str, value: Value, kind: str, what: str) -> None:
    if kind == "value":
        size = _size(value)
        expect(size != math.inf, f"{what}: attribute {name} has nil inside")
        expect(size <= MAX_VALUE_BYTES, f"{what}: attribute {name} of {size} bytes, at most {MAX_VALUE_BYTES} are kept")
        return
    fits = type(value) in (int, float) if kind == "f32" else type(value) is int and value <= _MAX_INT
    expect(fits, f"{what}: {_kind(value)} as attribute {name} of kind {kind}")


def _size(value: Value) -> float:
    """Bytes that a value says; without bound for a nil inside, which no attribute may have."""
    if value is None:
        return math.inf
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, dict):
        return sum(len(name.encode()) + _size(item) for name, item in value.items())
    return 8


def _is_model(entry: Value) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
        return False
    return isinstance(entry.get("parent", ""), str)


def _kind(value: Value) -> str:
    return "nil" if value is None else type(value).__name__
