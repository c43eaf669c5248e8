"""What a host is now, as far as its metrics say it: values that are taken when the page is asked for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["GenerationFacts", "HostFacts", "PluginFacts", "StoreFacts"]


@dataclass(frozen=True, slots=True)
class GenerationFacts:
    """One process of a plugin: its number, what it runs, and how many hold a right to call it."""

    number: int
    rev: int
    leases: int = 0


@dataclass(frozen=True, slots=True)
class PluginFacts:
    """One plugin. `strikes` are the failures that count towards its being disabled now."""

    plugin: str
    phase: str
    live: GenerationFacts | None = None
    candidate: GenerationFacts | None = None
    strikes: int = 0


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The store in bytes; `budget_bytes` None: no bound but the disk's."""

    used_bytes: int
    free_bytes: int
    budget_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A host. `quarantined` counts digests by plugin, `sources` names the state of each; `tasks` are the loop's.

    `stale` counts endpoints by the field of theirs that is stale, `available` by what becomes of new requests for them.
    `intervals_s` says how often each source of the data layer is polled.
    """

    ready: bool = False
    problems: int = 0
    tasks: int = 0
    plugins: tuple[PluginFacts, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    store: StoreFacts | None = None
    stale: Mapping[str, int] = field(default_factory=dict)
    available: Mapping[str, int] = field(default_factory=dict)
    intervals_s: Mapping[str, float] = field(default_factory=dict)
