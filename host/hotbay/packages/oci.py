"""OCI documents that lead to packages: an index names images, an image names a manifest and its wheels. Pure.

Nothing is trusted: a document is bounded before it is parsed, every digest is checked for its form, and an image must
repeat what the plugin's manifest says, so that tools that know only OCI cannot be shown other wheels. Fields that are
not known are ignored, because image tools and registries add their own.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hotbay.errors import PackageError
from hotbay.packages.manifest import ARTIFACT_TYPE, MANIFEST_LIMIT_BYTES, MANIFEST_MEDIA_TYPE, Manifest
from hotbay.store.digests import DIGEST_PATTERN, Digest

INDEX_MEDIA_TYPE: Final = "application/vnd.oci.image.index.v1+json"
IMAGE_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
# A layout's index, or a registry's tag, may hold every platform of every revision that its publisher keeps.
ENTRY_LIMIT_COUNT: Final = 1000
DOCUMENT_LIMIT_BYTES: Final = MANIFEST_LIMIT_BYTES
_TITLE: Final = "org.opencontainers.image.title"
_LENIENT: Final = ConfigDict(frozen=True, strict=True, extra="ignore")
_Model = TypeVar("_Model", bound=BaseModel)

__all__ = [
    "DOCUMENT_LIMIT_BYTES",
    "ENTRY_LIMIT_COUNT",
    "IMAGE_MEDIA_TYPE",
    "INDEX_MEDIA_TYPE",
    "Descriptor",
    "Image",
    "check_image",
    "descriptor",
    "index_bytes",
    "parse_image",
    "parse_index",
    "parse_marker",
]


class Descriptor(BaseModel):
    """What a document says of another one: its type, its name by content, its length in bytes."""

    model_config = _LENIENT

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)]
    digest: Annotated[Digest, Field(pattern=DIGEST_PATTERN)]
    size: Annotated[int, Field(ge=0, le=2**40)]
    artifact_type: Annotated[str, Field(alias="artifactType", max_length=255)] = ""
    annotations: dict[str, str] = Field(default_factory=dict)

    @property
    def may_be_plugin(self) -> bool:
        """Whether it is worth reading: an index, or an image that does not say that it is something else."""
        return self.media_type in (INDEX_MEDIA_TYPE, IMAGE_MEDIA_TYPE) and self.artifact_type in ("", ARTIFACT_TYPE)


class Image(BaseModel):
    """An image manifest."""

    model_config = _LENIENT

    config: Descriptor
    layers: Annotated[tuple[Descriptor, ...], Field(max_length=1024)]
    artifact_type: Annotated[str, Field(alias="artifactType", max_length=255)] = ""

    @property
    def is_plugin(self) -> bool:
        """Whether its config blob is a plugin's manifest."""
        return self.artifact_type in ("", ARTIFACT_TYPE) and self.config.media_type == MANIFEST_MEDIA_TYPE


class _Index(BaseModel):
    model_config = _LENIENT

    schema_version: Annotated[Literal[2], Field(alias="schemaVersion")] = 2
    manifests: Annotated[tuple[Descriptor, ...], Field(max_length=ENTRY_LIMIT_COUNT)]


class _Marker(BaseModel):
    model_config = _LENIENT

    version: Annotated[Literal["1.0.0"], Field(alias="imageLayoutVersion")]


def descriptor(media_type: str, digest: Digest, size: int, artifact_type: str = "") -> Descriptor:
    """Raises pydantic's ValidationError, a ValueError, for what a document could not say either."""
    fields = {"mediaType": media_type, "digest": digest, "size": size, "artifactType": artifact_type}
    return Descriptor.model_validate(fields)


def parse_index(content: bytes, *, origin: str) -> tuple[Descriptor, ...]:
    """The entries of an index, in its order. Raises PackageError INVALID_PACKAGE naming `origin` and the broken rule."""
    return _parse(_Index, content, origin).manifests


def parse_image(content: bytes, *, origin: str) -> Image:
    """Raises PackageError INVALID_PACKAGE naming `origin` and the broken rule."""
    return _parse(Image, content, origin)


def parse_marker(content: bytes, *, origin: str) -> None:
    """Checks an `oci-layout` file. Raises PackageError INVALID_PACKAGE."""
    _parse(_Marker, content, origin)


def check_image(image: Image, manifest: Manifest, *, origin: str) -> None:
    """The image must list the manifest's blobs. Raises PackageError INVALID_PACKAGE."""
    layers = [(layer.annotations.get(_TITLE), layer.digest, layer.size, layer.media_type) for layer in image.layers]
    if layers != [(blob.name, blob.digest, blob.size, blob.media_type) for blob in manifest.blobs]:
        raise PackageError("INVALID_PACKAGE", f"{origin}: the image's layers are not the manifest's blobs")


def index_bytes(entries: Sequence[Descriptor]) -> bytes:
    """An index of these entries, in this order; equal arguments give equal bytes."""
    value = {
        "schemaVersion": 2,
        "mediaType": INDEX_MEDIA_TYPE,
        "manifests": [entry.model_dump(mode="json", by_alias=True, exclude_defaults=True) for entry in entries],
    }
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _parse(model: type[_Model], content: bytes, origin: str) -> _Model:
    if len(content) > DOCUMENT_LIMIT_BYTES:
        raise PackageError("INVALID_PACKAGE", f"{origin}: more than {DOCUMENT_LIMIT_BYTES} bytes")
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "document"
        raise PackageError("INVALID_PACKAGE", f"{origin}: {place}: {first['msg']}") from error
