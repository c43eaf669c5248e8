"""Puts scheduling configurations in force: refs are made in every process that answers, then the plan is published.

A configuration that cannot be put in force changes nothing. One at a time: whoever waits to be the next makes way for
who comes after, so that of several edits the newest counts.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import anyio
import anyio.abc

from hotbay.errors import CapacityError, HostError
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.instance import Instance
from hotbay.rollout.refs import CreatedRef, RefSpec
from hotbay.rollout.resolution import Scheduling
from hotbay.rollout.services import Launcher
from hotbay.scheduling.registry import TypeIndex

logger = logging.getLogger(__name__)

__all__ = ["Adoption", "ReplacedError"]

MAX_CREATE_ROUNDS: Final = 8
"""Processes replaced so often while one configuration is put in force are left to their restarts."""


class ReplacedError(CapacityError):
    """A configuration that waited made way for a newer one."""

    def __init__(self, waited_for: Iterable[str]) -> None:
        names = ", ".join(waited_for)
        super().__init__(
            "UNAVAILABLE",
            "a newer configuration took the place of this one while it waited" + (f" for {names}" if names else ""),
            hint="nothing of it is in force; what it says has to be in the newest one",
        )


class Adoption:
    """See the module. `answering` gives the routine's name and the process of all that are READY."""

    def __init__(
        self,
        deployment: Deployment,
        launcher: Launcher,
        group: anyio.abc.TaskGroup,
        answering: Callable[[], Iterable[tuple[str, Instance]]],
        *,
        drain_s: float,
    ) -> None:
        self.lock = anyio.Lock()
        self._deployment = deployment
        self._launcher = launcher
        self._group = group
        self._answering = answering
        self._drain_s = drain_s
        self._newest = anyio.CancelScope()

    async def wait(
        self, until_there: Callable[[], Awaitable[None]], missing: Callable[[], Iterable[str]]
    ) -> anyio.CancelScope:
        """Wait for what a configuration needs, as long as it takes; return what `check_newest` takes.

        Raises `ReplacedError` when another one begins to wait; `missing` names what is not there then.
        """
        self._newest.cancel()
        if waits_for := tuple(missing()):
            logger.info("reload_waits plugins=%s", ",".join(waits_for))
        mine = self._newest = anyio.CancelScope()
        with mine:
            await until_there()
        self.check_newest(mine, missing)
        return mine

    def check_newest(self, mine: anyio.CancelScope, missing: Callable[[], Iterable[str]] = tuple) -> None:
        """Raises `ReplacedError` when another configuration began to wait after this one."""
        if mine is not self._newest:
            raise ReplacedError(missing())

    async def complete(self) -> None:
        """Make the refs that processes lack and publish the plan of what is live, even of nothing.

        Raises `InputError` when the plan does not compile.
        """
        async with self.lock:
            try:
                created = await self._create_refs(self._deployment.scheduling)
            except HostError as error:
                logger.warning("default_producer_failed code=%s: %s", error.code, error)
            else:
                for instance, refs in created.items():
                    instance.install(refs)
            self._deployment.publish()

    async def put_in_force(
        self, scheduling: Scheduling, index: TypeIndex, *, lacks: Callable[[], bool] = lambda: False
    ) -> bool:
        """Make what is new, and publish. Under `lock`. Raises `HostError` with nothing changed.

        False, with nothing changed either, where it `lacks` something once what is new has said what it needs.
        """
        created = await self._create_refs(scheduling)
        if lacks():
            self.drop_unused()
            return False
        before = {instance: instance.install(refs) for instance, refs in created.items()}
        try:
            self._deployment.adopt(scheduling, index)
        except HostError:
            for instance, refs in before.items():
                instance.restore(refs)
            self.drop_unused()
            raise
        return True

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
            for name, instance, refs in todo:
                try:
                    made = await instance.create(refs, self._launcher.options(name))
                    created.setdefault(instance, []).extend(made)
                    self._deployment.learn_facts(name, made)
                except HostError:
                    if instance.answers:
                        self.drop_unused()
                        raise
        return created

    def _missing(
        self, scheduling: Scheduling, created: Mapping[Instance, Sequence[CreatedRef]]
    ) -> list[tuple[str, Instance, list[RefSpec]]]:
        """What has yet to be created, and where."""
        found: list[tuple[str, Instance, list[RefSpec]]] = []
        for name, instance in self._answering():
            made = [ref.spec for ref in created.get(instance, ())]
            wanted = self._deployment.refs_of(name, scheduling)
            refs = [ref for ref in instance.missing(wanted) if ref not in made]
            if refs:
                found.append((name, instance, refs))
        return found

    def drop_unused(self) -> None:
        """Drop what no plan names any more, when the cycles that began on older plans had time to end."""
        self._group.start_soon(self._drop_unused)

    async def _drop_unused(self) -> None:
        async with self.lock:
            unused = [(p, i, i.unused(self._deployment.refs_of(p))) for p, i in self._answering()]
        await anyio.sleep(self._drain_s)
        async with self.lock:
            for name, instance, handles in unused:
                try:
                    await instance.drop(handles, self._launcher.options(name))
                except HostError as error:
                    logger.warning("drop_failed plugin=%s code=%s: %s", name, error.code, error)
