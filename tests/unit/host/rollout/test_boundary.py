"""What one task of a routine raises is told to the routine, and ends no other task of the group."""

import anyio
import pytest
from hotbay.rollout.boundary import Tasks

pytestmark = pytest.mark.anyio


async def test_what_a_task_raises_is_told_and_ends_nobody_else():
    told: list[Exception] = []
    went_on, go = anyio.Event(), anyio.Event()

    async def raises(what: str) -> None:
        raise LookupError(what)

    async def goes_on() -> None:
        await go.wait()
        went_on.set()

    async with anyio.create_task_group() as group:
        tasks = Tasks(group, told.append)
        tasks.start_soon(goes_on)
        tasks.start_soon(raises, "this")
        with anyio.fail_after(10):
            while not told:
                await anyio.lowlevel.checkpoint()
            assert not went_on.is_set()
            go.set()
            await tasks.idle()
    assert [str(error) for error in told] == ["this"]
    assert went_on.is_set()


async def test_idle_waits_for_every_task_also_for_those_that_are_cancelled():
    async with anyio.create_task_group() as group:
        tasks = Tasks(group, lambda _error: None)
        with anyio.fail_after(10):
            await tasks.idle()
            scopes = [anyio.CancelScope() for _ in range(3)]

            async def sleeps(scope: anyio.CancelScope) -> None:
                with scope:
                    await anyio.sleep_forever()

            for scope in scopes:
                tasks.start_soon(sleeps, scope)
            await anyio.lowlevel.checkpoint()
            with anyio.CancelScope() as waiting:
                waiting.cancel()
                await tasks.idle()
            assert waiting.cancelled_caught
            for scope in scopes:
                scope.cancel()
            await tasks.idle()
