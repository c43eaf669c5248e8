"""The metrics are what their guide lists, under names that Prometheus' own tool finds good."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hotbay.observe.metrics import Metrics
from hotbay.observe.reference import _everything, reference_lines, with_reference

GUIDE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
PROMTOOL = shutil.which("promtool")


def test_guide_lists_every_metric():
    made = with_reference(GUIDE)
    assert made.splitlines() == GUIDE.splitlines(), "run: python -m hotbay.observe.reference docs/metrics.md"


def test_every_metric_has_a_text_and_a_name_of_ours():
    lines = list(reference_lines())[2:]
    assert len(lines) == len(set(lines)) > 20
    for line in lines:
        name, _, _, text = line.strip("| ").split(" | ")
        assert name.startswith("`hotbay_")
        assert text.endswith(".")


def test_metrics_that_the_guide_asks_for_exist():
    known = {name for line in reference_lines() for name in re.findall(r"^\| `(hotbay_[a-z_]+)`", line)}
    asked = set(re.findall(r"hotbay_[a-z_]+", GUIDE.partition("## What the labels say")[2]))
    assert len(asked) > 8
    assert {name.removesuffix("_bucket") for name in asked} <= known


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; Debian has it in the package prometheus")
@pytest.mark.parametrize("metrics", [Metrics(), _everything()], ids=["fresh", "full"])
def test_promtool_finds_the_page_good(metrics):
    assert PROMTOOL is not None
    ended = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics.render(), capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout + ended.stderr) == (0, b"")
