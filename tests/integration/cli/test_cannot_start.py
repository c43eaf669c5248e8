"""`hotbay run` that cannot start: one line a problem, what to do, the exit code, and no traceback."""

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PICKER = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: TYPE}]\n"
HOST = (
    "apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: state\nsources: [{name: bundled, fetch: 'off'}]\n"
    "listen: {http: '127.0.0.1:PORT'}\n"
)


@pytest.fixture
def run(tmp_path):
    """Run it with a HostConfig in `tmp_path`; returns the exit code and what it said to people."""

    def start(*options, port=0, kind="max-score-picker"):
        (tmp_path / "host.yaml").write_text(HOST.replace("PORT", str(port)))
        command = [Path(sys.executable).with_name("hotbay"), "run", "-c", tmp_path / "host.yaml", *options]
        ended = subprocess.run(
            [*command, "--config-text", PICKER.replace("TYPE", kind)], capture_output=True, text=True, timeout=15
        )
        return ended.returncode, [line for line in ended.stderr.splitlines() if not line.startswith("{")]

    return start


def test_unknown_type_exits_with_78(run):
    code, said = run(kind="nosuch")
    assert code == 78
    assert said[0].startswith("error: --config-text:3:11: UNKNOWN_TYPE: ")
    assert len(said) == 1


def test_address_in_use_exits_with_1(run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = run(port=port)
    assert code == 1
    assert said[0].startswith(f"error: UNAVAILABLE: cannot listen on 127.0.0.1:{port}: ")
    assert said[1].startswith("  what to do: ")
    assert len(said) == 2


def test_state_directory_in_use_exits_with_1(run, tmp_path):
    (tmp_path / "state").mkdir()
    lock = os.open(tmp_path / "state" / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, said = run()
    finally:
        os.close(lock)
    assert code == 1
    assert said[0].startswith("error: UNAVAILABLE: the state directory ")
    assert len(said) == 2


def test_state_directory_that_cannot_be_used_exits_with_78(run, tmp_path):
    (tmp_path / "state").write_text("")
    code, said = run()
    assert (code, len(said)) == (78, 1)
    assert said[0].startswith("error: CONFIG_INVALID: state_dir: ")


def test_address_of_ipv6_is_shown_as_a_url(tmp_path):
    (tmp_path / "host.yaml").write_text(HOST.replace("127.0.0.1:PORT", "[::1]:0"))
    command = [Path(sys.executable).with_name("hotbay"), "run", "-c", tmp_path / "host.yaml"]
    picker = ["--config-text", PICKER.replace("TYPE", "max-score-picker")]
    with subprocess.Popen([*command, *picker], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if line.startswith("hotbay serves on "))
        finally:
            process.kill()
    assert line.startswith("hotbay serves on http://[::1]:")
