"""The source of a project's packages: it offers what was packed last, and tells of it at once.

The packages before stay offered for a while: a version that is given up makes way for the one before it. Wheels are used where
they lie.
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from hotbay.authoring.developing.repacking import Packed
from hotbay.errors import PackageError
from hotbay.packages.manifest import Blob
from hotbay.packages.sources.source import BlobStream, Offer, Scan
from hotbay.store.digests import Digest

_KEPT: Final = 4
_CHUNK_BYTES: Final = 1 << 20

__all__ = ["ProjectSource"]


class ProjectSource:
    """A `Source`. For the loop's thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._packed: deque[Packed] = deque(maxlen=_KEPT)
        self._files: dict[Digest, Path] = {}
        self._rung = anyio.Event()

    @property
    def name(self) -> str:
        return self._name

    @property
    def dev(self) -> bool:
        return True

    def offer(self, packed: Packed) -> None:
        """Offer a version from now on."""
        self._packed.append(packed)
        self._files = {digest: path for each in self._packed for digest, path in each.wheels.items()}
        self._rung.set()

    async def scan(self) -> Scan:
        """See `Source.scan`."""
        self._rung = anyio.Event()
        return Scan(tuple(Offer(each.manifest, self._name, "", dev=True) for each in reversed(self._packed)))

    async def wait(self) -> None:
        """Return when another version was offered since the last look."""
        await self._rung.wait()

    @asynccontextmanager
    async def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AsyncIterator[BlobStream]:
        """See `Source.open_blob`; files here never change, and `start` always holds."""
        path = self.local_path(location, blob)
        if path is None:
            raise PackageError(
                "FETCH_FAILED", f"{blob.name} is of no version that is kept", details={"retryable": False}
            )
        async with await anyio.open_file(path, "rb") as opened:
            await opened.seek(start)

            async def chunks() -> AsyncIterator[bytes]:
                while chunk := await opened.read(_CHUNK_BYTES):
                    yield chunk

            yield BlobStream(start, chunks())

    def local_path(self, location: str, blob: Blob) -> str | None:
        """See `Source.local_path`."""
        path = self._files.get(blob.digest)
        return str(path) if path is not None else None

    async def close(self) -> None:
        """Nothing is held open."""
