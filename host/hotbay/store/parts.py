"""A blob while it is being written, across as many attempts as it takes.

    <hex>.part        the bytes so far, in a file of the declared size; one writer at a time, by an exclusive lock
    <hex>.progress    how many of them count, and the source's validator for them; written after the bytes

Invariants: bytes count once they are written and the progress says so; what counted is hashed again before anything is
added to it. A kill at any moment loses at most the piece that was being written. A power cut may leave a progress that
is ahead of its bytes, and a source may have replaced them: an error about bytes of more than one attempt says so.
Everything blocks; one thread at a time uses a part.
"""

import enum
import errno
import hashlib
import json
import os
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from hotbay.errors import CapacityError, PackageError
from hotbay.store.digests import Digest, hex_of
from hotbay.store.files import sync_directory
from hotbay.store.part_files import COUNT_WIDTH, PartPaths, is_whole, locked, read_progress

_CHUNK_BYTES: Final = 1 << 20
_FULL_DISK: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# An entity tag is a few dozen characters; one that is longer is not kept, and its blob starts over.
_VALIDATOR_LIMIT_CHARACTERS: Final = 512

__all__ = ["PartFile"]


class _State(enum.Enum):
    NEW = "new"
    PRESENT = "present"
    WRITING = "writing"
    FINISHED = "finished"
    CLOSED = "closed"


