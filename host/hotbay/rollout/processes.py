"""The processes of one routine by the number of their attempt: launched, retired, killed, asked for their state.

Every launch ends in one `Ready` and, when the process is gone, one `Ended`; or in an `Ended` alone. Everything runs
among the tasks that were given; `close` ends what is under way.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
from hotbay_sdk.protocol import ErrorCode

from hotbay.errors import HostError, InputError, PluginFault
from hotbay.packages.manifest import Manifest
from hotbay.packages.package_blobs import Progress
from hotbay.rollout.boundary import Tasks
from hotbay.rollout.declared_kinds import check_data_types
from hotbay.rollout.facts import ungranted
from hotbay.rollout.faults import failure_of
from hotbay.rollout.instance import Instance
from hotbay.rollout.services import Services
from hotbay.rollout.state import AskedToGo, Cause, Ended, Event, Failure, Phase, Ready
from hotbay.rpc.leases import Generation, Origin
from hotbay.store.world.records import Grant

logger = logging.getLogger(__name__)

__all__ = ["Processes"]


class Processes:
    """See the module. All methods are for the loop's thread; `post` takes the events."""

    def __init__(self, name: str, services: Services, tasks: Tasks, post: Callable[[Event], None]) -> None:
        self._name = name
        self._services = services
        self._tasks = tasks
        self._post = post
        self._instances: dict[int, Instance] = {}
        self._launches: dict[int, anyio.CancelScope] = {}
        self._ready: set[int] = set()
        self._asked: set[int] = set()
        self._one_shots: set[int] = set()
        self._inheritance = b""
        self._quiesced: int | None = None
        self._last_failed = False

    def get(self, n: int) -> Instance | None:
        """The process of an attempt, if it is there."""
        return self._instances.get(n)

    @property
    def answering(self) -> tuple[Instance, ...]:
        """All that are READY: live, candidate, previous and spare."""
        return tuple(i for n, i in self._instances.items() if n in self._ready and i.answers)

    @property
    def digests(self) -> Iterator[str]:
        """Of the manifests of all that said HELLO and are there, also on their way out."""
        generations = (instance.generation for instance in self._instances.values())
        return (generation.origin.digest for generation in generations if generation is not None)

    def runs(self, generation: Generation) -> bool:
        """Whether a generation's process is there."""
        return any(instance.generation is generation for instance in self._instances.values())

    def launch(self, n: int, manifest: Manifest, heir_of: int | None) -> None:
        """Start a process of a package whose environment is there."""
        if manifest.one_shot:
            self._one_shots.add(n)
        scope = self._launches[n] = anyio.CancelScope()
        self._tasks.start_soon(self._launch, n, manifest, heir_of, scope)

    def retire(self, n: int) -> None:
        """Let a process end its leases and go."""
        self._stop(n, self._retire)

    def kill(self, n: int) -> None:
        """End a process, or its start."""
        self._stop(n, self._kill)

    def hand_over(self, n: int) -> None:
        """Hold calls back, take the process's state, and retire it."""
        instance = self._instances.get(n)
        if instance is not None and instance.generation is not None:
            self._quiesced = instance.generation.number
            self._services.measures.quiesce(self._quiesced, within_s=self._services.drain_s + HANDOVER_START_S)
        self._stop(n, self._hand_over)

    def release(self) -> None:
        """Let calls go on that a hand-over held back."""
        if self._quiesced is not None:
            self._services.measures.resume(self._quiesced)
            self._quiesced = None

    async def close(self, drain_s: float) -> None:
        """Retire everything, and wait until it is gone. Nothing is posted any more."""
        self._post = lambda _event: None
        for scope in self._launches.values():
            scope.cancel()
        async with anyio.create_task_group() as group:
            for instance in tuple(self._instances.values()):
                group.start_soon(self._see_off, instance, drain_s)

    async def _see_off(self, instance: Instance, drain_s: float) -> None:
        """Retire a process whatever happens: that one cannot be let go in good order keeps no other from it."""
        try:
            await self._retire(instance, drain_s)
        except Exception:
            logger.exception("retire_broke plugin=%s", instance.label, extra={"plugin": instance.label})
            await instance.child.stop(instance.spec.grace_s)

    # -- inside ----------------------------------------------------------------------------------

    def _stop(self, n: int, stop: Callable[[Instance, float], Coroutine[object, object, None]]) -> None:
        scope = self._launches.get(n)
        if scope is not None:
            scope.cancel()
        else:
            self._tasks.start_soon(stop, self._instances[n], self._services.drain_s)

    async def _launch(self, n: int, manifest: Manifest, heir_of: int | None, scope: anyio.CancelScope) -> None:
        failure: Failure | None = None
        with scope:
            try:
                site = await self._services.fetcher.fetch(self._services.ref(manifest.digest), report=_unheard)
                async with self._services.starts:
                    instance = await self._bring_up(n, manifest, site, heir_of)
                del self._launches[n]
                self._ready.add(n)
                self._last_failed = False
                self._post(Ready(n))
                if instance.wants_replacement:
                    self._on_leaving(n, instance)
                return
            except HostError as error:
                ended = self._instances.get(n)
                killed_by = ended.killed_by if ended is not None else None
                failure = failure_of(error, Phase.LAUNCHING, chance=self._services.random(), killed_by=killed_by)
        self._last_failed = failure is not None
        self._launches.pop(n, None)
        self._instances.pop(n, None)
        self._post(Ended(n, failure))

    @property
    def _gives_way(self) -> bool:
        """Whether a start is of no hurry: something answers already, or it failed before and others serve meanwhile."""
        return self._last_failed or bool(self.answering)

    async def _bring_up(self, n: int, manifest: Manifest, site: Path, heir_of: int | None) -> Instance:
        services, number = self._services, self._services.launcher.next_generation()
        spec = services.launcher.spec(self._name, manifest, site, number)
        origin = Origin(self._name, manifest.version, manifest.rev, str(manifest.digest))
        lacking = ungranted(manifest, services.settings(self._name), services.world.view.get(Grant, manifest.id))
        granted = [name for name in manifest.capabilities if name not in lacking]
        lend = partial(services.lend, self._name, spec.label, granted)
        log = services.launcher.log(self._name, spec.label, manifest.rev)
        instance = Instance.launch(spec, log, partial(self._on_change, n), lend)
        self._instances[n] = instance
        self._tasks.start_soon(instance.watch)
        options = services.launcher.options(self._name)
        if options.gives_way and self._gives_way:
            instance.child.give_way()
        try:
            generation = await instance.handshake(
                origin, number, manifest.types, options, partial(self._inherit, heir_of)
            )
            check_data_types(instance.label, manifest, generation.types)
            if services.deployment.live(self._name) is None and services.deployment.learn_types(
                self._name, generation.types
            ):
                services.refs_changed()
            # Again while the configuration changed meanwhile: nothing is awaited from the last look on.
            while missing := instance.missing(services.deployment.refs_of(self._name)):
                created = await instance.create(missing, options)
                instance.install(created)
                # What they consume is known now: who makes it may be a ref of this process or of another.
                if services.deployment.live(self._name) is None and services.deployment.learn_facts(
                    self._name, created
                ):
                    services.refs_changed()
            self._check(generation)
            instance.child.take_part()
            if not instance.answers:
                raise instance.fault or PluginFault("CRASHED", f"{instance.label} ended")
            # A stop that comes while the last answer is on its way to this task would find nothing more to interrupt.
            await anyio.lowlevel.checkpoint_if_cancelled()
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
        """The plan must compile with the candidate."""
        try:
            self._services.deployment.check(self._name, generation)
        except InputError as error:
            raise PluginFault(
                "INVALID_PACKAGE", f"the plan does not compile with this version: {error.message}", hint=error.hint
            ) from error

    async def _inherit(self, heir_of: int | None) -> bytes:
        """The state of the process that is live, or of the one that handed over."""
        if self._inheritance:
            state, self._inheritance = self._inheritance, b""
            return state
        heir = self._instances.get(heir_of) if heir_of is not None else None
        if heir is None or not heir.has_state or not heir.answers:
            return b""
        return await heir.export_state(self._services.launcher.options(self._name))

    def _on_change(self, n: int, instance: Instance) -> None:
        if not instance.ended.is_set():
            self._on_leaving(n, instance)
            return
        logger.info("instance_ended plugin=%s", instance.label, extra={"plugin": instance.label})
        if n not in self._ready:
            return
        self._ready.discard(n)
        del self._instances[n]
        if self._services.deployment.live(self._name) is not instance.generation:
            self._forget(instance)
        failure = None
        finished = self._has_finished(n, instance)
        if not instance.asked_to_stop and not finished:
            assert instance.fault is not None, "a process that went by itself has a fault"
            failure = failure_of(
                instance.fault, Phase.IDLE, chance=self._services.random(), killed_by=instance.killed_by
            )
        self._post(Ended(n, failure, finished))

    def _has_finished(self, n: int, instance: Instance) -> bool:
        """Whether a process went by itself, with exit code 0, as its package is meant to."""
        fault, exit_status = instance.fault, instance.child.exit
        by_itself = not instance.asked_to_stop and fault is not None and fault.code == ErrorCode.CRASHED
        return by_itself and n in self._one_shots and exit_status is not None and exit_status.code == 0

    def _on_leaving(self, n: int, instance: Instance) -> None:
        if n in self._ready and n not in self._asked:
            self._asked.add(n)
            message = f"{instance.label} asked to be replaced"
            failure = Failure(Cause.OUTSIDE, "UNAVAILABLE", message, "see the plugin's log", self._services.random())
            self._post(AskedToGo(n, failure))

    async def _retire(self, instance: Instance, drain_s: float) -> None:
        if instance.generation is not None:
            instance.generation.leave()
        await instance.retire(drain_s)
        self._forget(instance)

    async def _kill(self, instance: Instance, _drain_s: float) -> None:
        await instance.kill()
        self._forget(instance)

    async def _hand_over(self, instance: Instance, drain_s: float) -> None:
        if instance.has_state and instance.answers:
            try:
                self._inheritance = await instance.export_state(self._services.launcher.options(self._name))
            except HostError as error:
                logger.warning("starts_cold plugin=%s code=%s: %s", instance.label, error.code, error.message)
        await self._retire(instance, drain_s)

    def _forget(self, instance: Instance) -> None:
        if instance.generation is not None:
            # A cycle that outlived the drain may still name it: it is forgotten with the last lease.
            instance.generation.on_drained(partial(self._services.retired, instance.generation))


HANDOVER_START_S: Final = 10.0
"""What calls that are held back wait for the start of the new version, beside the old one's drain."""


def _unheard(_progress: Progress) -> None:
    """A package that is complete is only looked at."""
