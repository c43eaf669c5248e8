"""The only owner of instances: sources, one routine per needed plugin, configuration reloads, shutdown.

Invariants: routines exist for the plugins that the configuration needs, and for a linger time after; a
configuration that cannot be put in force changes nothing; no plugin process is left when `shutdown` returns.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio
import anyio.abc

from hotbay.config.picker_config import PickerConfig
from hotbay.errors import HostError, InputError, Problem
from hotbay.packages.sources.directory import DirectorySource, Offer, Scan
from hotbay.rollout.deployment import Deployment, Scheduling, resolve
from hotbay.rollout.instance import CreatedRef, Instance, RefSpec
from hotbay.rollout.routine import Routine, Row, Services
from hotbay.rpc.leases import Generation
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.registry import TypeIndex

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A scheduling configuration as the operator wrote it."""

    config: PickerConfig
    options: Mapping[str, BindingOptions]
    ranking: Mapping[str, str]


class Supervisor:
    """See the module. Lives in one task group; all methods are for the loop's thread."""

    def __init__(
        self,
        sources: Sequence[DirectorySource],
        deployment: Deployment,
        services: Callable[["Supervisor"], Services],
        group: anyio.abc.TaskGroup,
        *,
        ranking: Mapping[str, str],
    ) -> None:
        self._ranking = ranking
        self._sources = tuple(sources)
        self._scans: dict[str, Scan] = {}
        self._routines: dict[str, Routine] = {}
        self._deployment = deployment
        self._services = services(self)
        self._group = group
        self._adopting = anyio.Lock()
        self._releasing: set[str] = set()
        self._closing = False

    # -- status ----------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[Row, ...]:
        """Status of every plugin that the configuration needs."""
        return tuple(routine.row for routine in self._routines.values())

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Generations that answer now."""
        return tuple(instance.generation for _, instance in self._answering() if instance.generation is not None)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What the sources cannot offer, and why."""
        return tuple(p for scan in self._scans.values() for p in scan.problems)

    # -- running ---------------------------------------------------------------------------------

    def start(self, scans: Mapping[str, Scan], watched: Collection[str]) -> None:
        """Begin with what the sources had at first; routines, and watches of the named sources, run in the group."""
        self._scans.update(scans)
        self._ensure_routines()
        for source in self._sources:
            if source.name in watched:
                self._group.start_soon(self._watch, source)

    async def first_attempts(self) -> None:
        """Return when every needed plugin is READY, or cannot become so for now."""
        for _ in range(MAX_DEFAULT_ROUNDS):
            before = set(self._routines)
            for routine in tuple(self._routines.values()):
                await routine.first_attempt.wait()
            if set(self._routines) == before:
                return

    async def complete(self) -> None:
        """Create the refs that live processes lack and publish the plan of what is live, even of nothing.

        Raises `InputError` when the plan does not compile.
        """
        async with self._adopting:
            try:
                created = await self._create_refs(self._deployment.scheduling)
            except HostError as error:
                logger.warning("default_producer_failed code=%s: %s", error.code, error)
            else:
                for instance, refs in created.items():
                    instance.install(refs)
            self._deployment.publish()

    async def shutdown(self, drain_s: float) -> None:
        """Retire all instances side by side; nothing is started any more."""
        self._closing = True
        async with anyio.create_task_group() as group:
            for routine in self._routines.values():
                group.start_soon(self._end, routine, drain_s)

    async def _end(self, routine: Routine, drain_s: float) -> None:
        await routine.stop()
        await routine.retire(drain_s)

    async def _watch(self, source: DirectorySource) -> None:
        async def changed(scan: Scan) -> None:
            self._scans[source.name] = scan
            for problem in scan.problems:
                logger.warning("source_problem source=%s: %s", source.name, problem)
            self._deployment.reindex(self.index(None))
            self._ensure_routines()

        await source.watch(changed)

    def _ensure_routines(self) -> None:
        if self._closing:
            return
        for plugin_id in self._deployment.wanted:
            if plugin_id not in self._routines:
                routine = self._routines[plugin_id] = Routine(plugin_id, self._services, self._group)
                self._group.start_soon(routine.run)
        offers = self._offers()
        for plugin_id, routine in self._routines.items():
            routine.offer([o for o in offers if o.manifest.id == plugin_id])

    def refs_changed(self) -> None:
        """Default producers were added: their packages are needed too, and live processes lack their refs."""
        self._ensure_routines()
        self._group.start_soon(self._complete_live)

    async def _complete_live(self) -> None:
        try:
            await self.complete()
        except InputError as error:
            logger.warning("plan_refused code=%s: %s", error.code, error)

    def _offers(self) -> tuple[Offer, ...]:
        return tuple(o for source in self._sources for o in self._scans.get(source.name, Scan()).offers)

    def index(self, ranking: Mapping[str, str] | None) -> TypeIndex:
        """Index of the types that the sources offer now; `ranking` None keeps the one in force."""
        ranked = self._ranking if ranking is None else ranking
        return TypeIndex.build(((o.manifest.id, o.manifest.types) for o in self._offers()), ranked)

    # -- reload ----------------------------------------------------------------------------------

    async def adopt(self, wanted: Wanted) -> None:
        """Put another scheduling configuration in force, or raise `HostError` with nothing changed.

        Packages that only it needs get their first attempt and refs that are new or differ are created in the
        live processes first; then the plan is published in one assignment. What is no longer used goes later.
        """
        async with self._adopting:
            index = self.index(wanted.ranking)
            scheduling = resolve(wanted.config, index, wanted.options, unusable=self.problems)
            before = {plugin_id: self._deployment.refs_of(plugin_id) for plugin_id in self._routines}
            self._deployment.incoming = scheduling
            try:
                self._ensure_routines()
                await self.first_attempts()
                self._commit(scheduling, index, await self._create_refs(scheduling))
            finally:
                self._deployment.incoming = None
                self._release_unneeded()
            self._ranking = wanted.ranking
            for plugin_id, routine in self._routines.items():
                if self._deployment.refs_of(plugin_id) != before.get(plugin_id):
                    routine.forgive()
            self._group.start_soon(self._drop_unused)

    def _commit(
        self, scheduling: Scheduling, index: TypeIndex, created: Mapping[Instance, Sequence[CreatedRef]]
    ) -> None:
        """Publish the configuration. In one go: no plan is compiled from half of it."""
        before = {instance: instance.install(refs) for instance, refs in created.items()}
        try:
            self._deployment.adopt(scheduling, index)
        except HostError:
            for instance, refs in before.items():
                instance.restore(refs)
            self._group.start_soon(self._drop_unused)
            raise

    async def _create_refs(self, scheduling: Scheduling) -> dict[Instance, list[CreatedRef]]:
        """Create what is new in every process that answers; nothing uses it yet.

        Looks again until nothing is missing: a process may be replaced meanwhile. One that dies gets its refs at
        its restart. Raises `HostError` when a plugin refuses, with what was created dropped later.
        """
        created: dict[Instance, list[CreatedRef]] = {}
        for _ in range(MAX_CREATE_ROUNDS):
            todo = self._missing(scheduling, created)
            if not todo:
                break
            for plugin_id, instance, refs in todo:
                options = self._services.launcher.options(plugin_id)
                try:
                    created.setdefault(instance, []).extend(await instance.create(refs, options))
                except HostError:
                    if instance.answers:
                        self._group.start_soon(self._drop_unused)
                        raise
        return created

    def _missing(
        self, scheduling: Scheduling, created: Mapping[Instance, Sequence[CreatedRef]]
    ) -> list[tuple[str, Instance, list[RefSpec]]]:
        """What has yet to be created, and where."""
        found: list[tuple[str, Instance, list[RefSpec]]] = []
        for plugin_id, instance in self._answering():
            made = [ref.spec for ref in created.get(instance, ())]
            wanted = self._deployment.refs_of(plugin_id, scheduling)
            refs = [ref for ref in instance.missing(wanted) if ref not in made]
            if refs:
                found.append((plugin_id, instance, refs))
        return found

    def _answering(self) -> list[tuple[str, Instance]]:
        live = [(plugin_id, routine.live) for plugin_id, routine in self._routines.items()]
        return [(plugin_id, instance) for plugin_id, instance in live if instance is not None and instance.answers]

    async def _drop_unused(self) -> None:
        """Drop what no plan names any more, when the cycles that began on older plans had time to end."""
        async with self._adopting:
            unused = [(p, i, i.unused(self._deployment.refs_of(p))) for p, i in self._answering()]
        await anyio.sleep(self._services.drain_s)
        async with self._adopting:
            for plugin_id, instance, handles in unused:
                try:
                    await instance.drop(handles, self._services.launcher.options(plugin_id))
                except HostError as error:
                    logger.warning("drop_failed plugin=%s code=%s: %s", plugin_id, error.code, error)

    def _release_unneeded(self) -> None:
        for plugin_id in self._routines:
            if plugin_id not in self._deployment.wanted and plugin_id not in self._releasing:
                self._releasing.add(plugin_id)
                self._group.start_soon(self._release, plugin_id)

    async def _release(self, plugin_id: str) -> None:
        """Stop a plugin that nothing refers to, unless it is referred to again within the linger time.

        The same plugin is not started again before this one is gone.
        """
        await anyio.sleep(self._services.linger_s)
        if plugin_id not in self._deployment.wanted and not self._closing:
            routine = self._routines[plugin_id]
            await routine.stop()
            self._deployment.remove(plugin_id)
            await routine.retire(self._services.drain_s)
            del self._routines[plugin_id]
        self._releasing.discard(plugin_id)
        self._ensure_routines()


MAX_DEFAULT_ROUNDS: Final = 8
"""A default producer can need another; more rounds than this would be a circle, which the plan refuses."""
MAX_CREATE_ROUNDS: Final = 8
"""Processes replaced so often while one configuration is put in force are left to their restarts."""
