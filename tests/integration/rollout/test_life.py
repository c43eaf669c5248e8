"""From start to end of a host: what it needs to start, what it says without a plugin, and that nothing of it stays."""

import asyncio
import gc
import os
import shutil
import threading
from pathlib import Path

import anyio
import pytest
from hotbay.config.host_config import Listen
from hotbay.errors import CapacityError, InputError

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_twenty_swaps_leave_nothing_behind(host, text, packages, tmp_path):
    # Equal wheels under another revision: the environment is shared, and a swap costs a process and no build.
    folder = tmp_path / "packages" / "sample"
    packages.make(folder, text.scorer("v1"), version="1.0.0")
    async with host(config=PATIENT) as bay:
        await swap(bay, packages, text, folder, 2)
        await bay.wait_for(waits_for_everything)
        before = held(bay)
        for rev in range(3, 23):
            await swap(bay, packages, text, folder, rev)
        # Idle worker threads go by themselves.
        await bay.wait_for(lambda: all(count <= before[name] for name, count in held(bay).items()))
        assert bay.plugin()["swaps"] == 21
        assert bay.degraded() == {}


async def swap(bay, packages, text, folder, rev: int) -> None:
    packages.make(folder, text.scorer("v1"), rev=rev, version="1.0.0")
    await bay.rev_is_live(rev)
    answers = [await bay.client.chat() for _ in range(5)]
    assert [answer.status for answer in answers] == [200] * 5
    await bay.wait_for(lambda: len(bay.plugin_pids()) == 1)


def waits_for_everything() -> bool:
    """Whether source, index, usage and supervisor all wait: one that is at work has a task less."""
    names = [task.get_name() for task in asyncio.all_tasks()]
    return sum("FolderWatch._listen" in name for name in names) == 1 and sum("changed" in name for name in names) == 3


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def held(bay) -> dict[str, int]:
    gc.collect()
    return {
        "descriptors": len(descriptors()),
        "threads": threading.active_count(),
        "children": len(bay.plugin_pids()),
        "tasks": len(asyncio.all_tasks()),
        "remotes": len(bay.host._router._remotes),
    }


async def test_host_that_ends_leaves_no_process_and_no_descriptor(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    before = descriptors()
    async with host() as bay:
        # Ends in the middle of a start.
        bay.publish(text.scorer("v2", start="time.sleep(60)"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "launching" and len(bay.plugin_pids()) == 2)
    assert bay.plugin_pids() == set()
    await bay.wait_for(lambda: descriptors() <= before)


async def test_host_is_ready_with_what_was_live_while_a_newer_version_waits_for_requests(
    host, text, packages, tmp_path
):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host() as bay:
        await bay.rev_is_live(1)
    packages.make(tmp_path / "packages" / "v2", text.scorer("v2"), rev=2)
    async with host(config="swap: {shadow: off, canary: {for: 60s}}\n") as bay:
        await bay.wait_for(lambda: bay.plugin()["phase"] == "canary")
        assert bay.live()["rev"] == 1


async def test_host_that_is_cancelled_leaves_no_process(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    with anyio.CancelScope() as scope:
        async with host() as bay:
            scope.cancel()
            await anyio.sleep_forever()
    assert bay.plugin_pids() == set()


async def test_errors_of_the_start_are_raised_as_they_are(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host() as bay:
        # `hotbay run` shows one error with its fields, never a group of tasks' errors.
        with pytest.raises(CapacityError, match=f"in use by the host with pid {os.getpid()}"):
            await type(bay.host)(bay.configure(""), bay.picker, picker_directory=tmp_path).run(print, bay.stop)
        at, port = bay.serving.address
        taken = bay.configure("").model_copy(
            update={"state_dir": str(tmp_path / "other"), "listen": Listen(http=f"{at}:{port}")}
        )
        with pytest.raises(CapacityError, match=f"cannot listen on {at}:{port}: "):
            await type(bay.host)(taken, bay.picker, picker_directory=tmp_path).run(print, bay.stop)
        assert len(bay.plugin_pids()) == 1
    shutil.rmtree(tmp_path / "packages")
    # Another state directory: what this one's world holds would run without its source.
    new = bay.configure("").model_copy(update={"state_dir": tmp_path / "new"})
    with pytest.raises(InputError) as refused:
        await type(bay.host)(new, bay.picker, picker_directory=tmp_path).run(print, anyio.Event())
    codes = [problem.code for problem in refused.value.problems]
    assert codes == ["UNKNOWN_TYPE", "FETCH_FAILED"]
    assert "No such file or directory" in str(refused.value.problems[1])


async def test_host_is_ready_without_a_plugin_that_no_source_can_run_here(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"), platform="python-cp399-linux-x86_64")
    async with host() as bay:
        row = bay.plugin()
        assert (row["phase"], row["selection"]) == ("waiting for a package", "no host for its platforms")
        assert "found python-cp399-linux-x86_64" in bay.error()["message"]
        assert (await bay.client.chat()).status == 200
        assert bay.degraded() == {("sample", "UNAVAILABLE"): 1}
        bay.publish(text.scorer("v1"), rev=2)
        await bay.rev_is_live(2)
        assert (await bay.client.chat()).text == "v1"
        assert bay.degraded_count() == 1


async def test_source_that_is_fetched_once_is_not_watched(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    watched = tmp_path / "watched"
    packages.make(watched / "other", text.scorer("v1"), id="other")
    config = "types: {sample-scorer: sample}\n"
    async with host(
        config=config, sources=f"[{{name: once, directory: packages, fetch: once}}, {{name: w, directory: {watched}}}]"
    ) as bay:
        bay.publish(text.scorer("v2"), rev=2)
        # The other source shows that a change would have been seen by now.
        (watched / "sentinel").mkdir()
        await bay.wait_for(lambda: any("sentinel" in problem for problem in bay.status()["problems"]), within_s=20)
        assert bay.live()["rev"] == 1


HANDLER = """
import time
from hotbay_sdk import Plugin, ProfileHandler
time.sleep(1)
plugin = Plugin("handler")

@plugin.type("a-handler")
class Handler(ProfileHandler):
    def pick(self, request, profiles, results, endpoints):
        return [] if results else list(profiles)

    def process(self, request, results, endpoints):
        return "second", results
"""
TWO_PROFILES = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
- {name: chooser, type: a-handler}
schedulingProfiles:
- {name: first, plugins: [{pluginRef: sample}]}
- {name: second, plugins: [{pluginRef: sample}]}
"""


async def test_profile_handler_that_starts_last_is_waited_for(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    packages.make(tmp_path / "packages" / "handler", HANDLER, id="handler", types=("a-handler",))
    config = "bindings: {sample: {deadline: 5s}, chooser: {deadline: 5s}}\n"
    async with host(TWO_PROFILES, config=config) as bay:
        assert bay.error() is None
        assert (await bay.client.chat()).text == "v1"
        assert bay.degraded() == {}
