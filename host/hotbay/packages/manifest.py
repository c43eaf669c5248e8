"""The manifest: what one build of a plugin for one platform is. Pure.

The canonical form is JSON with sorted keys, no spaces and UTF-8. A package's identity is the sha256 of exactly these
bytes, so bytes that are not canonical are refused: one manifest has one identity. A field that came after the first
packages is left out where it has its default: what was packed before keeps its digest. Two parsers cannot read two
things out of it either: a repeated key or an escaped character does not survive the comparison.
"""

import json
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final, Literal, Self

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from hotbay.config.type_facts import UNKNOWN, TypeFacts
from hotbay.errors import PackageError
from hotbay.store.digests import DIGEST_PATTERN, Digest, digest_of

WHEEL_MEDIA_TYPE: Final = "application/vnd.hotbay.wheel.v1+zip"
MANIFEST_MEDIA_TYPE: Final = "application/vnd.hotbay.manifest.v1+json"
ARTIFACT_TYPE: Final = "application/vnd.hotbay.plugin.v1"

# A manifest of 500 blobs is 100 KiB; more is not a manifest.
MANIFEST_LIMIT_BYTES: Final = 1 << 20
_BLOB_LIMIT_COUNT: Final = 512
_TYPE_LIMIT_COUNT: Final = 256
REV_MAX: Final = 2**64 - 1
"""Highest revision that a package can have."""

_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_ENTRYPOINT: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SEMVER: Final = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?", re.ASCII)
_PLATFORM: Final = re.compile(r"[a-z0-9_]+(-[a-z0-9_]+)*", re.ASCII)
_POINT: Final = re.compile(r"[a-z][a-z_]{0,63}", re.ASCII)
_REF_PATH: Final = re.compile(r"(\*|[A-Za-z_][\w-]*)(\.(\*|[A-Za-z_][\w-]*))*(=[!-<>-~]{1,253})?", re.ASCII)
_DATA_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}", re.ASCII)
_LATER: Final[Mapping[str, object]] = {"one_shot": False, "data_types": [], "type_facts": {}}
"""Fields that the first manifests did not have, and their defaults."""
_CHANNELS: Final = {"": "dev", "dev": "dev", "development": "dev", "release": "release", "production": "release"}

__all__ = [
    "ARTIFACT_TYPE",
    "MANIFEST_LIMIT_BYTES",
    "MANIFEST_MEDIA_TYPE",
    "REV_MAX",
    "WHEEL_MEDIA_TYPE",
    "Blob",
    "Channel",
    "Manifest",
    "ProtocolRange",
    "TypeFactsEntry",
    "check_data_key",
    "check_entrypoint",
    "check_label",
    "check_point",
    "check_ref_path",
    "check_version",
    "host_platform",
    "parse_channel",
    "parse_manifest",
]


class Channel(StrEnum):
    RELEASE = "release"
    DEV = "dev"


def check_label(text: str) -> str:
    """Returns a DNS label of at most 63 characters; raises ValueError that names the broken rule."""
    if not text:
        raise ValueError("must not be empty")
    if len(text) > 63:
        raise ValueError(f"must have at most 63 characters, has {len(text)}")
    if text[0] == "-" or text[-1] == "-":
        raise ValueError("must not begin or end with a dash")
    if not _LABEL.fullmatch(text):
        wrong = sorted({c for c in text if not re.fullmatch(r"[a-z0-9-]", c)})
        raise ValueError(f"may hold lower-case letters, digits and dashes only, found {''.join(wrong)!r}")
    return text


def check_version(text: str) -> str:
    """Returns a SemVer version; raises ValueError."""
    if len(text) > 64 or not _SEMVER.fullmatch(text):
        raise ValueError("must be MAJOR.MINOR.PATCH as in SemVer")
    return text


def check_entrypoint(text: str) -> str:
    """Returns `module:attribute`; raises ValueError."""
    if len(text) > 255 or not _ENTRYPOINT.fullmatch(text):
        raise ValueError('must be "module:attribute"')
    return text


