"""What a routine decided is written in order, and who has to answer for it knows when it is."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace

import anyio
import pytest
from hotbay.errors import CapacityError
from hotbay.rollout.effects import Condemn
from hotbay.rollout.memory import Memory
from hotbay.rollout.state import Build, Cause, Failure
from hotbay.store.digests import digest_of
from hotbay.store.world.engine import Change, WorldView
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Quarantine

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
BUILD = Build(digest_of(b"2"), 2)


class SlowWorld(MemoryWorld):
    """Writes when it is let, and refuses while it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.is_let = anyio.Event()
        self.is_gone = False
        self.attempts = 0

    async def transact(self, build: Callable[[WorldView], Iterable[Change]]) -> WorldView:
        self.attempts += 1
        await self.is_let.wait()
        if self.is_gone:
            raise CapacityError("UNAVAILABLE", "world.db was deleted", hint="put it back")
        return await super().transact(build)


@asynccontextmanager
async def memory(world: MemoryWorld) -> AsyncIterator[Memory]:
    it = Memory("sample", SimpleNamespace(world=world, wall=lambda: 0.0, happened=lambda _: None))
    async with anyio.create_task_group() as group:
        group.start_soon(it.run)
        with anyio.fail_after(DEADLINE_S):
            yield it
        group.cancel_scope.cancel()


def condemn(it: Memory) -> None:
    it.write(Condemn(BUILD, Failure(Cause.OPERATOR, "ABORTED", "aborted by ann")), 0)


async def test_written_is_said_when_it_is_in_the_world_and_not_before() -> None:
    world = SlowWorld()
    async with memory(world) as it, anyio.create_task_group() as group:
        condemn(it)
        there: list[bool] = []

        async def wait() -> None:
            await it.written(it.asked)
            there.append(world.view.get(Quarantine, BUILD.digest) is not None)

        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert there == []
        world.is_let.set()
    assert there == [True]


async def test_what_cannot_be_written_is_said_and_written_later() -> None:
    world = SlowWorld()
    world.is_gone = True
    world.is_let.set()
    async with memory(world) as it:
        condemn(it)
        for _ in range(2):
            with pytest.raises(CapacityError, match=r"world\.db was deleted"):
                await it.written(it.asked)
        await it.written(0)
        assert it.failure is not None
        world.is_gone = False
        await world.changed(world.view.revision)
        assert world.view.get(Quarantine, BUILD.digest) is not None
        await anyio.wait_all_tasks_blocked()
        await it.written(it.asked)
        assert it.failure is None


async def test_writer_that_does_not_run_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotbay.rollout.memory.PATIENCE_S", 0.01)
    it = Memory("sample", SimpleNamespace(world=MemoryWorld(), wall=lambda: 0.0, happened=lambda _: None))
    condemn(it)
    with pytest.raises(CapacityError, match="takes nothing of sample"):
        await it.written(1)
