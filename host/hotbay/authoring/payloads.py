"""What an author gives to a call of the data layer: a payload as a source brings it, what events tell of, or endpoints. Pure.

The file is what a host would have read: a metrics page, an answer of `/v1/models`, JSON, text or bytes, by the declared
payload. For events it is an endpoint file, or YAML documents of objects: each endpoint or object is told as one that came.
Who polls is given an endpoint file, too.
"""

from collections.abc import Sequence

import orjson
from hotbay_sdk.protocol import DataDeclaration

from hotbay.config.documents import load_document, refuse
from hotbay.datalayer.discovery.endpoint_documents import read_endpoints
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.pages.exposition import ExpositionError, PageReader
from hotbay.datalayer.remote.payloads import payload_to_wire, samples_to_wire
from hotbay.datalayer.remote.wire_events import object_kind_of
from hotbay.datalayer.source import EndpointNews, Event, EventType, ObjectEvent, SourceError
from hotbay.datalayer.sources.models import read_models
from hotbay.datalayer.sources.objects import read_objects
from hotbay.errors import InputError, Place, Problem

__all__ = ["read_events", "read_pool", "read_source_payload"]


def read_source_payload(content: bytes, declared: DataDeclaration, *, file: str) -> object:
    """What crosses to an extractor of polls. Raises `InputError` for a file that is not of the declared payload."""
    try:
        match declared.payload:
            case "metrics":
                return samples_to_wire(PageReader(declared.families).read(content).samples, declared.families)
            case "models":
                return payload_to_wire(read_models(content), ())
            case "json":
                return orjson.loads(content)
            case "text":
                return content.decode()
            case _:
                return content
    except (ExpositionError, SourceError, ValueError) as error:
        message = f"this is not of the payload {declared.payload}: {error}"
        raise InputError([Problem("CONFIG_INVALID", message, Place(file))]) from error


def read_pool(text: str, *, file: str) -> Sequence[EndpointMetadata]:
    """The endpoints of a file. Raises `InputError`; there is at least one."""
    read = read_endpoints(load_document(text, file=file))
    refuse(read.problems)
    if not read.endpoints:
        raise InputError([Problem("CONFIG_INVALID", "there is no endpoint in it", Place(file))])
    return read.endpoints


def read_events(text: str, declared: DataDeclaration, *, file: str) -> Sequence[Event]:
    """What is told to who takes events, one after the other. Raises `InputError`; there is at least one."""
    try:
        kind = object_kind_of(declared.payload)
    except (TypeError, ValueError) as error:
        raise InputError([Problem("INVALID_PACKAGE", f"its payload is none: {error}")]) from error
    if kind is None:
        return [EndpointNews(EventType.ADD_OR_UPDATE, it) for it in read_pool(text, file=file)]
    objects = read_objects(text, kind, file=file)
    if not objects:
        message = f"nothing in it is of the payload {declared.payload}"
        raise InputError([Problem("CONFIG_INVALID", message, Place(file))])
    return [ObjectEvent(EventType.ADD_OR_UPDATE, kind, key, it) for key, it in objects.items()]
