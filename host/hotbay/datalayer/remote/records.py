"""What a `discover` call tells, read out of its data: records, each a length (u32, big endian) and one value. Pure.

`["upsert", endpoint]`, `["delete", id]`, `["ready"]`. Bytes that are no records end the run; an endpoint that cannot be
used is told and costs nothing else. Endpoints are held to the rules of endpoint files, and to one more: a plugin sends
requests to no address that reaches something else than a model server wherever it is, such as a cloud's metadata service.
Names are not resolved here; an operator who lists the networks that discoveries may name (`discovery.allowed`) rules them out.
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from hotbay_sdk.protocol import Value

from hotbay.config.documents import Document
from hotbay.config.endpoint_bounds import wrong_labels
from hotbay.datalayer.discovery.allowed import ADDRESS_REFUSED, NOT_OWN, SOMEWHERE
from hotbay.datalayer.discovery.endpoint_documents import read_endpoints
from hotbay.datalayer.discovery.places import Own, addresses_in, is_nowhere, places_of, plain_address
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote.framing import RecordFrames
from hotbay.errors import PluginFault, Problem

__all__ = [
    "Gone",
    "Item",
    "ItemT",
    "Named",
    "Record",
    "RecordOf",
    "RecordReader",
    "Refused",
    "Told",
]

_MAX_ID_CHARS: Final = 512
_REFUSED_COST: Final = 10
_BYTES_OF_COST: Final = 512
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254")))
"""Where clouds answer with credentials, beside 169.254.169.254, which is link-local."""
_METADATA_NAMES: Final = frozenset(
    ("metadata", "metadata.goog", "metadata.google.internal", "instance-data", "instance-data.ec2.internal")
)
"""By which machines in clouds know it, whatever address that is."""
_FIELDS: Final = ("name", "namespace", "address", "port", "labels", "state", "weight", "metricsHost", "nodeAddress")
"""Of an endpoint file's entry; `ports` is left out: an upsert is of one endpoint."""


class Item(Protocol):
    """What runs tell of, each by an id of its own."""

    @property
    def id(self) -> str: ...


ItemT = TypeVar("ItemT", bound=Item)


@dataclass(frozen=True, slots=True)
class Named(Generic[ItemT]):
    """It exists, and is this: an endpoint, or what else runs tell of."""

    item: ItemT


@dataclass(frozen=True, slots=True)
class Refused:
    """Something exists that cannot be used. `item_id` is empty where it cannot be told."""

    item_id: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class Gone:
    """It is gone."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that is there was told."""


RecordOf: TypeAlias = Named[ItemT] | Refused | Gone | Told
Record = RecordOf[EndpointMetadata]


def _nothing(_address: str, _port: int) -> bool:
    return False


class RecordReader:
    """The records of one run. `name` is what problems call the discovery; `own` says what the host listens on.

    `cost` is what the last record counts: its bytes and whether it was refused are the host's work, too.
    """

    def __init__(self, name: str, own: Own = _nothing) -> None:
        self.cost = 0
        self._name = name
        self._own = own
        self._frames = RecordFrames(name)

    def feed(self, data: bytes) -> Iterator[Record]:
        """The records that `data` completes, in order. Raises `PluginFault` BAD_RESULT where they are none."""
        for value in self._frames.feed(data):
            record = self._record(value)
            self.cost = 1 + self._frames.length // _BYTES_OF_COST
            self.cost += _REFUSED_COST if isinstance(record, Refused) else 0
            yield record

    def _record(self, value: Value) -> Record:
        match value:
            case ["upsert", dict() as entry]:
                return self._endpoint(entry)
            case ["delete", str() as endpoint_id]:
                return Gone(endpoint_id[:_MAX_ID_CHARS])
            case ["ready"]:
                return Told()
        raise PluginFault("BAD_RESULT", f"{self._name}: a record is no upsert of a map, delete of an id, or ready")

    def _endpoint(self, entry: dict[str, Value]) -> Named[EndpointMetadata] | Refused:
        endpoint_id = entry.get("id")
        fields: dict[str, Value] = {name: _bounded(entry[name]) for name in _FIELDS if name in entry}
        if isinstance(endpoint_id, str):
            namespace, _, name = endpoint_id.rpartition("/")
            fields["name"] = name
            if namespace:
                fields["namespace"] = namespace
        read = read_endpoints(Document.of({"endpoints": [fields]}, name=self._name))  # type: ignore[list-item]  # bytes, which no file has, are refused like any other value
        if not read.endpoints:
            return self._refused(min(read.refused_ids, key=len, default=""), read.problems[0])
        endpoint = read.endpoints[0]
        for path, host, port in places_of(endpoint):
            wrong = self._wrong(host, port)
            if wrong:
                hint = "have the plugin name the address at which the model server listens"
                problem = Problem(ADDRESS_REFUSED, "", path=path, expected=wrong, found=host, hint=hint)
                return self._refused(endpoint.id, problem)
        return Named(endpoint)

    def _refused(self, known: str, problem: Problem) -> Refused:
        message = f"{self._name}: an endpoint is refused: {known or 'without a name'}"
        return Refused(known, replace(problem, place=None, message=message))

    def _wrong(self, host: str, port: int) -> str:
        """What was expected of an address that no model server of a plugin has; empty for all others, and for other names."""
        plain = plain_address(host)
        if plain is None and _NUMBER.search(host):
            return "an address, or a name that is no number"
        if plain is None and host.lower().removesuffix(".") in _METADATA_NAMES:
            return "no metadata service"
        for one in addresses_in(plain) if plain is not None else ():
            if is_nowhere(one):
                return SOMEWHERE
            if one.is_link_local or one in _METADATA:
                return "no link-local or metadata address"
        return NOT_OWN if self._own(host, port) else ""


_NUMBER: Final = re.compile(r"(?:\A|\.)0[xX][0-9a-fA-F]*\.?\Z")
"""What a resolver takes for an address, 0x7f000001 or 127.0x1: it is no name, and spells an address that is not looked at."""


def _bounded(value: Value) -> Value:
    """A field as it is, or a few words that are refused in its place: of every label that is wrong there would be a problem."""
    if isinstance(value, list | bytes):
        return f"a value of type {type(value).__name__}"
    if not isinstance(value, dict):
        return value
    for path, expected, _ in wrong_labels(value):
        return {name: value[name] for name in path} or f"labels, but not {expected}"
    return value
