"""What the store may let go of: decided from one view, what is there, and what is in use. Pure.

Kept, whatever else holds:
- what a running process or candidate uses, what is complete and waits to be started, what a fetch under way needs;
- per plugin the last versions that were live, then the highest revisions, as many as `keep_versions`, and always the
  highest one: it is what would be fetched again. Versions in quarantine do not count among them and are not kept for it;
- what a pin, also one of the configuration, or the applied lock names;
- a blob as long as one package that is kept names it: shared blobs go with their last package.

A ref goes when its source withdrew it and nothing of the above needs it: no version becomes eligible by it. So what is in
quarantine is known until a higher revision was complete here, and so is the other content of a build of which one is
kept. The record of a quarantine stays for good, but one that only a withdrawal made goes with the last ref.

While anything is being fetched, or something runs that no completion describes, no environment is removed, because
whose it is cannot be told.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from hotbay.store.digests import Digest
from hotbay.store.oci_image import blobs_of
from hotbay.store.world.engine import PluginRecords, WorldView
from hotbay.store.world.records import (
    WITHDRAWN,
    Completion,
    Floor,
    History,
    Locked,
    ManifestRef,
    Pin,
    Quarantine,
)

_NO_IMAGES: Final[Mapping[Digest, Digest]] = MappingProxyType({})

__all__ = ["Demand", "GcPlan", "plan_gc", "wanted_parts"]


@dataclass(frozen=True, slots=True)
class Demand:
    """What must stay: manifests of everything that runs, is being tried or waits for that; manifests and blobs that are
    being fetched; what the configuration pins, as plugin id with a revision or digest.
    """

    in_use: Collection[Digest] = ()
    fetching: Collection[Digest] = ()
    pinned: Collection[tuple[str, int | str]] = ()

    @property
    def digests(self) -> frozenset[Digest]:
        """What is in use and what is fetched."""
        return frozenset(self.in_use) | frozenset(self.fetching)


@dataclass(frozen=True, slots=True)
class GcPlan:
    """What goes, each sorted: blobs, completions by manifest, environments by name, keys of refs that were withdrawn, and
    digests whose quarantine was for that alone.

    `sizes` are the bytes of every blob and environment that was there, by name.
    """

    blobs: tuple[Digest, ...]
    completions: tuple[Digest, ...]
    environments: tuple[str, ...]
    refs: tuple[str, ...]
    quarantines: tuple[Digest, ...]
    sizes: Mapping[str, int] = field(repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing goes."""
        return not (self.blobs or self.completions or self.environments or self.refs or self.quarantines)

    @property
    def size_bytes(self) -> int:
        """What blobs and environments that go take."""
        return sum(self.sizes[name] for name in (*self.blobs, *self.environments))


def plan_gc(
    view: WorldView,
    *,
    demand: Demand,
    keep_versions: int,
    blobs_present: Mapping[Digest, int],
    environments_present: Mapping[str, int],
    images: Mapping[Digest, Digest] = _NO_IMAGES,
) -> GcPlan:
    """See the module. Blobs and environments are given with their bytes, images by their package's manifest."""
    complete = {completion.digest: completion for completion in view.all(Completion)}
    chosen = demand.digests | _chosen_by_operator(view, demand)
    kept = {digest for digest in complete if digest in chosen} | _last_versions(view, keep_versions)
    needed = chosen | kept | _named(view, chosen)
    for digest in kept:
        needed |= {blob for blob, _ in complete[digest].blobs} | {images.get(digest, digest)}
    blobs = tuple(sorted(blobs_present.keys() - needed))
    environments = _spare_environments(complete.values(), kept, demand, environments_present)
    refs = tuple(ref for records in view.plugins.values() for ref in _spare_refs(records, needed))
    return GcPlan(
        blobs=blobs,
        completions=tuple(sorted(complete.keys() - kept)),
        environments=environments,
        refs=tuple(sorted(ref.key for ref in refs)),
        quarantines=tuple(sorted(_lapsed(view, needed, {ref.key for ref in refs}))),
        sizes=dict(blobs_present) | dict(environments_present),
    )


