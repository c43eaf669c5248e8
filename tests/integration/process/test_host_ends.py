"""What is left when a host is killed, cancelled, or process 1: nothing (L09, L25, L27)."""

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import anyio
import anyio.abc
import pytest
from hotbay.process.launch import STAGE0
from hotbay.process.proc import process_ids, read_stat

pytestmark = [pytest.mark.process, pytest.mark.anyio]

GONE_WITHIN_S = 10.0
"""Five times the two seconds of the field failures."""
ROUND_WITHIN_S = 5 * (2.0 + 1.0)
"""Five times the grace and a second."""
IN_A_C_LOOP = "sum(range(10**13))\n"
READY = "from hotbay_sdk import Plugin, Scorer\nplugin = Plugin('sample')\n"


async def rounds(program, kind: str, environment: Path, count: int, *, stage0: str = STAGE0) -> dict:
    async with program("forked_hosts.py", kind, environment, stage0, count) as hosts:
        return json.loads(await all_of(hosts))


async def all_of(process: anyio.abc.Process) -> str:
    """Everything that it prints until it ends."""
    assert process.stdout is not None
    return b"".join([part async for part in process.stdout]).decode()


async def gone(named_after, environment: Path, until) -> None:
    """Wait until nothing is left that has the folder in its command line."""
    await until(lambda: not named_after(environment), within_s=GONE_WITHIN_S, told=lambda: named_after(environment))


@pytest.mark.timeout(120)
async def test_l09_host_killed_while_it_starts_a_plugin_leaves_none(real_environment, program, named_after, until):
    environment = real_environment(IN_A_C_LOOP)
    found = await rounds(program, "killed", environment, 200)
    assert found["statuses"] == [signal.SIGKILL] * 200
    await gone(named_after, environment, until)


async def check_cancelled(real_environment, program, named_after, until, count: int) -> None:
    environment = real_environment(READY)
    found = await rounds(program, "cancelled", environment, count)
    assert found["statuses"] == [0] * count
    assert max(found["times_s"]) < ROUND_WITHIN_S
    await gone(named_after, environment, until)


@pytest.mark.timeout(120)
async def test_l27_hosts_that_cancel_their_starts_end(real_environment, program, named_after, until):
    """3 rounds of the field failure's 50; the slow lane runs all."""
    await check_cancelled(real_environment, program, named_after, until, 3)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_l27_all_fifty_hosts_that_cancel_their_starts_end(real_environment, program, named_after, until):
    await check_cancelled(real_environment, program, named_after, until, 50)


DOUBLE_FORKS = """
import os, time
from hotbay_sdk._serve import say

def main(i, o, control):
    for number in range(50):
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                time.sleep(number / 500)
            os._exit(0)
        os.waitpid(child, 0)
    say(control, "all forked")
    os.read(i, 1)
"""
UNSHARE = ("unshare", "-pf", "--mount-proc")


@pytest.fixture(scope="module")
def as_process_1() -> tuple[str, ...]:
    """What makes a command process 1 of a namespace of its own."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare (util-linux) is not installed")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"this user may make no pid namespace: {tried.stderr.strip()}")
    return UNSHARE


@pytest.mark.parametrize("guarded", [True, False])
async def test_l25_host_as_process_1_reaps_what_plugins_orphan(make_spec, as_process_1, program, guarded):
    environment = Path(make_spec(DOUBLE_FORKS).environment)
    mode = "guarded" if guarded else "alone"
    async with program("host_as_init.py", environment, mode, prefix=as_process_1) as host:
        found = json.loads(await all_of(host))
        assert await host.wait() == 7
    # Without the process before it the host would be the parent of them all: this is what the failure looks like.
    assert found["zombies"] == (0 if guarded else 50)
    assert found["descriptors"][0] == found["descriptors"][1]
    assert found["pid"] == (2 if guarded else 1)


async def test_l25_process_1_hands_signals_on_and_ends_as_its_host(tmp_path, as_process_1, program):
    async with program("host_as_init.py", tmp_path, "wait", prefix=as_process_1) as unshare:
        assert unshare.stdout is not None
        assert json.loads(await unshare.stdout.receive()) == {"pid": 2}
        (first,) = [pid for pid in process_ids() if (found := read_stat(pid)) and found.parent == unshare.pid]
        os.kill(first, signal.SIGTERM)
        with anyio.fail_after(GONE_WITHIN_S):
            assert await unshare.wait() == 5
