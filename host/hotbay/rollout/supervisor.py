"""The only owner of instances: one routine per needed plugin and instance key, configuration reloads, shutdown.

Invariants: routines exist for what the configuration needs, and for a linger time after; the same name is not started
again before what ran under it is gone; a configuration that cannot be put in force changes nothing; no plugin process
is left when `shutdown` returns. At most one candidate of all is on trial: requests are shared by one rule at a time.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio
import anyio.abc

from hotbay.config.picker_config import PickerConfig
from hotbay.errors import InputError, Problem
from hotbay.observe.background import Background
from hotbay.rollout.adoption import Adoption
from hotbay.rollout.catalog import Catalog
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.facts import facts_of, plugin_of
from hotbay.rollout.instance import Instance
from hotbay.rollout.refs import RefSpec
from hotbay.rollout.resolution import NO_KEYS, Allowance, Scheduling, resolve
from hotbay.rollout.routine import Routine
from hotbay.rollout.rows import Row
from hotbay.rollout.services import Services
from hotbay.rollout.sleepers import Sleepers
from hotbay.rollout.state import Facts, Forgive, Pause, Resume
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.registry import TypeIndex
from hotbay.store.digests import Digest
from hotbay.store.world.engine import World
from hotbay.store.world.records import Locked

logger = logging.getLogger(__name__)

__all__ = ["Supervisor", "Wanted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A scheduling configuration as the operator wrote it. `keys` gives refs an instance of their own."""

    config: PickerConfig
    options: Mapping[str, BindingOptions]
    ranking: Mapping[str, str]
    keys: Mapping[str, str] = field(default_factory=lambda: NO_KEYS)
    allowance: Allowance | None = None


