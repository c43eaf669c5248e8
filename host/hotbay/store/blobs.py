"""Content-addressed blobs: staged, verified, made durable, then named. Completion records are written last.

    <root>/blobs/sha256/<hex>     whole, verified, read-only; a file under this name is never partial
    <root>/parts/<hex>.part       being written, under an exclusive lock; worthless after a crash
    <root>/complete/<hex>.json    every blob of the manifest of this digest is in place

Invariants: a blob gets its name by rename, after length and sha256 matched and the bytes were synced. Writers of
one digest take turns on its part file and the second finds the work done. A crash at any point leaves at most a
part file, which the next writer of that digest or `sweep` discards. Methods block: call them from a worker thread.
"""

import errno
import fcntl
import hashlib
import json
import logging
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from hotbay.errors import CapacityError, PackageError
from hotbay.store.digests import Digest, hex_of, parse_digest

logger = logging.getLogger(__name__)

# Large enough that system calls do not matter beside hashing, small enough to stop an overlong source at once.
_CHUNK_BYTES: Final = 1 << 20
# A record names a few dozen blobs; whatever is larger was not written here.
_RECORD_LIMIT_BYTES: Final = 1 << 20
_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

__all__ = ["BlobStore", "Described", "Named", "open_regular", "sync_directory", "write_durably"]


class Named(Protocol):
    """A blob as a manifest names it."""

    @property
    def digest(self) -> Digest: ...
    @property
    def size(self) -> int: ...


class Described(Protocol):
    """What a completion record is about; `packages.manifest.Manifest` is one."""

    @property
    def digest(self) -> Digest: ...
    @property
    def blobs(self) -> Sequence[Named]: ...
    def canonical_bytes(self) -> bytes: ...


