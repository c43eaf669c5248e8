"""Host restarts under load: each successor takes the listening sockets over and is ready before the old host stops."""

from typing import Any

import anyio
import pytest

from tests.e2e.proofs.kit import Load, end, end_of, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(600), pytest.mark.anyio]

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}]
"""
CONFIG = "bindings: {sample: {deadline: 1s}}\nisolation: {level: none}\nswap: {drain: 10s}\n"
RESTARTS = 20


async def test_no_request_fails_through_twenty_restarts_of_the_host(host, text, scale):
    restarts = max(3, round(RESTARTS * scale))

    def prepare(found: Any) -> None:
        found.publish(text.scorer("v1"), rev=1)

    async with host(PICKER, CONFIG, prepare=prepare) as running:
        load = Load(running.client, 60)
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            await load.more(30)
            for _ in range(restarts):
                old = running.process
                running.process = running.start("--take-over")
                assert await end_of(old) == 0, running.tail()
                assert running.process.poll() is None, running.tail()
                row = await running.row()
                assert row["live"]["rev"] == 1
                await load.more(30)
            load.stop()
        assert [answer for answer in load.answers if answer.status != 200] == []
        assert set(load.texts()) == {"v1"}
        assert len(load.answers) >= restarts * 30


async def test_a_successor_that_dies_leaves_the_host_serving(host, text):
    def prepare(found: Any) -> None:
        found.publish(text.scorer("v1"), rev=1)

    async with host(PICKER, CONFIG, prepare=prepare) as running:
        load = Load(running.client, 60)
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            await load.more(10)
            successor = running.start("--take-over")
            await wait_until(lambda: "handover_begun" in running.tail(), told=running.tail)
            successor.kill()
            successor.wait()
            await wait_until(lambda: "handover_failed" in running.tail(), told=running.tail)
            running.publish(text.scorer("v2"), rev=2)
            await running.wait_row(lambda row: (row["live"] or {}).get("rev") == 2)
            await load.more(30)
            load.stop()
        assert load.failed == []


async def test_a_restart_without_taking_over_is_refused_and_costs_nothing(host, text):
    """The control: two hosts on one state directory are refused, and a restart that stops first fails requests."""

    def prepare(found: Any) -> None:
        found.publish(text.scorer("v1"), rev=1)

    async with host(PICKER, CONFIG, prepare=prepare) as running:
        second = running.start()
        await anyio.to_thread.run_sync(second.wait)
        assert second.returncode != 0
        assert f"in use by the host with pid {running.pid}" in running.tail()
        load = Load(running.client, 60)
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            await load.more(10)
            assert await end(running.process) == 0
            await load.more(10)
            load.stop()
        assert load.failed
