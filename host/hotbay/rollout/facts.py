"""What a routine's machine is told, made from one view of the world and the operator's wishes. Pure.

What the world says wins over the configuration: a pin that the operator set by a command holds until `unpin`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hotbay.packages.manifest import Manifest
from hotbay.rollout.selection import Candidate, Pin, Policy
from hotbay.rollout.state import Facts, Rules
from hotbay.store.digests import Digest
from hotbay.store.world import records
from hotbay.store.world.engine import PluginRecords, WorldView

__all__ = [
    "Manifests",
    "PluginSettings",
    "digest_live_last",
    "facts_of",
    "history_of",
    "plugin_of",
    "refs_of",
    "ungranted",
]


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """What the operator decided about one plugin, or one instance key of it.

    `platforms`: the hosts' tags, the preferred first. `first_use`: it sleeps until a request needs it; `idle_s`: and
    again after so long without calls. `launch` stands for all that its processes are started with.
    """

    platforms: tuple[str, ...]
    channels: frozenset[str] = frozenset({"release", "dev"})
    publisher: str | None = None
    pin: Pin | None = None
    grants: frozenset[str] = frozenset()
    denied: frozenset[str] = frozenset()
    rules: Rules = field(default_factory=Rules)
    first_use: bool = False
    idle_s: float | None = None
    launch: str = ""


Manifests = Mapping[Digest, Manifest]


def plugin_of(name: str) -> str:
    """The plugin id of a routine's name: `id`, or `id/key` for an instance key."""
    return name.partition("/")[0]


def refs_of(view: WorldView, plugin_id: str) -> tuple[records.ManifestRef, ...]:
    """What sources have shown of a plugin, also what they show no more."""
    return view.of(plugin_id).all(records.ManifestRef)


def history_of(view: WorldView, name: str) -> tuple[records.History, ...]:
    """What was live of a routine, the oldest first."""
    return tuple(entry for entry in view.of(plugin_of(name)).all(records.History) if entry.plugin_id == name)


def digest_live_last(view: WorldView, name: str) -> str | None:
    """What was live last, by the history."""
    entries = history_of(view, name)
    return entries[-1].digest if entries else None


def ungranted(manifest: Manifest, settings: PluginSettings, grant: records.Grant | None) -> tuple[str, ...]:
    """Capabilities that a manifest asks for and nobody has granted."""
    granted = settings.grants | frozenset(grant.capabilities if grant is not None else ())
    return tuple(c for c in manifest.capabilities if c not in granted)


def facts_of(
    view: WorldView,
    name: str,
    settings: PluginSettings,
    manifests: Manifests,
    *,
    sources: Collection[str],
    wall_s: float,
    now_s: float,
    launch: str = "",
    wanted: bool = True,
    asleep: bool = False,
    blocked: bool = False,
) -> Facts:
    """The facts of one routine. `manifests` holds those of all refs that can be read; `sources` are the open ones.

    `wall_s` and `now_s` are the same moment, by the wall clock and by the monotonic one.
    """
    plugin_id = plugin_of(name)
    known = view.of(plugin_id)
    grant = known.get(records.Grant, plugin_id)
    candidates = [
        _candidate(known, ref, manifests[ref.digest], settings, grant, sources, wall_s)
        for ref in known.all(records.ManifestRef)
        if ref.digest in manifests and settings.publisher in (None, manifests[ref.digest].publisher)
    ]
    return Facts(
        revision=view.revision,
        candidates=tuple(candidates),
        policy=_policy(view, plugin_id, settings),
        rules=settings.rules,
        launch=f"{settings.launch}{launch}",
        last=digest_live_last(view, name),
        wanted=wanted,
        asleep=asleep,
        disabled=known.get(records.Disabled, plugin_id) is not None,
        blocked=blocked,
        pinned_by=pin.who if (pin := known.get(records.Pin, plugin_id)) is not None else None,
        stale_at_s=_stale_at_s(known, wall_s, now_s),
    )


def _stale_at_s(known: PluginRecords, wall_s: float, now_s: float) -> float | None:
    """When the next quarantine of the plugin ends, by the monotonic clock."""
    ends = [
        record.until_s
        for record in known.all(records.Quarantine)
        if record.until_s is not None and record.until_s > wall_s
    ]
    return now_s + min(ends) - wall_s if ends else None


def _candidate(
    known: PluginRecords,
    ref: records.ManifestRef,
    manifest: Manifest,
    settings: PluginSettings,
    grant: records.Grant | None,
    sources: Collection[str],
    wall_s: float,
) -> Candidate:
    quarantine = known.get(records.Quarantine, ref.digest)
    return Candidate(
        digest=ref.digest,
        rev=ref.rev,
        platform=ref.platform,
        channel=str(manifest.channel),
        complete=known.get(records.Completion, ref.digest) is not None,
        quarantined=quarantine is not None and (quarantine.until_s is None or quarantine.until_s > wall_s),
        granted=not ungranted(manifest, settings, grant),
        denied=ref.digest in settings.denied,
        fetchable=ref.source in sources,
        offered=ref.offered and ref.source in sources,
    )


def _policy(view: WorldView, plugin_id: str, settings: PluginSettings) -> Policy:
    known = view.of(plugin_id)
    pin, floor = known.get(records.Pin, plugin_id), known.get(records.Floor, plugin_id)
    mine = frozenset(str(line.digest) for line in known.all(records.Locked))
    return Policy(
        platforms=settings.platforms,
        channels=settings.channels,
        pin=settings.pin if pin is None else Pin(pin.rev, pin.digest),
        floor_rev=floor.rev if floor is not None else 0,
        locked=mine if view.all(records.Locked) else None,
    )
