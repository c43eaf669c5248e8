"""Failures that others met in the field, at whole hosts: L15, L22, L29, R17, U23, U30, U32, Z10, HB14, HB19."""

import asyncio
import logging
import os
import re
import signal
import time
from collections.abc import Iterator

import anyio
import pytest
from hotbay.app import Host
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.discovery.configured import configured_endpoints
from hotbay.errors import InputError
from hotbay.packages.manifest import host_platform
from hotbay.rollout.adoption import ReplacedError
from hotbay.store.world.records import Disabled, Quarantine

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(120)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"
QUICK = "supervise: {restart: {first: 20ms, max: 20ms}, budget: {failures: 3}}\n"
NO_STEPS = "swap: {shadow: off, canary: off, guard: off, drain: 5s}\n"
HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"


def picker(*types: str, used: tuple[str, ...] | None = None) -> str:
    """Refs are named as their types' packages: `sample` has sample-scorer."""
    refs = ", ".join(f"{{pluginRef: {name}}}" for name in (types if used is None else used))
    plugins = "".join(f"- {{name: {name}, type: {name}-scorer}}\n" for name in types)
    return f"{HEAD}{plugins}schedulingProfiles:\n- name: default\n  plugins: [{refs}]\n"


async def adopt(bay, text: str, config: str = PATIENT) -> None:
    await bay.host.adopt(bay.configure(config), load_picker_config(text, file="picker.yaml"))


# -- ends that nobody asked for --------------------------------------------------------------------


async def test_l15_hb14_exit_with_code_0_that_nobody_asked_for_is_a_crash_and_counts(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score="if self.calls == 2: os._exit(0)"))
    async with host(config=PATIENT + QUICK) as bay:
        for restarts in (1, 2):
            before = bay.live()
            assert [(await bay.client.chat()).status for _ in range(2)] == [200, 200]
            await bay.wait_for(
                lambda before=before: bay.live()["pid"] and bay.live()["generation"] > before["generation"]
            )
            assert (bay.plugin()["restarts"], bay.error()["code"]) == (restarts, "CRASHED")
            assert "exit code 0" in bay.error()["message"]
        assert [(await bay.client.chat()).status for _ in range(2)] == [200, 200]
        await bay.wait_for(lambda: bay.plugin()["phase"] == "disabled")
        assert bay.plugin_pids() == set()


async def test_one_shot_that_ends_with_code_0_has_not_failed_and_stays_down(host, text, packages, tmp_path):
    once = text.scorer("v1", score="if self.calls == 2: os._exit(0)")
    packages.make(tmp_path / "packages" / "v1", once, one_shot=True)
    async with host(config=PATIENT + QUICK) as bay:
        assert [(await bay.client.chat()).status for _ in range(2)] == [200, 200]
        await bay.wait_for(lambda: bay.live()["pid"] is None)
        assert (bay.plugin()["phase"], bay.error(), bay.plugin()["restarts"]) == ("idle", None, 0)
        assert bay.plugin()["strikes"] == 0
        bay.publish(text.scorer("v2"), rev=2, one_shot=True)
        await bay.rev_is_live(2)
        assert (await bay.client.chat()).text == "v2"


async def test_one_shot_that_ends_with_another_code_has_failed(host, text, packages, tmp_path):
    once = text.scorer("v1", score="if self.calls == 2: os._exit(3)")
    packages.make(tmp_path / "packages" / "v1", once, one_shot=True)
    async with host(config=PATIENT + QUICK) as bay:
        assert [(await bay.client.chat()).status for _ in range(2)] == [200, 200]
        await bay.wait_for(lambda: bay.plugin()["restarts"] == 1 and bay.live()["pid"])
        assert "exit code 3" in bay.error()["message"]


# -- starts ----------------------------------------------------------------------------------------


