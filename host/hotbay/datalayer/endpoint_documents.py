"""What an endpoint file says: entries turned into endpoints, or refused with their place.

The file is `endpoints: [{name, namespace, address, port, labels, state, weight}]`. Unknown keys are ignored, as by the
router that this format comes from, so that one file serves both. An entry is taken whole or not at all. Of two entries
with one id the last wins; of two ids with one address the first stays: a server must not get two shares. Pure.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from hotbay.config.documents import Document
from hotbay.config.wording import path_text
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.errors import InputError, Problem

__all__ = [
    "ConfiguredEndpoint",
    "EndpointFile",
    "configured_endpoints",
    "merge_sources",
    "read_endpoints",
    "with_last_good",
]

_DEFAULT_NAMESPACE: Final = "default"
_MAX_NAME_CHARACTERS: Final = 253
"""As long as a DNS name, which is what names of servers usually are."""

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?\Z")
_MAX_LABEL_CHARACTERS: Final = 4096
_CODE: Final = "CONFIG_INVALID"


@dataclass(frozen=True, slots=True)
class EndpointFile:
    """A file's endpoints, with what is wrong with it.

    Args:
        endpoints: valid entries in file order, ids unique.
        problems: why entries were refused.
        warnings: what was decided although it could be read in two ways.
        refused_ids: ids of refused entries.
        nameless: whether an entry was refused whose id cannot be told.
    """

    endpoints: tuple[EndpointMetadata, ...]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    refused_ids: frozenset[str] = frozenset()
    nameless: bool = False


class _Url(Protocol):
    @property
    def scheme(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class ConfiguredEndpoint(Protocol):
    """An entry of `endpoints:` in the host's configuration."""

    @property
    def url(self) -> _Url: ...
    @property
    def effective_name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def weight(self) -> float: ...
    @property
    def state(self) -> str: ...


def configured_endpoints(entries: Iterable[ConfiguredEndpoint]) -> tuple[EndpointMetadata, ...]:
    """Turn the host configuration's entries, which it has checked, into endpoints."""
    return tuple(
        EndpointMetadata(
            id=f"{_DEFAULT_NAMESPACE}/{entry.effective_name}",
            name=entry.effective_name,
            address=entry.url.host,
            port=entry.url.port,
            labels=entry.labels,
            scheme=entry.url.scheme,
            state=EndpointState(entry.state),
            weight=entry.weight,
        )
        for entry in entries
    )


def read_endpoints(document: Document) -> EndpointFile:
    """Read a file's entries.

    Raises:
        InputError: it is no list of endpoints at all.
    """
    entries = _entries(document)
    reader = _Reader(document)
    by_id: dict[str, tuple[int, EndpointMetadata]] = {}
    refused: set[str] = set()
    for index, entry in enumerate(entries):
        endpoint_id, endpoint = reader.entry(index, entry)
        if endpoint is not None:
            if endpoint.id in by_id:
                reader.warn_twice(endpoint.id, by_id[endpoint.id][0], index)
            by_id[endpoint.id] = (index, endpoint)
        elif endpoint_id:
            refused.add(endpoint_id)
        else:
            reader.nameless = True
    endpoints = tuple(endpoint for _, endpoint in by_id.values())
    # A good entry beside a refused one of the same id is that id's word.
    refused_ids = frozenset(refused - by_id.keys())
    return EndpointFile(endpoints, tuple(reader.problems), tuple(reader.warnings), refused_ids, reader.nameless)


def with_last_good(read: EndpointFile, last_good: Mapping[str, EndpointMetadata]) -> tuple[EndpointMetadata, ...]:
    """The endpoints to serve after a reload: refused entries keep the form that they last had.

    While there is a refused entry whose id cannot be told, it may be any of those that are gone, so all of them stay.
    """
    present = {endpoint.id for endpoint in read.endpoints}
    kept = last_good.keys() - present if read.nameless else last_good.keys() & read.refused_ids
    return (*read.endpoints, *(endpoint for endpoint_id, endpoint in last_good.items() if endpoint_id in kept))


def merge_sources(
    sources: Sequence[tuple[str, Sequence[EndpointMetadata]]],
) -> tuple[tuple[EndpointMetadata, ...], tuple[Problem, ...]]:
    """Put the endpoints of several sources, each with the name it is reported by, into one list.

    An id or an address that a later source repeats stays with the first and is warned of.
    """
    by_id: dict[str, str] = {}
    by_address: dict[tuple[str, int], tuple[str, str]] = {}
    merged: list[EndpointMetadata] = []
    warnings: list[Problem] = []
    for source, endpoints in sources:
        for endpoint in endpoints:
            address = (_canonical(endpoint.address), endpoint.port)
            if endpoint.id in by_id:
                message = f"the endpoint {endpoint.id!r} of {source} is ignored: {by_id[endpoint.id]} has that name"
                warnings.append(Problem("DUPLICATE_NAME", message))
            elif address in by_address:
                first_source, first_id = by_address[address]
                message = (
                    f"the endpoint {endpoint.id!r} of {source} is ignored: it is the same server, "
                    f"{endpoint.authority}, as {first_id!r} of {first_source}"
                )
                warnings.append(Problem("DUPLICATE_NAME", message))
            else:
                by_id[endpoint.id] = source
                by_address[address] = (source, endpoint.id)
                merged.append(endpoint)
    return tuple(merged), tuple(warnings)