class PartFile:
    """A part, locked from `with` to its end; then what was fetched is kept, unless `finish` made it a blob.

    Made by `BlobStore.part`. Entering waits for who else has the part, in this process or another; with `wait` false it
    raises CapacityError UNAVAILABLE instead. It raises CapacityError RESOURCE_EXHAUSTED when there is no room for `size`
    bytes. A part is entered once.
    """

    def __init__(self, paths: PartPaths, digest: Digest, size: int, *, wait: bool = True) -> None:
        self.digest = digest
        self.size = size
        self._paths = paths
        self._wait = wait
        self._fd = -1
        self._progress_fd = -1
        self._state = _State.NEW
        self._hasher = hashlib.sha256()
        self._offset = 0
        self._resumed_at = 0
        self._validator: str | None = None

    def __enter__(self) -> Self:
        assert self._state is _State.NEW
        while not is_whole(self._paths.final, self.size):
            descriptor = locked(self._paths.part, wait=self._wait)
            if descriptor is None:
                continue
            self._fd, self._state = descriptor, _State.WRITING
            try:
                if not is_whole(self._paths.final, self.size):
                    self._resume()
                    return self
            except BaseException:
                self._close()
                raise
            self._close()
        self._state = _State.PRESENT
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def present(self) -> bool:
        """Whether the blob is in the store already: there is nothing to write then."""
        return self._state is _State.PRESENT

    @property
    def offset(self) -> int:
        """How many bytes are here: the next one to write."""
        return self._offset

    @property
    def validator(self) -> str | None:
        """What the source called the content that these bytes are of; None when it gave no name."""
        return self._validator

    def restart(self, validator: str | None) -> None:
        """Forget the bytes; those that follow are of the content of this name."""
        assert self._state is _State.WRITING
        self._hasher = hashlib.sha256()
        self._offset = self._resumed_at = 0
        self._validator = validator if validator and len(validator) <= _VALIDATOR_LIMIT_CHARACTERS else None
        # The count first: a kill in between leaves no bytes under a name that is not theirs.
        self._note_offset()
        name = json.dumps(self._validator).encode("ascii")
        os.pwrite(self._progress_fd, b"\n" + name + b"\n", COUNT_WIDTH)
        os.ftruncate(self._progress_fd, COUNT_WIDTH + 2 + len(name))

    def write(self, chunk: bytes) -> None:
        """Add bytes at `offset`.

        Raises:
            PackageError: LENGTH_MISMATCH when there are more than `size`; nothing is kept then, and it goes on as after
                `restart(None)`.
            CapacityError: RESOURCE_EXHAUSTED, the disk is full.
        """
        assert self._state is _State.WRITING
        if self._offset + len(chunk) > self.size:
            raise self._rejected(_length_mismatch(self.digest, self.size, "more"))
        view = memoryview(chunk)
        try:
            while view:
                done = os.pwrite(self._fd, view, self._offset)
                self._hasher.update(view[:done])
                self._offset += done
                view = view[done:]
            self._note_offset()
        except OSError as error:
            raise self._explained(error) from error

    def finish(self) -> None:
        """Check the whole, make it durable and give it its name.

        Raises:
            PackageError: LENGTH_MISMATCH when bytes are missing: the others are kept. DIGEST_MISMATCH when they are other
                bytes: nothing is kept, and it goes on as after `restart(None)`. With `resumed_at` in the details an
                earlier attempt had a part in it: fetch again from the first byte before anyone is blamed.
            CapacityError: RESOURCE_EXHAUSTED, the disk is full.
        """
        assert self._state is _State.WRITING
        if self._offset != self.size:
            raise _length_mismatch(self.digest, self.size, self._offset)
        found = self._hasher.hexdigest()
        if found != hex_of(self.digest):
            raise self._rejected(_digest_mismatch(self.digest, found))
        try:
            os.fchmod(self._fd, 0o444)
            os.fsync(self._fd)
            self._paths.final.parent.mkdir(parents=True, exist_ok=True)
            self._paths.part.replace(self._paths.final)
            sync_directory(self._paths.final.parent)
        except OSError as error:
            raise self._explained(error) from error
        self._paths.progress.unlink(missing_ok=True)
        self._state = _State.FINISHED

    def _close(self) -> None:
        """Gives the lock back. Keeps the bytes so far, and only the room that they need."""
        if self._state is _State.WRITING:
            # Failing to give room back is no reason to hide why the writing ended.
            with suppress(OSError):
                if self._offset:
                    os.ftruncate(self._fd, self._offset)
                else:
                    self._paths.progress.unlink(missing_ok=True)
                    self._paths.part.unlink(missing_ok=True)
        self._state = _State.CLOSED
        for descriptor in (self._progress_fd, self._fd):
            if descriptor >= 0:
                os.close(descriptor)
        self._fd = self._progress_fd = -1

    def _resume(self) -> None:
        """Takes up what an earlier attempt left, and reserves room for all of it."""
        try:
            count, validator = read_progress(self._paths.progress) or (0, None)
            self._progress_fd = os.open(
                self._paths.progress, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            if count and count <= min(self.size, os.fstat(self._fd).st_size):
                self._hash_again(count)
                self._validator = validator
                self._offset = self._resumed_at = count
            else:
                self.restart(None)
            os.ftruncate(self._fd, self._offset)
            if self.size:
                os.posix_fallocate(self._fd, 0, self.size)
        except OSError as error:
            raise self._explained(error) from error

    def _hash_again(self, count: int) -> None:
        position = 0
        while position < count:
            content = os.pread(self._fd, min(_CHUNK_BYTES, count - position), position)
            self._hasher.update(content)
            position += len(content)

    def _note_offset(self) -> None:
        os.pwrite(self._progress_fd, b"%0*d" % (COUNT_WIDTH, self._offset), 0)

    def _rejected(self, error: PackageError) -> PackageError:
        """Drops the bytes, and says so if not all of them came in this attempt."""
        if self._resumed_at:
            error.details |= {"resumed_at": self._resumed_at, "retryable": True}
        self.restart(None)
        return error

    def _explained(self, error: OSError) -> Exception:
        if error.errno not in _FULL_DISK:
            return error
        return CapacityError(
            "RESOURCE_EXHAUSTED",
            f"no room for {self.size} bytes of {self.digest} in {self._paths.part.parent}",
            hint="Free space on that file system; the fetch is tried again by itself.",
            details={"digest": self.digest, "size": self.size},
        )


def _length_mismatch(digest: Digest, expected: int, found: int | str) -> PackageError:
    return PackageError(
        "LENGTH_MISMATCH",
        f"blob {digest}: expected {expected} bytes, found {found}",
        hint="The copy is cut off or the source was replaced; publish the package again.",
        details={"digest": digest, "expected": expected, "found": found},
    )


def _digest_mismatch(digest: Digest, found: str) -> PackageError:
    return PackageError(
        "DIGEST_MISMATCH",
        f"blob {digest}: the content has another digest, sha256:{found}",
        hint="the bytes are not those that the manifest names; publish the package again",
        details={"digest": digest, "expected": digest, "found": f"sha256:{found}"},
    )
