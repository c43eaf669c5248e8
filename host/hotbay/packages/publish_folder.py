"""Publishing into a folder on this machine: an entry of a watched folder, or one more package in an OCI layout.

Who watches the folder sees a package whole or not at all: an entry appears under its name by a rename; in a layout
the blobs come first, each by a rename, and the index that names them last. Publishers take turns. Everything here blocks.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hotbay.errors import InputError, PackageError, Problem
from hotbay.packages.layout import FileDigests, blob_path, read_layout, write_layout
from hotbay.packages.manifest import Manifest
from hotbay.packages.oci import Descriptor, parse_index
from hotbay.packages.published import Built, Published, conflict
from hotbay.store.digests import Digest
from hotbay.store.files import sync_directory, write_durably, writing

__all__ = ["add_entries", "add_to_layout"]


def add_entries(packages: Sequence[Built], folder: Path) -> tuple[Published, ...]:
    """Puts each package into a folder of its own, `ID-REV-PLATFORM`.

    Raises PackageError DIGEST_CONFLICT, and CapacityError when the folder cannot be written.
    """
    with writing(folder), _turn(folder):
        for package in packages:
            _check_entry(package.manifest, _entry(folder, package.manifest))
        return tuple(_add_entry(package, _entry(folder, package.manifest)) for package in packages)


def add_to_layout(packages: Sequence[Built], layout: Path) -> tuple[Published, ...]:
    """Adds the packages to one layout, which is made if it is not there.

    Raises:
        InputError: CONFIG_INVALID when the folder holds something else.
        PackageError: DIGEST_CONFLICT, or what `read_layout` raises for a layout that is damaged.
        CapacityError: the layout cannot be written.
    """
    with writing(layout):
        return _add_to_layout(packages, layout)


def _add_to_layout(packages: Sequence[Built], layout: Path) -> tuple[Published, ...]:
    if not (layout / "oci-layout").exists():
        if layout.exists() and (not layout.is_dir() or any(layout.iterdir())):
            hint = "Name a new folder, an empty one, or one that holds a package."
            raise InputError([Problem("CONFIG_INVALID", f"{layout} holds something else", hint=hint)])
        first = packages[0].manifest
        write_layout(layout, first, _wheels(packages[0]))
        made = Published(first, str(layout), (first.digest,), _sent(packages[0]), was_there=False)
        return (made, *_add_to_layout(packages[1:], layout)) if packages[1:] else (made,)
    with _turn(layout):
        standing = {(m.id, m.rev, m.platform): m.digest for m in read_layout(layout)}
        for manifest in (package.manifest for package in packages):
            found = standing.get((manifest.id, manifest.rev, manifest.platform), manifest.digest)
            if found != manifest.digest:
                raise conflict(manifest, found, str(layout))
        new = [package for package in packages if package.manifest.digest not in standing.values()]
        sent = {package.manifest.digest: _copy_blobs(package, layout) for package in new}
        if new:
            _extend_index(layout, [package.image for package in new])
    return tuple(
        Published(m, str(layout), (m.digest,), sent.get(m.digest, 0), was_there=m.digest not in sent)
        for m in (package.manifest for package in packages)
    )


def _entry(folder: Path, manifest: Manifest) -> Path:
    return folder / f"{manifest.id}-{manifest.rev}-{manifest.platform}"


def _check_entry(manifest: Manifest, entry: Path) -> None:
    if entry.exists():
        for standing in read_layout(entry):
            if standing.digest != manifest.digest:
                raise conflict(manifest, standing.digest, str(entry))


def _add_entry(package: Built, entry: Path) -> Published:
    if entry.exists():
        return Published(package.manifest, str(entry), (entry.name,), 0, was_there=True)
    write_layout(entry, package.manifest, _wheels(package))
    return Published(package.manifest, str(entry), (entry.name,), _sent(package), was_there=False)


def _wheels(package: Built) -> dict[str, Path]:
    return {blob.name: blob_path(package.layout, blob.digest) for blob in package.manifest.blobs}


def _sent(package: Built) -> int:
    return sum(size for _, size in package.contents()) + len(package.image_bytes)


def _copy_blobs(package: Built, layout: Path) -> int:
    """Bytes that were not there yet."""
    wanted = [(package.image.digest, package.image.size), *package.contents()]
    missing = [(digest, size) for digest, size in wanted if not _has(layout, digest, size)]
    for digest, size in missing:
        _copy(blob_path(package.layout, digest), blob_path(layout, digest), digest, size)
    sync_directory(layout / "blobs" / "sha256")
    return sum(size for _, size in missing)


def _has(layout: Path, digest: Digest, size: int) -> bool:
    path = blob_path(layout, digest)
    return path.exists() and FileDigests().of(path, size) == digest


def _copy(source: Path, target: Path, digest: Digest, size: int) -> None:
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as opened:
            with source.open("rb") as read:
                shutil.copyfileobj(read, opened)
            opened.flush()
            os.fsync(opened.fileno())
        if FileDigests().of(aside, size) != digest:
            raise PackageError("DIGEST_MISMATCH", f"{source} was changed while it was read", hint="Try again.")
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def _extend_index(layout: Path, images: Sequence[Descriptor]) -> None:
    """Adds entries; all else in the index, which other tools may have written, stays as it is."""
    file = layout / "index.json"
    content = file.read_bytes()
    parse_index(content, origin=str(file))
    index = json.loads(content)
    index["manifests"] += [image.model_dump(mode="json", by_alias=True, exclude_defaults=True) for image in images]
    extended = json.dumps(index, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    parse_index(extended, origin=f"{file} with {len(images)} more")
    write_durably(file, extended)


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
