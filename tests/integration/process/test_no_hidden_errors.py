"""Nothing goes wrong unseen while processes come and go: the lifecycle's tests again, in Python's development mode (Z08).

What nobody retrieved, awaited or closed is said in destructors only, which pytest makes failures of.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(__file__).parent
LIFECYCLE = [FOLDER / name for name in ("test_start_and_stop.py", "test_death.py", "test_ends.py")]
ENOUGH = "l05 or l15 or l23 or l33 or cancelled or cycles or impossible"
"""Every way to start and to end: not what needs 100 processes or hosts of their own."""


def run_strictly(*arguments: object, folder: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    options = ["-X", "dev", "-W", "error::ResourceWarning", "-m", "pytest", "-q", "-p", "hidden_errors"]
    command = ["/usr/bin/env", f"PYTHONPATH={FOLDER}", sys.executable, *options, *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.timeout(180)
def test_z08_lifecycle_leaves_nothing_unclosed_unawaited_or_unretrieved():
    """The tests of processes, of the field failure's whole suite."""
    found = run_strictly(*LIFECYCLE, "-k", ENOUGH, "-p", "no:cacheprovider")
    assert found.returncode == 0, found.stdout[-4000:]
    assert " passed" in found.stdout
    assert "Warning" not in found.stdout + found.stderr


LEAKS = """
import asyncio, gc, socket

def test_unclosed():
    socket.socket()

async def nobody():
    pass

def test_never_awaited():
    nobody()

def test_never_retrieved():
    async def main():
        asyncio.get_running_loop().create_future().set_exception(ValueError("x"))
    asyncio.run(main())

def test_nothing_hidden():
    pass
"""


@pytest.mark.timeout(180)
def test_z08_each_kind_of_hidden_error_fails_a_test(tmp_path):
    """The control: these are what the run above would fail with."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_leak.py").write_text(LEAKS)
    found = run_strictly("test_leak.py", "-p", "no:randomly", folder=tmp_path)
    assert found.returncode == 1, found.stdout
    # What is said after a test is an error of its end.
    assert "2 failed, 2 passed, 1 error" in found.stdout, found.stdout
    for name, sign in (
        ("test_unclosed", "ResourceWarning"),
        ("test_never_awaited", "was never awaited"),
        ("test_never_retrieved", "never retrieved"),
    ):
        assert name in found.stdout
        assert sign in found.stdout
