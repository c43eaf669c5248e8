"""The sample `least-loaded`: one plugin in two versions that a swap must be able to tell apart."""

import importlib.util
import math
from pathlib import Path

import pytest
from hotbay_sdk import Plugin
from hotbay_sdk.testing import PluginHarness

FOLDER = Path(__file__).resolve().parents[3] / "plugins" / "samples" / "least-loaded"


def load(version: str) -> Plugin:
    path = FOLDER / version / "hotbay_least_loaded" / "__init__.py"
    spec = importlib.util.spec_from_file_location(f"least_loaded_{version}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plugin: Plugin = module.plugin
    return plugin


ENDPOINTS = {
    "idle": {"waiting": 0, "running": 0, "in_flight": 3},
    "busy": {"waiting": 1, "running": 2, "in_flight": 1},
    "new": {"in_flight": 1},
    "odd": {"waiting": -5, "running": 0, "in_flight": -5},
}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("v1", {"idle": 1, "busy": 0.25, "new": 0.5, "odd": 1}),
        ("v2", {"idle": 0.25, "busy": 0.25, "new": 0.5, "odd": 1}),
    ],
)
def test_the_versions_rate_by_different_loads(version: str, expected: dict[str, float]) -> None:
    with PluginHarness(load(version)) as harness:
        harness.configure("load", "least-loaded-scorer")
        assert harness.score("load", ENDPOINTS) == [expected]


def test_an_endpoint_without_figures_is_unknown_to_both() -> None:
    for version in ("v1", "v2"):
        with PluginHarness(load(version)) as harness:
            harness.configure("load", "least-loaded-scorer")
            assert harness.score("load", {"a": {"running": math.nan}}) == [{"a": 0.5}]
