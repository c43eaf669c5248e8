"""Brings one blob from one source into the store: resumed where it was left, bounded in length and in time, verified.

What was received is kept when a source fails, stalls or is killed, and the next attempt asks for the rest; bytes that
turned out to be wrong are dropped. Nothing is believed of a stream: not its start, its length, its pace or its bytes.
"""

import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio
import anyio.to_thread

from hotbay.errors import PackageError
from hotbay.packages.drip import Drip
from hotbay.packages.manifest import Blob
from hotbay.packages.sources.source import BlobStream, Source
from hotbay.store.digests import Digest

logger = logging.getLogger(__name__)

# Network chunks are gathered into writes that are worth a worker thread.
_WRITE_BYTES: Final = 256 << 10

__all__ = ["Part", "PartStore", "Pull", "pull_blob"]


class Part(Protocol):
    """A blob that is being written. `hotbay.store.parts.PartFile` is one."""

    @property
    def present(self) -> bool:
        """Whether the blob is in the store already."""

    @property
    def offset(self) -> int:
        """Bytes that are there already."""

    @property
    def validator(self) -> str | None:
        """What the content is called that they are of."""

    def restart(self, validator: str | None) -> None:
        """Begin again at the first byte."""

    def write(self, content: bytes) -> None:
        """Append. Raises `PackageError` LENGTH_MISMATCH beyond the size, CapacityError on a full disk."""

    def finish(self) -> None:
        """Verify and give the blob its name. Raises `PackageError` LENGTH_MISMATCH, DIGEST_MISMATCH.

        FETCH_FAILED with `resumed_at` in its details when what an earlier attempt left may be what is wrong.
        """


class PartStore(Protocol):
    """The part of the blob store that a fetch needs."""

    def has(self, digest: Digest, *, size: int | None = None) -> bool: ...
    def path(self, digest: Digest) -> Path: ...
    def discard(self, digest: Digest) -> None: ...
    def part(self, digest: Digest, size: int) -> AbstractContextManager[Part]:
        """Entering blocks until the part is locked; leaving keeps what was written."""


@dataclass(frozen=True, slots=True)
class Pull:
    """One attempt: where from, how slow it may be, and whom to tell how many bytes have come."""

    source: Source
    location: str
    blob: Blob
    min_rate_bytes_per_s: float
    stall_s: float
    received: Callable[[int], None]
    """Called with the blob's bytes that are there, which may fall when a source starts over."""


async def pull_blob(store: PartStore, pull: Pull, *, threads: anyio.CapacityLimiter) -> None:
    """Returns when the blob is in the store. May overlap with pulls of other blobs, not with one of the same.

    Raises:
        PackageError: FETCH_FAILED when the source fails or is too slow, LENGTH_MISMATCH or DIGEST_MISMATCH when it has
            other bytes; `details` say which source, and what was expected and found.
        CapacityError: the disk is full.
    """
    for attempt in range(2):
        try:
            async with _locked(store, pull.blob, threads) as part:
                if not part.present:
                    await _fill(part, pull, threads)
            return
        except PackageError as error:
            if attempt == 0 and "resumed_at" in error.details:
                # Two halves of two contents: what the source has now was not looked at yet.
                logger.info(
                    "fetch_restarted source=%s digest=%s: %s", pull.source.name, pull.blob.digest, error.message
                )
                continue
            raise _named(error, pull) from error


async def _fill(part: Part, pull: Pull, threads: anyio.CapacityLimiter) -> None:
    blob = pull.blob
    if part.offset < blob.size:
        drip = Drip.start(pull.min_rate_bytes_per_s, pull.stall_s, anyio.current_time())
        with anyio.CancelScope(deadline=drip.deadline_s) as scope:
            validator = _own_validator(part, pull.source)
            async with pull.source.open_blob(pull.location, blob, start=part.offset, validator=validator) as stream:
                await _copy(part, stream, pull, _Pace(scope, drip), threads)
        if scope.cancelled_caught:
            raise PackageError(
                "FETCH_FAILED",
                f"{blob.name}: fewer than {drip.needed_bytes} bytes came within {pull.stall_s:g} s",
                hint="It is tried again by itself, from where it stopped.",
                details={"retryable": True},
            )
    await anyio.to_thread.run_sync(part.finish, limiter=threads)


