"""The manifests of all refs in the world, read once each, and the index of the types that they provide.

A ref whose manifest this host cannot read is no candidate; it is told once.
"""

import logging
from collections.abc import Iterator, Mapping

from hotbay.errors import PackageError
from hotbay.packages.manifest import Manifest, parse_manifest
from hotbay.scheduling.registry import TypeIndex
from hotbay.store.digests import Digest
from hotbay.store.world.engine import WorldView
from hotbay.store.world.records import Completion, ManifestRef

logger = logging.getLogger(__name__)

__all__ = ["Catalog"]


class Catalog:
    """See the module. `read` after the world changed."""

    def __init__(self) -> None:
        self._manifests: dict[Digest, Manifest] = {}
        self._refs: dict[Digest, ManifestRef] = {}
        self._unreadable: set[Digest] = set()
        self._view = WorldView()

    @property
    def revision(self) -> int:
        """Of the view that was read last."""
        return self._view.revision

    @property
    def manifests(self) -> Mapping[Digest, Manifest]:
        """By digest; those that were in the world once stay, for what runs of them."""
        return self._manifests

    def read(self, view: WorldView) -> None:
        """Take the refs of a view."""
        self._view = view
        for ref in view.all(ManifestRef):
            known = self._refs.get(ref.digest)
            if known is None or ref.offered or not known.offered:
                self._refs[ref.digest] = ref
            if ref.digest not in self._manifests and ref.digest not in self._unreadable:
                self._parse(ref)

    def _parse(self, ref: ManifestRef) -> None:
        try:
            self._manifests[ref.digest] = parse_manifest(ref.manifest, origin=f"{ref.source}: {ref.digest}")
        except PackageError as error:
            self._unreadable.add(ref.digest)
            logger.warning("manifest_unreadable source=%s digest=%s: %s", ref.source, ref.digest, error.message)

    def manifest(self, digest: str) -> Manifest:
        """The manifest of a digest that was in the world once."""
        return self._manifests[Digest(digest)]

    def ref(self, digest: str) -> ManifestRef:
        """A ref to a digest that was in the world once; one that is offered, if there is one."""
        return self._refs[Digest(digest)]

    def index(self, ranking: Mapping[str, str]) -> TypeIndex:
        """The types of what sources offer now, and of what is complete."""
        return TypeIndex.build(((m.id, m.types) for m in self._usable()), ranking)

    def _usable(self) -> Iterator[Manifest]:
        refs = sorted(self._view.all(ManifestRef), key=lambda ref: (ref.plugin_id, ref.rev, ref.digest))
        for ref in refs:
            if ref.digest in self._manifests and (ref.offered or self._view.get(Completion, ref.digest) is not None):
                yield self._manifests[ref.digest]

    def plugin_ids(self) -> tuple[str, ...]:
        """Every plugin that the world knows."""
        return tuple(sorted({ref.plugin_id for ref in self._view.all(ManifestRef)}))