def _canonical(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address.lower()
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _entries(document: Document) -> list[object]:
    value = document.value
    entries = value.get("endpoints") if isinstance(value, dict) else None
    if entries is None and isinstance(value, dict) and "endpoints" in value:
        return []
    if not isinstance(entries, list):
        path = ("endpoints",) if isinstance(value, dict) else ()
        found = "no such key" if entries is None else type(entries).__name__
        problem = Problem(
            _CODE, "not an endpoint file", document.place(path), "endpoints", "a list of endpoints", found
        )
        raise InputError([problem])
    return list(entries)


@dataclass(slots=True)
class _Reader:
    """Reads entries and collects what is wrong with them."""

    document: Document
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    nameless: bool = False

    def entry(self, index: int, entry: object) -> tuple[str, EndpointMetadata | None]:
        """The entry's id, "" if it cannot be told, and the endpoint, None if it is refused."""
        if not isinstance(entry, dict):
            self._refuse((index,), "a mapping with name, address and port", entry)
            return "", None
        before = len(self.problems)
        name = self._name(index, entry, "name", None)
        namespace = self._name(index, entry, "namespace", _DEFAULT_NAMESPACE)
        endpoint_id = f"{namespace}/{name}" if name and namespace else ""
        address = self._address(index, entry.get("address"))
        port = self._port(index, entry.get("port"))
        labels = self._labels(index, entry.get("labels"))
        state = self._state(index, entry.get("state", "active"))
        weight = self._weight(index, entry.get("weight", 1.0))
        if len(self.problems) > before:
            return endpoint_id, None
        return endpoint_id, EndpointMetadata(
            id=endpoint_id, name=name, address=address, port=port, labels=labels, state=state, weight=weight
        )

    def warn_twice(self, endpoint_id: str, first: int, second: int) -> None:
        lines = [self.document.place(("endpoints", index)).line for index in (first, second)]
        message = f"the endpoint {endpoint_id!r} is given twice, on lines {lines[0]} and {lines[1]}: the last one holds"
        place = self.document.place(("endpoints", second))
        self.warnings.append(Problem("DUPLICATE_NAME", message, place, f"endpoints[{second}]"))

    def _name(self, index: int, entry: Mapping[str, object], key: str, default: str | None) -> str:
        value = entry.get(key, default)
        if isinstance(value, str) and len(value) <= _MAX_NAME_CHARACTERS and _NAME.match(value):
            return value
        expected = f"letters, digits, '-', '_', '.' and ':', at most {_MAX_NAME_CHARACTERS}"
        self._refuse((index, key), expected, value)
        return ""

    def _address(self, index: int, value: object) -> str:
        if isinstance(value, str) and len(value) <= _MAX_NAME_CHARACTERS:
            try:
                parsed = ipaddress.ip_address(value)
            except ValueError:
                pass
            else:
                if not (isinstance(parsed, ipaddress.IPv6Address) and parsed.scope_id):
                    return str(parsed)
                hint = f"the zone {parsed.scope_id!r} means something on one host only: leave it out"
                self._refuse((index, "address"), "an IP address without a zone", value, hint)
                return ""
        hint = "leave the brackets out" if isinstance(value, str) and value.startswith("[") else ""
        self._refuse((index, "address"), "an IPv4 or IPv6 address", value, hint)
        return ""

    def _port(self, index: int, value: object) -> int:
        number = value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5:
            number = int(value)
        if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= 65535:
            return number
        self._refuse((index, "port"), "1 to 65535, as a number or a text", value)
        return 0

    def _labels(self, index: int, value: object) -> Mapping[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._refuse((index, "labels"), "a mapping of texts", value)
            return {}
        for key, label in value.items():
            if not isinstance(label, str) or len(label) > _MAX_LABEL_CHARACTERS:
                hint = "put it in quotes" if isinstance(label, bool | int | float) else ""
                self._refuse((index, "labels", key), f"a text of at most {_MAX_LABEL_CHARACTERS}", label, hint)
        return value

    def _state(self, index: int, value: object) -> EndpointState:
        if isinstance(value, str) and value in list(EndpointState):
            return EndpointState(value)
        self._refuse((index, "state"), "active or cordoned", value)
        return EndpointState.CORDONED

    def _weight(self, index: int, value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        self._refuse((index, "weight"), "a number from 0 to 1", value)
        return 0.0

    def _refuse(self, path: tuple[str | int, ...], expected: str, found: object, hint: str = "") -> None:
        text = "nothing" if found is None else repr(found)
        full = ("endpoints", *path)
        place = self.document.place(full)
        self.problems.append(
            Problem(_CODE, "this endpoint is refused", place, path_text(full), expected, text[:80], hint)
        )
