"""A background task that breaks is told and begun again, and nothing else ends."""

import logging

import anyio
import pytest
from hotbay.observe.background import FIRST_S, MAX_S, SHOWN_S, STEADY_S, Background

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Clock:
    """Passes while somebody sleeps, and no other time."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds
        await anyio.lowlevel.checkpoint()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_task_that_breaks_is_logged_counted_shown_and_begun_again(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[str] = []
    background = Background(counted.append, now=lambda: clock.now_s, sleep=clock.sleep)
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise LookupError("what was not foreseen")

    with caplog.at_level(logging.ERROR):
        await background.keep("the task", work)
    assert runs == 3
    assert counted == ["the task"] * 2
    assert clock.slept == [FIRST_S, 2 * FIRST_S]
    assert "Traceback" in caplog.text
    assert "task=the task" in caplog.text
    (problem,) = background.problems()
    assert problem.code == "INTERNAL"
    assert "'the task' failed, 2 times by now, the last time with LookupError: what was not foreseen" in problem.message
    clock.now_s += SHOWN_S - 1 - 2 * FIRST_S
    assert background.problems() == (problem,)
    clock.now_s += 1
    assert background.problems() == (), "what broke long ago is no problem any more"


async def test_pauses_grow_to_their_bound_and_a_long_run_sets_them_back(clock: Clock) -> None:
    background = Background(now=lambda: clock.now_s, sleep=clock.sleep)
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs == 10:
            clock.now_s += STEADY_S
        if runs < 12:
            raise ValueError

    await background.keep("task", work)
    assert clock.slept == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_S, MAX_S, FIRST_S, 2 * FIRST_S]


async def test_task_group_that_breaks_counts_once_and_other_tasks_go_on(clock: Clock) -> None:
    counted: list[str] = []
    background = Background(counted.append, now=lambda: clock.now_s, sleep=clock.sleep)
    goes_on, go = anyio.Event(), anyio.Event()

    async def breaks() -> None:
        async with anyio.create_task_group() as inner:
            inner.start_soon(anyio.sleep_forever)
            raise RuntimeError

    async def other() -> None:
        await go.wait()
        goes_on.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            assert not await background.guard("connection", breaks)
            go.set()
    assert goes_on.is_set()
    assert counted == ["connection"]


async def test_cancellation_ends_the_task_and_is_no_fault(clock: Clock) -> None:
    counted: list[str] = []
    background = Background(counted.append, now=lambda: clock.now_s, sleep=clock.sleep)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await background.keep("task", anyio.sleep_forever)
    assert scope.cancelled_caught
    assert counted == []
