"""The routine of one plugin, or of one instance key of it: carries out what its machine decides.

Everything happens in `post`, on the loop and at once: the machine's step, and the begin of its effects. What takes
time runs in the group and posts an event at its end. A cut over is carried out within the step that decided it, and
answered before anything else. What the world is to remember is written in the order in which it was decided.

What raises here is a fault of the host's own code. It is contained: the routine takes its plugin out of the plan, retires
its processes, pauses, and begins anew with what it knew of failures; neither the host nor another routine ends.
"""

import enum
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import anyio.abc

from hotbay.errors import HostError, InputError, PackageError
from hotbay.packages.package_blobs import Progress
from hotbay.rollout.backoff import BackoffState, Restart, became_ready, failed
from hotbay.rollout.boundary import Tasks
from hotbay.rollout.choice import choose
from hotbay.rollout.effects import (
    Cancel,
    Condemn,
    CutOver,
    Effect,
    EndTrial,
    Failed,
    Fetch,
    HandOver,
    Kill,
    Launch,
    Record,
    Release,
    Retire,
    Stage,
    Trial,
)
from hotbay.rollout.facts import plugin_of
from hotbay.rollout.faults import failure_of
from hotbay.rollout.instance import Instance
from hotbay.rollout.machine import step
from hotbay.rollout.memory import Memory
from hotbay.rollout.processes import Processes
from hotbay.rollout.reporting import Reporter
from hotbay.rollout.rows import Row
from hotbay.rollout.services import Services
from hotbay.rollout.state import (
    Broke,
    Build,
    Cause,
    Event,
    Failure,
    Fetched,
    Forgive,
    GoTo,
    Known,
    Life,
    Pause,
    Phase,
    Published,
    Refused,
    Resume,
    Staged,
    State,
    Tick,
)
from hotbay.rollout.trying import Trials
from hotbay.rollout.turn import RESTING
from hotbay.rpc.leases import Generation
from hotbay.store.world.records import Completion

logger = logging.getLogger(__name__)

__all__ = ["Routine"]

_ON_TRIAL = (Phase.SHADOW, Phase.CANARY)
_STILL_MEANT = (Forgive, GoTo, Pause, Resume)
"""Events that say what the operator wants: they hold for a routine that begins anew, too."""


class _Mode(enum.Enum):
    """Whether events are taken: BROKEN until the routine begins anew, STOPPED for good."""

    RUNNING = enum.auto()
    BROKEN = enum.auto()
    STOPPED = enum.auto()


