"""Brings a package from a layout on disk into the store and makes it runnable: blobs, environment, record, in this order.

Until the last step nothing says that the package exists, so a fault or a crash at any point leaves what was live
untouched, and starting over fetches only what is not there yet.
"""

import logging
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from hotbay.errors import CapacityError, HostError, PackageError
from hotbay.packages.environment import BUILD_TIMEOUT_S, build_environment
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import Blob, Manifest, parse_manifest
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import Digest

logger = logging.getLogger(__name__)

# More copies at once only make one disk seek.
FETCH_CONCURRENCY: Final = 4
PACKAGE_LIMIT_BYTES: Final = 200 * 2**20

__all__ = ["FETCH_CONCURRENCY", "PACKAGE_LIMIT_BYTES", "copy_package", "stage_package", "stored_manifest"]


async def stage_package(
    store: BlobStore,
    manifest: Manifest,
    layout: Path,
    interpreter: str,
    *,
    environments: Path | None = None,
    limit_bytes: int = PACKAGE_LIMIT_BYTES,
    timeout_s: float = BUILD_TIMEOUT_S,
) -> Path:
    """Copies, verifies, builds and records the package; returns its environment's `site` folder.

    Safe to repeat and to cancel. Raises what `copy_package` and `build_environment` raise, and CapacityError when
    the state directory cannot be read or written, whatever the reason.
    """
    try:
        await copy_package(store, manifest, layout, limit_bytes=limit_bytes)
        site = await build_environment(store, manifest, interpreter, environments=environments, timeout_s=timeout_s)
        await anyio.to_thread.run_sync(store.complete, manifest)
    except OSError as error:
        raise CapacityError(
            "RESOURCE_EXHAUSTED",
            f"{manifest.id} rev {manifest.rev} cannot be staged below {store.root.parent}: {error.strerror or error}",
            hint="free space there, or let the host's user write it; it is tried again by itself",
            details={"errno": error.errno, "path": str(error.filename or "")},
        ) from error
    logger.info("package_complete id=%s rev=%s digest=%s", manifest.id, manifest.rev, manifest.digest)
    return site


async def copy_package(
    store: BlobStore, manifest: Manifest, layout: Path, *, limit_bytes: int = PACKAGE_LIMIT_BYTES
) -> None:
    """Copies the blobs that the store lacks. A bad blob stops the others.

    Raises:
        PackageError: FETCH_FAILED, LENGTH_MISMATCH, DIGEST_MISMATCH; INVALID_PACKAGE when larger than `limit_bytes`.
        CapacityError: the disk is full.
    """
    if manifest.size_bytes > limit_bytes:
        raise PackageError(
            "INVALID_PACKAGE",
            f"{manifest.id} has {manifest.size_bytes} bytes, allowed {limit_bytes}",
            hint="Raise limits.package in the host configuration if you want it.",
        )
    failures: list[Exception] = []
    limiter = anyio.CapacityLimiter(FETCH_CONCURRENCY)
    async with anyio.create_task_group() as tasks:

        async def copy(blob: Blob) -> None:
            work = partial(store.copy_in, blob_path(layout, blob.digest), blob.digest, blob.size)
            try:
                await anyio.to_thread.run_sync(work, limiter=limiter)
            except HostError as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        for blob in manifest.blobs:
            tasks.start_soon(copy, blob)
    if failures:
        raise failures[0]


def stored_manifest(store: BlobStore, digest: Digest) -> Manifest:
    """The manifest of a complete package, read from the store and verified. Blocks."""
    return parse_manifest(store.read(digest), origin=str(store.path(digest)))
