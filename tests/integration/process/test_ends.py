"""How a process's end is told and brought about, whatever the plugin does (L15, L17, L23, L33)."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from hotbay.process.child import Exit
from hotbay.rollout.instance import crashed

pytestmark = [pytest.mark.process, pytest.mark.anyio]

WAIT_S = 5.0
PLUGIN = "import os, signal, sys\ndef main(*links): {}\n"


@pytest.mark.parametrize(
    ("statement", "code", "signum"),
    [
        ("sys.exit(256)", 0, None),
        ("sys.exit()", 0, None),
        ("sys.exit('m')", 1, None),
        ("sys.exit(-1)", 255, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", None, 9),
        ("os.abort()", None, 6),
    ],
)
async def test_l15_exit_is_recorded_as_it_was_and_is_a_crash(start_plugin, statement, code, signum):
    plugin = await start_plugin(PLUGIN.format(statement))
    await plugin.hello()
    await plugin.ended()
    check(plugin.child.exit, code, signum)


@pytest.mark.parametrize(
    ("script", "code", "signum"),
    [("sh -c 'kill -9 $$'; exit $?", 137, None), ("kill -9 $$", None, 9), ("exit 0", 0, None)],
)
async def test_l15_code_of_a_wrapper_stays_a_code(start_plugin, script, code, signum):
    plugin = await start_plugin(argv=("/bin/sh", "-c", script))
    await plugin.ended()
    check(plugin.child.exit, code, signum)


def check(found: Exit, code: "int | None", signum: "int | None") -> None:
    assert (found.code, found.signal) == (code, signum)
    fault = crashed("faulty#1", found)
    assert fault.code == "CRASHED"
    assert (fault.details["exit"], fault.details["signal"]) == (code, signum)


IN_A_C_LOOP = """
import os, signal
from hotbay_sdk._serve import say

def main(i, o, control):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(5))
    say(control, "ready")
    sum(range(10**11))
"""
GRACE_S = 2.0


class Lag:
    """How late a callback that is due every 5 ms comes, while it is entered."""

    INTERVAL_S = 0.005

    def __init__(self) -> None:
        self.found_s: list[float] = []
        self._loop = asyncio.get_running_loop()
        self._handle = self._loop.call_later(self.INTERVAL_S, self._tick)
        self._due_s = self._loop.time() + self.INTERVAL_S

    def _tick(self) -> None:
        now_s = self._loop.time()
        self.found_s.append(now_s - self._due_s)
        self._due_s = now_s + self.INTERVAL_S
        self._handle = self._loop.call_later(self.INTERVAL_S, self._tick)

    def stop(self) -> float:
        """The 99th percentile."""
        self._handle.cancel()
        return sorted(self.found_s)[int(len(self.found_s) * 0.99)]


def cpu_ticks(pid: int) -> int:
    """What a process has used of CPU time in user mode, in the kernel's ticks."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11])


async def burns(pid: int, *, ticks: int) -> None:
    """Wait until a process has used so much CPU time, so that it is in its loop, where no handler runs."""
    with anyio.fail_after(WAIT_S * 2):
        while cpu_ticks(pid) < ticks:  # noqa: ASYNC110  # nobody tells of another process's CPU time
            await anyio.sleep(Lag.INTERVAL_S)


async def test_l17_handler_that_never_runs_is_killed_after_the_grace(start_plugin):
    plugin = await start_plugin(IN_A_C_LOOP)
    await plugin.hello()
    await plugin.said()
    await burns(plugin.child.pid, ticks=20)
    lag = Lag()
    begin_s = anyio.current_time()
    with anyio.fail_after(GRACE_S + WAIT_S / 2):
        found = await plugin.child.stop(GRACE_S)
    took_s = anyio.current_time() - begin_s
    p99_s = lag.stop()
    assert found is not None
    assert found.signal == signal.SIGKILL
    assert took_s >= GRACE_S
    # Five times the 50 ms of the field failure.
    assert p99_s < 0.25


DEAF = """
import os, signal
from hotbay_sdk._serve import say

def main(i, o, control):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(control, "ready")
    os.read(i, 1)
"""


async def test_l23_three_stops_and_a_kill_from_outside_are_one_exit(start_plugin, caplog):
    plugin = await start_plugin(DEAF)
    await plugin.hello()
    await plugin.said()
    caplog.set_level("INFO")
    found: list[Exit | None] = []

    async def stop() -> None:
        found.append(await plugin.child.stop(60))

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(stop)
            await anyio.lowlevel.checkpoint()
            os.kill(plugin.child.pid, signal.SIGKILL)
    found.append(await plugin.child.stop())
    assert [exit_ is plugin.child.exit for exit_ in found] == [True] * 4
    assert plugin.child.exit.signal == signal.SIGKILL
    assert [record.msg for record in caplog.records].count("process_ended pid=%s by=%s") == 1


READS = (
    "import os\nfrom hotbay_sdk._serve import say\ndef main(i, o, control):\n    say(control, 1)\n    os.read(i, 1)\n"
)


@contextmanager
def sigterm_blocked() -> "Iterator[None]":
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def sigterm_ignored() -> "Iterator[None]":
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def signal_set(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith(f"{name}:"))


@pytest.mark.parametrize("deaf_host", [sigterm_blocked, sigterm_ignored])
async def test_l33_plugin_of_a_host_that_does_not_hear_sigterm_hears_it(start_plugin, deaf_host):
    with deaf_host():
        plugin = await start_plugin(READS)
    await plugin.hello()
    await plugin.said()
    assert signal_set(plugin.child.pid, "SigBlk") == 0
    assert signal_set(plugin.child.pid, "SigIgn") & 1 << (signal.SIGTERM - 1) == 0
    with anyio.fail_after(WAIT_S):
        found = await plugin.child.stop(60)
    assert found is not None
    assert found.signal == signal.SIGTERM


async def test_z05_a_hundred_plugins_need_no_thread_and_leave_nothing(make_spec, start_plugin):
    before = (threads(), descriptors())
    plugins = [await start_plugin(label=f"many#{number}") for number in range(100)]
    assert threads() <= before[0]
    async with anyio.create_task_group() as group:
        for plugin in plugins:
            group.start_soon(plugin.child.stop)
    for plugin in plugins:
        assert plugin.child.exit is not None
        plugin.child.close()
    assert (threads(), descriptors()) <= before


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
