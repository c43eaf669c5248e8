"""Content-addressed blobs: staged, verified, made durable, then named.

    <root>/blobs/sha256/<hex>     whole, verified, read-only; a file under this name is never partial
    <root>/parts/<hex>.part       being written, under an exclusive lock; taken up again after a crash (see `parts`)

Invariants: a blob gets its name by rename, after length and sha256 matched and the bytes were synced. Writers of
one digest take turns on its part file and the second finds the work done. A crash at any point leaves at most a
part file. Folders that somebody deletes are made again, and what was in them is fetched again. While blobs are
collected, one that somebody asked for since the collection began is left alone.
Methods block: call them from a worker thread; calls may overlap.
"""

import hashlib
import logging
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from hotbay.errors import PackageError
from hotbay.store.demand import DemandWatch
from hotbay.store.digests import Digest, hex_of, parse_digest
from hotbay.store.files import open_regular, sync_directory
from hotbay.store.part_files import PartPaths, sweep_parts
from hotbay.store.parts import PartFile

logger = logging.getLogger(__name__)

# A manifest, the largest thing that is read as a whole, is 100 KiB.
_READ_LIMIT_BYTES: Final = 1 << 20
# What `stat` counts in, whatever the file system's own blocks are.
_BLOCK_BYTES: Final = 512

__all__ = ["BlobStore", "Named"]


class Named(Protocol):
    """A blob as a manifest names it."""

    @property
    def digest(self) -> Digest: ...
    @property
    def size(self) -> int: ...


class BlobStore:
    """Blobs under one directory, which this process may share with others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = root / "blobs" / "sha256"
        self._parts = root / "parts"
        self.index_turn = threading.Lock()
        """Held while the layout's index is written."""
        self._demand = DemandWatch()
        self.lay_out()

    def lay_out(self) -> None:
        """Make the folders that are not there, also those that were deleted meanwhile."""
        for folder in (self._blobs, self._parts):
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: Digest) -> Path:
        """Where the blob is, or would be."""
        return self._blobs / hex_of(digest)

    def has(self, digest: Digest, *, size: int | None = None) -> bool:
        """Whether the blob is here whole. Its bytes were verified when they were written."""
        self._demand.note(digest)
        try:
            found = self.path(digest).stat()
        except FileNotFoundError:
            return False
        return stat.S_ISREG(found.st_mode) and size in (None, found.st_size)

    def read(self, digest: Digest, *, limit_bytes: int = _READ_LIMIT_BYTES) -> bytes:
        """A small blob's bytes, verified again. Raises PackageError when it is absent, larger or damaged."""
        with open_regular(self.path(digest)) as source:
            content = source.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise _length_mismatch(digest, expected=limit_bytes, found="more")
        if hashlib.sha256(content).hexdigest() != hex_of(digest):
            raise _digest_mismatch(digest, "the stored bytes are damaged; remove this blob, it is fetched again")
        return content

    def put_stream(self, chunks: Iterable[bytes], digest: Digest, size: int) -> bool:
        """Stores the bytes of `chunks`, from the blob's first byte on, in one attempt, verifying while they stream.

        False when the blob was here already: then nothing is taken. At most `size` bytes and one chunk are taken from
        a source that is longer than it said.

        Raises:
            PackageError: LENGTH_MISMATCH or DIGEST_MISMATCH.
            CapacityError: the disk is full.
        """
        with self.part(digest, size) as part:
            if part.present:
                return False
            part.restart(None)
            try:
                for chunk in chunks:
                    part.write(chunk)
                part.finish()
            except BaseException:
                part.restart(None)
                raise
        return True

    def part(self, digest: Digest, size: int, *, wait: bool = True) -> PartFile:
        """The blob's part, to be entered: for one writer at a time, at where an earlier attempt ended.

        This call does not block; see `PartFile` for what entering does.
        """
        self._demand.note(digest)
        return PartFile(PartPaths.of(self._parts, self.path(digest)), digest, size, wait=wait)

    def put_bytes(self, content: bytes, digest: Digest) -> bool:
        return self.put_stream([content], digest, len(content))

    def is_whole(self, blobs: Iterable[Named], *, rehash: bool = False) -> bool:
        """Whether all of them are here with their sizes; with `rehash`, with their bytes as well."""
        return all(self.has(b.digest, size=b.size) and (not rehash or self._is_sound(b.digest)) for b in blobs)

    def present(self) -> dict[Digest, int]:
        """Every blob and its size in bytes."""
        found = {}
        self.lay_out()
        for path in self._blobs.iterdir():
            name = f"sha256:{path.name}"
            # One that is removed meanwhile is not there.
            with suppress(FileNotFoundError):
                if _is_digest(name) and stat.S_ISREG((looked := path.lstat()).st_mode):
                    found[Digest(name)] = looked.st_size
        return found

    def part_bytes(self) -> int:
        """What the parts take on the disk."""
        total = 0
        self.lay_out()
        for path in self._parts.iterdir():
            with suppress(FileNotFoundError):
                total += path.lstat().st_blocks * _BLOCK_BYTES
        return total

    def discard(self, digest: Digest) -> None:
        """Takes a damaged blob away, so that it is fetched again. Nothing happens if it is not there."""
        self.lay_out()
        self.path(digest).unlink(missing_ok=True)
        sync_directory(self._blobs)

    @contextmanager
    def collection(self) -> Iterator[Callable[[Digest], bool]]:
        """For removing blobs that nothing needs: gives the function to do it, which says whether it did.

        A blob that anybody asked for (`has`, `part`, `put_bytes`, …) since this began is spared: a fetch that found it here
        relies on it. Entering and leaving do not block; the function does. Raises CapacityError UNAVAILABLE while another
        collection is under way.
        """
        # Nothing is synced: a removal that a crash takes back leaves a blob that is whole, for the next collection.
        with self._demand.collection():
            yield self._collect

    def sweep(self, *, keep: Collection[Digest] | None = None) -> int:
        """Removes parts that nobody is writing, but those of the blobs to keep; returns how many.

        By default keeps every part that a later attempt can take up.
        """
        return sweep_parts(self._parts, keep=None if keep is None else frozenset(hex_of(digest) for digest in keep))

    def _collect(self, digest: Digest) -> bool:
        # The lock is held over the removal: who asks later finds the blob gone.
        with self._demand.held(digest) as may_go:
            if not may_go:
                return False
            try:
                self.path(digest).unlink()
            except FileNotFoundError:
                return False
        return True

    def _is_sound(self, digest: Digest) -> bool:
        with self.path(digest).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest() == hex_of(digest)


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


def _is_digest(text: str) -> bool:
    try:
        parse_digest(text)
    except ValueError:
        return False
    return True
