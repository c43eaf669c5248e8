"""A routine that raises: its plugin pauses and comes back, everybody else goes on, and the status says what it was."""

import logging

import anyio
import pytest
from hotbay.rollout.state import Pause, Published

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(120)]

TWO = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
- {name: other, type: other-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}, {pluginRef: other}]
"""
CONFIG = (
    "supervise: {restart: {first: 400ms, factor: 2, max: 30s}}\n"
    "bindings: {sample: {deadline: 5s}, other: {deadline: 5s}}\n"
    "swap: {shadow: off, canary: off, guard: off, drain: 2s}\n"
)


def routine(bay, name: str = "sample"):
    return bay.host._supervisor.routines[name]


async def raises() -> None:
    raise LookupError("as asked")


FAULTS = {
    # An event that cannot happen in this phase is what the machine itself calls a fault of ours.
    "a step": (lambda it: it.post(Published(99)), "IllegalTransition: Published while IDLE"),
    "a task": (lambda it: it._tasks.start_soon(raises), "LookupError: as asked"),
}


@pytest.mark.parametrize("where", FAULTS)
async def test_routine_that_raises_begins_anew_and_nobody_else_notices(
    host, text, packages, is_alive, tmp_path, caplog, where
):
    inject, said = FAULTS[where]
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    packages.make(
        tmp_path / "packages" / "other", text.scorer("v1", type="other-scorer"), id="other", types=("other-scorer",)
    )
    async with host(TWO, config=CONFIG) as bay, bay.load(50) as load:
        before, other = bay.live(), bay.live("other")
        inject(routine(bay))
        await bay.wait_for(bay.error)
        assert (bay.error()["code"], bay.plugin()["phase"]) == ("INTERNAL", "backing off")
        assert said in bay.error()["message"]
        assert "traceback" in bay.error()["hint"]
        most = 0

        def is_back() -> bool:
            nonlocal most
            most = max(most, len(bay.plugin_pids()))
            live = bay.live()
            assert not live["pid"] or live["generation"] == before["generation"] or not is_alive(before["pid"])
            return live["pid"] and live["generation"] > before["generation"]

        await bay.wait_for(is_back)
        assert most <= 2, "one of each plugin, never a second of the one that broke"
        assert bay.live("other") == other
        assert bay.plugin("other")["last_error"] is None
        assert bay.plugin()["restarts"] == 0, "its package is not to blame"
        await load.more(10)
        degraded = bay.degraded_count()
        await load.more(20)
        assert bay.degraded_count() == degraded
        assert {ref for ref, _ in bay.degraded()} <= {"sample"}
        bay.publish(text.scorer("v2"), rev=2)
        await bay.rev_is_live(2)
    assert load.failed == []
    [record] = [r for r in caplog.records if r.getMessage().startswith("routine_broke")]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


ALONE = CONFIG.replace(", other: {deadline: 5s}", "")


async def test_routine_that_raises_again_and_again_pauses_longer_each_time(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=ALONE) as bay:
        pauses = []
        for n in range(3):
            before = bay.live()["generation"]
            routine(bay).post(Published(99))
            await bay.wait_for(lambda: routine(bay).state.processes == 0 and bay.plugin()["retry_in_s"])
            pauses.append(routine(bay).row.retry_at_s - routine(bay)._services.now())
            # Half to all of 0.4, 0.8 and 1.6 s; some of it may have passed.
            assert pauses[-1] <= 0.4 * 2**n
            await bay.wait_for(lambda before=before: bay.live()["pid"] and bay.live()["generation"] > before)
        assert pauses[2] > pauses[0]
        assert (await bay.client.chat()).text == "v1"


async def test_candidate_of_a_routine_that_raises_goes_too_and_the_operators_pause_stays(
    host, text, packages, tmp_path
):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    forever = ALONE.replace("shadow: off", "shadow: {sample: 1, calls: 1000000, for: 600s}")
    async with host(config=forever) as bay:
        before = bay.live()
        bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "shadow")
        assert len(bay.plugin_pids()) == 2
        routine(bay).post(Published(99))
        # Also what the operator says meanwhile holds afterwards.
        routine(bay).post(Pause())
        await bay.wait_for(lambda: not bay.plugin_pids())
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
        assert (bay.live()["rev"], bay.plugin()["paused"]) == (1, True)
        assert bay.host._supervisor.facts("sample").blocked is False
        assert len(bay.plugin_pids()) == 1
        assert (await bay.client.chat()).text == "v1"


@pytest.mark.parametrize("moment", ["draining", "pausing"])
async def test_host_that_stops_while_a_routine_begins_anew_leaves_nothing(host, text, packages, tmp_path, moment):
    slow = text.scorer("v1", score=f"while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)")
    packages.make(tmp_path / "packages" / "v1", slow)
    config = ALONE.replace("first: 400ms", "first: 20s")
    async with host(config=config) as bay, anyio.create_task_group() as group:
        if moment == "draining":
            group.start_soon(bay.client.chat)
            await bay.wait_for(lambda: bay.serving.metrics.requests_in_flight == 1)
        routine(bay).post(Published(99))
        await bay.wait_for(lambda: bay.plugin()["phase"] == "backing off")
        if moment == "pausing":
            await bay.wait_for(lambda: not bay.plugin_pids())
        bay.stop.set()
        (tmp_path / "go").touch()
    assert bay.plugin_pids() == set()