async def test_l22_twenty_that_need_a_plugin_at_once_make_one_process(host, text, packages, tmp_path):
    starts = tmp_path / "starts"
    noted = f"open({str(starts)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(0.3)"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    packages.make(
        tmp_path / "packages" / "other",
        text.scorer("v2", type="other-scorer", start=noted),
        id="other",
        types=("other-scorer",),
    )
    both = "bindings: {sample: {deadline: 5s}, other: {deadline: 5s}}\n"
    replaced = []
    async with host(config=PATIENT) as bay:
        supervisor = bay.host._supervisor

        async def need() -> None:
            try:
                await adopt(bay, picker("sample", "other"), both)
            except ReplacedError as error:
                replaced.append(error)

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(need)
                supervisor.look()
        assert len(replaced) == 19, "the newest is put in force"
        assert len(starts.read_text().split()) == 1
        assert [row["plugin"] for row in bay.status()["plugins"]] == ["sample", "other"]
        assert bay.plugin_pids() == {bay.live()["pid"], bay.live("other")["pid"]}
        assert (await bay.client.chat()).status == 200
        assert bay.degraded() == {}


async def test_l22_host_that_was_killed_in_the_middle_of_a_start_leaves_nothing_to_the_next(
    command, text, packages, is_alive, until, tmp_path
):
    pids, go = tmp_path / "pids", tmp_path / "go"
    # What it starts has a session of its own: it does not go with its parent, nor with the host.
    start = (
        "import subprocess\n"
        f"if not os.path.exists({str(go)!r}):\n"
        "    other = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    open({str(pids)!r}, 'a').write(f'{{os.getpid()}} {{other.pid}} ')\n"
        "    time.sleep(600)"
    )
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=start))
    async with command(config=PATIENT) as run:
        await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        plugin, other = map(int, pids.read_text().split())
        run.process.kill()
        await run.ended()
        await until(lambda: not is_alive(plugin))
        assert is_alive(other), "else there is nothing to clean up"
    go.touch()
    async with command(config=PATIENT) as run:
        await run.live(1)
        assert not is_alive(other)
        assert len(run.plugin_pids()) == 1
        assert "leftover_ended" in run.log.read_text()


async def test_l29_interpreter_that_is_missing_fails_the_start_once_listed_and_is_tried_with_pauses_only(
    host, text, packages, tmp_path, caplog
):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    config = PATIENT + (
        "supervise: {restart: {first: 300ms, factor: 2, max: 30s}}\n"
        f"hosts: [{{platform: {host_platform()}, interpreter: {tmp_path / 'nowhere' / 'python3'}}}]\n"
    )
    began_s = time.monotonic()
    async with host(config=config, ready=False) as bay:
        await bay.wait_for(bay.error)
        assert time.monotonic() - began_s < 1 * 5
        assert bay.error()["code"] == "START_FAILED"
        assert "nowhere/python3" in bay.error()["message"]
        assert "No such file or directory" in bay.error()["message"]
        assert [row["plugin"] for row in bay.status()["plugins"]] == ["sample"]
        assert (bay.live(), bay.plugin_pids()) == (None, set())
        await bay.ready()
        await bay.wait_for(lambda: bay.plugin()["phase"] == "failed" and bay.plugin()["retry_in_s"] is not None)
        assert bay.plugin()["strikes"] == 0, "it is not the package's fault"
        # 0.15 to 0.3 s, then twice as long each time.
        at_s = []
        for count in range(2, 5):
            await bay.wait_for(lambda count=count: caplog.text.count("candidate_failed") >= count)
            at_s.append(time.monotonic())
        assert at_s[2] - at_s[1] > 0.5
        assert (await bay.client.chat()).status == 200


# -- versions of the protocol ------------------------------------------------------------------------

