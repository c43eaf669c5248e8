"""A configuration that flips many times a second: every decision is made by one of them, whole."""

import time

import anyio
import pytest
from hotbay.config.picker_config import load_picker_config

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.anyio, pytest.mark.timeout(240)]

FLIPS_PER_S = 50
# A fifth of the case's rate: load, host and model servers share one loop here.
RATE_PER_S = 100
LASTS_S = 20
CONFIG = """
swap: {shadow: off, canary: off, guard: off, drain: 5s}
supervise: {linger: 0s}
bindings: {first: {deadline: 5s, on_failure: fail_closed}, second: {deadline: 5s, on_failure: fail_closed}}
logging: {access: false}
"""
KEEPS = """
from dataclasses import dataclass
from hotbay_sdk import Filter, Plugin

plugin = Plugin("{id}")

@dataclass(frozen=True)
class Params:
    keep: str = "v1"

@plugin.type("{id}-filter", parameters=Params)
class Keeps(Filter):
    def keep_batch(self, requests, endpoints):
        return [[name == f"default/{{self.parameters.keep}}" for name in endpoints.ids] for _ in requests]
"""


def picker(keep: str) -> str:
    """Two filters in two processes that keep the same endpoint: of two configurations nothing would be left."""
    return (
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
        f"- {{name: first, type: first-filter, parameters: {{keep: {keep}}}}}\n"
        f"- {{name: second, type: second-filter, parameters: {{keep: {keep}}}}}\n"
        "schedulingProfiles:\n- {name: default, plugins: [{pluginRef: first}, {pluginRef: second}]}\n"
    )


async def test_c28_every_decision_is_made_by_one_of_two_flipping_configurations(host, packages, tmp_path):
    for name in ("first", "second"):
        packages.make(tmp_path / "packages" / name, KEEPS.format(id=name), id=name, types=(f"{name}-filter",))
    never, flips = anyio.Event(), 0
    async with host(picker("v1"), config=CONFIG) as bay:
        configs = [load_picker_config(picker(keep), file="picker.yaml") for keep in ("v2", "v1")]
        around = bay.configure(CONFIG)
        before = {name: bay.live(name) for name in ("first", "second")}
        async with bay.load(RATE_PER_S) as load:
            ends_s = time.monotonic() + LASTS_S
            while (now_s := time.monotonic()) < ends_s:
                await bay.host.adopt(around, configs[flips % 2])
                flips += 1
                with anyio.move_on_after(now_s + 1 / FLIPS_PER_S - time.monotonic()):
                    await never.wait()
        assert load.failed == []
        assert set(load.texts()) == {"v1", "v2"}
        assert (bay.degraded(), {name: bay.live(name) for name in before}) == ({}, before)
        # A machine that is busy with others flips and answers more slowly; less than this would show little.
        assert flips > 2 * LASTS_S
        assert len(load.answers) > 20 * LASTS_S
