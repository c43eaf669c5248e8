"""What may be imported where the import contracts cannot say it: allow-lists that include the standard library."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTOCOL = ROOT / "sdk" / "hotbay_sdk" / "protocol"


def imported_modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            yield node.module or ""


def foreign(file: Path, *allowed: str) -> set[str]:
    return {
        module
        for module in imported_modules(file)
        if module.partition(".")[0] not in sys.stdlib_module_names and not module.startswith(allowed)
    }


@pytest.mark.parametrize("file", sorted(PROTOCOL.glob("*.py")), ids=lambda file: file.name)
def test_protocol_imports_the_standard_library_and_msgpack_only(file: Path):
    assert foreign(file, "hotbay_sdk.protocol", "msgpack") == set()


@pytest.mark.parametrize("file", sorted((ROOT / "sdk" / "hotbay_sdk").glob("*.py")), ids=lambda file: file.name)
def test_sdk_imports_the_standard_library_and_itself_only(file: Path):
    assert foreign(file, "hotbay_sdk") == set()


def test_stage0_imports_the_standard_library_and_the_serving_loop_only():
    stage0 = ROOT / "host" / "hotbay" / "process" / "stage0.py"

    assert foreign(stage0) == {"hotbay_sdk"}


@pytest.mark.parametrize("file", sorted((ROOT / "host" / "hotbay").rglob("*.py")), ids=lambda file: file.stem)
def test_host_imports_no_private_module_of_the_sdk(file: Path):
    if file.name == "stage0.py":
        return
    assert [m for m in imported_modules(file) if m.startswith("hotbay_sdk._")] == []
