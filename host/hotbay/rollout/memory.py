"""Writes what one routine decided into the world, in order: quarantines and history.

A write that fails is logged and told; what was decided holds in the routine all the same.
"""

import logging
from collections.abc import Iterable
from functools import partial

import anyio

from hotbay.errors import HostError
from hotbay.rollout.facts import plugin_of
from hotbay.rollout.services import Occurrence, Services
from hotbay.rollout.state import Condemn, Record
from hotbay.store.digests import Digest
from hotbay.store.world import records
from hotbay.store.world.engine import Change, Put, WorldView

logger = logging.getLogger(__name__)

__all__ = ["Memory"]


class Memory:
    """See the module. `write` at any time; `run` writes until cancelled, and finishes what was begun."""

    def __init__(self, name: str, services: Services) -> None:
        self._name = name
        self._services = services
        self._todo: list[tuple[Condemn | Record, int, float]] = []
        self._rung = anyio.Event()

    def write(self, effect: Condemn | Record, generation: int) -> None:
        """Write this next."""
        self._todo.append((effect, generation, self._services.wall()))
        self._rung.set()

    async def run(self) -> None:
        """Write what there is, in order."""
        try:
            while True:
                await self._rung.wait()
                self._rung = anyio.Event()
                await self._flush()
        finally:
            with anyio.move_on_after(FLUSH_S, shield=True):
                await self._flush()

    async def _flush(self) -> None:
        while self._todo:
            # Taken off when it is written: cancelled in between, it is what `run` flushes last.
            effect, generation, at_s = self._todo[0]
            try:
                if isinstance(effect, Condemn):
                    await self._services.world.transact(partial(self._quarantined, effect, at_s))
                    self._tell("quarantined", effect, code=effect.failure.code, reason=effect.failure.message)
                else:
                    await self._services.world.transact(partial(self._recorded, effect, generation, at_s))
                    self._tell("live", effect, generation=generation, why=effect.why, who=effect.who)
            except HostError as error:
                logger.error("world_write_failed plugin=%s code=%s: %s", self._name, error.code, error.message)  # noqa: TRY400 - the error says all
                # A disk that is full, or a world that is given away for a while: what was decided is written then.
                await anyio.sleep(RETRY_S)
                continue
            del self._todo[0]

    def _tell(self, event: str, effect: Condemn | Record, **fields: object) -> None:
        build = effect.build
        self._services.happened(Occurrence(event, self._name, {"rev": build.rev, "digest": build.digest, **fields}))

    def _quarantined(self, effect: Condemn, at_s: float, view: WorldView) -> Iterable[Change]:
        digest, failure = Digest(effect.build.digest), effect.failure
        before = view.get(records.Quarantine, digest)
        yield Put(
            records.Quarantine(
                digest=digest,
                plugin_id=plugin_of(self._name),
                rev=effect.build.rev,
                code=failure.code,
                reason=failure.message or failure.code,
                count=1 if before is None else before.count + 1,
                at_s=at_s,
            )
        )

    def _recorded(self, effect: Record, generation: int, at_s: float, view: WorldView) -> Iterable[Change]:
        numbers = [entry.number for entry in view.all(records.History) if entry.plugin_id == self._name]
        manifest = self._services.manifest(effect.build.digest)
        yield Put(
            records.History(
                plugin_id=self._name,
                number=max(numbers, default=0) + 1,
                digest=Digest(effect.build.digest),
                rev=effect.build.rev,
                version=manifest.version,
                generation=generation,
                at_s=at_s,
                why=effect.why,
                who=effect.who,
            )
        )


FLUSH_S = 5.0
"""What the last writes may take at the end of a host."""
RETRY_S = 1.0
"""Between two attempts to write what could not be written."""