HELLO = """
import os
import msgpack

def main(*given):
    control = int(os.environ["HOTBAY_CHANNEL"].split(",")[2])
    body = msgpack.packb({hello})
    os.write(control, bytes([0xF5, 3, 0, 1]) + bytes(4) + len(body).to_bytes(4, "big") + body)
    while os.read(control, 1):
        pass
"""
HELLOS = {
    "too old": ({"protocol": [0, 0], "sdk": "", "language": ""}, "of no version"),
    "too new": ({"protocol": [99, 99], "sdk": "", "language": ""}, "99 to 99"),
    "missing": ({"sdk": "", "language": ""}, "of no version"),
    "a text": ({"protocol": "1", "sdk": "", "language": ""}, "of no version"),
}


@pytest.mark.parametrize("version", HELLOS)
async def test_r17_protocol_out_of_range_is_told_with_both_ranges_and_not_tried_again(
    host, packages, tmp_path, version, caplog
):
    hello, said = HELLOS[version]
    sdk = {"hotbay_sdk/__init__.py": "", "hotbay_sdk/_serve.py": HELLO.format(hello=hello)}
    made = packages.make(tmp_path / "packages" / "v1", "plugin = None", sdk=sdk)
    async with host(config=PATIENT + QUICK) as bay:
        assert bay.error()["code"] == "PROTOCOL_VERSION"
        assert f"speaks protocol {said}, this host speaks 1" in bay.error()["message"]
        await bay.wait_for(lambda: bay.plugin()["phase"] == "failed")
        world = bay.host._supervisor.world.view
        await bay.wait_for(lambda: bay.host._supervisor.world.view.get(Quarantine, made.digest), within_s=10)
        assert world.get(Disabled, "sample") is None
        assert bay.plugin()["retry_in_s"] is None
        assert caplog.text.count("candidate_failed") == 1
        assert (await bay.client.chat()).status == 200


# -- clocks ------------------------------------------------------------------------------------------


async def test_u23_steps_of_the_wall_clock_move_neither_a_backoff_nor_a_drain(
    host, text, packages, is_alive, tmp_path, monkeypatch
):
    steps_s = [0.0]
    monkeypatch.setattr("hotbay.app.wall_s", lambda: time.time_ns() / 1e9 + steps_s[-1])
    go = tmp_path / "go"
    waits = f"while self.calls == 2 and not os.path.exists({str(go)!r}): time.sleep(0.01)"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", score=waits, is_filter=True))
    config = "supervise: {restart: {first: 1s, max: 1s}}\nbindings: {sample: {deadline: 60s}}\n" + NO_STEPS
    async with host(config=config.replace("drain: 5s", "drain: 60s")) as bay:
        for step_s in (-3600.0, 30 * 86400.0):
            before, killed_s = bay.live(), time.monotonic()
            os.kill(before["pid"], signal.SIGKILL)
            await bay.wait_for(lambda: bay.plugin()["phase"] == "backing off")
            steps_s.append(step_s)
            await bay.wait_for(
                lambda before=before: bay.live()["pid"] and bay.live()["generation"] > before["generation"]
            )
            assert time.monotonic() - killed_s > 0.5, "half of the step at least"
        old = bay.live()["pid"]
        async with anyio.create_task_group() as group:
            assert (await bay.client.chat()).text == "v1"
            group.start_soon(bay.client.chat)
            await bay.wait_for(lambda: bay.serving.metrics.requests_in_flight == 1)
            bay.publish(text.scorer("v2", is_filter=True), rev=2)
            await bay.rev_is_live(2)
            for step_s in (-3600.0, 30 * 86400.0):
                steps_s.append(step_s)
                # Some looks at the world later, it still drains.
                bay.publish(text.scorer("v2"), id="unused", rev=int(step_s > 0), types=("unused",))
                await bay.wait_for(
                    lambda: len(bay.host._supervisor.catalog.plugin_ids()) == 2 and bay.plugin()["phase"] == "retiring"
                )
                assert is_alive(old)
            go.touch()
        await bay.wait_for(lambda: not is_alive(old))


# -- what is referenced ------------------------------------------------------------------------------


