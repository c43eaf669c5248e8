"""The routine of one plugin id: select, stage, launch, cut over, retire, and restart what crashed.

One step at a time, so that at most two processes of a plugin exist whatever the order in which versions
and deaths arrive. A step that fails leaves the live generation untouched.
"""

import enum
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import anyio

from hotbay.errors import HostError, InputError, PackageError
from hotbay.packages.manifest import Manifest, host_platform
from hotbay.packages.sources.directory import Offer
from hotbay.process.launch import LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.backoff import BackoffPolicy, BackoffState, Restart, became_ready, failed
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.instance import Instance, StartOptions
from hotbay.rollout.selection import Candidate, Policy, Status, select
from hotbay.rpc.leases import Generation, Origin

logger = logging.getLogger(__name__)

SIGKILL: Final = 9


class Phase(enum.StrEnum):
    """What the routine is doing; shown in status."""

    IDLE = "idle"
    WAITING = "waiting for a package"
    STAGING = "staging"
    LAUNCHING = "launching"
    CUTOVER = "cut over"
    RETIRING = "retiring"
    BACKOFF = "backing off"
    FAILED = "failed"
    DISABLED = "disabled"


class Environments(Protocol):
    """Brings a package into the store and builds what its process imports."""

    async def __call__(self, manifest: Manifest, layout: Path) -> Path:
        """Return the site directory. Raises `HostError`; safe to repeat."""


class Launcher(Protocol):
    """Makes launch specifications and generation numbers."""

    def spec(self, manifest: Manifest, site: Path, number: int) -> LaunchSpec:
        """How to start the package."""

    def next_generation(self) -> int:
        """A number that was never given before in this host."""

    def options(self, plugin_id: str) -> StartOptions:
        """Deadlines and WELCOME's contents."""

    def log(self, plugin_id: str, label: str) -> LogSink:
        """Where the process's output goes."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The last thing that went wrong, for status."""

    code: str
    message: str
    hint: str
    digest: str


@dataclass(slots=True)
class Row:
    """Status of one plugin."""

    plugin: str
    phase: Phase = Phase.WAITING
    selection: Status = Status.UNKNOWN
    live: Origin | None = None
    live_generation: int | None = None
    live_pid: int | None = None
    candidate: Origin | None = None
    target: str | None = None
    restarts: int = 0
    swaps: int = 0
    last_error: Failure | None = None


@dataclass(slots=True)
class _Version:
    """What is known of one digest: its environment once it is staged, its failures, when it may be tried again.

    `not_before_s` is infinite for a digest that used up its budget of failures.
    """

    site: Path | None = None
    failures: BackoffState = field(default_factory=BackoffState)
    not_before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Services:
    """What routines share."""

    deployment: Deployment
    environments: Environments
    launcher: Launcher
    backoff: BackoffPolicy
    now: Callable[[], float]
    random: Callable[[], float]
    starts: anyio.CapacityLimiter
    drain_s: float
    retired: Callable[[Generation], None]
    changed: Callable[[str, str], None]
    refs_changed: Callable[[], None]


