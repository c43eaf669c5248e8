"""The README's plugin is a plugin: its code runs, and its project file can be packed."""

import re
import tomllib
from pathlib import Path

import pytest
from hotbay.packages.project import parse_project
from hotbay_sdk import Plugin

README = (Path(__file__).parents[2] / "README.md").read_text()
MAX_LINES = 150


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


@pytest.fixture
def names() -> dict[str, object]:
    """What the README's module defines."""
    # Dataclasses look their module up by name.
    defined: dict[str, object] = {"__name__": "builtins"}
    exec(compile(block("python"), "README.md", "exec"), defined)
    return defined


def test_readme_stays_short():
    assert len(README.splitlines()) <= MAX_LINES


def test_readme_plugin_defines_what_its_project_file_names(names: dict[str, object]):
    project = parse_project(block("toml"), file="README.md")
    plugin = names[project.entrypoint.partition(":")[2]]

    assert isinstance(plugin, Plugin)
    assert plugin.name == project.id
    assert tomllib.loads(block("toml"))["project"]["dependencies"] == ["hotbay-sdk"]


def test_readme_plugin_is_at_most_thirty_lines_of_code():
    assert len([line for line in block("python").splitlines() if line.strip()]) <= 30


def test_readme_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)

    assert [link for link in links if not (Path(__file__).parents[2] / link).exists()] == []