async def test_hb19_type_that_no_source_has_is_refused_in_time_naming_the_sources(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT) as bay:
        wanted = load_picker_config(picker("sample", "nowhere"), file="picker.yaml")
        new = bay.configure("").model_copy(update={"state_dir": tmp_path / "new"})
        with anyio.fail_after(10), pytest.raises(InputError) as at_start:
            await Host(new, wanted, picker_directory=tmp_path).run(print, anyio.Event())
        with anyio.fail_after(5), pytest.raises(InputError) as at_reload:
            await adopt(bay, picker("sample", "nowhere"))
        for refused in (at_start.value, at_reload.value):
            assert [problem.code for problem in refused.problems] == ["UNKNOWN_TYPE"]
            assert "plugin type 'nowhere-scorer' is provided by no package" in str(refused)
            assert "sources asked: test" in str(refused)
            assert "picker.yaml:5:3" in str(refused)
        assert (await bay.client.chat()).text == "v1"


async def test_u30_plugin_that_a_profile_uses_cannot_be_taken_away_and_goes_drained_with_its_use(
    command, text, packages, is_alive, until, tmp_path
):
    go = tmp_path / "go"
    waits = f"while self.calls == 2 and not os.path.exists({str(go)!r}): time.sleep(0.01)"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    packages.make(
        tmp_path / "packages" / "other",
        text.scorer("v2", type="other-scorer", score=waits, is_filter=True),
        id="other",
        types=("other-scorer",),
    )
    config = "bindings: {sample: {deadline: 60s}}\nsupervise: {linger: 0s}\n" + NO_STEPS.replace("5s", "60s")
    async with command(picker("sample", "other"), config=config) as run:
        old = (await run.live(1, "other"))["pid"]
        assert (await run.client.chat()).text == "v2"
        async with anyio.create_task_group() as group:
            answers = []

            async def one() -> None:
                answers.append(await run.client.chat())

            group.start_soon(one)
            # The plugin alone goes: the change is refused, whole.
            run.picker.write_text(picker("sample", used=("sample", "other")))
            page = await run.wait_for(lambda page: page["problems"])
            assert "UNDEFINED_REF" in page["problems"][0]
            assert "'other'" in page["problems"][0]
            assert re.search(r"picker\.yaml:\d+:\d+", page["problems"][0])
            assert "schedulingProfiles" in page["problems"][0]
            assert [row["live"]["pid"] for row in page["plugins"] if row["plugin"] == "other"] == [old]
            # Both go: what is in flight ends, then the process.
            run.picker.write_text(picker("sample"))
            await run.wait_for(lambda page: not page["problems"] and "other" not in str(page["bindings"]))
            assert is_alive(old)
            go.touch()
        assert [answer.status for answer in answers] == [200]
        await until(lambda: not is_alive(old))
        page = await run.wait_for(lambda page: [row["plugin"] for row in page["plugins"]] == ["sample"])
        assert page["plugins"][0]["restarts"] == 0
        assert (await run.client.chat()).text == "v1"


COUNTS = """
from hotbay_sdk import Plugin, PreRequest, Scorer

plugin = Plugin("sample")

@plugin.type("sample-scorer", reads=["endpoint.in_flight"], state_versions=[1])
class Counts(Scorer, PreRequest):
    def __init__(self, context, parameters=None):
        self.sent = 0

    def export_state(self, version):
        return str(self.sent).encode()

    def import_state(self, version, pieces):
        self.sent = int(b"".join(pieces))

    def score(self, request, endpoint):
        open({seen!r}, "a").write(f"{{endpoint.in_flight:g}} {{self.sent}}\\n")
        return float(endpoint.id == "default/v1")

    def pre_request(self, request, picked, endpoints):
        self.sent += 1
"""


