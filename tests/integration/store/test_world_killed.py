"""A world whose host is killed at any point has every transaction that was acknowledged, and none by half."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from hotbay.store.world.records import Floor
from hotbay.store.world.sqlite import SqliteWorld

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
KILLS = 60
REFS = 5

# Starts a writer for every line it reads: a fork is a hundred times faster than another interpreter. A writer puts one
# revision into several records per transaction, and says each number after it was acknowledged.
WRITERS = """
import os
import sys
from pathlib import Path
import anyio
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Floor
from hotbay.store.world.sqlite import SqliteWorld

REFS = int(sys.argv[2])

async def write():
    world = await SqliteWorld.open(Path(sys.argv[1]))
    rev = max((floor.rev for floor in world.view.all(Floor)), default=0)
    while True:
        rev += 1
        await world.transact(lambda _: [Put(Floor(f"plugin-{n}", rev)) for n in range(REFS)])
        os.write(1, b"%d\\n" % rev)

for _ in sys.stdin:
    pid = os.fork()
    if not pid:
        anyio.run(write)
    os.write(1, b"pid %d\\n" % pid)
    os.waitpid(pid, 0)
    os.write(1, b"dead\\n")
"""


def write_until_killed(writers: subprocess.Popen[str], acknowledged_count: int) -> int:
    """Kills a writer as soon as it acknowledged this many; returns the last number that it acknowledged, or 0."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write("go\n")
    writers.stdin.flush()
    pid, last, count, killed = 0, 0, 0, False
    for line in writers.stdout:
        if line == "dead\n":
            return last
        if line.startswith("pid"):
            pid = int(line.split()[1])
        else:
            last, count = int(line), count + 1
        if pid and count >= acknowledged_count and not killed:
            killed = True
            os.kill(pid, signal.SIGKILL)
    raise AssertionError("the writers ended")


async def revs_of_records(path: Path) -> list[int]:
    world = await SqliteWorld.open(path)
    try:
        return [floor.rev for floor in world.view.all(Floor)]
    finally:
        await world.close()


def test_killed_writer_loses_nothing_and_leaves_nothing_by_half(tmp_path: Path) -> None:
    generator = random.Random(20)
    path = tmp_path / "world.db"
    command = [sys.executable, "-c", WRITERS, str(path), str(REFS)]
    highest = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writers:
        for _ in range(KILLS):
            last = write_until_killed(writers, generator.choice([0, 0, 1, 2, 5, 20]))
            revs = anyio.run(revs_of_records, path)
            assert revs in ([], [*revs[:1]] * REFS), "a transaction is there by half"
            found = max(revs, default=0)
            assert found in (max(last, highest), max(last, highest) + 1), "an acknowledged transaction is gone"
            highest = found
        assert writers.stdin is not None
        writers.stdin.close()
    assert highest > KILLS
