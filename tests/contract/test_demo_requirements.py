"""The demo's third-party parts have the same pins in the host's extra, in the workspace's group and in the error's hint."""

import tomllib
from pathlib import Path

from hotbay.demo.parts import REQUIREMENTS

ROOT = Path(__file__).parents[2]


def test_the_demo_needs_the_same_wherever_it_is_written():
    host = tomllib.loads((ROOT / "host" / "pyproject.toml").read_text())
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert host["project"]["optional-dependencies"]["demo"] == list(REQUIREMENTS.values())
    assert workspace["dependency-groups"]["demo"] == list(REQUIREMENTS.values())