def check_point(text: str) -> str:
    """Returns a word for an extension point; raises ValueError. Which words there are is READY's to say."""
    if not _POINT.fullmatch(text):
        raise ValueError("must be the word of an extension point, such as score")
    return text


def check_ref_path(text: str) -> str:
    """Returns a path inside parameters such as deciders.prefill, whose steps may be `*`; raises ValueError.

    Behind a `=` stands the name that is meant where there is none.
    """
    if len(text) > 512 or not _REF_PATH.fullmatch(text):
        raise ValueError("must be keys joined by dots, where * stands for every key or item, and perhaps =NAME")
    return text


def check_data_key(text: str) -> str:
    """Returns the key of shared data such as PrefixCacheMatchInfo; raises ValueError."""
    if not _DATA_KEY.fullmatch(text):
        raise ValueError("must be the key of shared data, such as PrefixCacheMatchInfo")
    return text


def parse_channel(text: str) -> Channel:
    """Reads an author's spelling: any case, outer spaces, long names; empty is dev. Raises ValueError."""
    try:
        return Channel(_CHANNELS[text.strip().lower()])
    except KeyError:
        raise ValueError('must be "release" or "dev"') from None


def host_platform() -> str:
    """Tag of what runs this process, such as python-cp311-linux-x86_64."""
    return f"python-cp{sys.version_info.major}{sys.version_info.minor}-{sys.platform}-{platform.machine().lower()}"


def _wheel_name(text: str) -> str:
    try:
        parse_wheel_filename(text)
    except InvalidWheelFilename as error:
        raise ValueError(f"must be the name of a wheel: {error}") from None
    if "/" in text or "\\" in text or not text.isascii() or not text.isprintable():
        raise ValueError("must be a plain file name")
    return text


