"""OCI image layouts: the folder form of a package, which any registry and image tool can carry.

    oci-layout · index.json · blobs/sha256/<hex>     config blob = the manifest · layers = the wheels

Writing is atomic (built beside, renamed). Reading trusts nothing: every file is bounded before it is read, named by a
checked digest, and hashed; a folder that somebody is still copying is told apart (NOT_COMPLETE_YET) from one that
is wrong. The image manifest must repeat what the plugin's manifest says, so that tools that know only OCI cannot
be shown other wheels. Everything here blocks.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hotbay.errors import InputError, PackageError, Problem
from hotbay.packages.manifest import ARTIFACT_TYPE, MANIFEST_LIMIT_BYTES, MANIFEST_MEDIA_TYPE, Manifest, parse_manifest
from hotbay.store.digests import DIGEST_PATTERN, Digest, digest_of, hex_of
from hotbay.store.files import open_regular, writing

NOT_COMPLETE_YET: Final = "NOT_COMPLETE_YET"

_INDEX_TYPE: Final = "application/vnd.oci.image.index.v1+json"
_IMAGE_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_TITLE: Final = "org.opencontainers.image.title"
_MARKER_BYTES: Final = b'{"imageLayoutVersion":"1.0.0"}'
# One layout may hold every revision that a publisher or a store keeps, for every platform, and entries of image tools.
_IMAGE_LIMIT_COUNT: Final = 1000
_CHUNK_BYTES: Final = 1 << 20

_Model = TypeVar("_Model", bound=BaseModel)

__all__ = [
    "NOT_COMPLETE_YET",
    "FileDigests",
    "blob_path",
    "layout_folders",
    "read_layout",
    "survey_layout",
    "write_layout",
]


@dataclass(frozen=True, slots=True)
class _Identity:
    """What changes when a file's content may have changed."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class FileDigests:
    """Remembers the sha256 of files by identity, so that looking again costs a `stat`. For one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[_Identity, Digest] = {}
        self._used: dict[_Identity, Digest] = {}

    def of(self, path: Path, expected_size: int) -> Digest | None:
        """The digest, or None for a file that is shorter than expected. Raises PackageError LENGTH_MISMATCH if longer."""
        with open_regular(path) as opened:
            found = os.fstat(opened.fileno())
            if found.st_size > expected_size:
                raise PackageError("LENGTH_MISMATCH", f"{path}: expected {expected_size} bytes, found {found.st_size}")
            if found.st_size < expected_size:
                return None
            identity = _Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            digest = self._known.get(identity) or self._hash(opened.fileno())
            self._used[identity] = digest
            return digest

    def forget_unused(self) -> None:
        """Drops what was not asked for since the last call."""
        self._known, self._used = self._used, {}

    def _hash(self, descriptor: int) -> Digest:
        hasher = hashlib.sha256()
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            hasher.update(chunk)
        return Digest(f"sha256:{hasher.hexdigest()}")


# Other fields are allowed on purpose: image tools add annotations and media types of their own to these two.
_LENIENT: Final = ConfigDict(frozen=True, strict=True, extra="ignore")


class _Descriptor(BaseModel):
    model_config = _LENIENT

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)]
    digest: Annotated[Digest, Field(pattern=DIGEST_PATTERN)]
    size: Annotated[int, Field(ge=0, le=2**40)]
    artifact_type: Annotated[str, Field(alias="artifactType", max_length=255)] = ""
    annotations: dict[str, str] = Field(default_factory=dict)


class _Marker(BaseModel):
    model_config = _LENIENT

    version: Annotated[Literal["1.0.0"], Field(alias="imageLayoutVersion")]


class _Index(BaseModel):
    model_config = _LENIENT

    manifests: Annotated[tuple[_Descriptor, ...], Field(min_length=1, max_length=_IMAGE_LIMIT_COUNT)]


class _Image(BaseModel):
    model_config = _LENIENT

    config: _Descriptor
    layers: Annotated[tuple[_Descriptor, ...], Field(max_length=1024)]


def blob_path(layout: Path, digest: Digest) -> Path:
    return layout / "blobs" / "sha256" / hex_of(digest)


def layout_folders(layout: Path) -> tuple[Path, ...]:
    """The folders of a layout, all of whose direct entries are its files."""
    return layout, layout / "blobs", layout / "blobs" / "sha256"


def read_layout(layout: Path, *, digests: FileDigests | None = None) -> tuple[Manifest, ...]:
    """Manifests of the plugin packages in a layout, every blob of which is there and has its digest.

    Entries of other artifact types are skipped.

    Raises:
        PackageError: NOT_COMPLETE_YET while something is missing, short or cut off; LENGTH_MISMATCH, DIGEST_MISMATCH
            or INVALID_PACKAGE when waiting cannot help.
    """
    manifests, errors = survey_layout(layout, digests=digests)
    if errors:
        raise errors[0]
    return manifests


def survey_layout(
    layout: Path, *, digests: FileDigests | None = None
) -> tuple[tuple[Manifest, ...], tuple[PackageError, ...]]:
    """As `read_layout`, but what is wrong with one package of the layout does not hide the others.

    Raises as `read_layout` what concerns the layout as a whole.
    """
    digests = digests or FileDigests()
    for name in ("oci-layout", "index.json"):
        if not (layout / name).exists():
            raise _not_yet(layout, f"{name} is missing")
    _parse(_Marker, _read_bounded(layout / "oci-layout"), layout, "oci-layout", verified=False)
    index = _parse(_Index, _read_bounded(layout / "index.json"), layout, "index.json", verified=False)
    manifests: list[Manifest] = []
    errors: list[PackageError] = []
    for entry in _entries(layout, index, errors):
        try:
            found = _read_image(layout, entry, digests)
        except PackageError as error:
            errors.append(error)
        else:
            manifests += [found] if found is not None and found not in manifests else []
    if not manifests and not errors:
        raise PackageError("INVALID_PACKAGE", f"{layout}: holds no {ARTIFACT_TYPE}")
    return tuple(manifests), tuple(errors)


def _entries(layout: Path, index: _Index, errors: list[PackageError]) -> list[_Descriptor]:
    """The images of the index, and of the indexes that it names: a build for each platform under one name."""
    found: list[_Descriptor] = []
    for entry in index.manifests:
        if entry.media_type == _IMAGE_TYPE:
            found.append(entry)
        elif entry.media_type == _INDEX_TYPE:
            try:
                raw = _read_blob(layout, entry.digest, entry.size)
                inner = _parse(_Index, raw, layout, f"index {entry.digest}", verified=True)
            except PackageError as error:
                errors.append(error)
            else:
                found += [image for image in inner.manifests if image.media_type == _IMAGE_TYPE]
    if len(found) > _IMAGE_LIMIT_COUNT:
        raise PackageError("INVALID_PACKAGE", f"{layout}: more than {_IMAGE_LIMIT_COUNT} images")
    return found


def write_layout(out: Path, manifest: Manifest, wheels: Mapping[str, Path]) -> None:
    """Writes a layout of one package, replacing an older layout at `out`. `wheels` maps blob names to files.

    The folder appears under its name whole. Equal arguments give equal bytes. Raises InputError CONFIG_INVALID when something
    else is there, CapacityError when it cannot be written.
    """
    if out.exists() and not (out / "oci-layout").is_file() and not (out.is_dir() and not any(out.iterdir())):
        hint = "Name a new folder, an empty one, or one that holds a package."
        raise InputError([Problem("CONFIG_INVALID", f"{out} exists and is no package", hint=hint)])
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent))
        try:
            new = aside / "new"
            _write_tree(new, manifest, wheels)
            if out.exists():
                out.rename(aside / "old")
            new.rename(out)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _write_tree(root: Path, manifest: Manifest, wheels: Mapping[str, Path]) -> None:
    (root / "blobs" / "sha256").mkdir(parents=True)
    for blob in manifest.blobs:
        shutil.copyfile(wheels[blob.name], blob_path(root, blob.digest))
    config = manifest.canonical_bytes()
    image = _canonical(
        {
            "schemaVersion": 2,
            "mediaType": _IMAGE_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": {"mediaType": MANIFEST_MEDIA_TYPE, "digest": manifest.digest, "size": len(config)},
            "layers": [
                {"mediaType": b.media_type, "digest": b.digest, "size": b.size, "annotations": {_TITLE: b.name}}
                for b in manifest.blobs
            ],
        }
    )
    for content in (config, image):
        blob_path(root, digest_of(content)).write_bytes(content)
    entry = {
        "mediaType": _IMAGE_TYPE,
        "artifactType": ARTIFACT_TYPE,
        "digest": digest_of(image),
        "size": len(image),
    }
    (root / "oci-layout").write_bytes(_MARKER_BYTES)
    (root / "index.json").write_bytes(_canonical({"schemaVersion": 2, "mediaType": _INDEX_TYPE, "manifests": [entry]}))


def _read_image(layout: Path, entry: _Descriptor, digests: FileDigests) -> Manifest | None:
    if entry.artifact_type not in ("", ARTIFACT_TYPE):
        return None
    raw = _read_blob(layout, entry.digest, entry.size)
    image = _parse(_Image, raw, layout, f"image manifest {entry.digest}", verified=True)
    if image.config.media_type != MANIFEST_MEDIA_TYPE:
        return None
    content = _read_blob(layout, image.config.digest, image.config.size)
    manifest = parse_manifest(content, origin=f"{layout}: manifest {image.config.digest}")
    layers = [(layer.annotations.get(_TITLE), layer.digest, layer.size, layer.media_type) for layer in image.layers]
    if layers != [(blob.name, blob.digest, blob.size, blob.media_type) for blob in manifest.blobs]:
        raise PackageError("INVALID_PACKAGE", f"{layout}: the image's layers are not the manifest's blobs")
    for blob in manifest.blobs:
        _check_blob(layout, blob.digest, blob.size, digests, name=blob.name)
    return manifest


def _check_blob(layout: Path, digest: Digest, size: int, digests: FileDigests, *, name: str) -> None:
    path = blob_path(layout, digest)
    if not path.exists():
        raise _not_yet(layout, f"blob {digest} ({name}) is missing")
    found = digests.of(path, size)
    if found is None:
        raise _not_yet(layout, f"blob {digest} ({name}) has less than its {size} bytes")
    if found != digest:
        raise PackageError(
            "DIGEST_MISMATCH",
            f"{path}: the content of {name} has digest {found}",
            hint="Copy the package again; if it stays so, ask its publisher.",
            details={"expected": digest, "found": found, "name": name},
        )


def _read_blob(layout: Path, digest: Digest, size: int) -> bytes:
    path = blob_path(layout, digest)
    if not path.exists():
        raise _not_yet(layout, f"blob {digest} is missing")
    content = _read_bounded(path)
    if len(content) < size:
        raise _not_yet(layout, f"blob {digest} has {len(content)} of {size} bytes")
    if len(content) > size:
        raise PackageError("LENGTH_MISMATCH", f"{path}: expected {size} bytes, found {len(content)}")
    if digest_of(content) != digest:
        raise PackageError("DIGEST_MISMATCH", f"{path}: the content has digest {digest_of(content)}")
    return content


def _read_bounded(path: Path) -> bytes:
    with open_regular(path) as opened:
        content = opened.read(MANIFEST_LIMIT_BYTES + 1)
    if len(content) > MANIFEST_LIMIT_BYTES:
        raise PackageError("INVALID_PACKAGE", f"{path}: more than {MANIFEST_LIMIT_BYTES} bytes")
    return content


def _parse(model: type[_Model], content: bytes, layout: Path, what: str, *, verified: bool) -> _Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(step) for step in first["loc"]) or "document"
        if first["type"] == "json_invalid" and not verified:
            raise _not_yet(layout, f"{what} is cut off or no JSON") from error
        raise PackageError("INVALID_PACKAGE", f"{layout}: {what}: {place}: {first['msg']}") from error


def _not_yet(layout: Path, what: str) -> PackageError:
    return PackageError(
        NOT_COMPLETE_YET,
        f"{layout}: {what}",
        hint="It is looked at again when the folder changes. If the copy has ended, copy the package again.",
    )


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
