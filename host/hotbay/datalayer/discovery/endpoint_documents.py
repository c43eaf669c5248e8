"""What an endpoint file says: entries turned into endpoints, or refused with their place.

The file is `endpoints: [{name, namespace, address, port, labels, state, weight, metricsHost, nodeAddress}]`. Unknown keys are
ignored, as by the router that this format comes from, so that one file serves both, and each is told once. An entry is taken whole or not at all. Of two entries
with one id the last wins. A server that runs several engines, each at a port of its own, is one entry with `ports` in
place of `port`: it becomes the endpoints `NAME-rank-0`, `NAME-rank-1` …, `rank_index` being the port's position. Pure.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hotbay.config.addresses import AUTHORITY_FORM, HOST_FORM, is_authority, is_host
from hotbay.config.discovery_parameters import StaticDiscovery
from hotbay.config.documents import Document, refuse
from hotbay.config.endpoint_bounds import wrong_labels
from hotbay.config.wording import Path, path_text, unknown_field
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.errors import InputError, Problem

__all__ = [
    "EndpointFile",
    "check_listed",
    "read_endpoints",
    "with_last_good",
]

_DEFAULT_NAMESPACE: Final = "default"
_MAX_NAME_CHARACTERS: Final = 253
"""As long as a DNS name, which is what names of servers usually are."""

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?\Z")
_MAX_PORTS: Final = 8
"""Of one server: as many as the router that this format comes from takes for one pod."""
_CODE: Final = "CONFIG_INVALID"
_KEYS: Final = frozenset(
    {"name", "namespace", "address", "port", "ports", "labels", "state", "weight", "metricsHost", "nodeAddress"}
)


@dataclass(frozen=True, slots=True)
class EndpointFile:
    """A file's endpoints, with what is wrong with it.

    Args:
        endpoints: valid entries in file order, ids unique.
        problems: why entries were refused.
        warnings: what was decided although it could be read in two ways, and keys that nobody reads.
        refused_ids: ids of refused entries.
        nameless: whether an entry was refused whose id cannot be told.
    """

    endpoints: tuple[EndpointMetadata, ...]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    refused_ids: frozenset[str] = frozenset()
    nameless: bool = False


def read_endpoints(document: Document, at: Path = ()) -> EndpointFile:
    """Read the entries below `endpoints` of the mapping at `at`, the root of a file by default.

    Raises:
        InputError: it is no list of endpoints at all.
    """
    entries = _entries(document, at)
    reader = _Reader(document, at)
    by_id: dict[str, tuple[int, EndpointMetadata]] = {}
    refused: set[str] = set()
    for index, entry in enumerate(entries):
        endpoint_id, endpoints = reader.entry(index, entry)
        for endpoint in endpoints:
            if endpoint.id in by_id:
                reader.warn_twice(endpoint.id, by_id[endpoint.id][0], index)
            by_id[endpoint.id] = (index, endpoint)
        if not endpoints and endpoint_id:
            # It had one port or several in the form that was good.
            refused.update((endpoint_id, *(_of_rank(endpoint_id, rank) for rank in range(_MAX_PORTS))))
        elif not endpoints:
            reader.nameless = True
    reader.warn_ignored()
    endpoints = tuple(endpoint for _, endpoint in by_id.values())
    # A good entry beside a refused one of the same id is that id's word.
    refused_ids = frozenset(refused - by_id.keys())
    return EndpointFile(endpoints, tuple(reader.problems), tuple(reader.warnings), refused_ids, reader.nameless)


def check_listed(discovery: object) -> None:
    """Check the entries of a discovery that stand in the configuration itself, if it is one of these.

    Raises:
        InputError: with every problem found.
    """
    if isinstance(discovery, StaticDiscovery):
        refuse(read_endpoints(discovery.document, discovery.at).problems)


def with_last_good(read: EndpointFile, last_good: Mapping[str, EndpointMetadata]) -> tuple[EndpointMetadata, ...]:
    """The endpoints to serve after a reload: refused entries keep the form that they last had.

    While there is a refused entry whose id cannot be told, it may be any of those that are gone, so all of them stay.
    """
    present = {endpoint.id for endpoint in read.endpoints}
    kept = last_good.keys() - present if read.nameless else last_good.keys() & read.refused_ids
    return (*read.endpoints, *(endpoint for endpoint_id, endpoint in last_good.items() if endpoint_id in kept))


def _of_rank(name: str, rank: int) -> str:
    return f"{name}-rank-{rank}"


def _entries(document: Document, at: Path) -> list[object]:
    value: object = document.value
    for part in at:
        assert isinstance(value, dict | list), "who names a place has been there"
        value = value[part]  # type: ignore[index]  # a key of a mapping or an index of a list
    entries = value.get("endpoints") if isinstance(value, dict) else None
    if entries is None and isinstance(value, dict) and "endpoints" in value:
        return []
    if not isinstance(entries, list):
        path = (*at, "endpoints") if isinstance(value, dict) else at
        found = "no such key" if entries is None else type(entries).__name__
        message = "not a list of endpoints" if at else "not an endpoint file"
        problem = Problem(
            _CODE, message, document.place(path), path_text((*at, "endpoints")), "a list of endpoints", found
        )
        raise InputError([problem])
    return list(entries)


@dataclass(slots=True)
class _Reader:
    """Reads entries and collects what is wrong with them."""

    document: Document
    at: Path = ()
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    nameless: bool = False
    ignored: dict[str, list[int]] = field(default_factory=dict)

    def entry(self, index: int, entry: object) -> tuple[str, tuple[EndpointMetadata, ...]]:
        """The entry's id, "" if it cannot be told, and its endpoints, none if it is refused."""
        if not isinstance(entry, dict):
            self._refuse((index,), "a mapping with name, address and port", entry)
            return "", ()
        for key in entry.keys() - _KEYS:
            self.ignored.setdefault(str(key), []).append(index)
        before = len(self.problems)
        name = self._name(index, entry, "name", None)
        namespace = self._name(index, entry, "namespace", _DEFAULT_NAMESPACE)
        endpoint_id = f"{namespace}/{name}" if name and namespace else ""
        address = self._address(index, entry.get("address"))
        ports = self._ports(index, entry)
        labels = self._labels(index, entry.get("labels"))
        state = self._state(index, entry.get("state", "active"))
        weight = self._weight(index, entry.get("weight", 1.0))
        metrics_host = self._text(index, entry, "metricsHost", is_authority, AUTHORITY_FORM)
        node_address = self._text(index, entry, "nodeAddress", is_host, HOST_FORM)
        if len(self.problems) > before:
            return endpoint_id, ()
        has_ranks = entry.get("ports") is not None
        return endpoint_id, tuple(
            EndpointMetadata(
                id=_of_rank(endpoint_id, rank) if has_ranks else endpoint_id,
                name=_of_rank(name, rank) if has_ranks else name,
                address=address,
                port=port,
                metrics_host=metrics_host,
                labels=labels,
                rank_index=rank,
                state=state,
                weight=weight,
                node_address=node_address,
            )
            for rank, port in enumerate(ports)
        )

    def warn_twice(self, endpoint_id: str, first: int, second: int) -> None:
        lines = [self.document.place((*self.at, "endpoints", index)).line for index in (first, second)]
        message = f"the endpoint {endpoint_id!r} is given twice, on lines {lines[0]} and {lines[1]}: the last one holds"
        path = (*self.at, "endpoints", second)
        self.warnings.append(Problem("DUPLICATE_NAME", message, self.document.place(path), path_text(path)))

    def warn_ignored(self) -> None:
        """Each key that nobody reads, where it is first: the file of another router has it in all of its entries."""
        for key, indexes in sorted(self.ignored.items()):
            path = (*self.at, "endpoints", indexes[0], key)
            found = unknown_field(path, self.document.key_place(path), _KEYS)
            more = f", as in {len(indexes) - 1} more" if len(indexes) > 1 else ""
            self.warnings.append(replace(found, message=f"{found.message} is ignored{more}"))

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

    def _ports(self, index: int, entry: Mapping[str, object]) -> tuple[int, ...]:
        several = entry.get("ports")
        if several is None:
            return (self._port((index, "port"), entry.get("port")),)
        if entry.get("port") is not None:
            self._refuse((index, "ports"), "either port or ports", several)
        if not isinstance(several, list) or not 1 <= len(several) <= _MAX_PORTS:
            self._refuse((index, "ports"), f"a list of 1 to {_MAX_PORTS} ports", several)
            return ()
        ports = tuple(self._port((index, "ports", rank), port) for rank, port in enumerate(several))
        if len(set(ports)) < len(ports) and 0 not in ports:
            self._refuse((index, "ports"), "each port once", several)
        return ports

    def _port(self, path: Path, value: object) -> int:
        number = value
        # A zero in front means another base to some readers.
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 5 and value[0] != "0":
            number = int(value)
        if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= 65535:
            return number
        self._refuse(path, "1 to 65535, as a number or a text", value)
        return 0

    def _labels(self, index: int, value: object) -> Mapping[str, str]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._refuse((index, "labels"), "a mapping of texts", value)
            return {}
        for path, expected, found in wrong_labels(value):
            hint = "put it in quotes" if isinstance(found, bool | int | float) else ""
            self._refuse((index, "labels", *path), expected, found, hint)
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

    def _text(
        self, index: int, entry: Mapping[str, object], key: str, is_good: Callable[[str], bool], expected: str
    ) -> str:
        """A text that may be absent, "" then."""
        value = entry.get(key)
        if value is None:
            return ""
        if isinstance(value, str) and is_good(value):
            return value
        self._refuse((index, key), expected, value)
        return ""

    def _refuse(self, path: Path, expected: str, found: object, hint: str = "") -> None:
        text = "nothing" if found is None else repr(found)
        full = (*self.at, "endpoints", *path)
        place = self.document.place(full)
        self.problems.append(
            Problem(_CODE, "this endpoint is refused", place, path_text(full), expected, text[:80], hint)
        )
