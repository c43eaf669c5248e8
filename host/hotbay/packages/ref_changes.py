"""Decides what of a source's scan goes into the world, and which builds it has in two versions. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal

from hotbay.errors import Problem
from hotbay.packages.sources.source import Offer
from hotbay.store.digests import Digest
from hotbay.store.world.engine import Change, Delete, PluginRecords, Put, WorldView
from hotbay.store.world.records import WITHDRAWN, Completion, ManifestRef, Quarantine, ref_key

DIGEST_CONFLICT: Final = "DIGEST_CONFLICT"

Withdrawn = Literal["keep", "alarm", "stop"]

__all__ = ["DIGEST_CONFLICT", "WITHDRAWN", "Withdrawn", "changes_of", "conflicts", "known_refs", "refs_of"]


def changes_of(
    view: WorldView, source: str, found: Mapping[str, ManifestRef], *, withdrawn: Withdrawn, store: bool, at_s: float
) -> list[Change]:
    """What to write so that the world's refs of `source` are those of `found`, by key. Pure."""
    known = known_refs(view, source)
    changes: list[Change] = [Put(ref) for key, ref in found.items() if known.get(key) != ref]
    for key, ref in known.items():
        if key in found or not ref.offered:
            continue
        changes.append(Put(replace(ref, offered=False)) if store else Delete(ref.kind, key))
        if withdrawn == "stop" and not _is_offered_elsewhere(view, ref):
            changes += _stop(view, ref, at_s)
    for ref in found.values():
        record = view.of(ref.plugin_id).get(Quarantine, ref.digest)
        if record is not None and record.code == WITHDRAWN:
            changes.append(Delete(record.kind, record.key))
    return changes


def conflicts(view: WorldView, source: str) -> tuple[Problem, ...]:
    """A DIGEST_CONFLICT for every build that `source` offers and that is known with another content too. Pure."""
    return tuple(problem for records in view.plugins.values() for problem in _conflicts_of(records, source))


def _conflicts_of(records: PluginRecords, source: str) -> Iterator[Problem]:
    refs = records.all(ManifestRef)
    builds = {ref.digest: (ref.rev, ref.platform) for ref in refs}
    if len(builds) == len(set(builds.values())):
        # So it is with nearly every plugin, whatever the number of its versions.
        return
    digests: dict[tuple[int, str], dict[Digest, set[str]]] = defaultdict(lambda: defaultdict(set))
    for ref in refs:
        if ref.offered or records.get(Completion, ref.digest) is not None:
            digests[ref.rev, ref.platform][ref.digest].add(ref.source)
    for (rev, platform), by_digest in sorted(digests.items()):
        if len(by_digest) > 1 and any(source in names for names in by_digest.values()):
            found = " and ".join(
                f"{digest} ({', '.join(sorted(names))})" for digest, names in sorted(by_digest.items())
            )
            yield Problem(
                DIGEST_CONFLICT,
                f"{refs[0].plugin_id} rev {rev} for {platform} is there with different contents",
                found=found,
                expected="one",
                hint="A revision is published once. Publish the change under a higher rev, or pin the digest that you want.",
            )


def known_refs(view: WorldView, source: str) -> dict[str, ManifestRef]:
    """The refs of one source, by key."""
    return {ref.key: ref for ref in view.all(ManifestRef) if ref.source == source}


def refs_of(offers: Iterable[Offer], *, known: Mapping[str, ManifestRef]) -> dict[str, ManifestRef]:
    """One ref for each digest. Of several places the known one is kept, else the first: a copy elsewhere is no event."""
    found: dict[str, ManifestRef] = {}
    for offer in offers:
        key = ref_key(offer.manifest.digest, offer.source)
        before = known.get(key)
        if key not in found or (before is not None and before.location == offer.location):
            found[key] = _ref(offer) if before is None else _again(before, offer)
    return found


def _again(before: ManifestRef, offer: Offer) -> ManifestRef:
    """The digest is that of the manifest's bytes: all that may differ is where it lies, and that it was withdrawn."""
    if before.offered and before.location == offer.location:
        return before
    return replace(before, location=offer.location, offered=True)


def _ref(offer: Offer) -> ManifestRef:
    manifest = offer.manifest
    return ManifestRef(
        plugin_id=manifest.id,
        rev=manifest.rev,
        platform=manifest.platform,
        digest=manifest.digest,
        source=offer.source,
        location=offer.location,
        manifest=manifest.canonical_bytes(),
        channel=manifest.channel.value,
    )


def _is_offered_elsewhere(view: WorldView, ref: ManifestRef) -> bool:
    return any(
        other.digest == ref.digest and other.source != ref.source and other.offered
        for other in view.of(ref.plugin_id).all(ManifestRef)
    )


def _stop(view: WorldView, ref: ManifestRef, at_s: float) -> list[Change]:
    """A quarantine that stands for another reason is not touched."""
    if view.get(Quarantine, ref.digest) is not None:
        return []
    reason = f"the source {ref.source} withdrew it"
    return [Put(Quarantine(ref.digest, ref.plugin_id, ref.rev, WITHDRAWN, reason, 1, at_s))]
