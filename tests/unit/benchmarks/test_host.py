"""The host behind the gateway figures: its configuration is one that loads, and a bad sample ends the run."""

from pathlib import Path

import pytest
from hotbay.config.host_config import load_host_config
from hotbay.config.picker_config import load_picker_config

from benchmarks.figures.swap import GUARD_ALONE, NO_STEPS, SHORT_STEPS
from benchmarks.host import check_sample, config_text, host_text, picker_text

CONNECTS = "hotbay_upstream_connects_total"
DECISIONS = "hotbay_decision_duration_seconds_count"


@pytest.mark.parametrize("prefix_index", [False, True])
def test_configurations_load_and_name_three_scorers_in_packages_of_their_own(prefix_index: bool):
    host = load_host_config(
        host_text(Path("/packages"), [8001, 8002], prefix_index=prefix_index),
        file="host.yaml",
        base_directory=Path("/"),
        environment={},
        is_root=False,
    )
    picker = load_picker_config(picker_text(prefix_index=prefix_index), file="picker.yaml")

    assert len(set(host.types.values())) == 3
    assert set(host.types) <= {plugin.type for plugin in picker.plugins}
    assert ("prefix-cache-scorer" in {plugin.type for plugin in picker.plugins}) is prefix_index
    assert {binding.deadline_s for binding in host.bindings.values()} == {1.0}


@pytest.mark.parametrize("steps", [SHORT_STEPS, GUARD_ALONE, NO_STEPS])
def test_configurations_of_swaps_load(steps: tuple[str, ...]):
    text = config_text([8001], source="{name: a, directory: /a}", types={}, bound=("echo",), more=steps)
    host = load_host_config(text, file="host.yaml", base_directory=Path("/"), environment={}, is_root=False)

    assert (host.swap.shadow is None) is (steps is not SHORT_STEPS)
    assert (host.swap.guard is None) is (steps is NO_STEPS)


def test_check_sample_accepts_requests_that_were_all_decided():
    check_sample({DECISIONS: 10.0}, {DECISIONS: 120.0, CONNECTS: 6.0}, {"count": 100.0}, most_connects=6)


@pytest.mark.parametrize(
    ("after", "wrong"),
    [
        ({DECISIONS: 100.0, "hotbay_degraded_total": 1.0}, "hotbay_degraded_total grew by 1"),
        ({DECISIONS: 100.0, "hotbay_rejections_total": 2.0}, "hotbay_rejections_total grew by 2"),
        ({DECISIONS: 99.0}, "99 decisions for 100 requests"),
        ({DECISIONS: 100.0, CONNECTS: 7.0}, "7 connections to servers, 6 are enough"),
    ],
)
def test_check_sample_refuses_what_is_no_whole_work(after: dict[str, float], wrong: str):
    with pytest.raises(RuntimeError, match=wrong):
        check_sample({}, after, {"count": 100.0}, most_connects=6)
