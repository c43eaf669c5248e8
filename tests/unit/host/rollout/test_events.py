"""The stream of events: everybody who listens gets each, who does not keep up loses the oldest and is told."""

import anyio
import pytest
from hotbay.rollout.events import KEPT, EventLog
from hotbay.rollout.services import Occurrence

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_every_listener_gets_every_event() -> None:
    log = EventLog(lambda: 7.0)
    log.happened(Occurrence("before", "a", {}))
    one, other = log.listen(), log.listen()
    got: list[object] = []
    async with anyio.create_task_group() as group:

        async def take(events) -> None:
            got.append(await anext(events))

        group.start_soon(take, one)
        group.start_soon(take, other)
        await anyio.wait_all_tasks_blocked()
        log.happened(Occurrence("crashed", "a", {"code": "CRASHED"}))
    assert got == [{"at_s": 7.0, "event": "crashed", "plugin": "a", "code": "CRASHED"}] * 2
    await one.aclose()
    await other.aclose()


@pytest.mark.parametrize(("count", "lost"), [(KEPT, None), (KEPT + 1, 1)])
async def test_listener_that_does_not_keep_up_is_told_how_much_it_lost(count: int, lost: int | None) -> None:
    log = EventLog(lambda: 0.0)
    events = log.listen()
    async with anyio.create_task_group() as group:
        first: list = []

        async def take() -> None:
            first.append(await anext(events))

        group.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        log.happened(Occurrence("begin", "a", {}))
    for number in range(count):
        log.happened(Occurrence("e", "a", {"number": number}))
    page = await anext(events)
    assert (page["number"], page.get("lost")) == (lost or 0, lost)
    await events.aclose()
