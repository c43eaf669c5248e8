"""A process that prepares something has the CPU that others leave, and is as they are when it takes part."""

import os
from pathlib import Path

import pytest
from hotbay.priority import NICENESS, can_give_way

from tests.integration.conftest import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.anyio,
    pytest.mark.skipif(not can_give_way(), reason="no autogroups here, and no right to raise a process again"),
]

WAITS = """
import os, threading
def main(*links):
    threading.Thread(target=os.read, args=(links[2], 1), daemon=True).start()
    os.read(links[2], 1)
"""


def levels(pid: int) -> set[int]:
    """The niceness of all threads of a process, and of its session where the kernel schedules by sessions."""
    found = {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}
    group = Path(f"/proc/{pid}/autogroup")
    return found | ({int(group.read_text().split()[-1])} if group.exists() and group.read_text() else set())


@pytest.fixture
def own() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


async def test_what_gives_way_takes_part_when_told(start_plugin, own):
    running = await start_plugin(WAITS)
    await running.hello()
    before = levels(running.child.pid)
    running.child.give_way(600)
    lowered = levels(running.child.pid)
    assert lowered != before
    assert NICENESS in lowered
    running.child.take_part()
    await wait_until(lambda: levels(running.child.pid) == before)
    running.child.take_part()
    assert levels(running.child.pid) == before


async def test_what_gives_way_takes_part_by_itself_in_time(start_plugin, own):
    running = await start_plugin(WAITS)
    await running.hello()
    before = levels(running.child.pid)
    running.child.give_way(0.05)
    await wait_until(lambda: levels(running.child.pid) == before)
    assert max(before) == own


STARTS_ANOTHER = """
import os, subprocess, sys
from hotbay_sdk._serve import say
def main(*links):
    os.read(links[2], 1)
    other = subprocess.Popen([sys.executable, "-I", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    say(links[2], other.pid)
    os.read(links[2], 1)
"""


async def test_what_a_process_started_meanwhile_takes_part_with_it(start_plugin, own):
    running = await start_plugin(STARTS_ANOTHER)
    running.child.give_way(600)
    await running.hello()
    running.child.control.send(b"x")
    other = await running.said()
    running.child.take_part()
    await wait_until(lambda: levels(running.child.pid) == levels(other) == {own})


async def test_what_gave_way_may_end_meanwhile(start_plugin):
    running = await start_plugin(WAITS)
    await running.hello()
    running.child.give_way(600)
    await running.child.stop(0)
    running.child.take_part()
    assert running.child.exit is not None
