"""What every source of packages does: show manifests, tell of changes, and hand out the bytes of a blob.

A source decides nothing about trust, versions or what runs, and verifies nothing but what it needs to read: who
fetches checks every length and digest.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from hotbay.errors import Problem
from hotbay.packages.manifest import Blob, Manifest

__all__ = ["BlobStream", "Offer", "Scan", "Source"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A package that a source shows. `location` is for that source alone: where the package's blobs are."""

    manifest: Manifest
    source: str
    location: str
    dev: bool = False


@dataclass(frozen=True, slots=True)
class Scan:
    """What a source offers now, in an order that depends on nothing but its content, and what it cannot offer."""

    offers: tuple[Offer, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class BlobStream:
    """The bytes of a blob from `start` on; `start` may be less than was asked for, where a source cannot do it.

    `validator` (an ETag) names the content that is being read: given back with the next request for the same blob,
    a source that has other content by then starts from zero.
    """

    start: int
    chunks: AsyncIterator[bytes]
    validator: str | None = None


class Source(Protocol):
    """One source. Its methods run on the loop; blocking work goes to a worker thread. `scan` calls do not overlap."""

    @property
    def name(self) -> str:
        """The operator's name for it, unique in a host."""

    @property
    def dev(self) -> bool:
        """Whether its packages are run without a signature."""

    async def scan(self) -> Scan:
        """Look. Single packages that cannot be offered are problems.

        Raises `PackageError` FETCH_FAILED when the source as a whole is out of reach: nothing is known then, and
        nothing that it offered before counts as withdrawn.
        """

    async def wait(self) -> None:
        """Return when a scan might find something else: at a notice of change, or when it is time to look again.

        A change between a scan's begin and this call is not lost. Spurious returns are fine.
        """

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        """Read a blob's bytes from `start` on; may overlap with anything.

        Raises `PackageError` FETCH_FAILED, on entering or while reading; `retryable` in its details says whether to
        try again. The stream may be longer than the blob, shorter, other bytes, or slow: who reads it takes care.
        """

    def local_path(self, location: str, blob: Blob) -> str | None:
        """Where the blob's file is, if this machine has it as one: it can then be used in place."""

    async def close(self) -> None:
        """Let go of connections and watches. Idempotent."""
