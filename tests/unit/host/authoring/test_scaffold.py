"""Names of a new project: what is refused, and that nothing of it can be taken for anything else."""

import ast
import keyword
import sys
import tomllib

import pytest
from hotbay.authoring.data_templates import DATA_BODIES
from hotbay.authoring.inputs import read_requests
from hotbay.authoring.scaffold import POINTS, check_name, names_of, project_files
from hotbay.errors import InputError
from hotbay.packages.project import parse_project
from hypothesis import given
from hypothesis import strategies as st

LABELS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize("name", ["../x", "a/b", "A", " a", "\u0430dmin", "a" * 300, "", "a@b", "-a", "a-", "a\n"])
def test_p16_hostile_and_odd_names_are_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        check_name(name)
    assert [problem.code for problem in caught.value.problems] == ["INVALID_NAME"]
    with pytest.raises(InputError):
        names_of(name, "scorer")


def test_p16_a_plain_name_is_taken() -> None:
    assert check_name("a-1") == "a-1"


@pytest.mark.parametrize(("length", "fits"), [(63, True), (64, False)])
def test_a_name_has_at_most_63_characters(length: int, fits: bool) -> None:
    if fits:
        assert check_name("a" * length)
    else:
        with pytest.raises(InputError):
            check_name("a" * length)


@pytest.mark.parametrize(("length", "fits"), [(56, True), (57, False)])
def test_the_types_name_has_room_for_its_point(length: int, fits: bool) -> None:
    if fits:
        assert len(names_of("a" * length, "scorer").type) == 63
    else:
        with pytest.raises(InputError):
            names_of("a" * length, "scorer")


def test_a_name_that_says_the_point_is_the_type() -> None:
    assert names_of("short-queue-scorer", "scorer").type == "short-queue-scorer"
    assert names_of("short-queue", "scorer").type == "short-queue-scorer"
    assert names_of("scorer", "scorer").type == "scorer"


@pytest.mark.parametrize("name", ["json", "class", "hotbay-sdk", "msgpack", "tests", "1a", "hotbay"])
def test_modules_do_not_hide_others(name: str) -> None:
    assert names_of(name, "scorer").module == "plugin_" + name.replace("-", "_")


@pytest.mark.parametrize(("point", "words"), [("extractor", "an extractor"), ("scorer", "a scorer")])
def test_the_readme_names_the_point_by_its_article(point: str, words: str) -> None:
    names = names_of("mine", point)
    assert f"`{names.type}`, {words}." in project_files(names, point, publisher="me")["README.md"]


@given(LABELS, st.sampled_from(POINTS))
def test_every_name_makes_a_project_that_can_be_read(name: str, point: str) -> None:
    names = names_of(name, point)
    files = project_files(names, point, publisher="me")

    assert names.module.isidentifier()
    assert not keyword.iskeyword(names.module)
    assert names.module not in sys.stdlib_module_names
    project = parse_project(files["pyproject.toml"], file="pyproject.toml")
    assert (project.id, project.types, project.entrypoint) == (name, (names.type,), f"{names.module}:plugin")
    assert tomllib.loads(files["pyproject.toml"])["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [
        names.module
    ]
    assert project.data_types == (project.types if point in DATA_BODIES else ())
    assert ("request.json" in files) is (point not in DATA_BODIES)
    if "request.json" in files:
        assert read_requests(files["request.json"], file="request.json", headers={})
    assert "$" not in "".join(text for path, text in files.items() if path != "README.md")
    for path, text in files.items():
        assert not path.startswith("/")
        assert ".." not in path
        if path.endswith(".py"):
            ast.parse(text)
