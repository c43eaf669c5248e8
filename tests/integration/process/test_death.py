"""How a plugin's end is noticed, and that nothing of it stays (L05, L07)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from hotbay_sdk.protocol import FrameType

pytestmark = [pytest.mark.process, pytest.mark.anyio]

WAIT_S = 5.0

LEAVES_GRANDCHILD = """
import os, subprocess
from hotbay_sdk._serve import say

def main(call_in, call_out, control):
    for descriptor in (call_in, call_out, control):
        os.set_inheritable(descriptor, True)
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    say(control, child.pid)
    os.read(call_in, 1)
    os._exit(3)
"""


async def test_l05_exit_is_seen_while_grandchild_holds_the_pipes(start_plugin, pidfds):
    plugin = await start_plugin(LEAVES_GRANDCHILD)
    await plugin.hello()
    grandchild = pidfds(await plugin.said())
    os.write(plugin.child.call_out_fd, b"!")
    with anyio.fail_after(WAIT_S):
        exit_ = await plugin.child.wait()
        await anyio.wait_readable(grandchild)
    assert (exit_.code, exit_.signal) == (3, None)

    following = await start_plugin("", label="faulty#2")
    await following.expect(FrameType.ARMED)


async def test_l05_exit_is_seen_although_a_grandchild_outlives_it(start_plugin, pidfds):
    plugin = await start_plugin(LEAVES_GRANDCHILD.replace("close_fds=False", "close_fds=False, start_new_session=True"))
    await plugin.hello()
    grandchild = pidfds(await plugin.said())
    os.write(plugin.child.call_out_fd, b"!")
    with anyio.fail_after(WAIT_S):
        assert (await plugin.child.wait()).code == 3
    # It holds every pipe: no end of file was there to wait for.
    signal.pidfd_send_signal(grandchild, 0)


async def test_l05_group_dies_with_a_killed_plugin(start_plugin, pidfds):
    plugin = await start_plugin(LEAVES_GRANDCHILD)
    await plugin.hello()
    grandchild = pidfds(await plugin.said())
    plugin.child.signal(signal.SIGKILL)
    with anyio.fail_after(WAIT_S):
        exit_ = await plugin.child.wait()
        await anyio.wait_readable(grandchild)
    assert (exit_.code, exit_.signal) == (None, signal.SIGKILL)


@pytest.mark.parametrize("anyio_backend", ["uvloop", "asyncio"], indirect=True)
async def test_end_is_told_to_every_waiter(start_plugin):
    plugin = await start_plugin("import os\ndef main(*links): os._exit(7)\n")
    found = []

    async def wait() -> None:
        found.append((await plugin.child.wait()).code)

    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await plugin.hello()
    assert found == [7, 7]


async def test_signals_after_exit_reach_nobody(start_plugin):
    plugin = await start_plugin("def main(*links): pass\n")
    await plugin.hello()
    await plugin.ended()
    plugin.child.signal(signal.SIGKILL)
    plugin.child.kill_group()
    assert plugin.child.exit.code == 0


IDLE = "def main(i, o, control):\n    ready(control)\n    os.read(control, 1)\n    os._exit(0)\n"
C_LOOP = "def main(i, o, control):\n    ready(control)\n    sum(range(10**13))\n"
DEAF = "def main(i, o, control):\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    ready(control)\n    time.sleep(600)\n"
PREAMBLE = "import os, signal, time\nfrom hotbay_sdk._serve import say\ndef ready(c): say(c, os.getpid())\n"
HOST_TO_KILL = Path(__file__).with_name("host_to_kill.py")


@contextmanager
def program(command: list[str]) -> "Iterator[subprocess.Popen[bytes]]":
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_l07_no_plugin_outlives_a_killed_host(make_spec, pidfds):
    environment = Path(make_spec().environment)
    for name, source in (("idle", IDLE), ("c_loop", C_LOOP), ("deaf", DEAF)):
        (environment / f"{name}.py").write_text(PREAMBLE + source)
    command = [sys.executable, str(HOST_TO_KILL), str(environment), "idle", "c_loop", "deaf"]
    with program(command) as host:
        assert host.stdout is not None
        with anyio.fail_after(3 * WAIT_S):
            await anyio.wait_readable(host.stdout)
        pids = json.loads(host.stdout.readline())
        assert len(pids) == 3
        plugins = [pidfds(pid) for pid in pids]
        host.kill()
        with anyio.fail_after(10):
            for pidfd in plugins:
                await anyio.wait_readable(pidfd)


async def test_l07_host_gone_before_go_runs_no_plugin_code(start_plugin, plugin_log):
    plugin = await start_plugin("print('plugin code ran')\n")
    await plugin.expect(FrameType.ARMED)
    plugin.child.close()
    await plugin.ended()
    assert plugin.child.exit.code == 0
    assert plugin.log.lines() == []
