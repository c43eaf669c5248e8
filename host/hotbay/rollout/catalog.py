"""The manifests of all refs in the world, read once each, and the index of the types that they provide.

A ref whose manifest this host cannot read is no candidate; it is told once. What the world forgot is kept only as long as
something is made from it: a host that sees a new version every hour holds what the world holds, and no more. A change of
one plugin's records costs nothing for those of the others.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from hotbay.config.type_facts import TypeFacts
from hotbay.errors import CapacityError, PackageError
from hotbay.packages.manifest import Manifest, parse_manifest
from hotbay.scheduling.registry import TypeIndex
from hotbay.store.digests import Digest
from hotbay.store.world.engine import PluginRecords, WorldView
from hotbay.store.world.records import Completion, ManifestRef

logger = logging.getLogger(__name__)

__all__ = ["Catalog"]


@dataclass(frozen=True, slots=True)
class _Shelf:
    """What was made of one plugin's records: a ref for each digest, and the types that are to be had of it."""

    records: PluginRecords = field(default_factory=PluginRecords)
    refs: Mapping[Digest, ManifestRef] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    data_types: tuple[str, ...] = ()
    facts: Mapping[str, TypeFacts] = field(default_factory=dict)


class Catalog:
    """See the module. `read` after the world changed."""

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}
        self._manifests: dict[Digest, Manifest] = {}
        self._unreadable: set[Digest] = set()
        self._left: dict[Digest, ManifestRef] = {}
        self._revision = 0

    @property
    def revision(self) -> int:
        """Of the view that was read last."""
        return self._revision

    @property
    def manifests(self) -> Mapping[Digest, Manifest]:
        """By digest: of what the world holds, and of what was in use when it forgot it."""
        return self._manifests

    def read(self, view: WorldView, *, in_use: Callable[[], Collection[str]] = tuple) -> frozenset[str]:
        """Take the refs of a view; return the plugins whose records are others than before.

        `in_use` gives digests to be kept for what is made from them, also when the view has them no more.
        """
        self._revision = view.revision
        changed = [
            plugin_id
            for plugin_id in {*self._shelves, *view.plugins}
            if self._shelves.get(plugin_id, _EMPTY).records is not view.of(plugin_id)
        ]
        for plugin_id in changed:
            self._take(plugin_id, view.of(plugin_id))
        for digest in self._left.keys() - set(in_use()) if self._left else ():
            del self._left[digest]
            self._manifests.pop(digest, None)
            self._unreadable.discard(digest)
        return frozenset(changed)

    def _take(self, plugin_id: str, records: PluginRecords) -> None:
        before = self._shelves.pop(plugin_id, _EMPTY)
        refs: dict[Digest, ManifestRef] = {}
        for ref in records.all(ManifestRef):
            known = refs.get(ref.digest)
            if known is None or ref.offered or not known.offered:
                refs[ref.digest] = ref
        self._left.update((digest, ref) for digest, ref in before.refs.items() if digest not in refs)
        for digest, ref in refs.items():
            self._left.pop(digest, None)
            if digest not in self._manifests and digest not in self._unreadable:
                self._parse(ref)
        if records.tables:
            usable = self._usable(records, refs)
            types, data_types = (
                tuple(sorted(set(names)))
                for names in (
                    (name for manifest in usable for name in manifest.types),
                    (name for manifest in usable for name in manifest.data_types),
                )
            )
            # The newest manifest is heard last: what it says of a type counts.
            said = sorted(usable, key=lambda manifest: (manifest.rev, manifest.digest))
            facts = {name: manifest.facts_of(name) for manifest in said for name in manifest.type_facts}
            self._shelves[plugin_id] = _Shelf(records, refs, types, data_types, facts)

    def _parse(self, ref: ManifestRef) -> None:
        try:
            self._manifests[ref.digest] = parse_manifest(ref.manifest, origin=f"{ref.source}: {ref.digest}")
        except PackageError as error:
            self._unreadable.add(ref.digest)
            logger.warning("manifest_unreadable source=%s digest=%s: %s", ref.source, ref.digest, error.message)

    def _usable(self, records: PluginRecords, refs: Mapping[Digest, ManifestRef]) -> tuple[Manifest, ...]:
        """What sources offer now, and what is complete."""
        return tuple(
            self._manifests[digest]
            for digest, ref in refs.items()
            if digest in self._manifests and (ref.offered or records.get(Completion, digest) is not None)
        )

    def manifest(self, digest: str) -> Manifest:
        """The manifest of a digest that the world holds or that is in use. Raises `CapacityError` for any other."""
        found = self._manifests.get(Digest(digest))
        if found is None:
            raise _forgotten(digest)
        return found

    def ref(self, digest: str) -> ManifestRef:
        """A ref to such a digest; one that is offered, if there is one. Raises as `manifest`."""
        manifest = self.manifest(digest)
        shelf = self._shelves.get(manifest.id, _EMPTY)
        found = shelf.refs.get(manifest.digest) or self._left.get(manifest.digest)
        if found is None:
            raise _forgotten(digest)
        return found

    def index(self, ranking: Mapping[str, str]) -> TypeIndex:
        """The types of what sources offer now, and of what is complete."""
        return TypeIndex.build(
            ((plugin_id, self._shelves[plugin_id].types) for plugin_id in self.plugin_ids()),
            ranking,
            data=((plugin_id, name) for plugin_id, shelf in self._shelves.items() for name in shelf.data_types),
            facts={
                (plugin_id, name): facts
                for plugin_id, shelf in self._shelves.items()
                for name, facts in shelf.facts.items()
            },
        )

    def plugin_ids(self) -> tuple[str, ...]:
        """Every plugin that the world has a ref of."""
        return tuple(sorted(plugin_id for plugin_id, shelf in self._shelves.items() if shelf.refs))


_EMPTY = _Shelf()


def _forgotten(digest: str) -> CapacityError:
    return CapacityError(
        "UNAVAILABLE",
        f"the package {digest} is known no more: its source withdrew it and nothing used it",
        hint="publish it again; what is offered now is selected by itself",
    )
