"""What publishing is about: the packages in a layout, and what has become of each. Reading blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hotbay.errors import InputError, PackageError, Place, Problem
from hotbay.packages.layout import blob_path, read_layout
from hotbay.packages.manifest import ARTIFACT_TYPE, Manifest, parse_manifest
from hotbay.packages.oci import (
    DOCUMENT_LIMIT_BYTES,
    IMAGE_MEDIA_TYPE,
    INDEX_MEDIA_TYPE,
    Descriptor,
    descriptor,
    parse_image,
    parse_index,
)
from hotbay.store.digests import Digest, digest_of
from hotbay.store.files import open_regular

__all__ = ["Built", "Published", "conflict", "read_built"]


@dataclass(frozen=True, slots=True)
class Built:
    """A package in a layout: its manifest, and the image that names it, as they are written there."""

    manifest: Manifest
    image: Descriptor
    image_bytes: bytes
    layout: Path

    def contents(self) -> tuple[tuple[Digest, int], ...]:
        """Digest and size of every blob but the image: the wheels, then the manifest."""
        manifest = self.manifest
        wheels = [(blob.digest, blob.size) for blob in manifest.blobs]
        return (*wheels, (manifest.digest, len(manifest.canonical_bytes())))


@dataclass(frozen=True, slots=True)
class Published:
    """One package at its target. `names` are the tags, or the entry, that lead to it there."""

    manifest: Manifest
    where: str
    names: tuple[str, ...]
    sent_bytes: int
    was_there: bool


def read_built(layout: Path) -> tuple[Built, ...]:
    """Every package in a layout, after every byte was checked.

    Raises:
        InputError: CONFIG_INVALID for a folder that is no package.
        PackageError: as `read_layout`.
    """
    if not (layout / "oci-layout").exists():
        hint = f"Build it first: `hotbay pack {layout}`." if (layout / "pyproject.toml").exists() else ""
        raise InputError([Problem("CONFIG_INVALID", "is no package", Place(str(layout)), hint=hint)])
    read_layout(layout)
    entries = parse_index(_bounded(layout / "index.json"), origin=f"{layout}: index.json")
    found = {built.image.digest: built for entry in entries for built in _behind(layout, entry)}
    if not found:
        raise InputError([Problem("CONFIG_INVALID", "holds no plugin", Place(str(layout)))])
    return tuple(found.values())


def conflict(manifest: Manifest, found: Digest, where: str) -> PackageError:
    """The error for a revision that is there with other content: what was published is not exchanged."""
    return PackageError(
        "DIGEST_CONFLICT",
        f"{where} holds {manifest.id} rev {manifest.rev} for {manifest.platform} with another content: "
        f"expected {manifest.digest}, found {found}",
        hint="Build it with a higher --rev.",
        details={"expected": manifest.digest, "found": found},
    )


def _behind(layout: Path, entry: Descriptor) -> Iterator[Built]:
    """The package that an entry names, or those of the index that it names."""
    if entry.media_type == INDEX_MEDIA_TYPE:
        content = _bounded(blob_path(layout, entry.digest))
        images = parse_index(content, origin=f"{layout}: index {entry.digest}")
    else:
        images = (entry,)
    for image in images:
        if image.may_be_plugin and image.media_type == IMAGE_MEDIA_TYPE:
            built = _read(layout, image)
            if built is not None:
                yield built


def _read(layout: Path, entry: Descriptor) -> Built | None:
    content = _bounded(blob_path(layout, entry.digest))
    image = parse_image(content, origin=f"{layout}: image {entry.digest}")
    if not image.is_plugin:
        return None
    manifest = parse_manifest(_bounded(blob_path(layout, image.config.digest)), origin=f"{layout}: manifest")
    if digest_of(content) != entry.digest or manifest.digest != image.config.digest:
        raise PackageError("DIGEST_MISMATCH", f"{layout}: it was changed while it was read", hint="Try again.")
    return Built(manifest, descriptor(IMAGE_MEDIA_TYPE, entry.digest, len(content), ARTIFACT_TYPE), content, layout)


def _bounded(path: Path) -> bytes:
    with open_regular(path) as opened:
        content = opened.read(DOCUMENT_LIMIT_BYTES + 1)
    if len(content) > DOCUMENT_LIMIT_BYTES:
        raise PackageError("INVALID_PACKAGE", f"{path}: more than {DOCUMENT_LIMIT_BYTES} bytes")
    return content
