"""docs/simulator.md names every flag of `hotbay sim`, with its default, and its program runs."""

import re
from pathlib import Path

import pytest
from hotbay.cli.sim import sim

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
ROWS = re.findall(r"^\| (`-.*?) \| (.*?) \| (.*) \|$", PAGE, re.MULTILINE)


def test_page_names_every_flag_once():
    named = [flag for cell, _, _ in ROWS for flag in re.findall(r"`(-.*?)`", cell)]
    assert named == [name for option in sim.params for name in (*option.opts, *option.secondary_opts)]
    assert all(told for _, _, told in ROWS)


def test_page_says_the_defaults_that_are():
    told = {cell.split("`")[1]: default for cell, default, _ in ROWS}
    found = sim.make_context("sim", []).params
    numbers = {
        option.opts[0]: value
        for option in sim.params
        if isinstance(value := found[str(option.name)], int | float) and not isinstance(value, bool)
    }
    assert len(numbers) > 20
    assert {name: float(told[name]) for name in numbers} == numbers


def test_program_of_the_page_runs(capsys: pytest.CaptureFixture[str]):
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(program, "simulator.md", "exec"), {"__name__": "page"})
    assert "'completion_tokens': 4" in capsys.readouterr().out
