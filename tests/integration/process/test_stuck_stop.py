"""A process whose signal handlers cannot run, because its only thread is inside one long C call."""

import asyncio
import signal
from pathlib import Path

import anyio
import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio]

IN_A_C_LOOP = """
import os, signal
from hotbay_sdk._serve import say

def main(i, o, control):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
    say(control, "ready")
    sum(range(10**11))
"""
GRACE_S = 1.0
TICK_S = 0.005


def cpu_ticks(pid: int) -> int:
    """What a process has used of CPU time in user mode, in the kernel's ticks."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11])


async def burns(pid: int, *, ticks: int) -> None:
    """Wait until a process has used so much CPU time, so that it is in its loop."""
    with anyio.fail_after(10):
        while cpu_ticks(pid) < ticks:  # noqa: ASYNC110  # nobody tells of another process's CPU time
            await anyio.sleep(TICK_S)


async def test_l17_process_in_a_c_loop_is_killed_at_its_grace_and_the_loop_never_waits(start_plugin):
    """The 0.5 s around the grace, and the 50 ms of the loop's lag, are taken five times."""
    plugin = await start_plugin(IN_A_C_LOOP)
    await plugin.hello()
    await plugin.said()
    await burns(plugin.child.pid, ticks=20)
    lags: list[float] = []
    loop = asyncio.get_running_loop()

    async def tick() -> None:
        while True:
            due = loop.time() + TICK_S
            await anyio.sleep(TICK_S)
            lags.append(loop.time() - due)

    async with anyio.create_task_group() as group:
        group.start_soon(tick)
        begun = loop.time()
        with anyio.fail_after(GRACE_S + 0.5 * 5):
            exit_ = await plugin.child.stop(GRACE_S)
        took = loop.time() - begun
        group.cancel_scope.cancel()
    assert exit_.signal == signal.SIGKILL
    assert took >= GRACE_S
    assert sorted(lags)[int(len(lags) * 0.99)] < 0.05 * 5