class BlobStore:
    """Blobs and completion records under one directory, which this process may share with others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = root / "blobs" / "sha256"
        self._parts = root / "parts"
        self._complete = root / "complete"
        for folder in (self._blobs, self._parts, self._complete):
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: Digest) -> Path:
        """Where the blob is, or would be."""
        return self._blobs / hex_of(digest)

    def has(self, digest: Digest, *, size: int | None = None) -> bool:
        """Whether the blob is here whole. Its bytes were verified when they were written."""
        try:
            found = self.path(digest).stat()
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and size in (None, found.st_size)

    def read(self, digest: Digest, *, limit_bytes: int = _RECORD_LIMIT_BYTES) -> bytes:
        """A small blob's bytes, verified again. Raises PackageError when it is absent, larger or damaged."""
        with open_regular(self.path(digest)) as source:
            content = source.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise _length_mismatch(digest, expected=limit_bytes, found="more")
        if hashlib.sha256(content).hexdigest() != hex_of(digest):
            raise _digest_mismatch(digest, "the stored bytes are damaged; remove this blob, it is fetched again")
        return content

    def copy_in(self, source: Path, digest: Digest, size: int) -> bool:
        """Copies a file in, verifying while it streams. False when the blob was here already.

        Raises:
            PackageError: LENGTH_MISMATCH, DIGEST_MISMATCH, or FETCH_FAILED when the source cannot be read.
            CapacityError: the disk is full.
        """
        if self.has(digest, size=size):
            return False
        with open_regular(source) as opened:
            return self.put_stream(iter(lambda: opened.read(_CHUNK_BYTES), b""), digest, size)

    def put_stream(self, chunks: Iterable[bytes], digest: Digest, size: int) -> bool:
        """Stores the bytes of `chunks` (from the blob's first byte on). Contract as `copy_in`.

        At most `size` bytes and one chunk are taken from a source that is longer than it said.
        """
        if self.has(digest, size=size):
            return False
        with self._locked_part(digest, size) as (part, descriptor):
            if self.has(digest, size=size):
                part.unlink(missing_ok=True)
                return False
            try:
                self._fill(descriptor, chunks, digest, size)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            part.replace(self.path(digest))
            sync_directory(self._blobs)
        return True

    def put_bytes(self, content: bytes, digest: Digest) -> bool:
        return self.put_stream([content], digest, len(content))

    def complete(self, manifest: Described) -> None:
        """Records that the package is complete. Raises PackageError FETCH_FAILED if a blob is not in place."""
        missing = [blob.digest for blob in manifest.blobs if not self.has(blob.digest, size=blob.size)]
        if missing:
            raise PackageError(
                "FETCH_FAILED",
                f"{len(missing)} of {len(manifest.blobs)} blobs of {manifest.digest} are not in the store",
                details={"missing": missing},
            )
        self.put_bytes(manifest.canonical_bytes(), manifest.digest)
        record = {"blobs": [{"digest": b.digest, "size": b.size} for b in manifest.blobs], "digest": manifest.digest}
        content = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
        write_durably(self._complete / f"{hex_of(manifest.digest)}.json", content)

    def is_complete(self, digest: Digest) -> bool:
        """Whether the record exists and all that it names is still in place."""
        try:
            with (self._complete / f"{hex_of(digest)}.json").open("rb") as opened:
                record = json.loads(opened.read(_RECORD_LIMIT_BYTES))
            named = [(parse_digest(blob["digest"]), int(blob["size"])) for blob in record["blobs"]]
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError):
            logger.warning("completion_record_unreadable digest=%s", digest)
            return False
        return self.has(digest) and all(self.has(name, size=size) for name, size in named)

    def completed(self) -> list[Digest]:
        """Digests of the manifests that are complete, sorted: what can run though every source is silent."""
        found = [Digest(f"sha256:{entry.stem}") for entry in self._complete.glob("*.json")]
        return sorted(digest for digest in found if _is_digest(digest) and self.is_complete(digest))

    def forget(self, digest: Digest) -> None:
        """Takes the completion back; blobs stay until they are collected."""
        (self._complete / f"{hex_of(digest)}.json").unlink(missing_ok=True)
        sync_directory(self._complete)

    def sweep(self) -> int:
        """Removes part files that nobody is writing; returns how many. For the start of a host."""
        removed = 0
        for part in self._parts.iterdir():
            descriptor = os.open(part, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink(missing_ok=True)
                removed += 1
            except BlockingIOError:
                logger.info("part_file_in_use path=%s", part)
            finally:
                os.close(descriptor)
        return removed

    @contextmanager
    def _locked_part(self, digest: Digest, size: int) -> Iterator[tuple[Path, int]]:
        """Holds the exclusive lock of the digest's part file; the lock dies with its holder."""
        part = self._parts / f"{hex_of(digest)}.part"
        while True:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # The holder before us renamed or removed the file that we opened: start over with the name.
                if not _is_same_file(part, descriptor) and not self.has(digest, size=size):
                    continue
                yield part, descriptor
                return
            finally:
                os.close(descriptor)

    def _fill(self, descriptor: int, chunks: Iterable[bytes], digest: Digest, size: int) -> None:
        try:
            os.ftruncate(descriptor, 0)
            if size:
                os.posix_fallocate(descriptor, 0, size)
            _write_verified(descriptor, chunks, digest, size)
            os.fchmod(descriptor, 0o444)
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _FULL_DISK:
                raise
            raise CapacityError(
                "RESOURCE_EXHAUSTED",
                f"no room for {size} bytes of {digest} below {self.root}",
                hint="Free space on that file system; the fetch is tried again by itself.",
                details={"digest": digest, "size": size},
            ) from error


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading. Raises PackageError FETCH_FAILED for anything else that may lie there.

    Non-blocking, so that a named pipe in a watched folder cannot hold the caller up.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise PackageError("FETCH_FAILED", f"{path}: {error.strerror}", details={"path": str(path)}) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PackageError("FETCH_FAILED", f"{path} is not a regular file", details={"path": str(path)})
    return cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0))


def write_durably(path: Path, content: bytes) -> None:
    """Writes by temporary file, sync and rename: the name holds the old content or the new, never a piece."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with temporary.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the renames in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_verified(descriptor: int, chunks: Iterable[bytes], digest: Digest, size: int) -> None:
    hasher = hashlib.sha256()
    written = 0
    for chunk in chunks:
        if written + len(chunk) > size:
            raise _length_mismatch(digest, expected=size, found="more")
        hasher.update(chunk)
        view = memoryview(chunk)
        while view:
            done = os.write(descriptor, view)
            written += done
            view = view[done:]
    if written != size:
        raise _length_mismatch(digest, expected=size, found=written)
    if hasher.hexdigest() != hex_of(digest):
        raise _digest_mismatch(digest, "the bytes are not those that the manifest names; publish the package again")


def _length_mismatch(digest: Digest, *, expected: int, found: int | str) -> PackageError:
    return PackageError(
        "LENGTH_MISMATCH",
        f"blob {digest}: expected {expected} bytes, found {found}",
        hint="The copy is cut off or the source was replaced; publish the package again.",
        details={"digest": digest, "expected": expected, "found": found},
    )


def _digest_mismatch(digest: Digest, hint: str) -> PackageError:
    return PackageError(
        "DIGEST_MISMATCH", f"blob {digest}: the content has another digest", hint=hint, details={"digest": digest}
    )


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_digest(text: str) -> bool:
    try:
        parse_digest(text)
    except ValueError:
        return False
    return True
