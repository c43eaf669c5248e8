"""The plugin author's pyproject.toml: strict, with file and line."""

import pytest
from hotbay.errors import InputError
from hotbay.packages.manifest import Channel, TypeFactsEntry
from hotbay.packages.project import PluginProject, parse_project

VALID = """\
[project]
name = "hotbay-plugin-sample"
version = "0.1.0"
description = "Sample."
license = "Apache-2.0"

[tool.hotbay]
id = "sample"
publisher = "tests"
types = ["b-scorer", "a-scorer"]
entrypoint = "sample:plugin"
channel = "release"
"""


def problems(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_project(text, file="pyproject.toml")
    return [str(problem) for problem in caught.value.problems]


def test_valid_project() -> None:
    assert parse_project(VALID, file="pyproject.toml") == PluginProject(
        name="hotbay-plugin-sample",
        version="0.1.0",
        description="Sample.",
        license="Apache-2.0",
        id="sample",
        publisher="tests",
        types=("a-scorer", "b-scorer"),
        entrypoint="sample:plugin",
        capabilities=(),
        channel=Channel.RELEASE,
    )


def test_capabilities_are_taken_by_name_and_sorted() -> None:
    asked = VALID + 'capabilities = ["storage", "metric"]\n'
    assert parse_project(asked, file="pyproject.toml").capabilities == ("metric", "storage")


def test_channel_and_texts_have_defaults() -> None:
    text = VALID.replace('channel = "release"\n', "").replace('license = "Apache-2.0"', 'license = {file = "LICENSE"}')
    project = parse_project(text, file="pyproject.toml")
    assert (project.channel, project.license) == (Channel.DEV, "")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('id = "sample"', 'id = "Bad_Id"', "pyproject.toml:8: CONFIG_INVALID: tool.hotbay.id: may hold lower-case"),
        ('id = "sample"', "id = 3", "pyproject.toml:8: CONFIG_INVALID: tool.hotbay.id: must be a text"),
        ('id = "sample"\n', "", "pyproject.toml:7: CONFIG_INVALID: tool.hotbay.id: must be a text"),
        (
            'types = ["b-scorer", "a-scorer"]',
            "types = []",
            "pyproject.toml:10: CONFIG_INVALID: tool.hotbay.types: must name",
        ),
        ('types = ["b-scorer", "a-scorer"]', 'types = "a"', "tool.hotbay.types: must be a list of texts"),
        ('"b-scorer", "a-scorer"', '"a", "a"', "tool.hotbay.types: names something twice"),
        ('"b-scorer", "a-scorer"', '"A"', "pyproject.toml:10: CONFIG_INVALID: tool.hotbay.types: may hold"),
        ("sample:plugin", "sample", 'tool.hotbay.entrypoint: must be "module:attribute"'),
        ('"release"', '"fubar"', 'pyproject.toml:12: CONFIG_INVALID: tool.hotbay.channel: must be "release" or "dev"'),
        (
            'version = "0.1.0"',
            'dynamic = ["version"]',
            "pyproject.toml:1: CONFIG_INVALID: project.version: must be a text",
        ),
        ('version = "0.1.0"', 'version = "1"', "pyproject.toml:3: CONFIG_INVALID: project.version: must be MAJOR"),
        (
            "channel",
            "chanel",
            "pyproject.toml:12: UNKNOWN_FIELD: tool.hotbay.chanel: unknown key. Did you mean channel?",
        ),
        ("channel", "zzz", "Known keys: capabilities, channel"),
        (
            'channel = "release"',
            'capabilities = ["metric", "storages"]',
            "pyproject.toml:12: INVALID_PACKAGE: tool.hotbay.capabilities: unknown capability (expected some of dial, endpoints,",
        ),
        (
            'channel = "release"',
            'capabilities = ["metric", "storages"]',
            "metric, recycle, secret, storage, found storages). Did you mean storage?",
        ),
        (
            'channel = "release"',
            'capabilities = ["host_calls.now"]',
            "CONFIG_INVALID: tool.hotbay.capabilities: may hold",
        ),
        ("[tool.hotbay]", "[tool.other]", "CONFIG_INVALID: tool.hotbay: this table is missing. Add [tool.hotbay]"),
        ("[project]", "[projekt]", "CONFIG_INVALID: project: this table is missing"),
        ("[tool.hotbay]", "[tool.hotbay", "pyproject.toml:7:13: CONFIG_INVALID"),
    ],
)
def test_problem_has_its_place(old: str, new: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(VALID.replace(old, new)))


def test_all_problems_are_found_at_once() -> None:
    text = VALID.replace('"sample"', '"S"').replace('"tests"', '""').replace("channel", "chanel")
    assert len(problems(text)) == 3


def test_tool_that_is_no_table_is_refused() -> None:
    assert "this table is missing" in problems("tool = 1\n[project]\nname = 'x'\n")[0]


def test_one_shot_is_a_flag() -> None:
    assert not parse_project(VALID, file="pyproject.toml").one_shot
    assert parse_project(VALID + "one_shot = true\n", file="pyproject.toml").one_shot
    [problem] = problems(VALID + 'one_shot = "yes"\n')
    assert "pyproject.toml:13: CONFIG_INVALID: tool.hotbay.one_shot: must be true or false" in problem


