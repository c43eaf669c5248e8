"""What a killed host leaves is ended by the next one, by lock and identity; nobody else is (L10, L22)."""

import fcntl
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import anyio
import anyio.abc
import pytest
from hotbay.process.launch import STAGE0
from hotbay.process.leftovers import HostRecords, ProcessRecord, end_leftovers
from hotbay.process.proc import machine, read_stat
from hotbay.store.state_dir import StateDirectory

pytestmark = [pytest.mark.process, pytest.mark.anyio]

WAIT_S = 5.0


@pytest.fixture
def stranger(pidfds: Callable[[int], int]) -> Iterator[int]:
    """A process that is nobody's here: `sleep`."""
    pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {})
    pidfds(pid)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def leave_record(root: Path, record: ProcessRecord) -> None:
    """As a host that was killed leaves it."""
    folder = root / "dead"
    folder.mkdir(parents=True)
    (folder / f"{record.pid}-{record.start_ticks}").write_text(json.dumps(asdict(record)))


def test_folder_that_its_host_takes_away_at_this_moment_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = HostRecords.open(tmp_path)
    locked = fcntl.flock

    def end_first(descriptor: int, operation: int) -> None:
        if operation & fcntl.LOCK_NB:
            ending.close()
        locked(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", end_first)
    assert end_leftovers(tmp_path) == 0


def record_of(pid: int, *, label: str = "sample#1") -> ProcessRecord:
    found = read_stat(pid)
    assert found is not None
    return ProcessRecord(machine(), label, pid, found.start_ticks, "5,6,7", (1 << 40,))


async def test_l10_process_that_has_a_recorded_number_now_lives(tmp_path, stranger, caplog):
    leave_record(tmp_path / "processes", replace(record_of(stranger), start_ticks=1))
    (tmp_path / "lock").write_text(str(stranger))
    state = StateDirectory.open(tmp_path)
    HostRecords.open(tmp_path / "processes").close()
    state.close()
    found = read_stat(stranger)
    assert found is not None
    assert found.state != "Z"
    (line,) = [record for record in caplog.records if "leftover_identity_mismatch" in record.getMessage()]
    assert (line.pid, line.plugin) == (stranger, "sample#1")


@pytest.mark.parametrize(
    "change",
    [
        {"machine": "another boot pid:[1]"},
        {"start_ticks": 1 << 50},
        {"start_ticks": 1, "pid": 1 << 40, "pipes": ()},
    ],
)
async def test_l10_process_of_another_boot_start_or_output_lives(tmp_path, stranger, change):
    leave_record(tmp_path, replace(record_of(stranger), **change))
    HostRecords.open(tmp_path).close()
    found = read_stat(stranger)
    assert found is not None
    assert found.state != "Z"


async def test_l10_recorded_process_itself_is_ended(tmp_path, stranger, pidfds, caplog):
    """The control of the cases above: with nothing changed it is the leftover."""
    leave_record(tmp_path, record_of(stranger))
    HostRecords.open(tmp_path).close()
    found = read_stat(stranger)
    assert found is not None
    assert found.state == "Z"
    assert any("leftover_ended" in record.getMessage() for record in caplog.records)


def test_l10_stranger_that_holds_a_plugins_output_lives(tmp_path):
    """Output alone is no identity: a plugin can give its pipe to anybody."""
    read_end, write_end = os.pipe()
    pid = os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)])
    try:
        record = replace(record_of(pid), pid=os.getpid(), start_ticks=1, pipes=(os.fstat(read_end).st_ino,))
        leave_record(tmp_path, record)
        HostRecords.open(tmp_path).close()
        found = read_stat(pid)
        assert found is not None
        assert found.state != "Z"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(read_end)
        os.close(write_end)


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00" * 10])
async def test_record_that_was_not_written_whole_is_said_and_forgotten(tmp_path, caplog, content):
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "1-1").write_text(content)
    records = HostRecords.open(tmp_path)
    assert not (tmp_path / "dead").exists()
    assert "record_unreadable" in caplog.text
    records.close()
    assert list(tmp_path.iterdir()) == [tmp_path / "lock"]


