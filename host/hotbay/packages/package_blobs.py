"""Brings the blobs of one package, from all sources that offer it: side by side, each from the first source that can.

A source that failed for one blob is tried last for the others. Blobs that are there already are not fetched again;
where an environment is about to be built from them they are read again first, and one that changed in the store is
fetched anew.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from hotbay.errors import HostError, PackageError
from hotbay.packages.fetch_blob import PartStore, Pull, pull_blob
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.sources.source import Source
from hotbay.packages.turns import DisplacedError, Turns
from hotbay.store.digests import Digest
from hotbay.store.files import open_regular

logger = logging.getLogger(__name__)

_WRONG: Final = ("DIGEST_MISMATCH", "LENGTH_MISMATCH")
# What a concurrency of 0 means: more threads than this only make a disk seek.
_UNLIMITED_COUNT: Final = 64
_CHUNK_BYTES: Final = 1 << 20

__all__ = ["FetchLimits", "PackageBlobs", "Place", "Progress"]


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one fetch. `concurrency` counts blobs, 0 is no limit; `total_s` is for all blobs together."""

    concurrency: int = 4
    min_rate_bytes_per_s: float = 16 << 10
    stall_s: float = 30.0
    total_s: float = 900.0
    package_bytes: int = 200 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fetch is. `phase` is fetch, environment or complete; bytes that were there already count as done."""

    plugin_id: str
    digest: Digest
    phase: str
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the package can be had. `in_place`: local files are used where they are, not copied."""

    source: Source
    location: str
    in_place: bool = False


