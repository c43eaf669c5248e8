"""What a `discover` call tells, read out of its data: records, each a length (u32, big endian) and one value. Pure.

`["upsert", endpoint]`, `["delete", id]`, `["ready"]`. Bytes that are no records end the run; an endpoint that cannot be
used is told and costs nothing else. Endpoints are held to the rules of endpoint files.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from hotbay_sdk.protocol import Value, ValueRefusedError
from hotbay_sdk.protocol.values import unpack_checked

from hotbay.config.documents import Document
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint_documents import read_endpoints
from hotbay.errors import PluginFault, Problem

__all__ = ["MAX_RECORD_BYTES", "Gone", "Named", "Record", "RecordReader", "Refused", "Told"]

MAX_RECORD_BYTES: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">I")
_MAX_ID_CHARS: Final = 512
_FIELDS: Final = ("name", "namespace", "address", "port", "labels", "state", "weight")
"""Of an endpoint file's entry; `ports` is left out: an upsert is of one endpoint."""


@dataclass(frozen=True, slots=True)
class Named:
    """The endpoint exists."""

    endpoint: EndpointMetadata


@dataclass(frozen=True, slots=True)
class Refused:
    """Something exists that cannot be used. `endpoint_id` is empty where it cannot be told."""

    endpoint_id: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Gone:
    """The endpoint is gone."""

    endpoint_id: str


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that is there was told."""


Record = Named | Refused | Gone | Told


class RecordReader:
    """The records of one run. `name` is what problems call the discovery."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[Record]:
        """The records that `data` completes, in order. Raises `PluginFault` BAD_RESULT where they are none."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._data)
            if length > MAX_RECORD_BYTES:
                raise PluginFault("BAD_RESULT", f"{self._name}: a record of {length} bytes, at most {MAX_RECORD_BYTES}")
            end = _LENGTH.size + length
            if len(self._data) < end:
                return
            body = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            yield self._record(body)

    def _record(self, body: bytes) -> Record:
        try:
            value = unpack_checked(body)
        except ValueRefusedError as error:
            raise PluginFault("BAD_RESULT", f"{self._name}: a record cannot be read: {error}") from error
        match value:
            case ["upsert", dict() as entry]:
                return self._endpoint(entry)
            case ["delete", str() as endpoint_id]:
                return Gone(endpoint_id[:_MAX_ID_CHARS])
            case ["ready"]:
                return Told()
        raise PluginFault("BAD_RESULT", f"{self._name}: a record is no upsert of a map, delete of an id, or ready")

    def _endpoint(self, entry: dict[str, Value]) -> Named | Refused:
        endpoint_id = entry.get("id")
        fields: dict[str, Value] = {name: entry[name] for name in _FIELDS if name in entry}
        if isinstance(endpoint_id, str):
            namespace, _, name = endpoint_id.rpartition("/")
            fields["name"] = name
            if namespace:
                fields["namespace"] = namespace
        read = read_endpoints(Document.of({"endpoints": [fields]}, name=self._name))  # type: ignore[list-item]  # bytes, which no file has, are refused like any other value
        if read.endpoints:
            return Named(read.endpoints[0])
        known = min(read.refused_ids, key=len, default="")
        problem = replace(read.problems[0], place=None)
        return Refused(
            known, replace(problem, message=f"{self._name}: an endpoint is refused: {known or 'without a name'}")
        )
