"""What a plugin type can be in the data layer: a data source, an extractor or a discovery, and which data it deals in. Pure.

A payload is named by a word: `metrics`, `models`, `json`, `text` and `bytes` are what polling sources bring, `endpoint` is an
endpoint that comes, changes or goes, and `object:GROUP/VERSION/KIND` an object of that kind. The word decides the variant.
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "BUILTIN_FORMS",
    "ENDPOINT_PAYLOAD",
    "POLLED_PAYLOADS",
    "ObjectKind",
    "Point",
    "TypeForm",
    "Variant",
    "variant_of",
]

POLLED_PAYLOADS: Final = frozenset({"metrics", "models", "json", "text", "bytes"})
ENDPOINT_PAYLOAD: Final = "endpoint"
_OBJECT: Final = "object"

# The forms that a cluster's API allows; a group may be empty.
_GROUP: Final = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)?\Z")
_VERSION: Final = re.compile(r"v[0-9][a-z0-9]{0,61}\Z")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}\Z")


class Point(enum.StrEnum):
    """What a type answers in the data layer; the words of a plugin's declaration."""

    SOURCE = "source"
    EXTRACT = "extract"
    DISCOVER = "discover"
    WATCH = "watch"
    POLL = "poll"


_BRINGING: Final = frozenset({Point.SOURCE, Point.WATCH, Point.POLL})


class Variant(enum.StrEnum):
    """How a source brings its data."""

    POLLING = "polling"
    NOTIFICATION = "notification"
    ENDPOINT = "endpoint"


@dataclass(frozen=True, slots=True, order=True)
class ObjectKind:
    """Group, version and kind of objects, as in `apiVersion: GROUP/VERSION` and `kind: KIND`; the core group is empty."""

    group: str
    version: str
    kind: str

    @classmethod
    def parse(cls, api_version: str, kind: str) -> "ObjectKind":
        """Read what an object says of itself. Raises `ValueError` saying what was expected."""
        group, _, version = api_version.rpartition("/")
        found = cls(group, version, kind)
        found.check()
        return found

    def check(self) -> None:
        """Raise `ValueError` when a part is not of the form that it has."""
        parts = (("a group such as apps", _GROUP, self.group), ("a version such as v1", _VERSION, self.version))
        for expected, form, text in (*parts, ("a kind such as Pod", _KIND, self.kind)):
            if not form.match(text):
                raise ValueError(f"expected {expected}, found {text[:60]!r}")

    @property
    def payload(self) -> str:
        """The word for objects of this kind."""
        return f"{_OBJECT}:{self}"

    def __str__(self) -> str:
        return f"{self.group}/{self.version}/{self.kind}"


def variant_of(payload: str) -> Variant:
    """The variant of sources that bring this payload. Raises `ValueError` for a word that is none."""
    if payload in POLLED_PAYLOADS:
        return Variant.POLLING
    if payload == ENDPOINT_PAYLOAD:
        return Variant.ENDPOINT
    prefix, _, kind = payload.partition(":")
    if prefix == _OBJECT and (not kind or len(kind.split("/")) == 3):
        if kind:
            ObjectKind(*kind.split("/")).check()
        return Variant.NOTIFICATION
    known = ", ".join(sorted({*POLLED_PAYLOADS, ENDPOINT_PAYLOAD}))
    raise ValueError(f"expected {known} or object:GROUP/VERSION/KIND, found {payload[:60]!r}")


@dataclass(frozen=True, slots=True)
class TypeForm:
    """What a type can be. `payloads` of a source are what it brings, of an extractor what it reads; one, if it is right.

    A notification source whose kind of objects stands in its parameters has the payload `object`.
    """

    points: frozenset[Point]
    payloads: tuple[str, ...] = ()

    @property
    def is_source(self) -> bool:
        """Whether it brings data: as one of the host's, or of a package that changes, watches or polls."""
        return not self.points.isdisjoint(_BRINGING)

    @property
    def variants(self) -> frozenset[Variant]:
        """By the payloads. Raises `ValueError` for a word that is none."""
        return frozenset(variant_of(payload) for payload in self.payloads)


def _source(payload: str) -> TypeForm:
    return TypeForm(frozenset({Point.SOURCE}), (payload,))


def _extractor(payload: str) -> TypeForm:
    return TypeForm(frozenset({Point.EXTRACT}), (payload,))


BUILTIN_FORMS: Final[Mapping[str, TypeForm]] = {
    "metrics-data-source": _source("metrics"),
    "core-metrics-extractor": _extractor("metrics"),
    "models-data-source": _source("models"),
    "models-data-extractor": _extractor("models"),
    "dcgm-data-source": _source("metrics"),
    "dcgm-extractor": _extractor("metrics"),
    "endpoint-notification-source": _source(ENDPOINT_PAYLOAD),
    "object-directory-source": _source(_OBJECT),
}
"""Sources and extractors that the host has itself; its discoveries are in `discovery_parameters`."""
