"""The guides say what the code does: the author guide's examples run."""

import json
import math
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import hotbay_sdk
import pytest
from hotbay.cli.call import call
from hotbay.cli.conformance import conformance
from hotbay.cli.new import new
from hotbay.cli.publish import publish
from hotbay_sdk.testing import PluginHarness

ROOT = Path(__file__).parents[2]


def blocks(file: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / file).read_text(), re.MULTILINE | re.DOTALL)


def test_author_guide_example_gives_an_unknown_figure_a_meaning():
    method, *_ = blocks("docs/author-guide.md")
    names: dict[str, object] = {"math": math, "Request": object, "Endpoint": object}
    exec(compile(method, "author-guide.md", "exec"), names)
    score, scorer = names["score"], SimpleNamespace(soft_limit=8)

    assert callable(score)
    figures = (math.nan, 0.0, 4.0, 16.0)
    assert [score(scorer, None, SimpleNamespace(waiting=figure)) for figure in figures] == [0.5, 1.0, 0.5, 0.0]


def test_author_guide_tests_pass_on_the_readme_plugin(monkeypatch: pytest.MonkeyPatch):
    (plugin,) = blocks("README.md")
    *_, tests = blocks("docs/author-guide.md")
    module = ModuleType("my_scorers")
    monkeypatch.setitem(sys.modules, "my_scorers", module)
    exec(compile(plugin, "README.md", "exec"), module.__dict__)
    names: dict[str, object] = {}
    exec(compile(tests, "author-guide.md", "exec"), names)
    found = [value for name, value in names.items() if name.startswith("test_")]

    assert len(found) == 2
    for test in found:
        assert callable(test)
        test()


def test_author_guide_example_of_state_is_taken_over():
    (state,) = [block for block in blocks("docs/author-guide.md") if "state_versions" in block]
    plugin = hotbay_sdk.Plugin("guide")
    names: dict[str, object] = {**vars(hotbay_sdk), "json": json, "Iterable": Iterable, "plugin": plugin}
    exec(compile(f"from __future__ import annotations\n{state}", "author-guide.md", "exec"), names)
    with PluginHarness(plugin) as old, PluginHarness(plugin) as new_one:
        old.configure("mine", "remembering-scorer")
        old.pre_request("mine", {"a": {}}, ["a"])
        new_one.import_state(old.export_state())
        new_one.configure("mine", "remembering-scorer")
        assert new_one.state_of("mine") == "imported"
        assert new_one.score("mine", {"a": {}, "b": {}}) == [{"a": 0.5, "b": 1.0}]


def test_author_guide_examples_of_side_tables_keep_the_same():
    plugin = hotbay_sdk.Plugin("guide")
    names: dict[str, object] = {**vars(hotbay_sdk), "plugin": plugin}
    examples = [block for block in blocks("docs/author-guide.md") if "endpoint.labels" in block]
    for block in examples:
        exec(compile(f"from __future__ import annotations\n{block}", "author-guide.md", "exec"), names)
    assert len(examples) == len(plugin.declarations) == 2
    endpoints = {"a": {"labels": {"tier": "gold"}}, "b": {"labels": {"tier": "silver"}}, "c": {}}
    with PluginHarness(plugin) as harness:
        for declared in plugin.declarations:
            harness.configure("tier", declared.type)
            kept = harness.keep("tier", endpoints, [{"headers": {"x-tier": "gold"}}, {}])
            assert kept == [["a", "c"], ["a", "b", "c"]], declared.type


def test_author_guide_examples_of_the_data_layer_work(tmp_path: Path):
    *_, extractor, discovery, _ = blocks("docs/author-guide.md")
    plugin = hotbay_sdk.Plugin("guide")
    names: dict[str, object] = {
        **vars(hotbay_sdk), "plugin": plugin, "Parameters": lambda raw: SimpleNamespace(folder=Path(str(raw["folder"])))
    }  # fmt: skip
    for block in (extractor, discovery):
        exec(compile(f"from __future__ import annotations\n{block}", "author-guide.md", "exec"), names)
    server = tmp_path / "s.txt"
    server.write_text("10.0.0.1\n")
    with PluginHarness(plugin) as harness:
        harness.configure("depth", "queue-depth-extractor")
        assert harness.extract("depth", {"my_engine_queue_depth": [[{}, 2.0], [{}, 3.0]]}) == {"queue_depth": 5.0}
        harness.configure("found", "file-per-server-discovery", {"folder": str(tmp_path)})
        told = harness.discover("found", [server.unlink])
    upsert = ["upsert", {"id": "default/s", "address": "10.0.0.1", "port": 8000}]
    assert told == [upsert, ["ready"], ["delete", "default/s"]]


@pytest.mark.parametrize("command", [call, conformance, new, publish], ids=lambda command: command.name)
def test_author_guide_names_options_that_exist(command: click.Command):
    guide = (ROOT / "docs" / "author-guide.md").read_text()
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    lines = [line for line in guide.splitlines() if line.startswith(f"$ hotbay {command.name} ")]
    used = {option for line in lines for option in re.findall(r" (--[a-z-]+)", line.partition(" -- ")[0])}
    assert lines
    assert used <= known


def test_links_of_all_pages_lead_somewhere():
    links = [
        page.parent / link
        for page in (ROOT / "docs").rglob("*.md")
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
        if "://" not in link
    ]
    assert len(links) > 10
    assert [link for link in links if not link.exists()] == []


def test_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text()
    assert [
        page.name for page in (ROOT / "docs").glob("*.md") if page.name not in index and page.name != "README.md"
    ] == []


def test_decisions_are_numbered_and_have_the_same_parts():
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert text.startswith(f"# {int(page.name[:4])}. ")
        assert all(part in text for part in ("\nStatus: ", "\n## Context\n", "\n## Decision\n")), page.name