class Routine:
    """See the module. `run` until stopped; `post` what happens; `stop` and `retire` at the end.

    `paused`: it begins as after a `Pause`.
    """

    def __init__(self, name: str, services: Services, group: anyio.abc.TaskGroup, *, paused: bool = False) -> None:
        self.state = State(paused=paused)
        self.row = Row(name)
        self.first_attempt = anyio.Event()
        self._name = name
        self._services = services
        self._tasks = Tasks(group, self._break)
        self._processes = Processes(name, services, self._tasks, self.post)
        self._trials = Trials(self.row, services, self._tasks, self.post)
        self._reporter = Reporter(self.row, services)
        self._memory = Memory(name, services)
        self._queue: deque[Event] = deque()
        self._is_stepping = False
        self._mode = _Mode.RUNNING
        self._backoff = BackoffState()
        self._work: dict[int, anyio.CancelScope] = {}
        self._scope = anyio.CancelScope()
        self._life = anyio.CancelScope()
        self._rung = anyio.Event()
        self._stopped = anyio.Event()
        self._empty = anyio.Event()

    # -- events ----------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Take an event. When called while a step is under way, it is taken right after it."""
        self._queue.append(event)
        if self._is_stepping or self._mode is not _Mode.RUNNING:
            return
        self._is_stepping = True
        try:
            self._contain(self._take_all)
        finally:
            self._is_stepping = False
        self._rung.set()
        self._contain(partial(self._services.settled, self._name))

    async def obey(self, command: Event) -> None:
        """Post what the operator wants, and return when all that it decided at once is in the world.

        Raises `HostError` where that could not be written yet: it is done all the same, and written when it can be.
        """
        before = self._memory.asked
        self.post(command)
        asked = self._memory.asked
        if asked > before:
            await self._memory.written(asked)

    @property
    def unrecorded(self) -> HostError | None:
        """Why the world does not take what was decided; None as long as it does. It is tried again."""
        return self._memory.failure

    def _take_all(self) -> None:
        while self._queue:
            self._step(self._queue.popleft())

    def learn(self) -> None:
        """Take the facts as they are now."""
        self._contain(lambda: self.post(Known(self._services.facts(self._name))))

    def _step(self, event: Event) -> None:
        before, now = self.state, self._services.now()
        self.state, effects = step(before, event, now)
        for effect in effects:
            self._carry_out(effect)
        self._keep_warm()
        if self.state.processes == 0 and self._stays_down():
            self._forget_dead()
        self._reporter.show(before, self.state, self._processes, now)
        if (before.phase in _ON_TRIAL) != (self.state.phase in _ON_TRIAL):
            self._services.on_trial(self._name, self.state.phase in _ON_TRIAL)
        is_downloading = self.state.phase is Phase.FETCHING and self.state.facts.runs
        # With something live, what comes next is no part of it: a trial wants requests, which come when the host is ready.
        if self.state.live is not None or (self.state.phase in RESTING and not is_downloading):
            self.first_attempt.set()
        if self.state.processes == 0:
            self._empty.set()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Fetch(n, build):
                self._begin(n, partial(self._fetch, n, build))
            case Stage(n, build):
                self._begin(n, partial(self._stage, n, build))
            case Cancel(n):
                if n in self._work:
                    self._work[n].cancel()
            case CutOver(n):
                self._queue.appendleft(self._cut_over(n))
            case Condemn() | Record():
                self._memory.write(effect, self._generation(effect))
            case Failed():
                self._reporter.failed(effect)
            case Trial() | EndTrial():
                self._move_trial(effect)
            case Launch() | HandOver() | Release() | Retire() | Kill():
                self._move_process(effect)

    def _move_trial(self, effect: Trial | EndTrial) -> None:
        if isinstance(effect, Trial):
            self._begin_trial(effect.n, effect.phase)
        else:
            self._trials.end()

    def _move_process(self, effect: Launch | HandOver | Release | Retire | Kill) -> None:
        processes = self._processes
        match effect:
            case Launch(n, build, heir_of):
                processes.launch(n, self._services.manifest(build.digest), heir_of)
            case HandOver(n):
                processes.hand_over(n)
            case Release():
                processes.release()
            case Retire(n):
                self._leave_plan(n)
                processes.retire(n)
            case Kill(n):
                self._leave_plan(n)
                processes.kill(n)

    # -- downloads and checks --------------------------------------------------------------------

    def _begin(self, n: int, work: Callable[[], Awaitable[Event]]) -> None:
        scope = self._work[n] = anyio.CancelScope()
        self._tasks.start_soon(self._do, n, work, scope)

    async def _do(self, n: int, work: Callable[[], Awaitable[Event]], scope: anyio.CancelScope) -> None:
        event: Event | None = None
        try:
            with scope:
                event = await work()
        except Exception as error:
            # The boundary around one download: what answers now is not to pay for a defect in it.
            logger.exception("download_raised plugin=%s", self._name)
            chance = self._services.random()
            event = Broke(n, Failure(Cause.CAPACITY, "INTERNAL", f"{type(error).__name__}: {error}"[:400], "", chance))
        finally:
            del self._work[n]
        if event is not None:
            self.post(event)

    async def _fetch(self, n: int, build: Build) -> Event:
        try:
            await self._site(build)
        except HostError as error:
            return Broke(n, failure_of(error, Phase.FETCHING, chance=self._services.random()))
        self.learn()
        return Fetched(n)

    async def _stage(self, n: int, build: Build) -> Event:
        try:
            await self._site(build)
        except HostError as error:
            return Broke(n, failure_of(error, Phase.STAGING, chance=self._services.random()))
        return Staged(n)

    async def _site(self, build: Build) -> Path:
        return await self._services.fetcher.fetch(self._services.ref(build.digest), report=self._note_progress)

    def _note_progress(self, progress: Progress) -> None:
        self.row.progress = None if progress.phase == "complete" else progress

    # -- trials ----------------------------------------------------------------------------------

    def _begin_trial(self, n: int, phase: Phase) -> None:
        state = self.state
        other = state.previous if phase is Phase.GUARD else state.live
        candidate, live = self._generation_of(n), self._generation_of(other.n) if other is not None else None
        assert candidate is not None, "what is on trial is READY"
        self._trials.begin(n, phase, candidate, live)

    # -- processes -------------------------------------------------------------------------------

    def _cut_over(self, n: int) -> Event:
        instance, deployment = self._processes.get(n), self._services.deployment
        generation = instance.generation if instance is not None else None
        if instance is None or generation is None:
            return Refused(n, Failure(Cause.OUTSIDE, "CRASHED", "it ended at the cut over"))
        try:
            previous = deployment.cut_over(self._name, generation)
        except InputError as error:
            return Refused(n, failure_of(self._no_plan(error), Phase.CUTOVER, chance=self._services.random()))
        self._processes.release()
        self._reporter.cut_over(self.state, generation)
        if previous is not None and not self._processes.runs(previous):
            previous.on_drained(partial(self._services.retired, previous))
        types_differ = deployment.learn_types(self._name, generation.types)
        if deployment.learn_facts(self._name, instance.refs) or types_differ:
            self._services.refs_changed()
        return Published(n)

    def _no_plan(self, error: InputError) -> HostError:
        return PackageError(
            "INVALID_PACKAGE", f"the plan does not compile with this version: {error.message}", hint=error.hint
        )

    def _leave_plan(self, n: int) -> None:
        """What goes and has no successor is in the plan no more: its bindings apply their failure policies."""
        instance, deployment = self._processes.get(n), self._services.deployment
        live = deployment.live(self._name)
        if live is not None and instance is not None and live is instance.generation:
            deployment.remove(self._name)

    def _stays_down(self) -> bool:
        """Whether what is gone is not to come back: until then its calls say how it ended."""
        return not self.state.facts.runs or self.state.last in self.state.finished

    def _forget_dead(self) -> None:
        """What was live and has no process any more is in no plan, and counted no more."""
        deployment = self._services.deployment
        dead = deployment.live(self._name)
        if dead is not None and not self._processes.runs(dead):
            deployment.remove(self._name)
            dead.on_drained(partial(self._services.retired, dead))

    def _keep_warm(self) -> None:
        """Let what stands beside the live one hear what it is told, and the other way round."""
        others = (self.state.candidate, self.state.previous, self.state.spare)
        ready = [self._processes.get(a.n) for a in others if a is not None and a.life is Life.READY]
        generations = [i.generation for i in ready if i is not None and i.generation is not None]
        self._services.deployment.warm(self._name, generations)

    def _generation_of(self, n: int) -> Generation | None:
        instance = self._processes.get(n)
        return instance.generation if instance is not None else None

    def _generation(self, effect: Condemn | Record) -> int:
        generation = self._generation_of(effect.n) if isinstance(effect, Record) else None
        return generation.number if generation is not None else 0

    @property
    def instances(self) -> tuple[Instance, ...]:
        """All processes that are READY and answer: live, candidate, previous, spare."""
        return self._processes.answering

    @property
    def digests(self) -> Iterator[str]:
        """Of what its processes run and of what it tries or fetches; as long as they are complete, also of what ran last,
        and of what is to be run and waits: for the operator, for the end of a pause, or for others.
        """
        state, known = self.state, self._services.world.view.of(plugin_of(self._name))
        yield from self._processes.digests
        for attempt in (state.live, state.candidate, state.previous, state.spare, state.fetch):
            if attempt is not None:
                yield attempt.build.digest
        choice = choose(state, self._services.now())
        others = [build.digest for build in (state.last, state.before, choice.start) if build is not None]
        others += [choice.selection.live.digest] if choice.selection.live is not None else []
        for digest in (*others, state.facts.last or ""):
            if known.get(Completion, digest) is not None:
                yield digest

    @property
    def live(self) -> Instance | None:
        """The process that gets the calls."""
        return self._processes.get(self.state.live.n) if self.state.live is not None else None

    # -- running ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Learn, and keep the time, until `stop`; begin anew whenever something broke."""
        try:
            with self._scope:
                while True:
                    await self._live_on()
                    await self._begin_anew()
        finally:
            self._stopped.set()

    async def _live_on(self) -> None:
        """Return when something broke."""
        with self._life:
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(self._memory.run)
                    self.learn()
                    await self._keep_time()
            except Exception as error:  # noqa: BLE001 - the boundary around one routine: see the module
                self._break(error)

    async def _keep_time(self) -> None:
        while True:
            self._rung = anyio.Event()
            stale_at_s, tick_at_s = self.state.facts.stale_at_s, self.state.wake_at_s
            wake_at_s = min((at for at in (stale_at_s, tick_at_s) if at is not None), default=math.inf)
            with anyio.move_on_after(max(0.0, wake_at_s - self._services.now())):
                await self._rung.wait()
                continue
            if wake_at_s == stale_at_s:
                self.learn()
            if wake_at_s == tick_at_s:
                self.post(Tick())

    async def emptied(self) -> None:
        """Return when no process is left."""
        while self.state.processes:
            self._empty = anyio.Event()
            await self._empty.wait()

    async def stop(self) -> None:
        """End `run` and all that is under way. What answers goes on answering until `retire`."""
        self._mode = _Mode.STOPPED
        self._trials.stop()
        self._cancel_work()
        self._scope.cancel()
        await self._stopped.wait()

    async def retire(self, drain_s: float) -> None:
        """Retire everything that runs, after `stop`."""
        await self._processes.close(drain_s)

    def _cancel_work(self) -> None:
        for scope in self._work.values():
            scope.cancel()

    # -- what breaks -----------------------------------------------------------------------------

    def _contain(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the boundary around one routine: see the module
            self._break(error)

    def _break(self, error: Exception) -> None:
        """Something of this routine raised: take no event any more, until it begins anew."""
        logger.error("routine_broke plugin=%s", self._name, exc_info=error, extra={"plugin": self._name})
        if self._mode is not _Mode.RUNNING:
            return
        self._mode = _Mode.BROKEN
        self._reporter.broke(error)
        self.first_attempt.set()
        self._life.cancel()

    async def _begin_anew(self) -> None:
        """Retire what runs, pause, and start over. Nothing of the old life is left when the new one begins."""
        for part in (self._trials.end, self._cancel_work, self._leave, self._processes.release):
            self._contain(part)
        await self._processes.close(self._services.drain_s)
        await self._tasks.idle()
        before, now = self.state, self._services.now()
        policy = before.facts.rules.backoff
        # It counts to no budget: the package is not to blame.
        self._backoff, verdict = failed(policy, self._backoff, now=now, random=self._services.random(), counts=False)
        assert isinstance(verdict, Restart), "what counts to no budget disables nothing"
        self.state = _remembered(before, now + verdict.delay_s)
        self._empty.set()
        self._reporter.pausing(now + verdict.delay_s)
        self._contain(partial(self._services.settled, self._name))
        await anyio.sleep(verdict.delay_s)
        self._backoff = became_ready(self._backoff, now=self._services.now())
        self._processes = Processes(self._name, self._services, self._tasks, self.post)
        self._life = anyio.CancelScope()
        wished = [event for event in self._queue if isinstance(event, _STILL_MEANT)]
        self._queue.clear()
        self._mode = _Mode.RUNNING
        for event in wished:
            self.post(event)

    def _leave(self) -> None:
        """Nothing of the plugin is in the plan any more, and nothing of it on trial."""
        deployment = self._services.deployment
        deployment.warm(self._name, ())
        self._forget_dead()
        deployment.remove(self._name)
        self._services.on_trial(self._name, False)


def _remembered(state: State, wake_at_s: float) -> State:
    """What a routine that begins anew still knows: failures, the operator's wishes, and what was live last."""
    return State(
        phase=Phase.BACKOFF,
        facts=state.facts,
        holds=state.holds,
        condemned=state.condemned,
        attempts=state.attempts,
        last=state.last,
        paused=state.paused,
        approved=state.approved,
        direct=state.direct,
        asked_by=state.asked_by,
        wake_at_s=wake_at_s,
    )
