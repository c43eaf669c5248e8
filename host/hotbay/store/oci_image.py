"""A package as OCI names it, made from the bytes of its manifest. Pure.

    index → image → config (the manifest) and layers (its wheels)

Of a manifest only its blobs are read here; its rules are the packages'. Equal manifests give equal images, the same as
in the layout that the package came in, so an image has one digest everywhere.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hotbay.store.digests import Digest, digest_of, parse_digest

MARKER: Final = b'{"imageLayoutVersion":"1.0.0"}'
"""What the file `oci-layout` holds."""

_ARTIFACT_TYPE: Final = "application/vnd.hotbay.plugin.v1"
_IMAGE_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
_MANIFEST_TYPE: Final = "application/vnd.hotbay.manifest.v1+json"
_TITLE: Final = "org.opencontainers.image.title"

__all__ = ["MARKER", "NamedBlob", "blobs_of", "image_of", "index_of"]


@dataclass(frozen=True, slots=True)
class NamedBlob:
    """A blob as a manifest names it."""

    name: str
    digest: Digest
    size: int
    media_type: str


def blobs_of(manifest: bytes) -> tuple[NamedBlob, ...]:
    """The blobs that a manifest names, in its order. Raises ValueError when these are no manifest's bytes."""
    try:
        document = json.loads(manifest)
        return tuple(
            NamedBlob(str(blob["name"]), parse_digest(blob["digest"]), int(blob["size"]), str(blob["media_type"]))
            for blob in document["blobs"]
        )
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"these bytes are no manifest: {error}") from error


def image_of(manifest: bytes) -> bytes:
    """The image manifest for a package. Raises ValueError as `blobs_of`."""
    return _canonical(
        {
            "schemaVersion": 2,
            "mediaType": _IMAGE_TYPE,
            "artifactType": _ARTIFACT_TYPE,
            "config": {"mediaType": _MANIFEST_TYPE, "digest": digest_of(manifest), "size": len(manifest)},
            "layers": [
                {"mediaType": b.media_type, "digest": b.digest, "size": b.size, "annotations": {_TITLE: b.name}}
                for b in blobs_of(manifest)
            ],
        }
    )


def index_of(images: Iterable[bytes]) -> bytes:
    """The index of these images, whatever their order."""
    entries = [
        {"mediaType": _IMAGE_TYPE, "artifactType": _ARTIFACT_TYPE, "digest": digest_of(image), "size": len(image)}
        for image in images
    ]
    entries.sort(key=lambda entry: str(entry["digest"]))
    return _canonical({"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": entries})


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