async def test_u32_counts_are_neither_lost_nor_taken_twice_across_a_swap(host, packages, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    packages.make(tmp_path / "packages" / "v1", COUNTS.format(seen=str(first)))
    async with host(config=PATIENT + NO_STEPS) as bay:
        streams = [await begin_stream(bay.serving.address) for _ in range(50)]
        bay.publish(COUNTS.format(seen=str(second)), rev=2)
        await bay.rev_is_live(2)
        assert bay.plugin()["cold"] == ""
        assert (await bay.client.chat()).status == 200
        assert sum(in_flight for in_flight, _ in rows(second)) == 50
        for server in bay.servers:
            server.finish.set()
        for reader, writer in streams:
            assert (await reader.read()).endswith(b"0\r\n\r\n")
            writer.close()
        await bay.wait_for(lambda: bay.serving.metrics.requests_in_flight == 0)
        # The snapshot that a decision sees is some milliseconds older than the ledger.
        await bay.wait_for(lambda: not bay.host._data.store.snapshot.columns["endpoint.in_flight"].any())
        assert (await bay.client.chat()).status == 200
        seen = list(rows(second))
        assert min(in_flight for in_flight, _ in seen) == 0
        assert [in_flight for in_flight, _ in seen[-2:]] == [0, 0]
        # 50 that v1 sent, and those that v2 did.
        assert [sent for _, sent in seen[::2]] == [50, 51]


async def begin_stream(address: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A streamed request whose first event is there."""
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hello"}]}'
    reader, writer = await asyncio.open_connection(*address)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    writer.write(head % len(body) + body)
    with anyio.fail_after(30):
        await reader.readuntil(b"data: {}\n\n")
    return reader, writer


def rows(path) -> Iterator[tuple[int, int]]:
    for line in path.read_text().splitlines():
        in_flight, sent = line.split()
        yield int(in_flight), int(sent)


# -- everything at once ------------------------------------------------------------------------------

CHURN_S = 8.0
"""Scaled from 60 s: what goes wrong here goes wrong at one interleaving, of which this holds some thousands."""


async def test_z10_status_swaps_and_endpoints_that_change_at_once_are_always_consistent(
    host, text, packages, tmp_path, caplog
):
    caplog.set_level(logging.WARNING)
    folder = tmp_path / "packages" / "sample"
    packages.make(folder, text.scorer("v1"), version="1.0.0")
    async with host(config=PATIENT + NO_STEPS) as bay, bay.load(50) as load:
        ends_s = time.monotonic() + CHURN_S
        identities: dict[int, tuple[object, ...]] = {}
        pages = churns = swaps = 0

        async def look() -> None:
            nonlocal pages
            while time.monotonic() < ends_s:
                page = bay.status()
                [row] = page["plugins"]
                live = row["live"]
                who = (live["rev"], live["digest"])
                assert identities.setdefault(live["generation"], who) == who, "a page that mixes generations"
                assert live["version"] == "1.0.0"
                assert row["leases"] >= 0
                assert [b["ref"] for b in page["bindings"] if b["ref"] == "sample"] == ["sample"]
                assert len({e["id"] for e in page["endpoints"]}) == len(page["endpoints"])
                assert all(e["in_flight"] >= 0 for e in page["endpoints"])
                assert (await bay.client.send(b"GET /metrics")).status == 200
                pages += 1

        async def churn() -> None:
            nonlocal churns
            every = bay.configure("").endpoints
            while time.monotonic() < ends_s:
                churns += 1
                bay.host._data.discovery.configure(configured_endpoints(every if churns % 2 else every[:1]))
                await anyio.sleep(0.005)
            bay.host._data.discovery.configure(configured_endpoints(every))

        async def swap() -> None:
            nonlocal swaps
            rev = 1
            while time.monotonic() < ends_s:
                rev += 1
                packages.make(folder, text.scorer("v1"), rev=rev, version="1.0.0")
                await bay.rev_is_live(rev)
                swaps += 1

        async with anyio.create_task_group() as group:
            for job in (look, look, churn, swap):
                group.start_soon(job)
        assert (pages > 100, churns > 100, swaps >= 2) == (True, True, True), (pages, churns, swaps)
        await load.more(10)
    assert "RuntimeError" not in caplog.text
    assert load.failed == []
    assert bay.degraded() == {}
