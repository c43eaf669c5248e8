"""A source of packages: one zip archive that holds a package folder, as `zip -r` makes it.

sources:
- {name: archive, extension: zip-archive, options: {file: /srv/packages.zip}}
"""

import json
import zipfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from hotbay.errors import InputError, PackageError, Problem
from hotbay.extend import SourceFactory, SourceRequest, hookimpl
from hotbay.packages.manifest import Blob, parse_manifest
from hotbay.packages.sources.source import BlobStream, Offer, Scan

_CHUNK_BYTES = 64 << 10


@hookimpl
def hotbay_sources() -> Mapping[str, SourceFactory]:
    """One kind of source."""
    return {"zip-archive": _make}


def _make(request: SourceRequest) -> "ZipSource":
    unknown = sorted(request.options.keys() - {"file"})
    if unknown or "file" not in request.options:
        hint = "Give options: {file: PATH} and nothing else."
        raise InputError([Problem("CONFIG_INVALID", f"source {request.name}: options are wrong", hint=hint)])
    return ZipSource(request)


class ZipSource:
    """Looks at the archive every `poll` seconds; whoever fetches checks lengths and digests."""

    def __init__(self, request: SourceRequest) -> None:
        self.name = request.name
        self.dev = request.dev
        self._path = Path(request.options["file"])
        self._poll_s = request.poll_s

    async def scan(self) -> Scan:
        """Offer what the index names."""
        try:
            with zipfile.ZipFile(self._path) as archive:
                index = json.loads(archive.read("index.json"))
                images = [json.loads(archive.read(_entry(image["digest"]))) for image in index["manifests"]]
                manifests = [parse_manifest(archive.read(_entry(image["config"]["digest"]))) for image in images]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise PackageError("FETCH_FAILED", f"{self._path}: {error}") from error
        return Scan(tuple(Offer(manifest, self.name, str(self._path), self.dev) for manifest in manifests))

    async def wait(self) -> None:
        """Return when it is time to look again."""
        await anyio.sleep(self._poll_s)

    @asynccontextmanager
    async def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AsyncIterator[BlobStream]:
        """Read the blob's entry; archives are not read from the middle."""
        try:
            with zipfile.ZipFile(location) as archive, archive.open(_entry(blob.digest)) as entry:
                yield BlobStream(0, _chunks(entry))
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise PackageError("FETCH_FAILED", f"{location}: {error}", details={"retryable": True}) from error

    def local_path(self, location: str, blob: Blob) -> str | None:
        """No blob is a file of its own."""

    async def close(self) -> None:
        """Nothing is open between calls."""


async def _chunks(entry: "zipfile.ZipExtFile") -> AsyncIterator[bytes]:
    while chunk := entry.read(_CHUNK_BYTES):
        yield chunk


def _entry(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")
