"""A plugin that cannot start: told at once, with all that its author needs, and nothing of it left (L12, L29, L31)."""

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hotbay.errors import HostError, PluginFault
from hotbay.process.child import Child
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.instance import Instance, StartOptions
from hotbay.rpc.leases import Origin

pytestmark = [pytest.mark.process, pytest.mark.anyio]

WAIT_S = 5.0
"""Five times the second that the field failures allow."""

FAILS_TO_IMPORT = """
import sys
for number in range(12):
    print("line", number, file=sys.stderr)
from collections import no_such_name
"""


async def test_l12_module_that_fails_to_import_tells_exit_command_and_traceback(real_environment):
    environment = real_environment(FAILS_TO_IMPORT)
    spec = LaunchSpec(sys.executable, STAGE0, str(environment), "plugin_under_test:plugin", "/", "none", "faulty#1")
    instance = Instance.launch(spec, LogSink(spec.label), lambda _: None)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            with pytest.raises(HostError) as caught:
                await instance.handshake(Origin("faulty", "1", 1, "sha256:0"), 1, ["sample"], StartOptions())
    error = caught.value
    assert error.code == "START_FAILED"
    assert "no_such_name" in error.message
    assert error.details["exit"] == 1
    assert error.details["argv"] == [
        sys.executable, "-I", "-S", STAGE0, str(environment), "plugin_under_test:plugin", "faulty#1",
    ]  # fmt: skip
    lines = str(error.details["stderr"]).splitlines()
    assert len(lines) >= 10
    assert "line 11" in lines
    assert any(line.startswith("ImportError: cannot import name 'no_such_name'") for line in lines)


def missing(folder: Path) -> Path:
    return folder / "python3"


def without_x_bit(folder: Path) -> Path:
    path = folder / "python3"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o644)
    return path


def of_another_machine(folder: Path) -> Path:
    # A 64-bit little-endian executable for machine number 0xFFFF, which nobody has.
    path = folder / "python3"
    path.write_bytes(b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 2, 0xFFFF, 1, *[0] * 10))
    path.chmod(0o755)
    return path


def directory(folder: Path) -> Path:
    path = folder / "python3"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("make", "errno_name"),
    [(missing, "ENOENT"), (without_x_bit, "EACCES"), (of_another_machine, "ENOEXEC"), (directory, "EACCES")],
)
async def test_l29_program_that_cannot_be_run_is_named_and_leaves_nothing(
    make_spec, tmp_path, make: Callable[[Path], Path], errno_name, named_after
):
    (tmp_path / "bin").mkdir()
    path = make(tmp_path / "bin")
    before = descriptors()
    records = tmp_path / "records"
    records.mkdir()
    begin_s = anyio.current_time()
    with pytest.raises(PluginFault) as caught:
        Child.start(make_spec(interpreter=str(path), record_in=str(records)), LogSink("faulty#1"))
    assert anyio.current_time() - begin_s < WAIT_S
    error = caught.value
    assert error.code == "START_FAILED"
    assert error.details["errno"] == errno_name
    assert errno_name in error.message
    assert str(path) in error.message
    assert "hosts[].interpreter" in error.hint
    assert descriptors() == before
    assert named_after(tmp_path) == set()
    assert list(records.iterdir()) == []


async def test_l31_long_names_and_folders_start(start_plugin, tmp_path, monkeypatch):
    folder = tmp_path / ("t" * (120 - len(str(tmp_path)) - 1) if len(str(tmp_path)) < 118 else "t" * 40)
    folder.mkdir()
    assert len(str(folder)) >= 120
    monkeypatch.setenv("TMPDIR", str(folder))
    (folder / "records").mkdir()
    plugin = await start_plugin(
        "import os\ndef main(i, o, control): os.read(control, 1)\n",
        label=f"{'n' * 63}#1",
        working_directory=str(folder),
        record_in=str(folder / "records"),
    )
    await plugin.hello()
    assert len(list((folder / "records").iterdir())) == 1


def descriptors() -> set[str]:
    listed = list(Path("/proc/self/fd").iterdir())
    return {path.name for path in listed if os.path.lexists(path)}
