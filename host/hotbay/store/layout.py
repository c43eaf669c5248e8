"""Keeps the store a valid OCI image layout of its complete packages, for any tool that reads layouts.

`oci-layout` and `index.json` lie beside the blobs; an image manifest per package is a blob too. All of them are derived
from the completions and can be made again at any time: nothing here reads them.
"""

import logging
from collections.abc import Callable, Iterable

import anyio.to_thread

from hotbay.errors import HostError
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import Digest, digest_of
from hotbay.store.files import write_durably
from hotbay.store.oci_image import MARKER, blobs_of, image_of, index_of
from hotbay.store.world.engine import World
from hotbay.store.world.records import Completion

logger = logging.getLogger(__name__)

__all__ = ["images_of", "keep_index", "write_index"]


def images_of(store: BlobStore, manifests: Iterable[Digest]) -> dict[Digest, bytes]:
    """Image manifests by the digest of the package's manifest, without those whose manifest cannot be read. Blocks."""
    found = {}
    for digest in manifests:
        try:
            found[digest] = image_of(store.read(digest))
        except (HostError, ValueError) as error:
            logger.warning("manifest_unreadable digest=%s: %s", digest, error)
    return found


def write_index(store: BlobStore, manifests: Callable[[], Iterable[Digest]]) -> tuple[Digest, ...]:
    """Makes the layout name these packages and no others; returns those that it names. Blocks; calls may overlap.

    Writers take turns, and each asks `manifests` when it has its turn: what the last one writes is the newest. Left out are
    packages whose wheels are used in place, elsewhere: a layout has all that it names. Raises CapacityError
    RESOURCE_EXHAUSTED when the disk is full, OSError when the store cannot be written.
    """
    with store.index_turn:
        images = {
            digest: image
            for digest, image in images_of(store, manifests()).items()
            if store.is_whole(blobs_of(store.read(digest)))
        }
        store.lay_out()
        for image in images.values():
            store.put_bytes(image, digest_of(image))
        for name, content in (("oci-layout", MARKER), ("index.json", index_of(images.values()))):
            path = store.root / name
            if not path.is_file() or path.read_bytes() != content:
                write_durably(path, content)
        return tuple(sorted(images))


async def keep_index(world: World, store: BlobStore) -> None:
    """Follows the world's completions until it is cancelled. What cannot be written is tried again at the next change."""

    def complete_now() -> frozenset[Digest]:
        return frozenset(completion.digest for completion in world.view.all(Completion))

    written: frozenset[Digest] | None = None
    while True:
        view, complete = world.view, complete_now()
        if complete != written:
            try:
                await anyio.to_thread.run_sync(write_index, store, complete_now)
                written = complete
            except (HostError, OSError) as error:
                logger.warning("store_index_not_written path=%s: %s", store.root, error)
        await world.changed(view.revision)
