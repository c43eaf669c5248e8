"""What routines share, and what they need of the other parts of a host, as narrow protocols."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio

from hotbay.packages.manifest import Manifest
from hotbay.packages.package_blobs import Progress
from hotbay.process.launch import LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.facts import PluginSettings
from hotbay.rollout.instance import StartOptions
from hotbay.rollout.state import Facts
from hotbay.rollout.verdicts import CanaryPolicy, GuardPolicy, ShadowPolicy
from hotbay.rpc.host_calls import HostCall
from hotbay.rpc.leases import Generation
from hotbay.scheduling.arms import Arms
from hotbay.scheduling.statistics import CallStatistics
from hotbay.store.world.engine import World
from hotbay.store.world.records import ManifestRef

__all__ = ["Fetching", "Launcher", "Measures", "Occurrence", "Services", "TrialPolicies"]


class Fetching(Protocol):
    """Makes packages runnable."""

    async def fetch(self, ref: ManifestRef, *, report: Callable[[Progress], None]) -> Path:
        """Return the folder that the package's process imports from, after making it so; record it last.

        Raises `HostError`. Safe to repeat, to cancel, and to overlap.
        """


class Launcher(Protocol):
    """Makes launch specifications and generation numbers. `name` is a routine's: a plugin id, or `id/key`."""

    def spec(self, name: str, manifest: Manifest, site: Path, number: int) -> LaunchSpec:
        """How to start the package."""

    def next_generation(self) -> int:
        """A number that was never given before in this host."""

    def options(self, name: str) -> StartOptions:
        """Deadlines and WELCOME's contents."""

    def log(self, name: str, label: str, rev: int) -> LogSink:
        """Where the process's output goes."""


class Measures(Protocol):
    """What the scheduler counts of generations, and how it holds calls back."""

    def statistics(self, generation: int) -> CallStatistics | None:
        """Calls of a generation so far; None when it is unknown."""

    def complaint(self, generation: int) -> str:
        """What a generation said at its last failure: a code and its text, cut and printable. Empty without one."""

    def arms(self, salt: str) -> Arms | None:
        """Requests by arm of the canary with this salt, if it is the latest one."""

    def quiesce(self, generation: int, *, within_s: float) -> None:
        """Hold new requests back, each for at most so long, until `resume`."""

    def resume(self, generation: int) -> None:
        """Let them go on. Idempotent."""


@dataclass(frozen=True, slots=True)
class TrialPolicies:
    """The numbers of the steps of a swap."""

    shadow: ShadowPolicy
    canary: CanaryPolicy
    guard: GuardPolicy


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened to a plugin, for the stream of events."""

    event: str
    plugin: str
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Services:
    """What routines share. `wall` is seconds since the epoch; `now` is monotonic; `random` uniform in [0, 1).

    `facts` are those of a routine at this moment; `on_trial` is told when its shadow or canary begins and ends;
    `lend` makes what answers the host calls of one process: its plugin, label, granted capabilities, and what takes its
    wish to be replaced. `happened` takes what is worth an event.
    """

    world: World
    fetcher: Fetching
    deployment: Deployment
    launcher: Launcher
    lend: Callable[[str, str, Collection[str], Callable[[str], None]], Callable[[HostCall], None]]
    measures: Measures
    settings: Callable[[str], PluginSettings]
    facts: Callable[[str], Facts]
    manifest: Callable[[str], Manifest]
    ref: Callable[[str], ManifestRef]
    policies: Callable[[], TrialPolicies]
    now: Callable[[], float]
    wall: Callable[[], float]
    random: Callable[[], float]
    starts: anyio.CapacityLimiter
    drain_s: float
    linger_s: float
    retired: Callable[[Generation], None]
    happened: Callable[[Occurrence], None]
    on_trial: Callable[[str, bool], None]
    refs_changed: Callable[[], None]
    settled: Callable[[str], None]
