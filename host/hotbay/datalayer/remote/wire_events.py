"""Events of the data layer as plugins are told of them, and as sources give them back; what their types are. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from hotbay_sdk.protocol import TypeDeclaration, Value

from hotbay.config.data_types import ObjectKind, Point, TypeForm
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.source import EndpointNews, Event, EventType, ObjectEvent
from hotbay.errors import PluginFault

__all__ = ["columns_of", "event_to_wire", "form_of", "object_kind_of", "read_endpoint_news", "read_object_event"]

_OBJECT: Final = "object:"
_COLUMN_KINDS: Final = frozenset({"f32", "i64"})
MAX_LABELS: Final = 256
MAX_LABEL_CHARS: Final = 4096
"""As in an endpoint file."""


def form_of(declaration: TypeDeclaration) -> TypeForm:
    """What a package's type can be in the data layer, by what it declared."""
    points = frozenset(Point(point) for point in declaration.points if point in tuple(Point))
    payload = declaration.data.payload
    return TypeForm(points, (payload,) if payload else ())


def columns_of(declaration: TypeDeclaration) -> Mapping[str, str]:
    """Attributes of a type that are columns, name → `f32` or `i64`."""
    return {name: kind for name, kind in declaration.data.attributes.items() if kind in _COLUMN_KINDS}


def object_kind_of(payload: str) -> ObjectKind | None:
    """The kind of objects that a payload names; None for `endpoint`. Raises `ValueError` for a word that is neither."""
    if not payload.startswith(_OBJECT):
        return None
    kind = ObjectKind(*payload.removeprefix(_OBJECT).split("/"))
    kind.check()
    return kind


def event_to_wire(event: Event) -> dict[str, object]:
    """What an event extractor or a source is given, without its number."""
    if isinstance(event, EndpointNews):
        return {"type": str(event.type), "endpoint": wire_row(event.endpoint)}
    return {"type": str(event.type), "kind": str(event.kind), "key": event.key, "object": event.object}


def read_object_event(found: Value, event: ObjectEvent) -> ObjectEvent | None:
    """What a source made of an event: another object, or nothing. Raises `PluginFault` BAD_RESULT."""
    if found is None:
        return None
    kind, changed = _type_of(found), found.get("object") if isinstance(found, dict) else None
    if not isinstance(changed, dict):
        raise PluginFault("BAD_RESULT", f"expected an event with an object, found {type(changed).__name__}")
    return replace(event, type=kind, object=dict(changed))


def read_endpoint_news(found: Value, event: EndpointNews) -> EndpointNews | None:
    """What a source made of an event: other labels of the same endpoint, or nothing. Raises as `read_object_event`."""
    if found is None:
        return None
    kind, changed = _type_of(found), found.get("endpoint") if isinstance(found, dict) else None
    if not isinstance(changed, dict) or changed.get("id") != event.endpoint.id:
        raise PluginFault("BAD_RESULT", f"expected an event of endpoint {event.endpoint.id}, found another or none")
    return replace(event, type=kind, endpoint=replace(event.endpoint, labels=_labels(changed, event.endpoint)))


def _labels(changed: Mapping[str, Value], endpoint: EndpointMetadata) -> Mapping[str, str]:
    labels = changed.get("labels", dict[str, Value](endpoint.labels))
    if not isinstance(labels, dict) or len(labels) > MAX_LABELS:
        raise PluginFault("BAD_RESULT", f"expected at most {MAX_LABELS} labels of endpoint {endpoint.id}")
    read: dict[str, str] = {}
    for name, value in labels.items():
        if not isinstance(value, str) or len(value) > MAX_LABEL_CHARS:
            raise PluginFault("BAD_RESULT", f"expected labels that are texts of at most {MAX_LABEL_CHARS} characters")
        read[name] = value
    return read


def _type_of(found: Value) -> EventType:
    named = found.get("type") if isinstance(found, dict) else None
    if named not in tuple(EventType):
        raise PluginFault(
            "BAD_RESULT", f"expected an event of type {' or '.join(EventType)}, found {str(named)[:60]!r}"
        )
    return EventType(str(named))