def wanted_parts(view: WorldView, demand: Demand) -> frozenset[Digest]:
    """Blobs whose parts are worth keeping: those that are fetched now, or will be while a source offers them."""
    offered = {ref.digest for ref in view.all(ManifestRef) if ref.offered}
    return demand.digests | _named(view, offered | demand.digests | _chosen_by_operator(view, demand))


def _chosen_by_operator(view: WorldView, demand: Demand) -> frozenset[Digest]:
    pins = {(pin.plugin_id, pin.digest if pin.rev is None else pin.rev) for pin in view.all(Pin)} | {*demand.pinned}
    pinned = {Digest(name) for _, name in pins if isinstance(name, str)}
    pinned |= {record.digest for record in view.all(Completion) if (record.plugin_id, record.rev) in pins}
    pinned |= {ref.digest for ref in view.all(ManifestRef) if (ref.plugin_id, ref.rev) in pins}
    return frozenset(pinned) | {line.digest for line in view.all(Locked)}


def _last_versions(view: WorldView, keep_versions: int) -> set[Digest]:
    """A version is a revision, with its builds for all platforms."""
    quarantined = {record.digest for record in view.all(Quarantine)}
    last_live: dict[Digest, int] = {}
    for entry in view.all(History):
        last_live[entry.digest] = max(entry.number, last_live.get(entry.digest, 0))
    plugins: dict[str, dict[int, list[Digest]]] = {}
    for completion in view.all(Completion):
        if completion.digest not in quarantined:
            plugins.setdefault(completion.plugin_id, {}).setdefault(completion.rev, []).append(completion.digest)
    kept: set[Digest] = set()
    for versions in plugins.values():
        ranks = {rev: (max(last_live.get(digest, 0) for digest in built), rev) for rev, built in versions.items()}
        newest_first = sorted(versions, key=ranks.__getitem__, reverse=True)
        for rev in {*newest_first[:keep_versions], max(versions)}:
            kept.update(versions[rev])
    return kept


def _named(view: WorldView, manifests: Collection[Digest]) -> set[Digest]:
    """Blobs that the refs of these manifests name. What cannot be read as a manifest is not fetched either."""
    found: set[Digest] = set()
    for ref in view.all(ManifestRef):
        if ref.digest in manifests:
            try:
                found.update(blob.digest for blob in blobs_of(ref.manifest))
            except ValueError:
                continue
    return found


def _spare_refs(records: PluginRecords, needed: Collection[Digest]) -> Iterator[ManifestRef]:
    """Of one plugin. Refs of one build go together, for with one of them gone its other content would not conflict."""
    floor = max((floor.rev for floor in records.all(Floor)), default=0)
    builds: dict[tuple[int, str], list[ManifestRef]] = {}
    for ref in records.all(ManifestRef):
        builds.setdefault((ref.rev, ref.platform), []).append(ref)

    def is_spare(ref: ManifestRef) -> bool:
        is_barred = ref.rev >= floor and records.get(Quarantine, ref.digest) is not None
        return not ref.offered and not is_barred and ref.digest not in needed

    for refs in builds.values():
        if all(map(is_spare, refs)):
            yield from refs


def _lapsed(view: WorldView, needed: Collection[Digest], gone: Collection[str]) -> Iterator[Digest]:
    """Digests whose quarantine would end with the next offer, and of which nothing else is known."""
    known = {ref.digest for ref in view.all(ManifestRef) if ref.key not in gone}
    for record in view.all(Quarantine):
        if record.code == WITHDRAWN and record.digest not in known and record.digest not in needed:
            yield record.digest


def _spare_environments(
    completions: Iterable[Completion], kept: Collection[Digest], demand: Demand, present: Mapping[str, int]
) -> tuple[str, ...]:
    by_digest = {completion.digest: completion.environment for completion in completions}
    if demand.fetching or any(digest not in by_digest for digest in demand.in_use):
        return ()
    return tuple(sorted(present.keys() - {by_digest[digest] for digest in kept}))