class Routine:
    """Keeps one plugin running. `run` until cancelled; `wake` after anything changed; then `shutdown`."""

    def __init__(self, plugin_id: str, services: Services, group: anyio.abc.TaskGroup) -> None:
        self.row = Row(plugin_id)
        self.first_attempt = anyio.Event()
        self._id = plugin_id
        self._services = services
        self._group = group
        self._offers: tuple[Offer, ...] = ()
        self._wake = anyio.Event()
        self._live: Instance | None = None
        self._retiring: Instance | None = None
        self._versions: dict[str, _Version] = {}
        self._closing = False

    def offer(self, offers: Sequence[Offer]) -> None:
        """Take what the sources have now for this plugin."""
        if tuple(offers) != self._offers:
            self._offers = tuple(offers)
            self.wake()

    def wake(self) -> None:
        """Look again soon."""
        self._wake.set()

    @property
    def live(self) -> Instance | None:
        """The instance that answers, or answered last."""
        return self._live

    async def run(self) -> None:
        """Step for ever."""
        while not self._closing:
            self._wake = anyio.Event()
            pause_s = await self._step()
            with anyio.move_on_after(math.inf if pause_s is None else pause_s):
                await self._wake.wait()

    async def shutdown(self, drain_s: float) -> None:
        """Retire everything that runs."""
        self._closing = True
        self.wake()
        for instance in (self._live, self._retiring):
            if instance is not None:
                await instance.retire(drain_s)

    # -- one step --------------------------------------------------------------------------------

    async def _step(self) -> float | None:
        """Do the next thing; return the pause in seconds until there may be another, None for no time limit."""
        live = self._note_death()
        offer, pause_s = self._choose(live)
        if offer is None:
            self._show_idle(live, pause_s)
            if self._offers:
                self.first_attempt.set()
            return pause_s
        if live is not None and self._retiring is not None:
            self.row.phase = Phase.RETIRING
            return None
        await self._bring_up(offer)
        self.first_attempt.set()
        return 0.0 if self.row.phase is Phase.CUTOVER else self._choose(self._running())[1]

    def _running(self) -> Instance | None:
        return self._live if self._live is not None and not self._live.ended.is_set() else None

    def _version(self, digest: str) -> _Version:
        return self._versions.setdefault(digest, _Version())

    def _note_death(self) -> Instance | None:
        """Record the end of the live instance, once; return it while it runs."""
        live = self._live
        if live is None or not live.ended.is_set():
            return live
        if self.row.live_pid is not None and not live.asked_to_stop:
            self._record(live)
        self.row.live_pid = None
        return None

    def _record(self, live: Instance) -> None:
        assert live.generation is not None and live.fault is not None
        digest = live.generation.origin.digest
        exit_status = live.child.exit
        outside = exit_status is not None and exit_status.signal == SIGKILL
        self._fail(digest, live.fault, counts=not outside)
        self.row.restarts += 1
        self._services.changed("crashed", live.label)

    def _choose(self, live: Instance | None) -> tuple[Offer | None, float | None]:
        """The best offer that may be started now, and the pause until another may be."""
        now = self._services.now()
        live_digest = live.generation.origin.digest if live is not None and live.generation else None
        candidates = {str(o.manifest.digest): self._candidate(o) for o in self._offers}
        policy = Policy(platforms=(host_platform(),))
        pause_s: float | None = None
        while True:
            choice = select(candidates.values(), policy, live=candidates.get(live_digest or ""))
            self.row.selection = choice.status
            if choice.target is None or choice.target.digest == live_digest:
                return None, pause_s
            digest = choice.target.digest
            self.row.target = digest
            wait_s = self._version(digest).not_before_s - now
            if wait_s <= 0.0:
                return next(o for o in self._offers if o.manifest.digest == digest), pause_s
            if wait_s < math.inf:
                pause_s = wait_s if pause_s is None else min(pause_s, wait_s)
            del candidates[digest]
            if live_digest is not None and live_digest not in candidates:
                return None, pause_s

    def _candidate(self, offer: Offer) -> Candidate:
        manifest = offer.manifest
        digest = str(manifest.digest)
        return Candidate(
            digest=digest,
            rev=manifest.rev,
            platform=manifest.platform,
            channel=str(manifest.channel),
            complete=self._version(digest).site is not None,
        )

    def _show_idle(self, live: Instance | None, pause_s: float | None) -> None:
        if live is not None:
            self.row.phase = Phase.IDLE if pause_s is None else Phase.BACKOFF
        elif pause_s is not None:
            self.row.phase = Phase.BACKOFF
        else:
            self.row.phase = Phase.DISABLED if self._offers else Phase.WAITING

    # -- bringing a version up -------------------------------------------------------------------

    async def _bring_up(self, offer: Offer) -> None:
        manifest = offer.manifest
        origin = Origin(self._id, manifest.version, manifest.rev, str(manifest.digest))
        self.row.candidate = origin
        try:
            self.row.phase = Phase.STAGING
            site = await self._site(offer)
            self.row.phase = Phase.LAUNCHING
            async with self._services.starts:
                instance = await self._launch(manifest, origin, site)
            self._cut_over(instance, origin)
        except HostError as error:
            self._fail(origin.digest, error, counts=True)
            self.row.phase = Phase.FAILED
            logger.warning(
                "candidate_failed plugin=%s rev=%s code=%s: %s",
                self._id, origin.rev, error.code, error.message,
                extra={"plugin": self._id, "digest": origin.digest, "code": error.code, "hint": error.hint},
            )
        finally:
            self.row.candidate = None

    async def _site(self, offer: Offer) -> Path:
        version = self._version(str(offer.manifest.digest))
        if version.site is None:
            version.site = await self._services.environments(offer.manifest, offer.layout_path)
        return version.site

    async def _launch(self, manifest: Manifest, origin: Origin, site: Path) -> Instance:
        services = self._services
        number = services.launcher.next_generation()
        spec = services.launcher.spec(manifest, site, number)
        instance = Instance.launch(spec, services.launcher.log(self._id, spec.label), self._on_end)
        self._group.start_soon(instance.watch)
        options = services.launcher.options(self._id)
        try:
            generation = await instance.handshake(origin, number, manifest.types, options)
            if services.deployment.learn_types(self._id, generation.types):
                services.refs_changed()
            await instance.configure(services.deployment.refs_of(self._id), (), options)
            self._check(generation)
        except HostError as error:
            await instance.kill()
            if instance.fault is not None and error.code == "CRASHED":
                raise instance.fault from error
            raise
        except BaseException:
            await instance.kill()
            raise
        return instance

    def _check(self, generation: Generation) -> None:
        """The plan must compile with the candidate; a plan that does not is the package's fault here."""
        try:
            self._services.deployment.check(self._id, generation)
        except InputError as error:
            raise PackageError(
                "INVALID_PACKAGE", f"the plan does not compile with this version: {error.message}", hint=error.hint
            ) from error

    def _cut_over(self, instance: Instance, origin: Origin) -> None:
        generation = instance.generation
        assert generation is not None, "a launched instance is READY"
        self.row.phase = Phase.CUTOVER
        self._services.deployment.cut_over(self._id, generation)
        version = self._version(origin.digest)
        version.failures = became_ready(version.failures, now=self._services.now())
        previous, self._live = self._live, instance
        swapped = previous is not None and previous.generation is not None and (
            previous.generation.origin.digest != origin.digest
        )
        self.row.swaps += swapped
        self.row.live = origin
        self.row.live_generation = generation.number
        self.row.live_pid = generation.pid
        logger.info(
            "cut_over plugin=%s rev=%s generation=%s", self._id, origin.rev, generation.number,
            extra={"plugin": self._id, "digest": origin.digest, "pid": generation.pid},
        )
        self._services.changed("swapped" if swapped else "started", instance.label)
        if previous is not None:
            self._retiring = previous
            self._group.start_soon(self._retire, previous)

    async def _retire(self, instance: Instance) -> None:
        await instance.retire(self._services.drain_s)
        if instance.generation is not None:
            self._services.retired(instance.generation)
        self._retiring = None
        self.wake()

    def _on_end(self, instance: Instance) -> None:
        logger.info("instance_ended plugin=%s", instance.label, extra={"plugin": instance.label})
        self.wake()

    def _fail(self, digest: str, error: HostError, *, counts: bool) -> None:
        services = self._services
        version = self._version(digest)
        now = services.now()
        version.failures, verdict = failed(
            services.backoff, version.failures, now=now, random=services.random(), counts=counts
        )
        version.not_before_s = now + verdict.delay_s if isinstance(verdict, Restart) else math.inf
        self.row.last_error = Failure(error.code, error.message, error.hint, digest)