def _own_validator(part: Part, source: Source) -> str | None:
    """The validator, if this source gave it: another source's name for the same bytes says nothing here."""
    name, _, validator = (part.validator or "").partition(" ")
    return validator if name == source.name and validator else None


@dataclass(frozen=True, slots=True)
class _Pace:
    """The drip's deadline, in force."""

    scope: anyio.CancelScope
    drip: Drip

    def received(self, count_bytes: int) -> None:
        self.drip.received(count_bytes, anyio.current_time())
        self.scope.deadline = self.drip.deadline_s

    async def unhurried(self, work: Callable[[], None], threads: anyio.CapacityLimiter) -> None:
        """Do what the source has no part in."""
        begun_s, self.scope.deadline = anyio.current_time(), float("inf")
        await anyio.to_thread.run_sync(work, limiter=threads)
        self.drip.paused(anyio.current_time() - begun_s)
        self.scope.deadline = self.drip.deadline_s


async def _copy(part: Part, stream: BlobStream, pull: Pull, pace: _Pace, threads: anyio.CapacityLimiter) -> None:
    if stream.start not in (0, part.offset):
        message = f"{pull.blob.name}: asked from byte {part.offset}, was sent from {stream.start}"
        raise PackageError("FETCH_FAILED", message)
    if stream.start == 0:
        validator = None if stream.validator is None else f"{pull.source.name} {stream.validator}"
        await pace.unhurried(partial(part.restart, validator), threads)
    pull.received(part.offset)
    gathered = bytearray()

    async def write() -> None:
        content = bytes(gathered)
        gathered.clear()
        if content:
            await pace.unhurried(partial(part.write, content), threads)
            pull.received(part.offset)

    try:
        async for chunk in stream.chunks:
            pace.received(len(chunk))
            gathered += chunk
            if len(gathered) >= _WRITE_BYTES or part.offset + len(gathered) > pull.blob.size:
                await write()
    except BaseException:
        # Whatever ended the stream, what has come is not asked for again.
        with anyio.CancelScope(shield=True):
            await write()
        raise
    await write()


@asynccontextmanager
async def _locked(store: PartStore, blob: Blob, threads: anyio.CapacityLimiter) -> AsyncIterator[Part]:
    """The part, locked. Another host may hold it for long: who is cancelled does not wait for that."""
    lock = _Lock(store, blob)
    try:
        yield await anyio.to_thread.run_sync(lock.enter, limiter=threads, abandon_on_cancel=True)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(lock.leave, limiter=threads)


class _Lock:
    """Opens a part in a worker thread that may be left behind: who comes too late lets go by itself."""

    def __init__(self, store: PartStore, blob: Blob) -> None:
        self._manager = store.part(blob.digest, blob.size)
        self._guard = threading.Lock()
        self._is_entered = False
        self._is_left = False

    def enter(self) -> Part:
        part = self._manager.__enter__()
        with self._guard:
            self._is_entered = True
            is_late = self._is_left
        if is_late:
            self._manager.__exit__(None, None, None)
        return part

    def leave(self) -> None:
        with self._guard:
            self._is_left = True
            is_entered = self._is_entered
        if is_entered:
            self._manager.__exit__(None, None, None)


def _named(error: PackageError, pull: Pull) -> PackageError:
    """The error with the source's name in it."""
    details = {"retryable": True, "digest": pull.blob.digest, **error.details, "source": pull.source.name}
    return PackageError(error.code, f"{pull.source.name}: {error.message}", hint=error.hint, details=details)
