"""Publishing into a repository of a registry: blobs, then the image by its digest, then the tags that lead to it.

A repository holds one plugin. Tag `REV` leads to that revision and is never given other content: builds for further
platforms join it in an index. Tag `VERSION` leads to the highest revision of that version; a tag that the operator names
always moves. Whatever stops a push leaves tags that lead to whole packages; pushing again sends only what is missing.
One publisher of a repository at a time: registries know no compare-and-set.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO, Final

import anyio.to_thread

from hotbay.errors import InputError, Problem
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import ARTIFACT_TYPE, Manifest
from hotbay.packages.oci import IMAGE_MEDIA_TYPE, INDEX_MEDIA_TYPE, Descriptor, descriptor, index_bytes
from hotbay.packages.published import Built, Published, conflict
from hotbay.packages.sources.images import Images
from hotbay.packages.sources.registry_client import RegistryClient
from hotbay.store.digests import digest_of
from hotbay.store.files import open_regular

_CHUNK_BYTES: Final = 1 << 18

__all__ = ["push"]

_Standing = Mapping[str, tuple[Descriptor, Manifest]]
"""What a tag leads to: image and manifest by platform."""


async def push(packages: Sequence[Built], client: RegistryClient) -> tuple[Published, ...]:
    """Publishes each package; nothing of any is sent while one of them conflicts.

    Raises:
        InputError: CONFIG_INVALID when the repository holds another plugin or its tags something else.
        PackageError: DIGEST_CONFLICT, FETCH_FAILED.
    """
    images = Images(client.document, client.small_blob, str(client.reference))
    for package in packages:
        _check(package.manifest, await _standing(images, client, _rev_tag(package.manifest)), client)
    return tuple([await _push(package, images, client) for package in packages])


async def _push(package: Built, images: Images, client: RegistryClient) -> Published:
    manifest = package.manifest
    sent_bytes = 0
    for digest, size in package.contents():
        with await anyio.to_thread.run_sync(open_regular, blob_path(package.layout, digest)) as opened:
            if await client.upload(digest, size, partial(_chunks, opened)):
                sent_bytes += size
    tag = _rev_tag(manifest)
    standing = await _standing(images, client, tag)
    was_there = manifest.platform in standing
    _check(manifest, standing, client)
    if not was_there:
        sent_bytes += len(package.image_bytes)
        await client.put_document(package.image.digest, IMAGE_MEDIA_TYPE, package.image_bytes)
    media_type, content = _tagged(package, standing)
    tags = [tag]
    version = manifest.version.replace("+", "_")
    of_version = await _standing(images, client, version)
    if all(other.rev <= manifest.rev for _, other in of_version.values()):
        tags.append(version)
    if client.reference.tag is not None and client.reference.tag not in tags:
        tags.append(client.reference.tag)
    for name in tags:
        leads_to = await client.resolve(name)
        if leads_to is None or leads_to.digest != digest_of(content):
            await client.put_document(name, media_type, content)
    return Published(manifest, str(client.reference), tuple(tags), sent_bytes, was_there=was_there)


async def _standing(images: Images, client: RegistryClient, tag: str) -> dict[str, tuple[Descriptor, Manifest]]:
    entry = await client.resolve(tag)
    if entry is None:
        return {}
    found = {
        manifest.platform: (descriptor(IMAGE_MEDIA_TYPE, image.digest, image.size, ARTIFACT_TYPE), manifest)
        for image in (await images.behind(entry) if entry.may_be_plugin else ())
        for manifest in await images.manifests(image)
    }
    if not found:
        hint = "Name another repository: one for each plugin."
        message = f"{client.reference}: tag {tag} leads to something that is no plugin"
        raise InputError([Problem("CONFIG_INVALID", message, hint=hint)])
    return found


def _check(manifest: Manifest, standing: _Standing, client: RegistryClient) -> None:
    for _, other in standing.values():
        if other.id != manifest.id:
            message = f"{client.reference} holds the plugin {other.id}, not {manifest.id}"
            hint = "Name another repository: one for each plugin."
            raise InputError([Problem("CONFIG_INVALID", message, hint=hint)])
    same = standing.get(manifest.platform)
    if same is not None and same[1].digest != manifest.digest:
        raise conflict(manifest, same[1].digest, str(client.reference))


def _tagged(package: Built, standing: _Standing) -> tuple[str, bytes]:
    """Type and bytes of the document for the tags: the image itself, or an index of it and the other platforms' images."""
    others = {platform: image for platform, (image, _) in standing.items() if platform != package.manifest.platform}
    if not others:
        return IMAGE_MEDIA_TYPE, package.image_bytes
    # What is there stays as it is, though other tools may have written the same manifest's image with other bytes.
    same = standing.get(package.manifest.platform)
    all_images = others | {package.manifest.platform: package.image if same is None else same[0]}
    return INDEX_MEDIA_TYPE, index_bytes([all_images[platform] for platform in sorted(all_images)])


def _rev_tag(manifest: Manifest) -> str:
    return str(manifest.rev)


async def _chunks(opened: BinaryIO) -> AsyncIterator[bytes]:
    await anyio.to_thread.run_sync(opened.seek, 0)
    while chunk := await anyio.to_thread.run_sync(opened.read, _CHUNK_BYTES):
        yield chunk