class PackageBlobs:
    """One fetch of one package. `bring` once."""

    def __init__(
        self,
        manifest: Manifest,
        places: Sequence[Place],
        store: PartStore,
        turns: Turns,
        *,
        limits: FetchLimits,
        report: Callable[[Progress], None],
    ) -> None:
        self._manifest = manifest
        self._places = tuple(places)
        self._store = store
        self._turns = turns
        self._limits = limits
        self._report = report
        # Its own threads: a package whose disk hangs takes none from the others.
        self._threads = anyio.CapacityLimiter(limits.concurrency or _UNLIMITED_COUNT)
        self._done: dict[Digest, int] = {}
        self._failing: set[str] = set()
        self._used_in_place: dict[Digest, Path] = {}

    def path(self, digest: Digest) -> Path:
        """Where a blob is that was brought."""
        return self._used_in_place.get(digest) or self._store.path(digest)

    @property
    def stored(self) -> tuple[tuple[Digest, int], ...]:
        """Digests and sizes of the blobs that are in the store."""
        blobs = self._manifest.blobs
        return tuple((blob.digest, blob.size) for blob in blobs if blob.digest not in self._used_in_place)

    def tell(self, phase: str) -> None:
        """Report that the package is so far."""
        manifest = self._manifest
        done = manifest.size_bytes if phase == "complete" else sum(self._done.values())
        self._report(Progress(manifest.id, manifest.digest, phase, done, manifest.size_bytes))

    async def bring(self, *, is_verifying: bool) -> None:
        """Bring all blobs; one that cannot be had stops the others. `is_verifying`: read those again that were there.

        Raises `PackageError` and `CapacityError` as `pull_blob`; FETCH_FAILED when nobody offers a blob, or when it
        took longer than `total_s`; `OSError` when the store cannot be used, or the process has no descriptor left.
        """
        failures: list[HostError | OSError] = []
        at_once = anyio.CapacityLimiter(self._limits.concurrency or _UNLIMITED_COUNT)
        try:
            with anyio.fail_after(self._limits.total_s):
                async with anyio.create_task_group() as tasks:

                    async def one(blob: Blob) -> None:
                        try:
                            async with at_once:
                                await self._one(blob, is_verifying=is_verifying)
                        except (HostError, OSError) as error:
                            # Not through the group, which would wrap it.
                            failures.append(error)
                            tasks.cancel_scope.cancel()

                    for blob in {blob.digest: blob for blob in self._manifest.blobs}.values():
                        tasks.start_soon(one, blob)
        except TimeoutError as error:
            raise PackageError(
                "FETCH_FAILED",
                f"{self._manifest.id} rev {self._manifest.rev} was not fetched within {self._limits.total_s:g} s",
                hint="It goes on by itself, from where it stopped; limits.fetch_timeout bounds one attempt.",
                details={"digest": self._manifest.digest, "retryable": True},
            ) from error
        if failures:
            raise failures[0]

    async def _one(self, blob: Blob, *, is_verifying: bool) -> None:
        look = partial(self._is_stored, blob, is_verifying=is_verifying)
        if not await anyio.to_thread.run_sync(look, limiter=self._threads):
            await self._from_any(blob)
        self._done[blob.digest] = blob.size
        self.tell("fetch")

    def _is_stored(self, blob: Blob, *, is_verifying: bool) -> bool:
        """Blocks. A blob whose bytes changed in the store is removed from it, to be fetched again."""
        if not self._store.has(blob.digest, size=blob.size):
            return False
        if not is_verifying or _file_digest(self._store.path(blob.digest)) == blob.digest:
            return True
        logger.error("blob_damaged digest=%s: it is fetched again", blob.digest)
        self._store.discard(blob.digest)
        return False

    async def _from_any(self, blob: Blob) -> None:
        errors: list[PackageError] = []
        for place in sorted(self._places, key=lambda place: place.source.name in self._failing):
            try:
                if not await self._in_place(blob, place):
                    await self._pull(blob, place)
            except PackageError as error:
                self._failing.add(place.source.name)
                errors.append(error)
                logger.warning(
                    "fetch_failed source=%s blob=%s code=%s: %s",
                    place.source.name,
                    blob.name,
                    error.code,
                    error.message,
                )
            else:
                return
        raise _outcome(blob, errors)

    async def _in_place(self, blob: Blob, place: Place) -> bool:
        path = place.source.local_path(place.location, blob) if place.in_place else None
        if path is None:
            return False
        look = partial(_file_digest, Path(path))
        found = await anyio.to_thread.run_sync(look, limiter=self._threads, abandon_on_cancel=True)
        if found != blob.digest:
            raise PackageError(
                "DIGEST_MISMATCH",
                f"{place.source.name}: {path}: expected {blob.digest}, found {found}",
                hint="Copy the package again; if it stays so, ask its publisher.",
                details={"digest": blob.digest, "expected": blob.digest, "found": found, "source": place.source.name},
            )
        self._used_in_place[blob.digest] = Path(path)
        return True

    async def _pull(self, blob: Blob, place: Place) -> None:
        may_displace = True
        while True:
            try:
                async with self._turns.take(blob.digest, place.source.name, may_displace=may_displace) as turn:

                    def received(count_bytes: int) -> None:
                        turn.moved()
                        self._done[blob.digest] = count_bytes
                        self.tell("fetch")

                    limits = self._limits
                    pull = Pull(
                        place.source, place.location, blob, limits.min_rate_bytes_per_s, limits.stall_s, received
                    )
                    await pull_blob(self._store, pull, threads=self._threads)
            except DisplacedError:
                logger.info("fetch_displaced source=%s digest=%s", place.source.name, blob.digest)
                may_displace = False
            else:
                return


def _file_digest(path: Path) -> Digest:
    """Blocks. Raises `PackageError` FETCH_FAILED when there is no regular file."""
    hasher = hashlib.sha256()
    with open_regular(path) as opened:
        while content := opened.read(_CHUNK_BYTES):
            hasher.update(content)
    return Digest(f"sha256:{hasher.hexdigest()}")


def _outcome(blob: Blob, errors: Sequence[PackageError]) -> PackageError:
    """The error of a blob that no source had: the content's fault only if every source had other content."""
    if not errors:
        return PackageError(
            "FETCH_FAILED",
            f"{blob.name} ({blob.digest}) is not in the store, and no source that is open offers it",
            hint="Open a source that has the package, or publish it again.",
            details={"digest": blob.digest, "retryable": True},
        )
    first = next((error for error in errors if error.code not in _WRONG), errors[0])
    if len(errors) == 1:
        return first
    message = "; ".join(f"{error.code}: {error.message}" for error in errors)
    return PackageError(first.code, f"{blob.name}: {message}", hint=first.hint, details=first.details)
