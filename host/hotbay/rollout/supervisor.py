"""The only owner of instances: sources, one routine per needed plugin, configuration reloads, shutdown.

Invariants: routines exist exactly for the plugins that the configuration needs; a configuration that
cannot be put in force changes nothing; `shutdown` returns when no plugin process is left.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import anyio
import anyio.abc

from hotbay.config.picker_config import PickerConfig
from hotbay.errors import HostError, Problem
from hotbay.packages.sources.directory import DirectorySource, Offer, Scan
from hotbay.rollout.deployment import Deployment, Scheduling, resolve
from hotbay.rollout.instance import RefSpec, StartOptions
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
        self._scopes: dict[str, anyio.CancelScope] = {}
        self._deployment = deployment
        self._services = services(self)
        self._group = group
        self._adopting = anyio.Lock()

    # -- status ----------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[Row, ...]:
        """Status of every plugin that the configuration needs."""
        return tuple(routine.row for routine in self._routines.values())

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Generations that answer now."""
        return tuple(
            r.live.generation
            for r in self._routines.values()
            if r.live is not None and r.live.generation is not None and not r.live.ended.is_set()
        )

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What the sources cannot offer, and why."""
        return tuple(p for scan in self._scans.values() for p in scan.problems)

    # -- running ---------------------------------------------------------------------------------

    def start(self, scans: Mapping[str, Scan]) -> None:
        """Begin with what the sources had at first; routines and watches run in the task group."""
        self._scans.update(scans)
        self._ensure_routines()
        for source in self._sources:
            self._group.start_soon(self._watch, source)

    async def first_attempts(self) -> None:
        """Return when every needed plugin is READY or has failed to become so once."""
        for _ in range(MAX_DEFAULT_ROUNDS):
            before = set(self._routines)
            for routine in tuple(self._routines.values()):
                await routine.first_attempt.wait()
            if set(self._routines) == before:
                return

    def publish(self) -> None:
        """Publish the plan of what is live now, even of nothing. Raises `InputError`."""
        self._deployment.publish()

    async def shutdown(self, drain_s: float) -> None:
        """Retire all instances side by side."""
        async with anyio.create_task_group() as group:
            for routine in self._routines.values():
                group.start_soon(routine.shutdown, drain_s)

    async def _watch(self, source: DirectorySource) -> None:
        async def changed(scan: Scan) -> None:
            self._scans[source.name] = scan
            for problem in scan.problems:
                logger.warning("source_problem source=%s: %s", source.name, problem)
            self._deployment.reindex(self.index(None))
            self._distribute()

        await source.watch(changed)

    def _ensure_routines(self) -> None:
        for plugin_id in self._deployment.wanted:
            if plugin_id not in self._routines:
                routine = Routine(plugin_id, self._services, self._group)
                self._routines[plugin_id] = routine
                scope = self._scopes[plugin_id] = anyio.CancelScope()
                self._group.start_soon(self._run, routine, scope)
        self._distribute()

    async def _run(self, routine: Routine, scope: anyio.CancelScope) -> None:
        with scope:
            await routine.run()

    def refs_changed(self) -> None:
        """Default producers were added: their packages are needed too, and live processes lack their refs."""
        self._ensure_routines()
        for plugin_id, routine in self._routines.items():
            live = routine.live
            if live is not None and live.generation is not None and not live.ended.is_set():
                missing = [r for r in self._deployment.refs_of(plugin_id) if r.name not in live.generation.handles]
                if missing:
                    self._group.start_soon(self._create_late, plugin_id, missing)

    async def _create_late(self, plugin_id: str, refs: Sequence[RefSpec]) -> None:
        live = self._routines[plugin_id].live
        if live is None:
            return
        try:
            await live.configure(refs, (), StartOptions())
            self._deployment.publish()
        except HostError as error:
            logger.warning("default_producer_failed plugin=%s: %s", plugin_id, error)

    def _distribute(self) -> None:
        for plugin_id, routine in self._routines.items():
            routine.offer([o for o in self._offers() if o.manifest.id == plugin_id])

    def _offers(self) -> tuple[Offer, ...]:
        return tuple(o for source in self._sources for o in self._scans.get(source.name, Scan()).offers)

    def index(self, ranking: Mapping[str, str] | None) -> TypeIndex:
        """Index of the types that the sources offer now; `ranking` None keeps the one in force."""
        ranked = self._ranking if ranking is None else ranking
        return TypeIndex.build(((o.manifest.id, o.manifest.types) for o in self._offers()), ranked)

    # -- reload ----------------------------------------------------------------------------------

    async def adopt(self, wanted: Wanted) -> None:
        """Put another scheduling configuration in force, or raise `HostError` with nothing changed.

        Refs that are new or differ are created in the live processes first, the plan is published in one
        assignment, and only then what is no longer used is dropped.
        """
        async with self._adopting:
            index = self.index(wanted.ranking)
            scheduling = resolve(wanted.config, index, wanted.options)
            created = await self._create_refs(scheduling)
            try:
                self._deployment.adopt(scheduling, index)
            except HostError:
                await self._restore(created)
                raise
            self._ranking = wanted.ranking
            self._ensure_routines()
            await self._drop_unused(created)
            self._stop_unneeded()

    async def _create_refs(self, scheduling: Scheduling) -> list[tuple[str, dict[str, int]]]:
        """Create what is new in every live process; on an error undo what was created and raise it."""
        done: list[tuple[str, dict[str, int]]] = []
        for plugin_id, routine in self._routines.items():
            live = routine.live
            if live is None or live.generation is None or live.ended.is_set():
                continue
            before = dict(live.generation.handles)
            current = {r.name: r for r in self._deployment.refs_of(plugin_id)}
            new = [r for r in self._deployment.refs_of(plugin_id, scheduling) if current.get(r.name) != r]
            if not new:
                continue
            try:
                await live.configure(new, (), StartOptions())
            except HostError:
                await self._restore(done)
                raise
            done.append((plugin_id, before))
        return done

    async def _restore(self, created: Sequence[tuple[str, dict[str, int]]]) -> None:
        for plugin_id, before in created:
            live = self._routines[plugin_id].live
            if live is None or live.generation is None:
                continue
            extra = [n for n in live.generation.handles.values() if n not in before.values()]
            live.generation.handles.clear()
            live.generation.handles.update(before)
            await self._drop(plugin_id, extra)

    async def _drop_unused(self, created: Sequence[tuple[str, dict[str, int]]]) -> None:
        for plugin_id, before in created:
            live = self._routines[plugin_id].live
            if live is None or live.generation is None:
                continue
            wanted = {r.name for r in self._deployment.refs_of(plugin_id)}
            for name in [n for n in live.generation.handles if n not in wanted]:
                del live.generation.handles[name]
            unused = [n for n in before.values() if n not in live.generation.handles.values()]
            await self._drop(plugin_id, unused)

    async def _drop(self, plugin_id: str, handles: Sequence[int]) -> None:
        live = self._routines[plugin_id].live
        if live is None or not handles:
            return
        try:
            await live.configure((), handles, StartOptions())
        except HostError as error:
            logger.warning("drop_failed plugin=%s: %s", plugin_id, error)

    def _stop_unneeded(self) -> None:
        for plugin_id in [p for p in self._routines if p not in self._deployment.wanted]:
            routine = self._routines.pop(plugin_id)
            self._scopes.pop(plugin_id).cancel()
            generation = self._deployment.remove(plugin_id)
            self._group.start_soon(self._retire_unneeded, routine, generation)

    async def _retire_unneeded(self, routine: Routine, generation: Generation | None) -> None:
        await routine.shutdown(self._services.drain_s)
        if generation is not None:
            self._services.retired(generation)


MAX_DEFAULT_ROUNDS = 8
"""A default producer can need another; more rounds than this would be a circle, which the plan refuses."""
