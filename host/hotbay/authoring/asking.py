"""Calls of the data layer that are answered at once, as an author makes them, and their answers held against a host's rules.

What is asked comes from one file: what a poll brought, what events are of, or the endpoints that are to be polled.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hotbay_sdk.protocol import DataDeclaration, Method, TypeDeclaration, Value

from hotbay.authoring.payloads import read_events, read_pool, read_source_payload
from hotbay.config.data_types import POLLED_PAYLOADS
from hotbay.config.file_content import FileContent
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.remote.payloads import payload_to_wire, read_payload
from hotbay.datalayer.remote.results import read_attributes, read_of_endpoints
from hotbay.datalayer.remote.wire_events import event_to_wire, read_endpoint_news, read_object_event
from hotbay.datalayer.source import EndpointNews, Event
from hotbay.errors import InputError, Problem

__all__ = ["ASKED_POINTS", "DROPPED", "Asked", "asked_of"]

ASKED_POINTS: Final = ("extract", "source", "poll")
DROPPED: Final = "dropped"
"""What is shown of an event that a source gives back as nothing."""
_WANTED: Final = {
    "extract": "what a source brings, such as a metrics page",
    "source": "endpoints, or objects of its kind: each is told as one that came",
    "poll": "endpoints, by the form of an endpoint file: each is polled",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One call: its arguments behind the handle, and what reads its result, raising `PluginFault` as a host would."""

    method: Method
    args: Sequence[object]
    read: Callable[[Value], object]


def asked_of(declaration: TypeDeclaration, point: str, content: FileContent | None, *, file: str) -> Sequence[Asked]:
    """The calls that a file stands for, in its order. Raises `InputError`; there is at least one."""
    declared = declaration.data
    if content is None:
        hint = f"Give --payload FILE: {_WANTED[point]}."
        message = f"{declaration.type} is called with {'endpoints' if point == 'poll' else f'a payload of {declared.payload}'}"
        raise InputError([Problem("CONFIG_INVALID", message, hint=hint)])
    if point == "poll":
        pool = read_pool(content.text(hint="check its name"), file=file)
        return [Asked(Method.SOURCE_POLL, [wire_row(one)], partial(_polled, declared)) for one in pool]
    if point == "extract" and declared.payload in POLLED_PAYLOADS and content.data is not None:
        endpoint = wire_row(EndpointMetadata("default/a", "a", "127.0.0.1", 8000))
        payload = read_source_payload(content.data, declared, file=file)
        return [Asked(Method.POLL_EXTRACT, [endpoint, payload], partial(_attributes, declared))]
    events = read_events(content.text(hint="check its name"), declared, file=file)
    made = _extracting if point == "extract" else _notifying
    return [made(declared, number, event) for number, event in enumerate(events, 1)]


def _extracting(declared: DataDeclaration, number: int, event: Event) -> Asked:
    return Asked(Method.EVENT_EXTRACT, [number, event_to_wire(event)], partial(_of_endpoints, declared))


def _notifying(_declared: DataDeclaration, number: int, event: Event) -> Asked:
    return Asked(Method.SOURCE_NOTIFY, [number, event_to_wire(event)], partial(_given_back, event))


def _attributes(declared: DataDeclaration, found: Value) -> Mapping[str, object]:
    return dict(read_attributes(found, declared.attributes))


def _of_endpoints(declared: DataDeclaration, found: Value) -> Mapping[str, object]:
    return {one: dict(values) for one, values in read_of_endpoints(found, declared.attributes).items()}


def _given_back(event: Event, found: Value) -> object:
    if isinstance(event, EndpointNews):
        news = read_endpoint_news(found, event)
        return DROPPED if news is None else event_to_wire(news)
    changed = read_object_event(found, event)
    return DROPPED if changed is None else event_to_wire(changed)


def _polled(declared: DataDeclaration, found: Value) -> object:
    payload = read_payload(found, declared.payload)
    if declared.payload == "metrics":
        return payload.decode("utf-8", "replace") if isinstance(payload, bytes) else payload
    return payload_to_wire(payload, ()) if declared.payload == "models" else payload
