"""What make's targets run, by what make itself says it would."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("arguments", "measured"), [([], True), (["ARGS=tests/unit/host/config -q"], False)])
def test_coverage_is_asked_of_the_whole_lane_alone(arguments: list[str], measured: bool) -> None:
    said = subprocess.run(
        ["make", "--dry-run", "--assume-old=build/packages/.complete", "test", *arguments],
        cwd=ROOT, env={"PATH": os.defpath}, capture_output=True, text=True, timeout=60, check=True,
    ).stdout  # fmt: skip
    (command,) = (line for line in said.splitlines() if "pytest -m 'not slow'" in line)
    assert ("--cov" in command) is measured
    assert ("tests/unit/host/config -q" in command) is not measured


def test_continuous_integration_runs_the_whole_lane() -> None:
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()