def test_data_types_are_types() -> None:
    assert parse_project(VALID, file="pyproject.toml").data_types == ()
    types = parse_project(VALID, file="pyproject.toml").types
    assert parse_project(f'{VALID}data_types = ["{types[0]}"]\n', file="pyproject.toml").data_types == types[:1]
    with pytest.raises(InputError) as caught:
        parse_project(VALID + 'data_types = ["other"]\n', file="pyproject.toml")
    assert [problem.path for problem in caught.value.problems] == ["tool.hotbay.data_types"]


TABLES = """\

[tool.hotbay.types.a-scorer]
points = ["score", "pre_request"]
stability = "stable"

[tool.hotbay.types.b-handler]
points = ["profile_handler"]
refs = ["deciders.prefill", "plugins.*.pluginRef"]
produces_default = ["MyKey"]

[tool.hotbay.types.c-source]
points = ["watch"]
"""
TABLED = VALID.replace('types = ["b-scorer", "a-scorer"]\n', "") + TABLES


def test_types_in_tables_say_what_they_are() -> None:
    project = parse_project(TABLED, file="pyproject.toml")
    assert project.types == ("a-scorer", "b-handler", "c-source")
    assert project.type_facts == {
        "a-scorer": TypeFactsEntry(points=("pre_request", "score"), stability="stable"),
        "b-handler": TypeFactsEntry(
            points=("profile_handler",), refs=("deciders.prefill", "plugins.*.pluginRef"), produces_default=("MyKey",)
        ),
        "c-source": TypeFactsEntry(points=("watch",)),
    }


def test_stability_of_the_package_is_that_of_types_that_say_none() -> None:
    text = TABLED.replace("[tool.hotbay]\n", '[tool.hotbay]\nstability = "beta"\n')
    facts = parse_project(text, file="pyproject.toml").type_facts
    assert [facts[name].stability for name in sorted(facts)] == ["stable", "beta", "beta"]
    listed = VALID.replace("[tool.hotbay]\n", '[tool.hotbay]\nstability = "alpha"\n')
    facts = parse_project(listed, file="pyproject.toml").type_facts
    assert set(facts.items()) == {(name, TypeFactsEntry(stability="alpha")) for name in ("a-scorer", "b-scorer")}


def test_types_of_which_nothing_is_said_are_a_list() -> None:
    text = VALID.replace('types = ["b-scorer", "a-scorer"]\n', "") + "\n[tool.hotbay.types.x]\n"
    assert (parse_project(text, file="p").types, parse_project(text, file="p").type_facts) == (("x",), {})


def test_data_types_are_those_whose_points_are_the_data_layers_unless_written() -> None:
    assert parse_project(TABLED, file="pyproject.toml").data_types == ("c-source",)
    text = TABLED.replace("[tool.hotbay]\n", "[tool.hotbay]\ndata_types = []\n")
    assert parse_project(text, file="pyproject.toml").data_types == ()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('points = ["watch"]', 'points = ["wach"]', "tool.hotbay.types.c-source.points: is no extension point; did you mean watch?"),
        ('points = ["watch"]', 'points = "watch"', "tool.hotbay.types.c-source.points: must be a list of texts"),
        ('points = ["watch"]', 'points = ["watch", "watch"]', "tool.hotbay.types.c-source.points: names something twice"),
        ('points = ["watch"]', 'point = ["watch"]', "UNKNOWN_FIELD: tool.hotbay.types.c-source.point: unknown key. Did you mean points?"),
        ('stability = "stable"', 'stability = "gold"', "tool.hotbay.types.a-scorer.stability: no stability"),
        ('"deciders.prefill"', '"deciders..prefill"', "tool.hotbay.types.b-handler.refs: must be keys joined by dots"),
        ('"MyKey"', '"My Key"', "tool.hotbay.types.b-handler.produces_default: must be the key of shared data"),
        ("[tool.hotbay.types.c-source]", "[tool.hotbay.types.C]", "tool.hotbay.types: may hold lower-case letters"),
    ],
)  # fmt: skip
def test_bad_table_of_a_type_is_named_with_its_line(old: str, new: str, expected: str) -> None:
    (found,) = problems(TABLED.replace(old, new))
    assert expected in found


def test_table_that_is_none_is_refused() -> None:
    text = VALID.replace('types = ["b-scorer", "a-scorer"]', "types = {x = 1}")
    assert "tool.hotbay.types.x: must be a table" in problems(text)[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('capabilities = "metric"', "tool.hotbay.capabilities: must be a list of texts"),
        ('capabilities = ["Metric"]', "tool.hotbay.capabilities: may hold lower-case letters"),
        ('capabilities = ["metric", "metric"]', "tool.hotbay.capabilities: names something twice"),
        ("data_types = [1]", "tool.hotbay.data_types: must be a list of texts"),
    ],
)
def test_bad_list_is_named(line: str, expected: str) -> None:
    (found,) = problems(f"{VALID}{line}\n")
    assert expected in found
