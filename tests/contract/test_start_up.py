"""What a plugin process imports until it is READY, and a host that need not. Their times are figures of the benchmarks."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SDK = Path(__file__).parents[2] / "sdk" / "hotbay_sdk"
TIMEOUT_S = 15

HEAVY = {
    "ast", "asyncio", "contextlib", "copyreg", "dataclasses", "difflib", "enum", "functools", "hashlib", "importlib",
    "inspect", "json", "logging", "msgpack.fallback", "numpy", "pathlib", "random", "re", "selectors", "signal", "socket",
    "subprocess", "tempfile", "threading", "traceback", "types", "typing", "unittest", "warnings", "weakref",
}  # fmt: skip
"""Each of these costs between a fiftieth and the whole of a bare interpreter's start."""

MAX_MODULES = 64
"""What one start may import, the SDK's own 32 and msgpack's needs included; it imports as many."""

PLUGIN = """
from hotbay_sdk import Plugin, Scorer
plugin = Plugin("trivial")
@plugin.type("constant")
class Constant(Scorer):
    def score(self, request, endpoint):
        return 1.0
"""

START = """
import sys
bare = set(sys.modules)
sys.path.append(sys.argv[1])
from hotbay_sdk import _serve
_serve.load("trivial:plugin").declarations
loaded = set(sys.modules) - bare
import json
print(json.dumps(sorted(loaded)))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A package's environment: the SDK, msgpack and a plugin."""
    folder = tmp_path / "site"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SDK, folder / "hotbay_sdk", ignore=ignored)
    spec = importlib.util.find_spec("msgpack")
    assert spec is not None
    assert spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, folder / "msgpack", ignore=ignored)
    (folder / "trivial.py").write_text(PLUGIN)
    return folder


def start(site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", "-B", "-c", START, str(site)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def imported(site: Path) -> set[str]:
    finished = start(site)
    assert finished.returncode == 0, finished.stderr
    return set(json.loads(finished.stdout))


def test_start_imports_nothing_heavy(site: Path):
    assert imported(site) & HEAVY == set()


def test_start_imports_few_modules(site: Path):
    found = imported(site)

    assert len(found) <= MAX_MODULES, sorted(found)


def test_start_without_msgpacks_extension_is_refused_with_what_to_do(site: Path):
    for extension in (site / "msgpack").glob("_cmsgpack*"):
        extension.unlink()

    finished = start(site)

    assert finished.returncode == 1
    assert "hotbay needs the C extension of msgpack" in finished.stderr
    assert "install a wheel of msgpack" in finished.stderr


def test_a_host_loads_nothing_that_asks_dns_until_it_has_to():
    command = [sys.executable, "-c", "import sys, hotbay.app; print('dns' in sys.modules)"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=4 * TIMEOUT_S, check=True)
    assert finished.stdout == "False\n"