class Supervisor:
    """See the module. Lives in one task group; all methods are for the loop's thread.

    `catalog` has read the world. `sources` names the sources that are open; `problems` is what is wrong with them.
    """

    def __init__(
        self,
        world: World,
        catalog: Catalog,
        deployment: Deployment,
        services: Callable[["Supervisor"], Services],
        group: anyio.abc.TaskGroup,
        *,
        ranking: Mapping[str, str],
        sources: Collection[str],
        problems: Callable[[], Sequence[Problem]] = tuple,
        background: Background | None = None,
    ) -> None:
        self.catalog = catalog
        self.deployment = deployment
        self.world = world
        self._ranking = ranking
        self._sources = sources
        self._problems = problems
        self._routines: dict[str, Routine] = {}
        self._services = services(self)
        self._group = group
        self._background = background or Background()
        self._followed: int | None = None
        self._adoption = Adoption(
            deployment, self._services.launcher, group, self._answering, drain_s=self._services.drain_s
        )
        self._sleepers = Sleepers(self._services, lambda: self._routines.items())
        self._releasing: dict[str, anyio.CancelScope] = {}
        self._unwanted: set[str] = set()
        self._on_trial: str | None = None
        self._common: tuple[TypeIndex, bool] | None = None
        self._frozen: set[str] | None = None
        self._closing = False

    # -- status ----------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[Row, ...]:
        """Status of every plugin that the configuration needs."""
        return tuple(routine.row for routine in self._routines.values())

    @property
    def routines(self) -> Mapping[str, Routine]:
        """By name: a plugin id, or `id/key`."""
        return self._routines

    @property
    def services(self) -> Services:
        """What the routines share."""
        return self._services

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Generations that answer now."""
        return tuple(instance.generation for _, instance in self._answering() if instance.generation is not None)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What the sources cannot offer and the world does not take, and why."""
        refused = [routine.unrecorded for routine in self._routines.values()]
        unrecorded = dict.fromkeys(Problem(e.code, e.message, hint=e.hint) for e in refused if e is not None)
        found = tuple(self._problems())
        # A source that cannot record what it shows says the same.
        return (*found, *(problem for problem in unrecorded if problem not in found))

    @property
    def is_frozen(self) -> bool:
        """A successor is taking over: what is decided here now would not outlast it."""
        return self._frozen is not None

    # -- running ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin with what the world holds; routines, and the watch of the world, run in the group."""
        self._ensure_routines()
        keep = self._background.keep
        self._group.start_soon(keep, "world", self._follow_world)
        self._group.start_soon(keep, "idle plugins", partial(self._sleepers.run, self._fell_asleep))

    async def first_attempts(self) -> None:
        """Return when every needed plugin is READY, or cannot become so for now."""
        await self._attempted(lambda: self.deployment.wanted)

    async def _attempted(self, needed: Callable[[], Sequence[str]]) -> None:
        for _ in range(MAX_DEFAULT_ROUNDS):
            before = needed()
            for name in before:
                if name in self._routines:
                    await self._routines[name].first_attempt.wait()
            if needed() == before:
                return

    async def complete(self) -> None:
        """Make the refs that processes lack and publish the plan of what is live, even of nothing.

        What refs say of themselves when they are made may need packages that nothing needed before.
        Raises `InputError` when the plan does not compile.
        """
        before = self.deployment.wanted
        await self._adoption.complete()
        if self.deployment.wanted != before and not self._closing:
            self.refs_changed()

    def freeze(self) -> None:
        """Pause every rollout until `thaw`, also of plugins that are needed only later.

        What `Pause` lets through goes on: what dies comes back, and a plugin that has nothing live is started. May be
        called again.
        """
        if self._frozen is not None:
            return
        self._frozen = set()
        for name, routine in self._routines.items():
            if not routine.row.paused:
                self._frozen.add(name)
                routine.post(Pause())

    def thaw(self) -> None:
        """Take back what `freeze` did; what the operator had paused before stays so."""
        frozen, self._frozen = self._frozen, None
        for name in frozen or ():
            if name in self._routines:
                self._routines[name].post(Resume())

    async def shutdown(self, drain_s: float) -> None:
        """Retire all instances side by side; nothing is started any more."""
        self._closing = True
        async with anyio.create_task_group() as group:
            for routine in self._routines.values():
                group.start_soon(self._end, routine, drain_s)

    async def _end(self, routine: Routine, drain_s: float) -> None:
        await routine.stop()
        await routine.retire(drain_s)

    async def _follow_world(self) -> None:
        if self._followed is not None:
            # It broke: what of the last change came to nobody is not known.
            self.look()
        while True:
            self._followed = self.catalog.revision
            await self.world.changed(self._followed)
            self.follow()

    def look(self) -> None:
        """Take the world and the configuration as they are now, for every routine."""
        self.follow()
        self._ensure_routines()
        for routine in tuple(self._routines.values()):
            routine.learn()

    def follow(self) -> None:
        """Take the world as it is now. Routines learn of it that it concerns; a host may know thousands of packages."""
        known = set(self._routines)
        changed = self.catalog.read(self.world.view, in_use=self.in_use)
        index = self.index(None)
        # Default producers come and go with the index; a lock in force leaves out what it does not name.
        common = (index, bool(self.world.view.all(Locked)))
        concerns_all, self._common = common != self._common, common
        if concerns_all:
            self.deployment.reindex(index)
            self._ensure_routines()
        for name in known & self._routines.keys():
            if concerns_all or plugin_of(name) in changed:
                self._routines[name].learn()

    def in_use(self) -> frozenset[Digest]:
        """Digests of manifests that run, also on their way out, are being tried or fetched, or ran last."""
        return frozenset(Digest(found) for routine in self._routines.values() for found in routine.digests)

    def _ensure_routines(self) -> None:
        if self._closing:
            return
        for name in self.deployment.wanted:
            if name in self._unwanted:
                self._unwanted.discard(name)
                self._releasing[name].cancel()
                self._routines[name].learn()
            elif name not in self._routines:
                routine = self._routines[name] = Routine(
                    name, self._services, self._group, paused=self._frozen is not None
                )
                if self._frozen is not None:
                    self._frozen.add(name)
                self._group.start_soon(routine.run)
        self._sleepers.show()

    def refs_changed(self) -> None:
        """Default producers come or go: the packages of those that come are needed too, and live processes lack their refs."""
        self._ensure_routines()
        self._release_unneeded()
        for routine in tuple(self._routines.values()):
            routine.learn()
        self._group.start_soon(self._complete_live)

    async def _complete_live(self) -> None:
        try:
            await self.complete()
        except InputError as error:
            logger.warning("plan_refused code=%s: %s", error.code, error)

    def index(self, ranking: Mapping[str, str] | None) -> TypeIndex:
        """Index of the types that the world knows now; `ranking` None keeps the one in force."""
        return self.catalog.index(self._ranking if ranking is None else ranking)

    def _answering(self) -> Iterator[tuple[str, Instance]]:
        for name, routine in self._routines.items():
            for instance in routine.instances:
                yield name, instance

    # -- what routines ask -----------------------------------------------------------------------

    def facts(self, name: str) -> Facts:
        """The facts of one routine at this moment."""
        return facts_of(
            self.world.view,
            name,
            self._services.settings(name),
            self.catalog.manifests,
            sources=self._sources,
            wall_s=self._services.wall(),
            now_s=self._services.now(),
            launch=self.deployment.restart_key(name),
            wanted=name not in self._unwanted,
            asleep=self._sleepers.is_asleep(name),
            blocked=self._on_trial not in (None, name),
        )

    def on_trial(self, name: str, begins: bool) -> None:
        """A shadow or canary begins or ends: the others wait for its end."""
        if not begins and self._on_trial != name:
            return
        self._on_trial = name if begins else None
        for other, routine in tuple(self._routines.items()):
            if other != name:
                routine.learn()

    def settled(self, name: str) -> None:
        """A routine did something."""
        if self._services.settings(name).first_use:
            self._sleepers.show()

    def wake(self, name: str) -> None:
        """A request needs a plugin that sleeps."""
        if self._sleepers.wake(name) and name in self._routines:
            self._routines[name].learn()

    def _fell_asleep(self, name: str) -> None:
        self._routines[name].learn()

    # -- reload ----------------------------------------------------------------------------------

    async def adopt(self, wanted: Wanted, *, in_force: Callable[[], None] = lambda: None) -> None:
        """Put another scheduling configuration in force, or raise `HostError` with nothing changed.

        Packages that only it needs get their first attempt and refs that are new or differ are created in the
        processes first; then the plan is published in one assignment, and `in_force` called in the same step. What is
        no longer used goes later. Calls may overlap: one that still waits makes way for a newer one, and raises
        `ReplacedError`.
        """
        deployment = self.deployment
        scheduling = resolve(
            wanted.config,
            self.index(wanted.ranking),
            wanted.options,
            keys=wanted.keys,
            unusable=self._problems(),
            asked=self._sources,
            allowance=wanted.allowance,
        )
        deployment.incoming = scheduling
        try:
            before = await self._put_in_force(scheduling, wanted.ranking, in_force)
        finally:
            if deployment.incoming is scheduling:
                deployment.incoming = None
            self._ensure_routines()
            self._release_unneeded()
        for name, routine in self._routines.items():
            if deployment.refs_of(name, scheduling) != before.get(name, ()):
                routine.post(Forgive())
            routine.learn()
        self._adoption.drop_unused()

    async def _put_in_force(
        self, scheduling: Scheduling, ranking: Mapping[str, str], in_force: Callable[[], None]
    ) -> Mapping[str, tuple[RefSpec, ...]]:
        """See `adopt`; return the refs that were in force before, by routine.

        Refs say what they need when they are made: packages that are needed only then are waited for as well, and all is
        made once more.
        """
        deployment = self.deployment

        def missing() -> tuple[str, ...]:
            return self._unattempted(deployment.needed_by(scheduling))

        for rest in reversed(range(MAX_DEFAULT_ROUNDS)):
            self._ensure_routines()
            # Not under the lock: a download takes as long as it takes, and a newer configuration may need none.
            turn = await self._adoption.wait(lambda: self._attempted(lambda: deployment.needed_by(scheduling)), missing)
            async with self._adoption.lock:
                self._adoption.check_newest(turn)
                before = {name: deployment.refs_of(name, deployment.scheduling) for name in self._routines}
                lacks = partial(_is_left, rest, missing)
                if await self._adoption.put_in_force(scheduling, self.index(ranking), lacks=lacks):
                    self._ranking = ranking
                    in_force()
                    return before
            self._adoption.check_newest(turn, missing)
        raise AssertionError("the last round puts in force what there is")

    def _unattempted(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those that had no first attempt yet."""
        found = ((name, self._routines.get(name)) for name in names)
        return tuple(name for name, routine in found if routine is None or not routine.first_attempt.is_set())

    def _release_unneeded(self) -> None:
        for name in self._routines:
            if name not in self.deployment.wanted and name not in self._releasing:
                self._releasing[name] = anyio.CancelScope()
                self._group.start_soon(self._release, name, self._releasing[name])

    async def _release(self, name: str, scope: anyio.CancelScope) -> None:
        """Stop a plugin that nothing refers to, unless it is referred to again within the linger time.

        Referred to again while it stops, it is started as soon as it is gone; `scope` is cancelled then, because there
        may be no moment without a process any more.
        """
        with scope:
            await anyio.sleep(self._services.linger_s)
            if name not in self.deployment.wanted and not self._closing:
                self._unwanted.add(name)
                self._routines[name].learn()
                await self._routines[name].emptied()
                if not self._closing:
                    await self._forget(name)
        del self._releasing[name]
        self._ensure_routines()
        self._release_unneeded()

    async def _forget(self, name: str) -> None:
        with anyio.CancelScope(shield=True):
            await self._routines[name].stop()
            del self._routines[name]
            self._unwanted.discard(name)


def _is_left(rest: int, missing: Callable[[], Collection[str]]) -> bool:
    """Whether there is something to wait for, and a round left to do it."""
    return rest > 0 and bool(missing())


MAX_DEFAULT_ROUNDS: Final = 8
"""A default producer can need another; more rounds than this would be a circle, which the plan refuses."""
