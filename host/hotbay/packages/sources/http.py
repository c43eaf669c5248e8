"""A static web folder that holds an OCI image layout: `oci-layout`, `index.json`, `blobs/sha256/…`.

Any web server will do. A look asks whether the index has changed and reads what is new in it. An answer that is no
index, such as a sign-in page of a proxy, is a failure of the source: nothing is known then, nothing is withdrawn.
"""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import anyio
import httpx

from hotbay.errors import InputError, PackageError, Problem
from hotbay.packages.manifest import Blob
from hotbay.packages.oci import DOCUMENT_LIMIT_BYTES, Descriptor, parse_index, parse_marker
from hotbay.packages.sources.addresses import base_url, origin_of
from hotbay.packages.sources.blob_stream import open_blob_stream
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.faults import fetch_failed, within
from hotbay.packages.sources.images import Images
from hotbay.packages.sources.source import BlobStream, Scan
from hotbay.packages.sources.web import Limits, StaticAccess, WebClient, refused
from hotbay.store.digests import Digest, hex_of

POLL_S: Final = 30.0
_MARKER_LIMIT_BYTES: Final = 4096

__all__ = ["POLL_S", "HttpSource"]


class HttpSource:
    """Implements `Source` over HTTP.

    `url` is the layout's folder. `ca_file` replaces the system's certificate authorities. Credentials are refused for
    an address where they could be read on the way. `transport` stands in for the network.

    Raises InputError CONFIG_INVALID for an address or a file that cannot be used.
    """

    def __init__(
        self,
        name: str,
        url: str,
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
        credentials = auth or Credentials()
        self._url = _usable(name, url, credentials)
        self._client = WebClient(
            self._url, StaticAccess(credentials), ca_file=ca_file, limits=limits, transport=transport
        )
        self._images = Images(self._document, self._document, self._url)
        self._entity_tag: str | None = None
        self._entries: tuple[Descriptor, ...] | None = None

    async def scan(self) -> Scan:
        with within(self._client.limits.scan_s, self._url):
            if self._entries is None:
                await self._check_marker()
            entries = await self._index()
            return await self._images.scan(entries, self.name, dev=self.dev)

    async def wait(self) -> None:
        await anyio.sleep(self._poll_s)

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        # The operator may have moved the source since the location was recorded: its own address counts.
        return open_blob_stream(self._client, self._blob_url(blob.digest), blob.size, start=start, validator=validator)

    def local_path(self, location: str, blob: Blob) -> str | None:
        return None

    async def close(self) -> None:
        await self._client.close()

    async def _check_marker(self) -> None:
        url = f"{self._url}oci-layout"
        answer = await self._client.read(url, limit_bytes=_MARKER_LIMIT_BYTES)
        if answer.status != 200:
            raise refused(answer)
        try:
            parse_marker(answer.content, origin=url)
        except PackageError as error:
            raise fetch_failed(
                f"{self._url} is no OCI image layout: {error.message}", url=url, retryable=False
            ) from error

    async def _index(self) -> tuple[Descriptor, ...]:
        url = f"{self._url}index.json"
        headers = {"If-None-Match": self._entity_tag} if self._entity_tag else {}
        answer = await self._client.read(url, headers, limit_bytes=DOCUMENT_LIMIT_BYTES)
        if answer.status == 304 and self._entries is not None:
            return self._entries
        if answer.status != 200:
            raise refused(answer)
        try:
            entries = parse_index(answer.content, origin=url)
        except PackageError as error:
            raise fetch_failed(f"this is no index: {error.message}", url=url, retryable=True) from error
        self._entries, self._entity_tag = entries, answer.headers.get("etag")
        return entries

    async def _document(self, entry: Descriptor) -> bytes:
        answer = await self._client.read(self._blob_url(entry.digest), limit_bytes=DOCUMENT_LIMIT_BYTES)
        if answer.status != 200:
            raise refused(answer)
        return answer.content

    def _blob_url(self, digest: Digest) -> str:
        return f"{self._url}blobs/sha256/{hex_of(digest)}"


def _usable(name: str, url: str, credentials: Credentials) -> str:
    try:
        base = base_url(url)
        if not credentials.is_empty and not origin_of(base).may_see_secrets:
            raise ValueError("must be https, or inside this machine, because `auth` is given")
    except ValueError as error:
        raise InputError([Problem("CONFIG_INVALID", f"source {name}: http: {error}", found=url)]) from error
    return base
