"""`hotbay demo` as a person runs it: green through a swap and a crash, red when every plugin is killed for good."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hotbay.demo.stage import sample

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not sample("v2").is_dir(), reason="the sample packages are not built: make setup"),
]
for part in ("gguf", "openai", "xllamacpp"):
    pytest.importorskip(part, reason=f"the package {part} is not installed")

RUN_TIMEOUT_S = 200.0
STAGE_TIMEOUT_S = 120.0
ENDING_S = 20.0
TRACE = Path(__file__).parents[2] / "benchmarks" / "data" / "mooncake-conversation.jsonl"


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "hotbay.cli", "demo", *arguments]


def play(tmp_path: Path, *arguments: str) -> tuple[int, dict[str, object], str]:
    """Run it; returns exit code, the object, and what went to standard error. Its temporary folder must be gone."""
    done = subprocess.run(
        command("--json", *arguments),
        capture_output=True,
        timeout=RUN_TIMEOUT_S,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # noqa: TID251  # the test's own environment
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    return done.returncode, json.loads(lines[0]), done.stderr


def generations(found: dict[str, object], plugin_id: str) -> list[dict[str, object]]:
    plugins = found["plugins"]
    assert isinstance(plugins, list)
    (row,) = (plugin for plugin in plugins if plugin["plugin"] == plugin_id)
    listed = row["generations"]
    assert isinstance(listed, list)
    return listed


@pytest.mark.parametrize("extra", [(), ("--trace", str(TRACE))], ids=["conversations", "trace"])
def test_no_request_fails_through_a_swap_and_a_crash(tmp_path: Path, extra: Sequence[str]):
    code, found, told = play(tmp_path, "--duration", "20", *extra)

    assert found["reasons"] == [], told
    assert code == 0
    assert (found["failed"], found["degraded_outside_kill_window"]) == (0, 0)
    assert (found["swaps"], found["crashes_survived"]) == (1, 1)
    assert (found["isolation"], found["upstream"]) == ("none", "llama.cpp")
    old, new = generations(found, "least-loaded")
    assert (old["version"], new["version"]) == ("1.0.0", "2.0.0")
    assert old["pid"] != new["pid"]
    killed, replaced = generations(found, "standard")
    assert killed["pid"] != replaced["pid"]
    assert all(g["failed"] == 0 and g["requests"] for g in (old, new, killed, replaced))


def test_without_any_plugin_requests_are_still_answered_and_the_demo_is_red(tmp_path: Path):
    code, found, told = play(tmp_path, "--duration", "12", "--sabotage")

    assert code == 1, told
    assert found["failed"] == 0
    requests, degraded = found["requests"], found["degraded_outside_kill_window"]
    assert isinstance(requests, int)
    assert isinstance(degraded, int)
    assert requests > 0
    assert degraded > 0
    assert found["green"] is False
    assert found["reasons"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_an_end_before_its_time_leaves_no_process(tmp_path: Path, signum: signal.Signals):
    """SIGKILL leaves the temporary folder behind, which nobody could prevent; the processes go with their parent."""
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # noqa: TID251  # the test's own environment
    with subprocess.Popen(
        command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as demo:
        assert demo.stderr is not None
        deadline = time.monotonic() + STAGE_TIMEOUT_S
        for line in demo.stderr:
            assert time.monotonic() < deadline
            if "answers" in line:
                break
        started = descendants(demo.pid)
        assert len(started) >= 7, "three servers, a host, three plugins"
        demo.send_signal(signum)
        demo.stderr.read()
        demo.wait(ENDING_S)

    for pid, began in started.items():
        wait_for_end(pid, began)
    if signum is signal.SIGINT:
        assert demo.returncode == 130
        assert list(tmp_path.iterdir()) == []


def stat_of(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; None for a process that is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def descendants(root: int) -> dict[int, str]:
    """All processes below `root` with the time at which each began."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        fields = stat_of(int(entry.name)) if entry.name.isdigit() else None
        if fields is not None:
            parents[int(entry.name)] = (int(fields[1]), fields[19])
    found: dict[int, str] = {}
    grown = True
    while grown:
        below = {pid: began for pid, (parent, began) in parents.items() if parent == root or parent in found}
        grown = len(below) > len(found)
        found = below
    return found


def wait_for_end(pid: int, began: str) -> None:
    """Wait on the process itself; a zombie that waits for its new parent to collect it has ended."""
    fields = stat_of(pid)
    if fields is None or fields[19] != began or fields[0] == "Z":
        return
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], ENDING_S)[0], f"process {pid} is still there"
    finally:
        os.close(descriptor)
