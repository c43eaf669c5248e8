"""One repository of an OCI registry: lists tags, reads documents and blobs, uploads. Verifies what a name promises.

Registries differ in what they leave out: digests in headers, order and paging of tags, artifact types in their lists.
Nothing of that is relied on. Uploads ask first whether a blob is there; documents go last, so that a tag never
leads to something that is missing.
"""

import math
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from typing import Annotated, Final

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hotbay.errors import InputError, PackageError, Problem
from hotbay.packages.oci import DOCUMENT_LIMIT_BYTES, IMAGE_MEDIA_TYPE, INDEX_MEDIA_TYPE, Descriptor, descriptor
from hotbay.packages.sources.addresses import RegistryReference, origin_of
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.faults import fetch_failed
from hotbay.packages.sources.headers import next_link
from hotbay.packages.sources.registry_access import RegistryAccess
from hotbay.packages.sources.web import Document, Limits, WebClient, refused
from hotbay.store.digests import Digest, digest_of, parse_digest

TAG_LIMIT_COUNT: Final = 2000
_TAGS_LIMIT_BYTES: Final = 1 << 20
_PAGE_LIMIT_COUNT: Final = 100
_NOTE_LIMIT_BYTES: Final = 64 << 10
# Types that are no packages are asked for, too: a registry answers 404 for a tag that leads to a type not named here.
_ACCEPT: Final = ", ".join(
    (
        INDEX_MEDIA_TYPE,
        IMAGE_MEDIA_TYPE,
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)

__all__ = ["TAG_LIMIT_COUNT", "RegistryClient"]

OpenContent = Callable[[], AsyncIterable[bytes]]
"""Gives a blob's bytes from its first one on; called again when an upload has to be repeated."""


class _Tags(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    # `null` is what some registries say of a repository whose last tag was deleted.
    tags: Annotated[tuple[Annotated[str, Field(max_length=128)], ...], Field(max_length=50_000)] | None = None


class RegistryClient:
    """For one event loop; calls may overlap. All raise PackageError FETCH_FAILED for what the registry does not do.

    Raises InputError CONFIG_INVALID when credentials could be read on their way, or `ca_file` cannot be used.
    """

    def __init__(
        self,
        reference: RegistryReference,
        *,
        credentials: Credentials | None = None,
        pushes: bool = False,
        mounts_from: str | None = None,
        ca_file: Path | None = None,
        limits: Limits | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.reference = reference
        self._mounts_from = mounts_from
        credentials = credentials or Credentials()
        origin = origin_of(reference.registry_url)
        if not credentials.is_empty and not origin.may_see_secrets:
            message = f"{reference}: must be https, or inside this machine, because credentials are given"
            raise InputError([Problem("CONFIG_INVALID", message)])
        scopes = [f"repository:{reference.repository}:{'pull,push' if pushes else 'pull'}"]
        scopes += [f"repository:{mounts_from}:pull"] if mounts_from else []
        access = RegistryAccess(origin, credentials, scopes)
        self.web = WebClient(reference.registry_url, access, ca_file=ca_file, limits=limits, transport=transport)

    async def close(self) -> None:
        """Idempotent."""
        await self.web.close()

    def blob_url(self, digest: Digest) -> str:
        return f"{self.reference.url}/blobs/{digest}"

    async def tags(self) -> tuple[str, ...]:
        """All tags, sorted; more than `TAG_LIMIT_COUNT` when there are. Fails for a repository that does not exist."""
        url: str | None = f"{self.reference.url}/tags/list"
        found: set[str] = set()
        pages = 0
        while url is not None and len(found) <= TAG_LIMIT_COUNT:
            answer = await self.web.read(url, limit_bytes=_TAGS_LIMIT_BYTES)
            if answer.status != 200:
                raise refused(answer)
            try:
                found.update(_Tags.model_validate_json(answer.content).tags or ())
            except ValidationError as error:
                raise fetch_failed(f"{url}: this is no list of tags", url=url, retryable=True) from error
            pages += 1
            url = self._next_page(answer) if pages < _PAGE_LIMIT_COUNT else None
        return tuple(sorted(found))

    async def resolve(self, name: str) -> Descriptor | None:
        """What a tag, or a digest, leads to; None when it leads nowhere. Reads it only if headers do not say."""
        url = f"{self.reference.url}/manifests/{name}"
        answer = await self.web.read(url, {"Accept": _ACCEPT}, limit_bytes=0, method="HEAD")
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise refused(answer)
        named = _digest(answer)
        length = answer.headers.get("content-length", "")
        if named is None or not length.isdecimal() or len(length) > 12:
            found = await self._document(name)
            return None if found is None else _descriptor(found, digest_of(found.content), len(found.content))
        return _descriptor(answer, named, int(length))

    async def document(self, entry: Descriptor) -> bytes:
        """An image or index by digest; whoever reads it checks it."""
        answer = await self._document(entry.digest)
        if answer is None:
            message = f"{self.reference.url}/manifests/{entry.digest} is not there"
            raise fetch_failed(message, url=self.reference.url, retryable=False, status=404)
        return answer.content

    async def small_blob(self, entry: Descriptor) -> bytes:
        """A blob that is a document; whoever reads it checks it."""
        answer = await self.web.read(self.blob_url(entry.digest), limit_bytes=DOCUMENT_LIMIT_BYTES)
        if answer.status != 200:
            raise refused(answer)
        return answer.content

    async def upload(self, digest: Digest, size: int, content: OpenContent) -> bool:
        """Brings a blob there. False when it was there already, or could be taken from `mounts_from`."""
        answer = await self.web.read(self.blob_url(digest), limit_bytes=0, method="HEAD")
        if answer.status == 200:
            return False
        if answer.status != 404:
            raise refused(answer)
        start = httpx.URL(f"{self.reference.url}/blobs/uploads/")
        if self._mounts_from:
            start = start.copy_merge_params({"mount": digest, "from": self._mounts_from})
        answer = await self.web.read(str(start), {"Content-Length": "0"}, limit_bytes=_NOTE_LIMIT_BYTES, method="POST")
        if answer.status == 201:
            return False
        if answer.status != 202:
            raise refused(answer)
        target = self._upload_url(answer).copy_merge_params({"digest": digest})
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        # As long as it goes on, it may take as long as it takes: the client's own limit is on each step.
        answer = await self.web.read(
            str(target), headers, limit_bytes=_NOTE_LIMIT_BYTES, method="PUT", body=content, total_s=math.inf
        )
        if answer.status != 201:
            raise refused(answer)
        return True

    async def put_document(self, name: str, media_type: str, content: bytes) -> None:
        """Stores an image or index under a tag or its digest."""
        url = f"{self.reference.url}/manifests/{name}"
        headers = {"Content-Type": media_type, "Content-Length": str(len(content))}

        async def body() -> AsyncIterable[bytes]:
            yield content

        answer = await self.web.read(url, headers, limit_bytes=_NOTE_LIMIT_BYTES, method="PUT", body=lambda: body())
        if answer.status != 201:
            raise refused(answer)

    async def _document(self, name: str) -> Document | None:
        url = f"{self.reference.url}/manifests/{name}"
        answer = await self.web.read(url, {"Accept": _ACCEPT}, limit_bytes=DOCUMENT_LIMIT_BYTES)
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise refused(answer)
        named, found = _digest(answer), digest_of(answer.content)
        if named is not None and named != found:
            raise PackageError(
                "DIGEST_MISMATCH",
                f"{url}: the registry says {named}, the content is {found}",
                hint="Another server may be answering in its place.",
                details={"expected": named, "found": found},
            )
        return answer

    def _next_page(self, answer: Document) -> str | None:
        link = next_link(answer.headers.get("link"))
        return None if link is None else str(self._own(answer.url, link))

    def _upload_url(self, answer: Document) -> httpx.URL:
        location = answer.headers.get("location")
        if location is None:
            raise fetch_failed(f"{answer.url}: no place for the upload came", url=answer.url, retryable=True)
        return self._own(answer.url, location)

    def _own(self, current: str, link: str) -> httpx.URL:
        """A link that must stay with this registry: what goes there is meant for nobody else."""
        try:
            target = httpx.URL(current).join(link)
            if origin_of(str(target)) != origin_of(self.reference.registry_url):
                raise ValueError("it leads to another server")
        except (httpx.InvalidURL, ValueError) as error:
            raise fetch_failed(f"{current}: a link is not followed: {error}", url=current, retryable=False) from error
        return target


def _digest(answer: Document) -> Digest | None:
    try:
        return parse_digest(answer.headers.get("docker-content-digest", ""))
    except ValueError:
        return None


def _descriptor(answer: Document, digest: Digest, size: int) -> Descriptor:
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()[:255]
    return descriptor(media_type, digest, size)
