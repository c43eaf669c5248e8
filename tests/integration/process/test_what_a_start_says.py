"""What a host keeps of a process's introduction."""

import sys

import anyio
import pytest
from hotbay.process.launch import STAGE0, LaunchSpec
from hotbay.process.log import LogSink
from hotbay.rollout.instance import Instance, StartOptions
from hotbay.rpc.leases import Origin
from hotbay.scheduling.shared_view import FEATURE

pytestmark = [pytest.mark.anyio, pytest.mark.process]

PLUGIN = """
from hotbay_sdk import Plugin, Scorer
plugin = Plugin("sample")
@plugin.type("sample")
class Sample(Scorer):
    def score(self, request, endpoint):
        return 1.0
"""


async def test_a_generation_has_the_features_of_its_hello(real_environment):
    environment = real_environment(PLUGIN)
    spec = LaunchSpec(sys.executable, STAGE0, str(environment), "plugin_under_test:plugin", "/", "none", "sample#1")
    instance = Instance.launch(spec, LogSink(spec.label), lambda _: None)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            generation = await instance.handshake(Origin("sample", "1", 1, "sha256:0"), 1, ["sample"], StartOptions())
            assert {FEATURE, "host_calls", "state"} <= generation.features
            await instance.kill()