LEAVES_A_SESSION = """
import os, subprocess
from hotbay_sdk._serve import say

def main(i, o, control):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    say(control, [os.getpid(), child.pid])
    os.read(i, 1)
    os._exit(3)
"""


async def pids_of(host: anyio.abc.Process) -> tuple[int, int]:
    assert host.stdout is not None
    with anyio.fail_after(WAIT_S):
        plugin, grandchild = json.loads(await host.stdout.receive())
    return plugin, grandchild


async def test_l22_program_that_outlived_a_killed_host_is_ended_by_the_next(
    make_spec, tmp_path, program, pidfds, caplog
):
    environment, root = make_spec(LEAVES_A_SESSION).environment, tmp_path / "records"
    async with program("recorded_host.py", environment, root) as host:
        plugin, grandchild = map(pidfds, await pids_of(host))
        host.kill()
        with anyio.fail_after(WAIT_S):
            await anyio.wait_readable(plugin)
    # In a session of its own it hears nothing of all this.
    signal.pidfd_send_signal(grandchild, 0)
    records = HostRecords.open(root)
    with anyio.fail_after(WAIT_S):
        await anyio.wait_readable(grandchild)
    assert [path.name for path in root.iterdir() if path.is_dir()] == [records.folder.name]
    assert "leftover_ended" in caplog.text
    records.close()


async def test_l22_plugins_of_a_host_that_lives_are_left_alone(make_spec, tmp_path, program, pidfds):
    environment, root = make_spec(LEAVES_A_SESSION).environment, tmp_path / "records"
    async with program("recorded_host.py", environment, root) as host:
        plugin, grandchild = map(pidfds, await pids_of(host))
        HostRecords.open(root).close()
        for pidfd in (plugin, grandchild):
            signal.pidfd_send_signal(pidfd, 0)


async def test_l22_hosts_killed_in_the_middle_of_a_start_leave_nothing_to_the_next(
    real_environment, tmp_path, program, named_after, until
):
    """20 starts; L09 kills 200."""
    environment, root = real_environment("sum(range(10**13))\n"), tmp_path / "records"
    async with program("forked_hosts.py", "killed", environment, STAGE0, 20, root) as hosts:
        assert hosts.stdout is not None
        said = b"".join([part async for part in hosts.stdout])
    assert json.loads(said)["statuses"] == [signal.SIGKILL] * 20
    records = HostRecords.open(root)
    assert [path for path in root.iterdir() if path.is_dir()] == [records.folder]
    records.close()
    await until(lambda: not named_after(environment), within_s=WAIT_S, told=lambda: named_after(environment))


async def test_record_is_there_while_the_process_is_and_no_longer(start_plugin, tmp_path):
    records = HostRecords.open(tmp_path / "records")
    plugin = await start_plugin("import os\ndef main(i, *_): os.read(i, 1)\n", record_in=str(records.folder))
    (path,) = records.folder.iterdir()
    found = read_stat(plugin.child.pid)
    assert found is not None
    assert path.name == f"{plugin.child.pid}-{found.start_ticks}"
    await plugin.child.stop()
    assert list(records.folder.iterdir()) == []
    records.close()
    assert not records.folder.exists()


async def test_host_that_ends_takes_what_its_plugins_left_along(start_plugin, tmp_path, pidfds):
    records = HostRecords.open(tmp_path / "records")
    plugin = await start_plugin(LEAVES_A_SESSION, record_in=str(records.folder))
    await plugin.hello()
    _, grandchild = await plugin.said()
    pidfd = pidfds(grandchild)
    await plugin.child.stop()
    assert len(list(records.folder.iterdir())) == 1
    records.close()
    with anyio.fail_after(WAIT_S):
        await anyio.wait_readable(pidfd)
    records.close()


async def test_start_that_cannot_be_recorded_is_said_and_goes_on(start_plugin, tmp_path, caplog):
    plugin = await start_plugin(record_in=str(tmp_path / "missing"))
    await plugin.hello()
    assert "process_not_recorded" in caplog.text