def _distinct(values: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise ValueError("names something twice")
    return values


Label = Annotated[str, AfterValidator(check_label)]
Labels = Annotated[tuple[Label, ...], AfterValidator(_distinct)]
Points = Annotated[
    tuple[Annotated[str, AfterValidator(check_point)], ...], Field(max_length=64), AfterValidator(_distinct)
]
RefPaths = Annotated[
    tuple[Annotated[str, AfterValidator(check_ref_path)], ...], Field(max_length=64), AfterValidator(_distinct)
]
DataKeys = Annotated[
    tuple[Annotated[str, AfterValidator(check_data_key)], ...], Field(max_length=64), AfterValidator(_distinct)
]
_RULES: Final = ConfigDict(frozen=True, strict=True, extra="forbid")


class Blob(BaseModel):
    """One wheel: file name, content and length are all part of the package's identity."""

    model_config = _RULES

    name: Annotated[str, Field(max_length=255), AfterValidator(_wheel_name)]
    digest: Annotated[Digest, Field(pattern=DIGEST_PATTERN)]
    size: Annotated[int, Field(ge=1, le=2**40)]
    media_type: Annotated[str, Field(pattern=f"^{re.escape(WHEEL_MEDIA_TYPE)}$")] = WHEEL_MEDIA_TYPE


class ProtocolRange(BaseModel):
    """Wire protocol versions that the packed SDK speaks, both ends included."""

    model_config = _RULES

    first: Annotated[int, Field(ge=1, le=255)]
    last: Annotated[int, Field(ge=1, le=255)]


class TypeFactsEntry(BaseModel):
    """What is to be known of a type before a process of it runs; fields as those of `TypeFacts`."""

    model_config = _RULES

    points: Points = ()
    stability: Literal["alpha", "beta", "stable"] | None = None
    refs: RefPaths = ()
    produces_default: DataKeys = ()

    @property
    def facts(self) -> TypeFacts:
        """As the scheduler wants them."""
        return TypeFacts(frozenset(self.points), self.stability, self.refs, self.produces_default)


class Manifest(BaseModel):
    """One build of a plugin for one platform. Frozen; equal manifests have equal digests."""

    model_config = _RULES

    id: Label
    publisher: Label
    rev: Annotated[int, Field(ge=0, le=REV_MAX)]
    version: Annotated[str, AfterValidator(check_version)]
    platform: Annotated[str, Field(max_length=128, pattern=f"^{_PLATFORM.pattern}$")]
    entrypoint: Annotated[str, AfterValidator(check_entrypoint)]
    types: Annotated[Labels, Field(min_length=1, max_length=_TYPE_LIMIT_COUNT)]
    protocol: ProtocolRange
    blobs: Annotated[tuple[Blob, ...], Field(min_length=1, max_length=_BLOB_LIMIT_COUNT)]
    capabilities: Annotated[Labels, Field(max_length=64)] = ()
    channel: Annotated[Channel, Field(strict=False)] = Channel.DEV
    description: Annotated[str, Field(max_length=4096)] = ""
    license: Annotated[str, Field(max_length=256)] = ""
    one_shot: bool = False
    """Its process ends by itself when its work is done: exit code 0 is no failure, and it is not started again."""
    data_types: Annotated[Labels, Field(max_length=_TYPE_LIMIT_COUNT)] = ()
    """Those of its types that stand in the data layer and see no request. Nothing written: that shows when it is READY."""
    type_facts: Mapping[Label, TypeFactsEntry] = {}
    """What is to be known of its types before a process of it runs; of a type that is absent, nothing is."""

    def __hash__(self) -> int:
        return hash(self.digest)

    @model_validator(mode="after")
    def _one_blob_per_name(self) -> Self:
        _distinct(tuple(blob.name.lower() for blob in self.blobs))
        return self

    @model_validator(mode="after")
    def _data_types_are_types(self) -> Self:
        unknown = sorted(set(self.data_types) - set(self.types))
        if unknown:
            raise ValueError(f"data_types names {', '.join(unknown)}, which types does not")
        return self

    @model_validator(mode="after")
    def _facts_are_of_types(self) -> Self:
        unknown = sorted(set(self.type_facts) - set(self.types))
        if unknown:
            raise ValueError(f"type_facts names {', '.join(unknown)}, which types does not")
        return self

    def facts_of(self, type_name: str) -> TypeFacts:
        """What it says of one of its types."""
        entry = self.type_facts.get(type_name)
        return UNKNOWN if entry is None else entry.facts

    @property
    def size_bytes(self) -> int:
        """Bytes of all blobs."""
        return sum(blob.size for blob in self.blobs)

    @cached_property
    def digest(self) -> Digest:
        """The package's identity."""
        return digest_of(self.canonical_bytes())

    def canonical_bytes(self) -> bytes:
        """The bytes that are stored, hashed and signed."""
        fields = self.model_dump(mode="json")
        fields = {name: value for name, value in fields.items() if name not in _LATER or value != _LATER[name]}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_manifest(content: bytes, *, origin: str = "manifest") -> Manifest:
    """Reads canonical bytes. Raises PackageError INVALID_PACKAGE naming `origin` and every broken rule."""
    if len(content) > MANIFEST_LIMIT_BYTES:
        raise _invalid(origin, [f"has more than {MANIFEST_LIMIT_BYTES} bytes"])
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        problems = [
            f"{'.'.join(str(step) for step in item['loc']) or 'document'}: {item['msg'].removeprefix('Value error, ')}"
            for item in error.errors(include_url=False, include_input=False, include_context=False)[:20]
        ]
        raise _invalid(origin, problems) from error
    if manifest.canonical_bytes() != content:
        raise _invalid(
            origin,
            ["is not in canonical form (sorted keys, no spaces, every field present but later ones at their default)"],
        )
    return manifest


def _invalid(origin: str, problems: Iterable[str]) -> PackageError:
    return PackageError(
        "INVALID_PACKAGE",
        "\n".join(f"{origin}: {problem}" for problem in problems),
        hint="Build the package again with `hotbay pack`.",
        details={"origin": origin},
    )
