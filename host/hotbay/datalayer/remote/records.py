"""What a `discover` call tells, read out of its data: records, each a length (u32, big endian) and one value. Pure.

`["upsert", endpoint]`, `["delete", id]`, `["ready"]`. Bytes that are no records end the run; an endpoint that cannot be
used is told and costs nothing else. Endpoints are held to the rules of endpoint files, and to one more: a plugin sends
requests to no address that reaches something else than a model server wherever it is, such as a cloud's metadata service.
"""

import ipaddress
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from hotbay_sdk.protocol import Value, ValueRefusedError
from hotbay_sdk.protocol.values import unpack_checked

from hotbay.config.addresses import host_and_port
from hotbay.config.documents import Document
from hotbay.datalayer.discovery.endpoint_documents import read_endpoints
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.errors import PluginFault, Problem

__all__ = ["MAX_RECORD_BYTES", "Gone", "Named", "Own", "Record", "RecordReader", "Refused", "Told", "listens_on"]

MAX_RECORD_BYTES: Final = 64 * 1024
_LENGTH: Final = struct.Struct(">I")
_MAX_ID_CHARS: Final = 512
_MAX_LABELS: Final = 256
_MAX_LABEL_CHARS: Final = 4096
_REFUSED_COST: Final = 10
_BYTES_OF_COST: Final = 512
_METADATA: Final = frozenset(map(ipaddress.ip_address, ("100.100.100.200", "fd00:ec2::254")))
"""Where clouds answer with credentials, beside 169.254.169.254, which is link-local."""
_FIELDS: Final = ("name", "namespace", "address", "port", "labels", "state", "weight", "metricsHost", "nodeAddress")
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


Own = Callable[[str, int], bool]
"""Whether an address and a port are the host's own."""


def _nothing(_address: str, _port: int) -> bool:
    return False


def listens_on(host: str, port: int) -> Own:
    """What is a host's own that listens at `host`, which may be a name or unspecified, and `port`.

    Other addresses of its machine are not known here: a host that listens everywhere is found by its loopback alone.
    """
    try:
        there = ipaddress.ip_address(host)
    except ValueError:
        there = ipaddress.ip_address("127.0.0.1")

    def is_own(address: str, at: int) -> bool:
        found = ipaddress.ip_address(address)
        return at == port and (found == there or (found.is_loopback and (there.is_unspecified or there.is_loopback)))

    return is_own


class RecordReader:
    """The records of one run. `name` is what problems call the discovery; `own` says what the host listens on.

    `cost` is what the last record counts: its bytes and whether it was refused are the host's work, too.
    """

    def __init__(self, name: str, own: Own = _nothing) -> None:
        self.cost = 0
        self._name = name
        self._own = own
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
            record = self._record(body)
            self.cost = 1 + length // _BYTES_OF_COST + (_REFUSED_COST if isinstance(record, Refused) else 0)
            yield record

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
        for path, host, port in _places(endpoint):
            wrong = self._wrong(host, port)
            if wrong:
                hint = "have the plugin name the address at which the model server listens"
                problem = Problem("CONFIG_INVALID", "", path=path, expected=wrong, found=host, hint=hint)
                return self._refused(endpoint.id, problem)
        return Named(endpoint)

    def _refused(self, known: str, problem: Problem) -> Refused:
        message = f"{self._name}: an endpoint is refused: {known or 'without a name'}"
        return Refused(known, replace(problem, place=None, message=message))

    def _wrong(self, host: str, port: int) -> str:
        """What was expected of an address that no model server of a plugin has; empty for all others, and for names."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return ""
        plain = (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address
        if plain.is_unspecified or plain.is_multicast or plain.is_link_local or plain in _METADATA:
            return "no unspecified, multicast, link-local or metadata address"
        if plain == _BROADCAST:
            return "no broadcast address"
        return "an address that is not this host's own" if self._own(str(plain), port) else ""


def _places(endpoint: EndpointMetadata) -> Iterator[tuple[str, str, int]]:
    """Where requests are sent for an endpoint: the field, the host and the port, 0 where it is not the plugin's to say."""
    yield "address", endpoint.address, endpoint.port
    if endpoint.metrics_host:
        yield ("metricsHost", *(host_and_port(endpoint.metrics_host) or ("", 0)))
    yield "nodeAddress", endpoint.node_address, 0


_BROADCAST: Final = ipaddress.ip_address("255.255.255.255")


def _bounded(value: Value) -> Value:
    """A field as it is, or a few words that are refused in its place: of every label that is wrong there would be a problem."""
    if isinstance(value, list | bytes):
        return f"a value of type {type(value).__name__}"
    if not isinstance(value, dict):
        return value
    if len(value) > _MAX_LABELS:
        return f"{len(value)} labels, more than {_MAX_LABELS}"
    for name, label in value.items():
        if len(name) > _MAX_LABEL_CHARS:
            return f"a label's name of {len(name)} characters"
        if not isinstance(label, str) or len(label) > _MAX_LABEL_CHARS:
            return {name: label}
    return value
