"""Processes that do not start, die or hang: L11, L13, R25, kills under load, and the budget that ends restarts."""

import os
import signal
import time
from itertools import pairwise

import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"
THREE = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: a, type: a-scorer}
- {name: b, type: b-scorer}
- {name: c, type: c-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: a}, {pluginRef: b}, {pluginRef: c}]
"""
SAYS_NOTHING = {
    "hotbay_sdk/__init__.py": "",
    "hotbay_sdk/_serve.py": "import time\ndef main(*given):\n    time.sleep(60)\n",
}


async def test_l11_plugins_that_say_nothing_fail_in_time_and_hold_nobody_up(host, text, packages, is_alive, tmp_path):
    source, pids = tmp_path / "packages", tmp_path / "pids"
    sleeps = (
        "import subprocess\nother = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}} {{other.pid}} ')\ntime.sleep(60)"
    )
    packages.make(source / "a", text.scorer("v1", type="a-scorer", start=sleeps), id="a", types=("a-scorer",))
    packages.make(source / "b", "plugin = None", id="b", types=("b-scorer",), sdk=SAYS_NOTHING)
    packages.make(source / "c", text.scorer("v1", type="c-scorer"), id="c", types=("c-scorer",))
    config = "packages: [{id: a, ready: 3s}, {id: b, hello: 3s}]\nbindings: {c: {deadline: 5s}}\n"
    async with host(THREE, config=config, ready=False) as bay:
        await bay.wait_for(lambda: bay.live("c"), within_s=10)
        assert (bay.error("a"), bay.error("b")) == (None, None), "c does not wait for them"
        launched_s = time.monotonic()
        await bay.wait_for(lambda: bay.error("a") and bay.error("b"), within_s=15)
        assert time.monotonic() - launched_s > 1
        assert (bay.error("a")["code"], bay.error("b")["code"]) == ("READY_TIMEOUT", "HELLO_TIMEOUT")
        assert "no READY within 3 s" in bay.error("a")["message"]
        assert "must not block" in bay.error("a")["hint"]
        first = [int(pid) for pid in pids.read_text().split()[:2]]
        await bay.wait_for(lambda: not any(is_alive(pid) for pid in first))
        await bay.ready()
        assert (await bay.client.chat()).status == 200
        # Three scorers, of which one answered.
        assert set(bay.degraded()) == {("a", "UNAVAILABLE"), ("b", "UNAVAILABLE")}


async def test_l13_plugin_that_always_exits_is_tried_with_growing_gaps_then_disabled(host, text, packages, tmp_path):
    # The row of delays is 50, 100, 200, 400 ms instead of 100 ms doubled up to 30 s; five failures disable as by default.
    source, starts = tmp_path / "packages", tmp_path / "starts"
    exits = f"open({str(starts)!r}, 'a').write(f'{{time.monotonic()}} ')\nos._exit(1)"
    packages.make(source / "a", text.scorer("v1", type="a-scorer", start=exits), id="a", types=("a-scorer",))
    packages.make(source / "b", text.scorer("v1", type="b-scorer"), id="b", types=("b-scorer",))
    picker = THREE.replace("- {name: c, type: c-scorer}\n", "").replace(", {pluginRef: c}", "")
    config = "supervise: {restart: {first: 50ms, factor: 2, max: 400ms}}\nbindings: {b: {deadline: 5s}}\n"
    async with host(picker, config=config, ready=False) as bay:
        await bay.wait_for(lambda: bay.live("b"), within_s=10)
        pid = bay.live("b")["pid"]
        async with bay.load(50) as load:
            await bay.wait_for(lambda: bay.plugin("a")["phase"] == "disabled", within_s=20)
            await load.more(10)
        at_s = [float(word) for word in starts.read_text().split()]
        assert len(at_s) == 5
        gaps = [later - before for before, later in pairwise(at_s)]
        assert all(gap >= least for gap, least in zip(gaps, (0.025, 0.05, 0.1, 0.2), strict=True))
        assert (bay.error("a")["code"], load.failed) == ("START_FAILED", [])
        assert "exit code 1" in bay.error("a")["message"]
        assert (bay.live("b")["pid"], bay.plugin("b")["restarts"]) == (pid, 0)
        assert not any(ref == "b" for ref, _ in bay.degraded())

        bay.publish(text.scorer("v1", type="a-scorer"), id="a", rev=2, types=("a-scorer",))
        await bay.rev_is_live(2, "a")


async def test_killed_plugin_degrades_only_until_its_replacement_is_ready(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT) as bay, bay.load(100) as load:
        await load.more(20)
        assert bay.degraded() == {}
        before = bay.live()
        await bay.wait_for(lambda: bay.plugin()["process"].get("rss_bytes", 0) > 1 << 20)
        os.kill(before["pid"], signal.SIGKILL)
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
        # Decisions that began before the replacement was there may still be under way.
        await load.more(10)
        degraded = bay.degraded_count()
        assert degraded > 0
        assert set(bay.degraded()) == {("sample", "CRASHED")}
        await load.more(50)
        assert bay.degraded_count() == degraded
        assert bay.plugin()["restarts"] == 1
        assert bay.serving.metrics.plugin_restarts.get("sample") == 1
        assert (bay.error()["code"], "SIGKILL" in bay.error()["message"]) == ("CRASHED", True)
    assert load.failed == []


async def test_plugin_that_asks_to_go_is_replaced_without_a_degraded_request(host, text, packages, tmp_path):
    asks = (
        "from hotbay_sdk.protocol import Connection, Role\n"
        "def leave():\n"
        "    control = int(os.environ['HOTBAY_CHANNEL'].split(',')[2])\n"
        "    os.write(control, Connection(Role.PLUGIN).send_goaway('RECYCLE', 'memory is full'))"
    )
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=asks, score="self.calls == 5 and leave()"))
    async with host(config=PATIENT) as bay, bay.load(100) as load:
        first = bay.live()
        await bay.wait_for(lambda: bay.live()["generation"] > first["generation"])
        await load.more(20)
        assert bay.degraded() == {}
        assert (bay.plugin()["restarts"], bay.plugin()["swaps"]) == (0, 0)
        assert "asked to be replaced" in bay.error()["message"]
    assert load.failed == []


async def test_kills_from_outside_never_disable_a_plugin(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    config = "supervise: {restart: {first: 10ms, max: 10ms}, budget: {failures: 1}}\n"
    async with host(config=config) as bay:
        for _ in range(4):
            before = bay.live()
            os.kill(before["pid"], signal.SIGKILL)
            await bay.wait_for(
                lambda before=before: bay.live()["generation"] > before["generation"] and bay.live()["pid"]
            )
        assert bay.plugin()["restarts"] == 4


async def test_degraded_goes_on_growing_without_a_restart(host, text, packages, tmp_path):
    # The negative control of the two tests above: the first failure that counts uses the budget up.
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + "supervise: {budget: {failures: 1}}\n") as bay, bay.load(100) as load:
        os.kill(bay.live()["pid"], signal.SIGABRT)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "disabled")
        for _ in range(3):
            degraded = bay.degraded_count()
            await load.more(20)
            assert bay.degraded_count() >= degraded + 15
        assert bay.live()["pid"] is None
        assert bay.status()["ready"]
    assert load.failed == []


async def test_dead_plugin_that_is_bound_fail_closed_refuses_and_says_why(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    config = "supervise: {budget: {failures: 1}}\nbindings: {sample: {deadline: 5s, on_failure: fail_closed}}\n"
    async with host(config=config) as bay:
        assert (await bay.client.chat()).status == 200
        os.kill(bay.live()["pid"], signal.SIGABRT)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "disabled")
        answer = await bay.client.chat()
        assert (answer.status, answer.reason) == (503, "plugin-unavailable")
        assert "'sample'" in answer.text


async def test_newer_version_that_never_starts_leaves_what_was_live_before_the_host_started(
    host, text, packages, tmp_path
):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    config = "supervise: {restart: {first: 10ms, max: 10ms}, budget: {failures: 2}}\n"
    async with host(config=config):
        pass
    packages.make(tmp_path / "packages" / "v2", text.scorer("v2", start="os._exit(1)"), rev=2)
    async with host(config=config) as bay:
        assert bay.live()["rev"] == 1
        await bay.wait_for(lambda: bay.error() and bay.plugin()["phase"] == "live")
        assert bay.plugin()["swaps"] == 0
        assert bay.error()["code"] == "START_FAILED"
        assert bay.plugin()["target"] == bay.live()["digest"], "after its budget it is in quarantine"


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_plugin_that_hangs_in_a_call_is_replaced(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score="time.sleep(3600 if self.calls == 3 else 0)"))
    async with host(config="bindings: {sample: {deadline: 200ms}}\n") as bay:
        before = bay.live()
        answers = [await bay.client.chat() for _ in range(4)]
        assert [answer.status for answer in answers] == [200] * 4
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"], within_s=50)
        assert bay.error()["code"] == "DEADLINE_EXCEEDED"
        assert "hangs" in bay.error()["hint"]
        assert (await bay.client.chat()).text == "v1"
