"""From OCI documents on a server to plugin manifests: reads what an index names, once, and trusts none of it.

A document's name is its content, so that what was read and understood is not asked for again while it is still named.
Wrong content is told with both digests and remembered by nobody: the server may be repaired. A server that does not
answer is a failure of the look as a whole (what it cannot show now counts as unknown, not as withdrawn); everything
else that is wrong is a problem of the one package.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio

from hotbay.errors import PackageError, Place, Problem, printable
from hotbay.packages.manifest import Manifest, parse_manifest
from hotbay.packages.oci import (
    DOCUMENT_LIMIT_BYTES,
    INDEX_MEDIA_TYPE,
    Descriptor,
    check_image,
    parse_image,
    parse_index,
)
from hotbay.packages.sources.faults import is_outage
from hotbay.packages.sources.source import Offer, Scan
from hotbay.store.digests import Digest, digest_of

# A new host reads one image and one manifest for each package: side by side, but no flood.
_SIDE_BY_SIDE_COUNT: Final = 8

__all__ = ["Images", "Read"]

Read = Callable[[Descriptor], Awaitable[bytes]]
"""Fetches a document. Raises PackageError FETCH_FAILED; what it returns is checked here."""


class Images:
    """Manifests by the digest of their image, or of an index of images. Calls may overlap."""

    def __init__(self, read_image: Read, read_config: Read, place: str) -> None:
        self._read_image = read_image
        self._read_config = read_config
        self._place = place
        self._known: dict[Digest, tuple[Manifest, ...]] = {}
        self._used: dict[Digest, tuple[Manifest, ...]] = {}

    async def scan(self, entries: Iterable[Descriptor], source: str, *, dev: bool) -> Scan:
        """What these entries offer. Raises PackageError FETCH_FAILED when the server could not be asked."""
        found: dict[Digest, Manifest] = {}
        problems: list[Problem] = []
        failures: list[PackageError] = []
        side_by_side = anyio.Semaphore(_SIDE_BY_SIDE_COUNT)

        async def look(entry: Descriptor) -> None:
            async with side_by_side:
                if failures:
                    return
                try:
                    manifests = await self.manifests(entry)
                except PackageError as error:
                    if is_outage(error):
                        failures.append(error)
                    else:
                        problems.append(self._problem(error))
                else:
                    found.update((manifest.digest, manifest) for manifest in manifests)

        async with anyio.create_task_group() as tasks:
            for entry in {entry.digest: entry for entry in entries if entry.may_be_plugin}.values():
                tasks.start_soon(look, entry)
        if failures:
            raise failures[0]
        self._known, self._used = self._used, {}
        offers = [Offer(manifest, source, self._place, dev) for manifest in found.values()]
        return Scan(tuple(sorted(offers, key=_order)), tuple(sorted(problems, key=str)))

    async def manifests(self, entry: Descriptor) -> tuple[Manifest, ...]:
        """Of the plugins behind an entry: one, none, or one for each image of an index. Raises PackageError."""
        known = self._known.get(entry.digest, self._used.get(entry.digest))
        if known is None:
            if entry.media_type == INDEX_MEDIA_TYPE:
                known = tuple(
                    [manifest for image in await self.behind(entry) for manifest in await self.manifests(image)]
                )
            else:
                known = await self._image(entry)
        self._used[entry.digest] = known
        return known

    async def behind(self, entry: Descriptor) -> tuple[Descriptor, ...]:
        """The images that an entry leads to: itself, or what the index names. Raises PackageError.

        An index in an index is not followed: none that was made for packages has one, and it might have no end.
        """
        if entry.media_type != INDEX_MEDIA_TYPE:
            return (entry,)
        content = await self._checked(entry, self._read_image, "index")
        images = parse_index(content, origin=self._origin("index", entry))
        return tuple(image for image in images if image.may_be_plugin and image.media_type != INDEX_MEDIA_TYPE)

    async def _image(self, entry: Descriptor) -> tuple[Manifest, ...]:
        origin = self._origin("image", entry)
        image = parse_image(await self._checked(entry, self._read_image, "image"), origin=origin)
        if not image.is_plugin:
            return ()
        content = await self._checked(image.config, self._read_config, "manifest")
        manifest = parse_manifest(content, origin=self._origin("manifest", image.config))
        check_image(image, manifest, origin=origin)
        return (manifest,)

    async def _checked(self, entry: Descriptor, read: Read, what: str) -> bytes:
        origin = self._origin(what, entry)
        if entry.size > DOCUMENT_LIMIT_BYTES:
            raise PackageError("INVALID_PACKAGE", f"{origin}: more than {DOCUMENT_LIMIT_BYTES} bytes")
        content = await read(entry)
        found = digest_of(content)
        if found == entry.digest:
            return content
        is_length = len(content) != entry.size
        raise PackageError(
            "LENGTH_MISMATCH" if is_length else "DIGEST_MISMATCH",
            f"{origin}: expected {entry.size} bytes of {entry.digest}, found {len(content)} bytes of {found}"
            + (", a web page" if _is_page(content) else ""),
            hint="Another server may be answering in its place; else publish the package again.",
            details={"expected": entry.digest, "found": found},
        )

    def _origin(self, what: str, entry: Descriptor) -> str:
        return f"{self._place}: {what} {entry.digest}"

    def _problem(self, error: PackageError) -> Problem:
        return Problem(error.code, printable(error.message), Place(self._place), hint=error.hint)


def _is_page(content: bytes) -> bool:
    return content[:256].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _order(offer: Offer) -> tuple[str, int, str, str]:
    manifest = offer.manifest
    return manifest.id, -manifest.rev, manifest.platform, manifest.digest
