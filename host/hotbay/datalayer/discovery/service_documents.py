"""What an answer of Prometheus's HTTP service discovery says as endpoints.

The form is `[{"targets": ["HOST:PORT", …], "labels": {NAME: TEXT, …}}, …]`. A target's name is its host and port. Several
ports of one host in one group are its ranks, in the order in which they stand. Nothing here relabels, so labels that begin
with `__meta_`, which Prometheus drops after relabelling, are kept: without them nothing could be told of a target. Other
labels that begin with two underscores are words to Prometheus itself, and are dropped. Pure.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import orjson

from hotbay.config.endpoint_bounds import wrong_labels
from hotbay.config.wording import described, path_text
from hotbay.datalayer.discovery.endpoint_documents import EndpointFile
from hotbay.datalayer.discovery.session import MAX_ENDPOINTS
from hotbay.datalayer.endpoint import EndpointMetadata, format_authority
from hotbay.errors import InputError, Place, Problem

__all__ = ["read_service_document"]

_CODE: Final = "CONFIG_INVALID"
_TARGET: Final = re.compile(r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<plain>[^:\[\]/@\s]+)):(?P<port>[0-9]{1,5})\Z")
_HOST: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?\Z")
_MAX_GROUPS: Final = 2 * MAX_ENDPOINTS
"""One for each target, and as many without any."""
_MAX_PROBLEMS: Final = 20
_META: Final = "__meta_"
_PROMETHEUS: Final = "__"


def read_service_document(body: bytes, *, namespace: str, source: str) -> EndpointFile:
    """Read an answer; of two targets that are the same the last one holds, with a warning.

    Args:
        body: as it was sent.
        namespace: of the endpoints' ids.
        source: what problems call the document.

    Raises:
        InputError: it is no such document at all, or has too many targets.
    """
    try:
        groups = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        place = Place(source, error.lineno, error.colno)
        raise InputError([Problem(_CODE, f"no JSON: {error.msg}", place)]) from error
    if not isinstance(groups, list):
        raise InputError([_problem(source, (), "not a document of HTTP service discovery", "a list of groups", groups)])
    # Before they are read: what each costs is many times what it takes in the document.
    if len(groups) > _MAX_GROUPS or sum(map(_target_count, groups)) > MAX_ENDPOINTS:
        message = "not a document of HTTP service discovery"
        expected = f"at most {MAX_ENDPOINTS} targets in at most {_MAX_GROUPS} groups"
        raise InputError([Problem(_CODE, message, Place(source), "", expected, "more")])
    reader = _Reader(namespace, source)
    for index, group in enumerate(groups):
        reader.group(index, group)
    return reader.result()


@dataclass(slots=True)
class _Reader:
    namespace: str
    source: str
    found: dict[str, EndpointMetadata] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    nameless: bool = False

    def result(self) -> EndpointFile:
        shown = self.problems[:_MAX_PROBLEMS]
        if len(self.problems) > len(shown):
            more = f"{len(self.problems) - len(shown)} more problems are not shown"
            shown.append(Problem(_CODE, more, Place(self.source)))
        refused = frozenset(self.refused - self.found.keys())
        return EndpointFile(
            tuple(self.found.values()), tuple(shown), tuple(self.warnings[:_MAX_PROBLEMS]), refused, self.nameless
        )

    def group(self, index: int, group: object) -> None:
        targets = group.get("targets") if isinstance(group, dict) else None
        if not isinstance(group, dict) or not isinstance(targets, list):
            path = (index, "targets") if isinstance(group, dict) else (index,)
            found = targets if isinstance(group, dict) else group
            self._refuse(path, "a list of targets" if len(path) > 1 else "a mapping with targets", found)
            self.nameless = True
            return
        labels = self._labels(index, group.get("labels"))
        ranks: dict[str, int] = {}
        for position, target in enumerate(targets):
            where = self._target((index, "targets", position), target)
            if where is None:
                self.nameless = True
                continue
            self._take(index, where, labels, ranks)

    def _take(
        self, index: int, where: tuple[str, int], labels: Mapping[str, str] | None, ranks: dict[str, int]
    ) -> None:
        address, port = where
        rank = ranks.get(address, 0)
        ranks[address] = rank + 1
        name = format_authority(address, port)
        endpoint_id = f"{self.namespace}/{name}"
        if labels is None:
            self.refused.add(endpoint_id)
            return
        if endpoint_id in self.found:
            message = f"the target {name!r} is given twice, again in group {index}: the last one holds"
            self.warnings.append(Problem("DUPLICATE_NAME", message, Place(self.source)))
        self.found[endpoint_id] = EndpointMetadata(
            id=endpoint_id, name=name, address=address, port=port, labels=labels, rank_index=rank
        )

    def _target(self, path: tuple[str | int, ...], value: object) -> tuple[str, int] | None:
        parts = _TARGET.match(value) if isinstance(value, str) else None
        if parts is not None and 0 < int(parts["port"]) <= 65535:
            host = _host(parts["bracketed"], parts["plain"])
            if host is not None:
                return host, int(parts["port"])
        hint = "a zone means something on one host only: leave it out" if "%" in str(value) else ""
        self._refuse(path, "HOST:PORT, with brackets around an IPv6 address", value, hint)
        return None

    def _labels(self, index: int, value: object) -> Mapping[str, str] | None:
        """One mapping for all targets of the group; None when they cannot be taken with it."""
        if value is None:
            return MappingProxyType({})
        if not isinstance(value, dict):
            self._refuse((index, "labels"), "a mapping of texts", value)
            return None
        for path, expected, found in wrong_labels(value):
            self._refuse((index, "labels", *path), expected, found)
            return None
        kept = {name: label for name, label in value.items() if name.startswith(_META) or name[:2] != _PROMETHEUS}
        return MappingProxyType(kept)

    def _refuse(self, path: tuple[str | int, ...], expected: str, found: object, hint: str = "") -> None:
        self.problems.append(_problem(self.source, path, "this target is refused", expected, found, hint))


def _target_count(group: object) -> int:
    targets = group.get("targets") if isinstance(group, dict) else None
    return len(targets) if isinstance(targets, list) else 0


def _host(bracketed: str | None, plain: str | None) -> str | None:
    """The host in its one spelling, or None when it is none; only IPv6 addresses stand in brackets."""
    text = bracketed or plain or ""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        is_name = bracketed is None and _HOST.match(text) and not text.rpartition(".")[2].isdigit()
        return text.lower().removesuffix(".") if is_name else None
    if isinstance(parsed, ipaddress.IPv6Address) and (parsed.scope_id or bracketed is None):
        return None
    return str(parsed) if isinstance(parsed, ipaddress.IPv6Address) == (bracketed is not None) else None


def _problem(
    source: str, path: tuple[str | int, ...], message: str, expected: str, found: object, hint: str = ""
) -> Problem:
    return Problem(_CODE, message, Place(source), path_text(path), expected, described(found), hint)
