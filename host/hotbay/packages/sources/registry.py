"""A repository of an OCI registry: every tag in it leads to a package, to an index of packages, or to something else.

A look asks where each tag leads, which costs no transfer of what is known, and reads what is new. Tags that hold
signatures and other companions of an image (`sha256-…`) are left out.
"""

import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import anyio
import httpx

from hotbay.errors import InputError, PackageError, Place, Problem
from hotbay.packages.manifest import Blob
from hotbay.packages.oci import Descriptor
from hotbay.packages.sources.addresses import RegistryReference, parse_reference
from hotbay.packages.sources.blob_stream import open_blob_stream
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.faults import fetch_failed, is_outage, within
from hotbay.packages.sources.images import Images
from hotbay.packages.sources.registry_client import TAG_LIMIT_COUNT, RegistryClient
from hotbay.packages.sources.source import BlobStream, Scan
from hotbay.packages.sources.web import Limits

POLL_S: Final = 30.0
_COMPANION: Final = re.compile(r"sha256-[0-9a-f]{64}")
_SIDE_BY_SIDE_COUNT: Final = 8

__all__ = ["POLL_S", "RegistrySource"]


class RegistrySource:
    """Implements `Source` over a registry's API.

    `reference` is `[SCHEME://]HOST[:PORT]/NAME`, with `:TAG` or `@DIGEST` to offer only what that leads to. The other
    arguments are those of `HttpSource`. Raises InputError CONFIG_INVALID for what cannot be used.
    """

    def __init__(
        self,
        name: str,
        reference: str,
        *,
        dev: bool = False,
        auth: Credentials | None = None,
        ca_file: Path | None = None,
        poll_s: float = POLL_S,
        limits: Limits | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.name = name
        self.dev = dev
        self._poll_s = poll_s
        self._reference = _usable(name, reference)
        self._client = RegistryClient(
            self._reference, credentials=auth, ca_file=ca_file, limits=limits, transport=transport
        )
        self._images = Images(self._client.document, self._client.small_blob, str(self._reference))

    async def scan(self) -> Scan:
        problems: list[Problem] = []
        with within(self._client.web.limits.scan_s, self._reference.url):
            entries = await self._resolve(await self._names(problems), problems)
            scan = await self._images.scan(entries, self.name, dev=self.dev)
        return Scan(scan.offers, (*problems, *scan.problems))

    async def wait(self) -> None:
        await anyio.sleep(self._poll_s)

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        # The operator may have moved the source since the location was recorded: its own address counts.
        url = self._client.blob_url(blob.digest)
        return open_blob_stream(self._client.web, url, blob.size, start=start, validator=validator)

    def local_path(self, location: str, blob: Blob) -> str | None:
        return None

    async def close(self) -> None:
        await self._client.close()

    async def _names(self, problems: list[Problem]) -> tuple[str, ...]:
        narrowed = self._reference.digest or self._reference.tag
        if narrowed is not None:
            return (narrowed,)
        tags = [tag for tag in await self._client.tags() if not _COMPANION.fullmatch(tag)]
        if len(tags) > TAG_LIMIT_COUNT:
            message = f"more than {TAG_LIMIT_COUNT} tags; only the newest revisions are looked at"
            hint = "Delete old tags from the repository, or name one."
            problems.append(Problem("FETCH_FAILED", message, Place(str(self._reference)), hint=hint))
        return tuple(sorted(tags, key=_by_revision)[:TAG_LIMIT_COUNT])

    async def _resolve(self, names: tuple[str, ...], problems: list[Problem]) -> list[Descriptor]:
        """Where the names lead, without those that were deleted meanwhile. Raises PackageError FETCH_FAILED."""
        place = Place(str(self._reference))
        found: list[Descriptor] = []
        failures: list[PackageError] = []
        side_by_side = anyio.Semaphore(_SIDE_BY_SIDE_COUNT)

        async def resolve(name: str) -> None:
            async with side_by_side:
                if failures:
                    return
                try:
                    entry = await self._client.resolve(name)
                except PackageError as error:
                    if is_outage(error):
                        failures.append(error)
                    else:
                        problems.append(Problem(error.code, error.message, place, hint=error.hint))
                    return
                if entry is not None:
                    found.append(entry)

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(resolve, name)
        if failures:
            raise failures[0]
        problems.sort(key=str)
        if not found and not problems and (self._reference.tag or self._reference.digest):
            message = f"{self._reference} is not there"
            raise fetch_failed(message, url=self._reference.url, retryable=False, status=404)
        return found


def _by_revision(tag: str) -> tuple[bool, int, str]:
    """Revisions first, the highest one first of all."""
    is_revision = tag.isascii() and tag.isdecimal()
    return not is_revision, -int(tag) if is_revision else 0, tag


def _usable(name: str, reference: str) -> RegistryReference:
    try:
        return parse_reference(reference)
    except ValueError as error:
        raise InputError([Problem("CONFIG_INVALID", f"source {name}: registry: {error}", found=reference)]) from error
