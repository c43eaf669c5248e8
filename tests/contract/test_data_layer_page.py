"""The page of the data layer says what the code does: all that its tables name exists, and no name of the reference is left out."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hotbay.config.data_types import BUILTIN_FORMS
from hotbay.config.discovery_parameters import DISCOVERIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "data-layer.md").read_text()
REFERENCE = (ROOT / "tests" / "data" / "reference_data_layer.txt").read_text().split()
HEAD = ["reference", "ours", "contract", "test"]

Table = tuple[list[str], list[list[str]]]


def tables(page: str) -> list[Table]:
    """The tables of a page: heads and rows, cell by cell."""
    found: list[Table] = []
    for block in re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE):
        head, _, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()]
        found.append((head, rows))
    return found


def ours(text: str) -> list[str]:
    return re.findall(r"`(hotbay\w*(?:\.\w+)*:[\w.]+)`", text)


def proofs(text: str) -> list[str]:
    return re.findall(r"`(tests/[\w/.]+::\w+)`", text)


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def problem_of(name: str) -> str:
    """Why `module:name` is nothing, empty when it is something."""
    module, _, path = name.partition(":")
    try:
        value: object = import_module(module)
        for part in path.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError) as error:
        return f"{name}: {error}"
    return ""


@cache
def names_in(path: Path) -> frozenset[str]:
    """What a file of tests has at its top level: functions, classes, and classes that are assigned."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(found)


def problem_of_test(test: str) -> str:
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return f"{test}: there is no such file"
    runs = name.startswith(("test_", "Test")) and name in names_in(ROOT / path)
    return "" if runs else f"{test}: the file has no such test"


MAPPED = [row for head, rows in tables(PAGE) if head == HEAD for row in rows]
PROVED = [(head, row) for head, rows in tables(PAGE) if head[-1] == "test" for row in rows]


def test_every_row_is_whole() -> None:
    assert len(MAPPED) > 50
    assert [row for row in MAPPED if len(row) != len(HEAD) or not all(row)] == []
    assert [row for head, row in PROVED if len(row) != len(head)] == []
    assert [row[0] for row in MAPPED if not names(row[0]) or not ours(row[1]) or not row[2].endswith(".")] == []
    assert [row[0] for _, row in PROVED if not proofs(row[-1])] == []
    # Nothing stands in these cells that is not held against the code.
    assert [row[1] for row in MAPPED if len(ours(row[1])) != len(names(row[1]))] == []
    assert [row[-1] for _, row in PROVED if len(proofs(row[-1])) != len(names(row[-1]))] == []


def test_every_name_of_the_reference_is_mapped_and_no_other() -> None:
    mapped = {name for row in MAPPED for name in names(row[0])}
    assert len(REFERENCE) == len(set(REFERENCE)) > 100
    assert sorted(set(REFERENCE) - mapped) == []
    assert sorted(mapped - set(REFERENCE)) == []


def test_everything_of_ours_exists() -> None:
    named = ours(PAGE)
    assert len(named) > 80
    assert [problem for name in named if (problem := problem_of(name))] == []


def test_every_test_exists() -> None:
    named = proofs(PAGE)
    assert len(named) > 100
    assert len(named) == PAGE.count("tests/"), "a path of the page is of another form"
    assert [problem for test in named if (problem := problem_of_test(test))] == []


def test_every_type_of_the_host_is_listed() -> None:
    listed = [name for head, rows in tables(PAGE) if head[0] == "type" for row in rows for name in names(row[0])]
    assert sorted(listed) == sorted({*BUILTIN_FORMS, *DISCOVERIES})


@pytest.mark.parametrize(
    "name",
    ["hotbay.datalayer.nothing:Store", "hotbay.datalayer.store:Nothing", "hotbay.datalayer.store:EndpointStore.no"],
)
def test_negative_control_of_names(name: str) -> None:
    assert problem_of(name)


@pytest.mark.parametrize(
    "test", ["tests/contract/test_nothing.py::test_x", f"{Path(__file__).relative_to(ROOT)}::test_x",
             f"{Path(__file__).relative_to(ROOT)}::proofs"],
)  # fmt: skip
def test_negative_control_of_tests(test: str) -> None:
    assert problem_of_test(test)
