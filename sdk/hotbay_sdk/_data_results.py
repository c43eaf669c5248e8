"""Answers calls of the data layer by the author's methods, and checks what they return; imported with the first such call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from hotbay_sdk._dispatch import arguments_of, checked, outcome_of
from hotbay_sdk._errors import BadResultError
from hotbay_sdk._instances import refused
from hotbay_sdk.protocol.messages import Method

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hotbay_sdk._instances import Instance
    from hotbay_sdk._steps import AuthorCalls
    from hotbay_sdk.protocol.values import Value

    Handler = Callable[[Sequence[Value], float | None], object]
    Find = Callable[[object, str], Instance]
    CallOf = Callable[[Instance, float | None], AuthorCalls]

_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1


def handlers(find: Find, call_of: CallOf) -> dict[int, Handler]:
    """By method, what answers it."""
    return {
        Method.POLL_EXTRACT: partial(_poll_extract, find, call_of),
        Method.EVENT_EXTRACT: partial(_event_extract, find, call_of),
        Method.SOURCE_NOTIFY: partial(_source_notify, find, call_of),
        Method.SOURCE_POLL: partial(_source_poll, find, call_of),
    }


def _poll_extract(find: Find, call_of: CallOf, args: Sequence[Value], timeout_s: float | None) -> object:
    handle, endpoint, payload = arguments_of(args, 3)
    instance = find(handle, "extract")
    found = outcome_of(instance, call_of(instance, timeout_s).one("extract", payload, endpoint))
    return checked(attributes, found, instance.spec.declaration.data.attributes)


def _event_extract(find: Find, call_of: CallOf, args: Sequence[Value], timeout_s: float | None) -> object:
    handle, number, event = arguments_of(args, 3)
    instance = find(handle, "event_extract")
    found = outcome_of(instance, call_of(instance, timeout_s).one("extract", _numbered(event, number)))
    return checked(of_endpoints, found, instance.spec.declaration.data.attributes)


def _source_notify(find: Find, call_of: CallOf, args: Sequence[Value], timeout_s: float | None) -> object:
    handle, number, event = arguments_of(args, 3)
    instance = find(handle, "source")
    found = outcome_of(instance, call_of(instance, timeout_s).one("notify", _numbered(event, number)))
    return checked(event_or_none, found)


def _source_poll(find: Find, call_of: CallOf, args: Sequence[Value], timeout_s: float | None) -> object:
    handle, endpoint = arguments_of(args, 2)
    instance = find(handle, "poll")
    found = outcome_of(instance, call_of(instance, timeout_s).one("poll", endpoint))
    return checked(payload, found, instance.spec.declaration.data.payload)


def _numbered(event: Value, number: Value) -> dict[str, Value]:
    if not isinstance(event, dict):
        raise refused("an event is a map")
    return {**event, "number": number}


def attributes(found: object, declared: Mapping[str, str]) -> dict[str, object]:
    """What an extractor returned of one endpoint. Raises `BadResultError`."""
    if not isinstance(found, Mapping):
        raise BadResultError(f"extract returned a {type(found).__name__}, expected a map of attributes")
    return {name: _attribute(name, value, declared) for name, value in found.items()}


def of_endpoints(found: object, declared: Mapping[str, str]) -> dict[str, object]:
    """What an event extractor returned: endpoint id → attributes. Raises `BadResultError`."""
    if not isinstance(found, Mapping):
        raise BadResultError(
            f"extract returned a {type(found).__name__}, expected a map from endpoint ids to attributes"
        )
    return {str(endpoint_id): attributes(values, declared) for endpoint_id, values in found.items()}


def event_or_none(found: object) -> object:
    """What a source returned; its number stays the host's. Raises `BadResultError`."""
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise BadResultError(f"notify returned a {type(found).__name__}, expected an event or None")
    return {name: value for name, value in found.items() if name != "number"}


_PAYLOADS: Mapping[str, tuple[type, ...]] = {
    "metrics": (str, bytes),
    "text": (str,),
    "bytes": (bytes,),
    "models": (list,),
}
"""Of what types a payload is; `json` is any value that crosses."""


def payload(found: object, declared: str) -> object:
    """What a source's poll returned. Raises `BadResultError`."""
    if isinstance(found, bytearray | memoryview):
        found = bytes(found)
    kinds = _PAYLOADS.get(declared, (object,))
    if not isinstance(found, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise BadResultError(
            f"poll returned a {type(found).__name__}, expected {expected}: the type's payload is {declared}"
        )
    return found


def _attribute(name: object, value: object, declared: Mapping[str, str]) -> object:
    kind = declared.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadResultError(f'extract returned {name!r}: declare it, attributes={{"{name}": …}}')
    if value is None or kind == "value":
        return value
    # Numbers of other libraries cross as numbers, too.
    if kind == "f32" and hasattr(value, "__float__") and not isinstance(value, bool):
        return float(value)
    if kind == "i64" and hasattr(value, "__index__") and not isinstance(value, bool):
        whole = int(value.__index__())
        if _MIN_INT <= whole <= _MAX_INT:
            return whole
    expected = "a number" if kind == "f32" else "a whole number of 64 bits"
    raise BadResultError(f"attribute {name} is a {type(value).__name__}, expected {expected}")
