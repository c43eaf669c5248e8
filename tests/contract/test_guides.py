"""The guides say what the code does: the list of metrics is whole, and the author guide's examples run."""

import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from hotbay.observe.histogram import LabelledCounter
from hotbay.observe.metrics import Metrics

ROOT = Path(__file__).parents[2]


def blocks(file: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / file).read_text(), re.MULTILINE | re.DOTALL)


def test_operator_guide_lists_every_metric_with_its_labels():
    metrics = Metrics()
    for counter in vars(metrics).values():
        if isinstance(counter, LabelledCounter):
            counter.add(tuple("x" for _ in counter.labels))
    expected = []
    for family in metrics.families():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = ", ".join(f"`{label}`" for label in family.samples[0].labels if label != "le")
        expected.append(f"| `{name}` | {labels} | {family.documentation} |")

    guide = (ROOT / "docs" / "operator-guide.md").read_text()
    assert [line for line in guide.splitlines() if line.startswith("| `hotbay_")] == expected


def test_author_guide_example_gives_an_unknown_figure_a_meaning():
    method, _ = blocks("docs/author-guide.md")
    names: dict[str, object] = {"math": math, "Request": object, "Endpoint": object}
    exec(compile(method, "author-guide.md", "exec"), names)
    score, scorer = names["score"], SimpleNamespace(soft_limit=8)

    assert callable(score)
    figures = (math.nan, 0.0, 4.0, 16.0)
    assert [score(scorer, None, SimpleNamespace(waiting=figure)) for figure in figures] == [0.5, 1.0, 0.5, 0.0]


def test_author_guide_tests_pass_on_the_readme_plugin(monkeypatch: pytest.MonkeyPatch):
    (plugin,) = blocks("README.md")
    _, tests = blocks("docs/author-guide.md")
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
