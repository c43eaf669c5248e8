"""A new version takes over under load, or does not: U01, U02, U04, U11, U24, HB18, and what a source's silence changes.

Bindings get a deadline of 5 s where `degraded` must stay 0: the swap is tested, not the machine's speed.
"""

import os
import shutil
import signal
import time
from itertools import pairwise

import pytest
from anyio import create_task_group

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"
WAITS_FOR = "while not os.path.exists({path!r}): time.sleep(0.01)"


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_u01_new_version_takes_over_without_a_failed_request(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    started = tmp_path / "started"
    slow_start = f"time.sleep(5); open({str(started)!r}, 'w').write(str(time.monotonic()))"
    async with host(config=PATIENT) as bay, bay.load(200) as load:
        await load.more(100)
        bay.publish(text.scorer("v2", start=slow_start), rev=2)
        await bay.rev_is_live(2, within_s=30)
        await load.more(100)
    assert load.failed == []
    assert bay.degraded() == {}
    ready_s = float(started.read_text())
    assert all(answer.done_s > ready_s for answer in load.answers if answer.text == "v2")
    assert load.texts()["v2"] > 0
    ends = [answer.done_s for answer in load.answers]
    assert max(later - before for before, later in pairwise(ends)) < 0.5
    row = bay.plugin()
    assert (row["swaps"], row["restarts"], row["last_error"]) == (1, 0, None)


@pytest.mark.slow
@pytest.mark.timeout(60)
async def test_u02_hb18_calls_in_flight_end_on_the_version_that_took_them(host, text, packages, is_alive, tmp_path):
    # They go out as two batches, of 1 and of 49, each of 3 s; all are in flight at the swap.
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", is_filter=True, score="time.sleep(3)"))
    go = tmp_path / "go"
    async with host(config="bindings: {sample: {deadline: 10s}}\n") as bay:
        pid = bay.live()["pid"]
        bay.publish(text.scorer("v2", is_filter=True, start=WAITS_FOR.format(path=str(go))), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "launching")
        texts = []
        async with create_task_group() as group:

            async def one():
                texts.append((await bay.client.chat()).text)

            for _ in range(50):
                group.start_soon(one)
            await bay.wait_for(lambda: bay.serving.metrics.requests_in_flight == 50)
            go.touch()
            await bay.rev_is_live(2)
            assert bay.serving.metrics.requests_in_flight == 50
            assert (await bay.client.chat()).text == "v2"
        assert texts == ["v1"] * 50
        assert bay.degraded() == {}
        await bay.wait_for(lambda: not is_alive(pid), within_s=5)
        assert bay.plugin()["restarts"] == 0


BAD_VERSIONS = {
    "exits": ({"init": "os._exit(3)"}, "CRASHED", "exit code 3"),
    "rejects": (
        {"init": "raise ParameterError('speed', 'unknown in this version')"},
        "CONFIG_INVALID",
        "plugins 'sample': parameters.speed: unknown in this version",
    ),
    "hangs": ({"start": "time.sleep(60)"}, "READY_TIMEOUT", "no READY within 1 s"),
}


@pytest.mark.parametrize("fault", BAD_VERSIONS)
async def test_u04_bad_new_version_leaves_the_old_one_alone(host, text, packages, is_alive, tmp_path, fault):
    given, code, message = BAD_VERSIONS[fault]
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    config = PATIENT + "packages: [{id: sample, ready: 1s}]\n"
    async with host(config=config) as bay, bay.load(100) as load:
        before = bay.live()
        manifest = bay.publish(text.scorer("v2", **given), rev=2)
        await bay.wait_for(bay.error)
        error = bay.error()
        assert (error["code"], error["digest"]) == (code, manifest.digest)
        assert message in error["message"]
        await bay.wait_for(lambda: bay.plugin()["phase"] == "backing off")
        await load.more(20)
        assert bay.live() == before
        assert is_alive(before["pid"])
    assert load.failed == []
    assert set(load.texts()) == {"v1"}
    assert bay.degraded() == {}
    assert bay.plugin()["restarts"] == 0


async def test_live_version_that_dies_comes_back_before_a_hanging_candidate_is_tried_again(
    host, text, packages, tmp_path
):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host() as bay:
        bay.publish(text.scorer("v2", start="time.sleep(60)"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "launching")
        before = bay.live()
        os.kill(before["pid"], signal.SIGKILL)
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
        assert bay.live()["rev"] == 1
        assert (await bay.client.chat()).text == "v1"
        await bay.wait_for(lambda: bay.plugin()["candidate"])


async def test_u11_same_content_restarts_nothing(host, text, packages, tmp_path):
    folder = tmp_path / "packages" / "v1"
    packages.make(folder, text.scorer("v1"))
    async with host() as bay:
        before = bay.live()
        began_s = time.monotonic()
        for _ in range(20):
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    path.write_bytes(path.read_bytes())
        assert time.monotonic() - began_s < 5, "the repro writes 20 times in one second"
        packages.make(folder, text.scorer("v1"))
        for path in folder.rglob("*"):
            os.utime(path)
            path.chmod(0o700 if path.is_dir() else 0o600)
        # A folder that cannot be offered shows that the source has looked since.
        (tmp_path / "packages" / "sentinel").mkdir()
        await bay.wait_for(lambda: any("sentinel" in problem for problem in bay.status()["problems"]), within_s=20)
        assert bay.live() == before
        row = bay.plugin()
        assert (row["restarts"], row["swaps"], row["last_error"]) == (0, 0, None)


FILTER = """
import os, time
from hotbay_sdk import Filter, Plugin

plugin = Plugin("gate")

@plugin.type("gate-filter")
class Gate(Filter):
    def keep_batch(self, requests, endpoints):
        open({reached!r}, "w").close()
        while not os.path.exists({go!r}):
            time.sleep(0.01)
        return [[True] * len(endpoints) for _ in requests]
"""
GATE_PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: gate, type: gate-filter}
- {name: sample, type: sample-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: gate}, {pluginRef: sample}]
"""
GATE_BINDINGS = "bindings: {gate: {deadline: 15s}, sample: {deadline: 5s}}\n"


@pytest.fixture
def gate(packages, text, tmp_path):
    """A filter of another package that holds a cycle back: it has its plan, and has yet to call the scorer."""
    reached, go = tmp_path / "reached", tmp_path / "go"
    packages.make(
        tmp_path / "packages" / "gate",
        FILTER.format(reached=str(reached), go=str(go)),
        id="gate",
        types=("gate-filter",),
    )
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    return reached, go


async def test_u24_plan_taken_before_the_swap_serves_after_it(host, text, is_alive, gate):
    reached, go = gate
    async with host(GATE_PICKER, config=GATE_BINDINGS) as bay:
        old = bay.live()["pid"]
        async with create_task_group() as group:
            answers = []

            async def one():
                answers.append(await bay.client.chat())

            group.start_soon(one)
            await bay.wait_for(reached.exists)
            bay.publish(text.scorer("v2"), rev=2)
            await bay.rev_is_live(2)
            assert is_alive(old), "a cycle holds a lease on it"
            go.touch()
        assert [(answer.status, answer.text) for answer in answers] == [(200, "v1")]
        assert bay.degraded() == {}
        await bay.wait_for(lambda: not is_alive(old))


async def test_u24_plan_with_a_dead_and_replaced_process_is_answered_too(host, gate):
    reached, go = gate
    async with host(GATE_PICKER, config=GATE_BINDINGS) as bay:
        async with create_task_group() as group:
            answers = []

            async def one():
                answers.append(await bay.client.chat())

            group.start_soon(one)
            await bay.wait_for(reached.exists)
            before = bay.live()
            os.kill(before["pid"], signal.SIGKILL)
            await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
            go.touch()
        assert [answer.status for answer in answers] == [200]
        assert bay.degraded() == {("sample", "CRASHED"): 1}


async def test_live_version_stays_and_restarts_when_its_source_goes_silent(host, text, packages, tmp_path):
    source = tmp_path / "packages"
    packages.make(source / "v1", text.scorer("v1"))
    packages.make(source / "v2", text.scorer("v2"), rev=2)
    async with host() as bay:
        shutil.rmtree(source / "v2")
        (source / "sentinel").mkdir()
        await bay.wait_for(lambda: any("sentinel" in problem for problem in bay.status()["problems"]), within_s=20)
        before = bay.live()
        assert before["rev"] == 2
        os.kill(before["pid"], signal.SIGKILL)
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
        assert bay.live()["rev"] == 2
        assert (await bay.client.chat()).text == "v2"


async def test_other_content_under_the_live_revision_is_reported_and_not_used(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host() as bay:
        before = bay.live()
        other = bay.publish(text.scorer("v2"), rev=1, folder="other")
        await bay.wait_for(bay.error)
        error = bay.error()
        assert (error["code"], error["digest"]) == ("DIGEST_CONFLICT", other.digest)
        assert "new rev" in error["hint"]
        assert bay.live() == before


async def test_versions_in_a_row_never_make_a_third_process(host, text, packages, is_alive, tmp_path):
    go = tmp_path / "go"
    waits = text.scorer("v1", is_filter=True, score=WAITS_FOR.format(path=str(go)))
    packages.make(tmp_path / "packages" / "v1", waits)
    async with host(config="bindings: {sample: {deadline: 60s}}\n") as bay:
        old = bay.live()["pid"]
        async with create_task_group() as group:
            answers = []

            async def one():
                answers.append(await bay.client.chat())

            group.start_soon(one)
            await bay.wait_for(lambda: bay.serving.metrics.requests_in_flight == 1)
            bay.publish(text.scorer("v2", is_filter=True), rev=2)
            await bay.rev_is_live(2)
            bay.publish(text.scorer("v1", is_filter=True), rev=3)
            bay.publish(text.scorer("v2", is_filter=True), rev=4)
            await bay.wait_for(lambda: bay.plugin()["phase"] == "retiring")
            assert bay.plugin_pids() == {old, bay.live()["pid"]}
            assert (await bay.client.chat()).text == "v2"
            go.touch()
            await bay.rev_is_live(4)
        assert [(answer.status, answer.text) for answer in answers] == [(200, "v1")]
        await bay.wait_for(lambda: bay.plugin_pids() == {bay.live()["pid"]})
        assert bay.degraded() == {}
