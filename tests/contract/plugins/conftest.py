"""First-party plugin packages, imported from their projects: none of them is installed here."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# A wall-clock limit per example measures the machine's other work, not this code.
settings.register_profile("no deadline", parent=settings(), deadline=None)
settings.load_profile("no deadline")

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
PROJECTS = tuple(sorted(file.parent.name for file in PLUGINS.glob("*/pyproject.toml")))
SAMPLES = (
    "samples/file-sources",
    "samples/json-discovery",
    "samples/least-loaded/v1",
    "samples/least-loaded/v2",
    "samples/pin-new",
    "samples/pin-old",
    "samples/queue-time",
)

# Test modules import the packages when they are collected, which is before any fixture could act. Samples share a
# module name, so a test that wants one loads it by its path.
sys.path[:0] = [str(PLUGINS / project) for project in PROJECTS]


@pytest.fixture(params=[*PROJECTS, *SAMPLES])
def project(request: pytest.FixtureRequest) -> Path:
    """The folder of each first-party project in turn."""
    return PLUGINS / str(request.param)
