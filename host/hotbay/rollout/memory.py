"""Writes what one routine decided into the world, in order: quarantines and history.

A write that fails is logged and told, and tried again; what was decided holds in the routine all the same. Who has to
answer for it waits until it is `written`, for a host that is killed knows nothing else. The history keeps its newest
entries, and of every version that is complete here the newest one: what may be gone back to, and what a collection
keeps as the last versions, is the same as with all entries.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from hotbay.errors import CapacityError, HostError
from hotbay.rollout.effects import Condemn, Record
from hotbay.rollout.facts import history_of, plugin_of
from hotbay.rollout.services import Occurrence, Services
from hotbay.store.digests import Digest
from hotbay.store.world import records
from hotbay.store.world.engine import Change, Delete, Put, WorldView

logger = logging.getLogger(__name__)

__all__ = ["HISTORY_KEPT", "PATIENCE_S", "Memory", "superfluous"]


class Memory:
    """See the module. `write` at any time; `run` writes until cancelled, and finishes what was begun."""

    def __init__(self, name: str, services: Services) -> None:
        self._name = name
        self._services = services
        self._todo: list[_Decided] = []
        self._rung = anyio.Event()
        self._attempted = anyio.Event()
        self._failure: HostError | None = None
        self._asked = 0

    @property
    def asked(self) -> int:
        """How many decisions there were to write, ever."""
        return self._asked

    @property
    def failure(self) -> HostError | None:
        """Why the last attempt failed; None when it did not."""
        return self._failure

    async def written(self, count: int) -> None:
        """Return when the first `count` decisions are in the world. Calls may overlap.

        Raises `HostError` when the last attempt failed, or nothing was attempted for `PATIENCE_S`: the writing goes on.
        """
        with anyio.move_on_after(PATIENCE_S):
            while self._asked - len(self._todo) < count:
                if self._failure is not None:
                    raise self._failure
                await self._attempted.wait()
            return
        raise CapacityError(
            "UNAVAILABLE", f"the world takes nothing of {self._name}", hint="it is written as soon as it does"
        )

    def write(self, effect: Condemn | Record, generation: int) -> None:
        """Write this next."""
        # All that is written is known now: when it is, the package may be forgotten.
        version = self._services.manifest(effect.build.digest).version if isinstance(effect, Record) else ""
        self._todo.append(_Decided(effect, generation, version, self._services.wall()))
        self._asked += 1
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
            decided = self._todo[0]
            effect = decided.effect
            try:
                if isinstance(effect, Condemn):
                    await self._services.world.transact(partial(self._quarantined, effect, decided.at_s))
                    self._tell("quarantined", effect, code=effect.failure.code, reason=effect.failure.message)
                else:
                    await self._services.world.transact(partial(self._recorded, effect, decided))
                    self._tell("live", effect, generation=decided.generation, why=effect.why, who=effect.who)
            except HostError as error:
                self._told(error)
                logger.error("world_write_failed plugin=%s code=%s: %s", self._name, error.code, error.message)  # noqa: TRY400 - the error says all
                # A disk that is full, or a world that is given away for a while: what was decided is written then.
                await anyio.sleep(RETRY_S)
                continue
            del self._todo[0]
            self._told(None)

    def _told(self, failure: HostError | None) -> None:
        """How an attempt ended."""
        self._failure = failure
        attempted, self._attempted = self._attempted, anyio.Event()
        attempted.set()

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

    def _recorded(self, effect: Record, decided: "_Decided", view: WorldView) -> Iterable[Change]:
        before = history_of(view, self._name)
        entry = records.History(
            plugin_id=self._name,
            number=before[-1].number + 1 if before else 1,
            digest=Digest(effect.build.digest),
            rev=effect.build.rev,
            version=decided.version,
            generation=decided.generation,
            at_s=decided.at_s,
            why=effect.why,
            who=effect.who,
        )
        yield Put(entry)
        for old in superfluous(view, (*before, entry)):
            yield Delete(old.kind, old.key)


@dataclass(frozen=True, slots=True)
class _Decided:
    effect: Condemn | Record
    generation: int
    version: str
    at_s: float


def superfluous(view: WorldView, history: Sequence[records.History]) -> list[records.History]:
    """Entries of one routine's history, the oldest first, that are not kept."""
    newest = {entry.digest: entry for entry in history}
    return [
        entry
        for entry in history[:-HISTORY_KEPT]
        if newest[entry.digest] is not entry or view.get(records.Completion, entry.digest) is None
    ]


HISTORY_KEPT: Final = 200
"""Entries of one routine: a week of a new version every hour, in a world that stays small enough to be read at once."""
FLUSH_S: Final = 5.0
"""What the last writes may take at the end of a host."""
PATIENCE_S: Final = 10.0
"""What a command waits for its writes: longer than the world waits for another process that holds its file."""
RETRY_S: Final = 1.0
"""Between two attempts to write what could not be written."""
