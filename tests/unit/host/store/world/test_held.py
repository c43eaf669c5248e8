"""A world that is let go of and taken again."""

import anyio
import pytest
from hotbay.errors import CapacityError
from hotbay.store.world.engine import Put
from hotbay.store.world.held import HeldWorld
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import Floor

WAIT_S = 10.0


def floor(rev: int) -> list[Put]:
    return [Put(Floor("a", rev))]


@pytest.mark.anyio
async def test_what_was_known_stays_readable_and_nothing_is_written_meanwhile():
    first = MemoryWorld()
    held = HeldWorld(first, lambda: _opened(MemoryWorld(first.view)))
    await held.transact(lambda _: floor(1))
    await held.let_go()
    assert held.view.get(Floor, "a") == Floor("a", 1)
    with pytest.raises(CapacityError, match="a successor is taking over"):
        await held.transact(lambda _: floor(2))
    await held.take_again()
    await held.transact(lambda view: floor((view.get(Floor, "a") or Floor("a", 0)).rev + 1))
    assert held.view.get(Floor, "a") == Floor("a", 2)


@pytest.mark.anyio
async def test_a_wait_goes_on_through_the_exchange():
    first = MemoryWorld()
    second = MemoryWorld()
    held = HeldWorld(first, lambda: _opened(second))
    seen: list[int] = []
    async with anyio.create_task_group() as group:

        async def wait() -> None:
            seen.append((await held.changed(0)).revision)

        group.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        await held.let_go()
        await held.take_again()
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(WAIT_S):
            await held.transact(lambda _: floor(1))
    assert seen == [held.view.revision]


async def _opened(world: MemoryWorld) -> MemoryWorld:
    return world
