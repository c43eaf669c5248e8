"""Blobs that lie as files in a layout on this machine: opened, read from any byte on, and told apart by identity."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final

import anyio
import anyio.to_thread

from hotbay.errors import PackageError
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import Blob
from hotbay.packages.sources.source import BlobStream
from hotbay.store.files import open_regular

_CHUNK_BYTES: Final = 1 << 20

__all__ = ["local_blob", "open_local_blob"]


@asynccontextmanager
async def open_local_blob(
    layout: Path, blob: Blob, *, start: int = 0, validator: str | None = None
) -> AsyncIterator[BlobStream]:
    """Read the blob's file. The validator is the file's identity: another file is read from its first byte.

    Raises `PackageError` FETCH_FAILED, retryable: a layout on disk may be under way.
    """
    # A thread that waits for a dead network disk is left behind: the fetch has a deadline, the disk may have none.
    opened = await anyio.to_thread.run_sync(_open, layout, blob, abandon_on_cancel=True)
    try:
        found = os.fstat(opened.fileno())
        identity = f"{found.st_dev}-{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"
        first = start if validator in (None, identity) and start <= found.st_size else 0
        opened.seek(first)
        yield BlobStream(first, _chunks(opened, blob), identity)
    finally:
        opened.close()


async def _chunks(opened: BinaryIO, blob: Blob) -> AsyncIterator[bytes]:
    while True:
        try:
            chunk = await anyio.to_thread.run_sync(opened.read, _CHUNK_BYTES, abandon_on_cancel=True)
        except OSError as error:
            raise _failed(f"{blob.name}: {error.strerror or error}", blob) from error
        if not chunk:
            return
        yield chunk


def local_blob(layout: Path, blob: Blob) -> str | None:
    """The blob's file if there is a regular one. Nothing is read."""
    path = blob_path(layout, blob.digest)
    return str(path) if path.is_file() else None


def _open(layout: Path, blob: Blob) -> BinaryIO:
    try:
        return open_regular(blob_path(layout, blob.digest))
    except PackageError as error:
        raise _failed(f"{blob.name}: {error.message}", blob) from error


def _failed(message: str, blob: Blob) -> PackageError:
    return PackageError(
        "FETCH_FAILED",
        message,
        hint="It is tried again by itself. If it stays so, copy the package again.",
        details={"digest": blob.digest, "retryable": True},
    )
