"""The routine of one plugin id: select, stage, launch, cut over, retire, and restart what crashed.

One step at a time, so that at most two processes of a plugin exist whatever the order in which versions
and deaths arrive. A step that fails leaves the live generation untouched; what was live comes back before
anything newer is tried again.
"""

import enum
import logging
import math
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import anyio

from hotbay.errors import CapacityError, HostError, InputError, PackageError, PluginFault
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

MAX_SHOWN_CHARS: Final = 4096
"""Of one text for status or the log: parts of it can be a plugin's words."""


class Phase(enum.StrEnum):
    """What the routine is doing; shown in status."""

    LIVE = "live"
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
    at_s: float


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
    linger_s: float
    retired: Callable[[Generation], None]
    changed: Callable[[str, str], None]
    refs_changed: Callable[[], None]


class Routine:
    """Keeps one plugin running. `run` until stopped; `wake` after anything changed; `stop` at the end."""

    def __init__(self, plugin_id: str, services: Services, group: anyio.abc.TaskGroup) -> None:
        self.row = Row(plugin_id)
        self.first_attempt = anyio.Event()
        self._id = plugin_id
        self._services = services
        self._group = group
        self._offers: tuple[Offer, ...] = ()
        self._wake = anyio.Event()
        self._scope = anyio.CancelScope()
        self._stopped = anyio.Event()
        self._live: Instance | None = None
        self._live_offer: Offer | None = None
        self._retiring: Instance | None = None
        self._versions: dict[str, _Version] = {}
        self._bring_back = False
        self._departing: Instance | None = None
        self._conflicts: tuple[str, ...] = ()

    def offer(self, offers: Sequence[Offer]) -> None:
        """Take what the sources have now for this plugin."""
        if tuple(offers) != self._offers:
            self._offers = tuple(offers)
            self.wake()

    def wake(self) -> None:
        """Look again soon."""
        self._wake.set()

    def forgive(self) -> None:
        """Forget all failures: what the plugin is configured with has changed."""
        for version in self._versions.values():
            version.failures = BackoffState()
            version.not_before_s = 0.0
        self.wake()

    @property
    def live(self) -> Instance | None:
        """The instance that answers, or answered last."""
        return self._live

    async def run(self) -> None:
        """Step until `stop`."""
        try:
            with self._scope:
                while True:
                    self._wake = anyio.Event()
                    pause_s = await self._step()
                    with anyio.move_on_after(math.inf if pause_s is None else pause_s):
                        await self._wake.wait()
        finally:
            self._stopped.set()

    async def stop(self) -> None:
        """End `run`, a start that is under way included. What answers goes on answering until `retire`."""
        self._scope.cancel()
        await self._stopped.wait()

    async def retire(self, drain_s: float) -> None:
        """Retire everything that runs, after `stop`."""
        async with anyio.create_task_group() as group:
            for instance in (self._live, self._retiring):
                if instance is not None:
                    group.start_soon(self._retire, instance, drain_s)

    # -- one step --------------------------------------------------------------------------------

    async def _step(self) -> float | None:
        """Do the next thing; return the pause in seconds until there may be another, None for no time limit."""
        live = self._note_death()
        if live is not None and live.wants_replacement:
            self._note_departure(live)
        offer, pause_s = self._choose(live)
        if offer is None:
            self._show_idle(live, pause_s)
            self.first_attempt.set()
            return pause_s
        if live is not None and self._retiring is not None:
            self.row.phase = Phase.RETIRING
            return None
        if live is None:
            await self._bring_up(offer)
        else:
            await self._bring_up_beside(live, offer)
        return 0.0

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

    def _note_departure(self, live: Instance) -> None:
        """Let a plugin that asks to be replaced wait like one that failed, once: it may ask at every start."""
        if self._departing is live:
            return
        self._departing = live
        assert live.generation is not None
        asked = PluginFault("UNAVAILABLE", f"{live.label} asked to be replaced", hint="see the plugin's log")
        self._fail(live.generation.origin.digest, asked, counts=False)

    def _record(self, live: Instance) -> None:
        assert live.generation is not None
        assert live.fault is not None
        outside = live.killed_by == signal.SIGKILL
        self._fail(live.generation.origin.digest, live.fault, counts=not outside)
        self.row.restarts += 1
        self._services.changed("crashed", live.label)

    def _choose(self, live: Instance | None) -> tuple[Offer | None, float | None]:
        """The best offer that may be started now, and the pause until another may be.

        What was live last stays a candidate when no source offers it any more. With nothing live, an older
        version does not step in while what was live last only waits for its restart.
        """
        last = str(self._live_offer.manifest.digest) if self._live_offer is not None else None
        offers = {str(o.manifest.digest): o for o in self._known_offers()}
        candidates = {digest: self._candidate(offer) for digest, offer in offers.items()}
        if live is None and self._bring_back and last is not None and not self._is_disabled(last):
            candidates = {last: candidates[last]}
        pause_s: float | None = None
        while True:
            choice = select(candidates.values(), _policy(), live=candidates.get(last or ""))
            self.row.selection = choice.status
            self._report(choice.conflicts)
            digest = choice.target.digest if choice.target is not None else None
            if digest is None or (live is not None and digest == last and not live.wants_replacement):
                return None, pause_s
            wait_s = self._version(digest).not_before_s - self._services.now()
            if wait_s <= 0.0:
                return offers[digest], pause_s
            if wait_s < math.inf:
                pause_s = wait_s if pause_s is None else min(pause_s, wait_s)
                if digest == last:
                    return None, pause_s
            del candidates[digest]

    def _known_offers(self) -> Iterable[Offer]:
        if self._live_offer is not None:
            yield self._live_offer
        yield from self._offers

    def _is_disabled(self, digest: str) -> bool:
        return self._version(digest).not_before_s == math.inf

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

    def _report(self, conflicts: Sequence[Candidate]) -> None:
        """Say once of each set of conflicting packages that they are never chosen."""
        digests = tuple(sorted(c.digest for c in conflicts))
        if digests == self._conflicts:
            return
        self._conflicts = digests
        if digests:
            message = (
                f"rev {conflicts[0].rev} of {self._id} exists with other content: {', '.join(digests)} is not used"
            )
            hint = "publish changed content under a new rev"
            self.row.last_error = Failure("DIGEST_CONFLICT", message, hint, digests[0], self._services.now())
            logger.warning("digest_conflict plugin=%s: %s", self._id, message)

    def _show_idle(self, live: Instance | None, pause_s: float | None) -> None:
        if pause_s is not None:
            self.row.phase = Phase.BACKOFF
        elif live is not None:
            self.row.phase = Phase.LIVE
        elif any(self._is_disabled(str(o.manifest.digest)) for o in self._known_offers()):
            self.row.phase = Phase.DISABLED
        else:
            self.row.phase = Phase.WAITING
            self.row.last_error = self.row.last_error or self._nothing_to_run()

    def _nothing_to_run(self) -> Failure:
        found = ", ".join(sorted({o.manifest.platform for o in self._offers}))
        return Failure(
            "UNAVAILABLE",
            f"no source offers a package of '{self._id}' that can run here"
            + (f": found {found}, this host is {host_platform()}" if found else ""),
            "put one into a source; it is started as soon as it is there",
            "",
            self._services.now(),
        )

    # -- bringing a version up -------------------------------------------------------------------

    async def _bring_up_beside(self, live: Instance, offer: Offer) -> None:
        """Bring a candidate up, but let go of it when the live instance ends meanwhile: that one comes back first."""
        async with anyio.create_task_group() as group:

            async def give_way() -> None:
                await live.ended.wait()
                self._bring_back = self._live is live
                group.cancel_scope.cancel()

            group.start_soon(give_way)
            await self._bring_up(offer)
            group.cancel_scope.cancel()

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
            self._cut_over(instance, offer, origin)
        except HostError as error:
            self._fail(origin.digest, error, counts=not self._is_no_fault_of_the_package(error))
            self.row.phase = Phase.FAILED
            logger.warning(
                "candidate_failed plugin=%s rev=%s code=%s: %s",
                self._id,
                origin.rev,
                error.code,
                error.message[:MAX_SHOWN_CHARS],
                extra={"plugin": self._id, "digest": origin.digest, "code": error.code, "hint": error.hint},
            )
        finally:
            self.row.candidate = None

    def _is_no_fault_of_the_package(self, error: HostError) -> bool:
        """A full disk, or a source that went away under the copy: tried again for as long as it takes."""
        return self.row.phase is Phase.STAGING and (isinstance(error, CapacityError) or error.code == "FETCH_FAILED")

    async def _site(self, offer: Offer) -> Path:
        """The environment, looked at before every start: the process that went may have changed it."""
        version = self._version(str(offer.manifest.digest))
        version.site = await self._services.environments(offer.manifest, offer.layout_path)
        return version.site

    async def _launch(self, manifest: Manifest, origin: Origin, site: Path) -> Instance:
        services = self._services
        number = services.launcher.next_generation()
        spec = services.launcher.spec(manifest, site, number)
        instance = Instance.launch(spec, services.launcher.log(self._id, spec.label), self._on_change)
        self._group.start_soon(instance.watch)
        options = services.launcher.options(self._id)
        try:
            generation = await instance.handshake(origin, number, manifest.types, options)
            if self._live is None and services.deployment.learn_types(self._id, generation.types):
                services.refs_changed()
            # Again while the configuration changed meanwhile: nothing is awaited from the last look to the cut over.
            while missing := instance.missing(services.deployment.refs_of(self._id)):
                instance.install(await instance.create(missing, options))
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

    def _cut_over(self, instance: Instance, offer: Offer, origin: Origin) -> None:
        generation = instance.generation
        assert generation is not None, "a launched instance is READY"
        self.row.phase = Phase.CUTOVER
        self._services.deployment.cut_over(self._id, generation)
        version = self._version(origin.digest)
        version.failures = became_ready(version.failures, now=self._services.now())
        previous, self._live, self._live_offer = self._live, instance, offer
        self._bring_back = False
        swapped = (
            previous is not None
            and previous.generation is not None
            and (previous.generation.origin.digest != origin.digest)
        )
        if swapped:
            # What was wrong before concerns a version that no longer answers.
            self.row.swaps += 1
            self.row.last_error = None
        self.row.live = origin
        self.row.live_generation = generation.number
        self.row.live_pid = generation.pid
        logger.info(
            "cut_over plugin=%s rev=%s generation=%s",
            self._id,
            origin.rev,
            generation.number,
            extra={"plugin": self._id, "digest": origin.digest, "pid": generation.pid},
        )
        self._services.changed("swapped" if swapped else "started", instance.label)
        if self._services.deployment.learn_types(self._id, generation.types):
            self._services.refs_changed()
        if previous is not None:
            self._retiring = previous
            self._group.start_soon(self._retire, previous, self._services.drain_s)

    async def _retire(self, instance: Instance, drain_s: float) -> None:
        await instance.retire(drain_s)
        if instance.generation is not None:
            # A cycle that outlived the drain may still name it: it is forgotten with the last lease.
            instance.generation.on_drained(partial(self._services.retired, instance.generation))
        if self._retiring is instance:
            self._retiring = None
        self.wake()

    def _on_change(self, instance: Instance) -> None:
        if instance.ended.is_set():
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
        if math.isinf(version.not_before_s):
            logger.error("plugin_disabled plugin=%s digest=%s code=%s", self._id, digest, error.code)
        message, hint = error.message[:MAX_SHOWN_CHARS], error.hint[:MAX_SHOWN_CHARS]
        self.row.last_error = Failure(error.code, message, hint, digest, now)


def _policy() -> Policy:
    return Policy(platforms=(host_platform(),))
