"""What every first-party plugin project promises to those who pack it."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest
from hotbay.scheduling.registry import FIRST_PARTY_TYPES
from hotbay_sdk import Plugin

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
PROJECTS = [file.parent.name for file in PLUGINS.glob("*/pyproject.toml")]


def metadata(project: Path) -> dict[str, object]:
    return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hotbay"]


def test_the_declared_types_are_those_of_the_entry_point(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = metadata(project)
    module_name, attribute = str(declared["entrypoint"]).split(":")
    for name in [name for name in sys.modules if name.split(".")[0] == module_name]:
        monkeypatch.delitem(sys.modules, name)
    path = project / module_name
    spec = importlib.util.spec_from_file_location(
        module_name, path / "__init__.py", submodule_search_locations=[str(path)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, module_name, module)
    spec.loader.exec_module(module)
    plugin = getattr(module, attribute)
    assert isinstance(plugin, Plugin)
    types = declared["types"]
    assert sorted(declaration.type for declaration in plugin.declarations) == sorted(types)
    if isinstance(types, dict):
        said = {name: set(facts["points"]) for name, facts in types.items() if "points" in facts}
        assert {declaration.type: set(declaration.points) for declaration in plugin.declarations} == said
    assert plugin.name == declared["id"]
    assert declared["publisher"] == "hotbay"


def test_locks_are_hashed_and_name_no_host(project: Path) -> None:
    lock = (project / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    pinned = re.findall(r"^([a-z0-9-]+)==\S+ \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, re.MULTILINE)
    names = {name for name, _ in pinned}
    assert names == set(re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE))
    wanted = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert names == {re.split(r"[<>=]", name)[0] for name in wanted if not name.startswith("hotbay-sdk")} | {"msgpack"}


def test_host_knows_the_types_that_come_with_it() -> None:
    provided = {name: project for project in PROJECTS for name in metadata(PLUGINS / project)["types"]}
    assert provided == dict(FIRST_PARTY_TYPES)
