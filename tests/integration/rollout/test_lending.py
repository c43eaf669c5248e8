"""What a plugin asks its host for, in a whole host: refused without a grant, and kept over a crash with it."""

import os
import signal

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio]

REMEMBERS = """
from hotbay_sdk import Filter, HostCallError, Plugin

plugin = Plugin("sample")

@plugin.type("sample-scorer")
class Remembers(Filter):
    def __init__(self, context, parameters=None):
        self.context = context

    def keep_batch(self, requests, endpoints):
        try:
            calls = int(self.context.storage_get("calls") or b"0") + 1
            self.context.storage_put("calls", str(calls).encode())
        except HostCallError as refused:
            print(refused)
            calls = 0
        best = "default/v2" if calls > 1 else "default/v1"
        return [[name == best for name in endpoints.ids] for _ in requests]
"""
CONFIG = "bindings: {sample: {deadline: 5s}}\n"


async def test_what_is_granted_is_lent_and_outlives_the_process(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "sample", REMEMBERS, capabilities=("storage",))
    async with host(config=f"{CONFIG}packages: [{{id: sample, grants: [storage]}}]\n") as bay:
        assert (await bay.client.chat()).text == "v1"
        killed = bay.live()["pid"]
        os.kill(killed, signal.SIGKILL)
        await bay.wait_for(lambda: (bay.live() or {}).get("pid") not in (None, killed))
        assert (await bay.client.chat()).text == "v2"
        assert bay.degraded_count() == 0


async def test_what_the_package_does_not_name_is_refused_with_the_command_that_allows_it(
    host, packages, tmp_path, caplog
):
    caplog.set_level("INFO", "hotbay.plugin.sample")
    packages.make(tmp_path / "packages" / "sample", REMEMBERS)
    async with host(config=CONFIG) as bay:
        assert [(await bay.client.chat()).text for _ in range(2)] == ["v1", "v1"]
        await bay.wait_for(lambda: "hotbay grant sample storage" in caplog.text)
