"""Rollouts of whole hosts: shadow, canary, guard, the ways back, and what an operator does to them while they run.

Steps are shortened; what decides is the same. Bindings get a deadline of 5 s where the machine's speed is not meant.
"""

import json
import os
import shutil
import signal
import time

import anyio
import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import HostError
from hotbay.store.world.engine import Put
from hotbay.store.world.records import History, Locked, Pin, Quarantine

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(120)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"
SWAP = (
    "swap: {shadow: {sample: 1, calls: 20, for: 1s}, canary: {share: 0.5, for: 500ms, min_requests: 20},"
    " guard: {for: 500ms, calls: 20}}\n"
)
LONG_GUARD = "swap: {shadow: off, canary: off, guard: {for: 60s, calls: 100000}}\n"
NO_STEPS = "swap: {shadow: off, canary: off, guard: off}\n"


def world(bay):
    return bay.host._supervisor.world.view


async def test_version_goes_through_shadow_canary_and_guard_without_a_failed_request(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + SWAP) as bay, bay.load(100) as load:
        seen = []
        await load.more(20)
        bay.publish(text.scorer("v2"), rev=2)

        def through() -> bool:
            phase = bay.plugin()["phase"]
            if not seen or seen[-1] != phase:
                seen.append(phase)
            return bay.live()["rev"] == 2 and phase == "live"

        await bay.wait_for(through, within_s=60)
        await load.more(20)
        assert [p for p in seen if p in ("shadow", "canary", "guard")] == ["shadow", "canary", "guard"]
        assert load.failed == []
        assert bay.degraded() == {}
        assert (bay.plugin()["swaps"], bay.plugin()["restarts"], bay.error()) == (1, 0, None)
        assert [(h.rev, h.why) for h in world(bay).all(History)] == [(1, "first version"), (2, "newer version")]
        assert bay.host._router.mixed == 0
        await bay.wait_for(lambda: len(bay.plugin_pids()) == 1)


@pytest.mark.parametrize("step", ["shadow", "canary"])
async def test_version_whose_calls_fail_is_refused_on_trial_and_says_which_figure(host, text, packages, tmp_path, step):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    other = "canary: off" if step == "shadow" else "shadow: off"
    steps = {
        "shadow": "shadow: {sample: 1, calls: 1000, for: 30s}",
        "canary": "canary: {share: 0.5, for: 30s, min_requests: 1000}",
    }
    config = PATIENT + f"swap: {{{steps[step]}, {other}, guard: off}}\n"
    async with host(config=config) as bay, bay.load(100) as load:
        before = bay.live()
        manifest = bay.publish(text.scorer("v2", score="raise RuntimeError('broken')"), rev=2)
        await bay.wait_for(lambda: world(bay).get(Quarantine, manifest.digest), within_s=60)
        entry = world(bay).get(Quarantine, manifest.digest)
        assert (entry.code, entry.count) == ("TRIAL_FAILED", 1)
        assert entry.reason.startswith(f"{step}: ")
        assert "failures" in entry.reason
        assert bay.live() | {"state": None} == before | {"state": None}
        await bay.wait_for(lambda: bay.plugin()["phase"] == "live")
        await load.more(20)
        assert load.failed == []
        assert bay.plugin()["candidate"] is None
        assert step == "canary" or bay.degraded() == {}


async def test_version_that_fails_on_guard_is_rolled_back_to_the_warm_process(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + LONG_GUARD) as bay, bay.load(100) as load:
        before = bay.live()
        bad = bay.publish(text.scorer("v2", score="raise RuntimeError('broken')"), rev=2)
        await bay.wait_for(lambda: world(bay).get(Quarantine, bad.digest), within_s=60)
        await bay.wait_for(lambda: bay.live()["pid"] == before["pid"])
        assert bay.live()["generation"] == before["generation"], "the same process, not another of that version"
        await bay.wait_for(lambda: bay.plugin()["phase"] == "live")
        degraded = bay.degraded_count()
        await load.more(20)
        assert (load.failed, bay.degraded_count()) == ([], degraded)
        assert [h.rev for h in world(bay).all(History)] == [1, 2, 1]


async def test_crash_on_guard_goes_back_at_once(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + LONG_GUARD) as bay, bay.load(50) as load:
        before = bay.live()
        manifest = bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "guard")
        os.kill(bay.live()["pid"], signal.SIGABRT)
        await bay.wait_for(lambda: bay.live()["pid"] == before["pid"])
        await bay.wait_for(lambda: world(bay).get(Quarantine, manifest.digest))
        await load.more(10)
        assert load.failed == []


async def test_operator_rolls_back_pins_and_unpins(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + NO_STEPS) as bay:
        operate = bay.operations
        bay.publish(text.scorer("v2"), rev=2)
        await bay.rev_is_live(2)
        assert (await operate.rollback("sample", "me"))["rev"] == 1
        await bay.rev_is_live(1)
        assert (await bay.client.chat()).text == "v1"
        await bay.wait_for(lambda: len(world(bay).all(History)) == 3)
        history = (await operate.history("sample"))["history"]
        assert [(h["rev"], h["who"]) for h in history] == [(1, "hotbay"), (2, "hotbay"), (1, "me")]
        bay.publish(text.scorer("v2"), rev=3)
        await bay.wait_for(lambda: any(c.rev == 3 for c in bay.host._supervisor.facts("sample").candidates))
        assert bay.live()["rev"] == 1, "a watcher does not undo it"
        await operate.unpin("sample", "me")
        await bay.rev_is_live(3)
        await operate.pin("sample", rev=2, who="me")
        await bay.rev_is_live(2)
        with pytest.raises(HostError, match="rev 9 is not known") as refused:
            await operate.pin("sample", rev=9, who="me")
        assert refused.value.hint == "known revisions: 1, 2, 3"
        with pytest.raises(HostError) as refused:
            await operate.history("smaple")
        assert (refused.value.code, refused.value.hint) == ("UNKNOWN_PLUGIN", "did you mean 'sample'?")


async def test_rollback_on_guard_stays_until_it_is_unpinned_and_goes_over_a_pin(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + LONG_GUARD) as bay:
        first = bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "guard")
        await bay.operations.pin("sample", rev=2, who="me")
        back = (await bay.operations.rollback("sample", "me"))["digest"]
        await bay.rev_is_live(1)
        assert world(bay).get(Pin, "sample").digest == back != first.digest
        bay.publish(text.scorer("v2"), rev=3)
        await bay.wait_for(lambda: any(c.rev == 3 for c in bay.host._supervisor.facts("sample").candidates))
        assert bay.live()["rev"] == 1
        await bay.operations.unpin("sample", "me")
        await bay.rev_is_live(3)


async def test_lock_file_that_a_reload_names_first_waits_for_apply(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + NO_STEPS) as bay:
        (tmp_path / "hotbay.lock").write_text(json.dumps(await bay.operations.lock()))
        await bay.host.adopt(bay.configure(PATIENT + NO_STEPS + "lock: hotbay.lock\n"), bay.picker)
        assert world(bay).all(Locked) == ()
        assert any("hotbay.lock says is not in force yet" in problem for problem in bay.status()["problems"])
        assert (await bay.operations.apply("me"))["lock"] == "in force, 1 build"
        assert bay.status()["problems"] == []
        bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: any(c.rev == 2 for c in bay.host._supervisor.facts("sample").candidates))
        assert [line.rev for line in world(bay).all(Locked)] == [1]
        assert (bay.live()["rev"], bay.plugin()["phase"]) == (1, "live")


@pytest.mark.parametrize("command", ["abort", "rollback"])
async def test_what_an_operator_ended_is_in_quarantine_when_the_command_answers(
    host, text, packages, tmp_path, command
):
    """A host that is killed just then begins it no more."""
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + LONG_GUARD) as bay:
        manifest = bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "guard")
        if command == "abort":
            await bay.operations.rollout("sample", "abort", "me")
        else:
            await bay.operations.rollback("sample", "me")
        assert world(bay).get(Quarantine, manifest.digest) is not None
        assert [entry.rev for entry in world(bay).all(History)][-1] == 1


async def test_abort_that_the_world_does_not_take_is_done_and_told_and_written_later(
    host, text, packages, tmp_path, state_dir
):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + LONG_GUARD) as bay:
        before = bay.live()
        manifest = bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "guard")
        file, aside = state_dir / "world.db", state_dir / "aside"
        await bay.wait_for(lambda: len(world(bay).all(History)) == 2)
        file.rename(aside)
        with pytest.raises(HostError, match=r"abort of sample is done, and .*world\.db was deleted") as told:
            await bay.operations.rollout("sample", "abort", "me")
        assert told.value.code == "UNAVAILABLE"
        assert bay.live()["pid"] == before["pid"], "it goes back whatever the world takes"
        assert any("world.db was deleted" in problem for problem in bay.status()["problems"])
        aside.rename(file)
        await bay.wait_for(lambda: world(bay).get(Quarantine, manifest.digest))
        await bay.wait_for(lambda: not any("world.db" in problem for problem in bay.status()["problems"]))


async def test_operator_aborts_promotes_and_clears(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    forever = "swap: {shadow: {sample: 1, calls: 1000000, for: 600s}, canary: off, guard: off}\n"
    async with host(config=PATIENT + forever) as bay:
        operate = bay.operations
        with pytest.raises(HostError, match="nothing to promote"):
            await operate.rollout("sample", "promote", "me")
        manifest = bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "shadow")
        plan = (await operate.plan())["changes"]
        assert [(row["action"], row["from"]["rev"], row["to"]["rev"]) for row in plan] == [("upgrade", 1, 2)]
        await operate.rollout("sample", "abort", "me")
        await bay.wait_for(lambda: bay.plugin()["phase"] == "live")
        await bay.wait_for(lambda: world(bay).get(Quarantine, manifest.digest))
        assert [q["code"] for q in (await operate.quarantine())["quarantine"]] == ["ABORTED"]
        await operate.clear_quarantine("sample", "me")
        await bay.wait_for(lambda: bay.plugin()["phase"] == "shadow")
        await operate.rollout("sample", "promote", "me")
        await bay.rev_is_live(2)


async def test_disabled_plugin_stays_down_over_a_restart_and_comes_back(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT) as bay:
        await bay.operations.disable("sample", "me")
        await bay.wait_for(lambda: bay.plugin()["phase"] == "disabled" and not bay.plugin_pids())
        assert (await bay.client.chat()).status == 200
        assert set(bay.degraded()) == {("sample", "UNAVAILABLE")}
    async with host(config=PATIENT) as bay:
        assert (bay.plugin()["phase"], bay.plugin_pids()) == ("disabled", set())
        await bay.operations.enable("sample", "me")
        await bay.rev_is_live(1)


@pytest.mark.parametrize("ends", ["disable", "reload"])
async def test_plugin_that_died_and_is_not_wanted_any_more_is_in_no_plan(host, text, packages, tmp_path, ends):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    config = PATIENT + "supervise: {linger: 0s, restart: {first: 60s, max: 60s}}\n"
    async with host(config=config) as bay:
        supervisor, router = bay.host._supervisor, bay.host._router
        assert (await bay.client.chat()).status == 200
        os.kill(bay.live()["pid"], signal.SIGKILL)
        await bay.wait_for(lambda: bay.live()["pid"] is None)
        dead = supervisor.deployment.live("sample")
        assert dead is not None, "what its calls say of it is that it crashed"
        if ends == "disable":
            await bay.operations.disable("sample", "me")
            assert bay.plugin()["phase"] == "disabled"
        else:
            picker = text.picker.replace("- {name: sample, type: sample-scorer}\n", "").replace(
                "{pluginRef: sample}", ""
            )
            await bay.host.adopt(
                bay.configure("supervise: {linger: 0s}"), load_picker_config(picker, file="picker.yaml")
            )
            await bay.wait_for(lambda: not supervisor.routines)
        assert supervisor.deployment.live("sample") is None
        assert router.statistics(dead.number) is None
        assert router._remotes == router._counters == {}
        assert (await bay.client.chat()).status == 200


async def test_fail_closed_plugin_is_not_disabled_without_force(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config="bindings: {sample: {deadline: 5s, on_failure: fail_closed}}\n") as bay:
        operate = bay.operations
        with pytest.raises(HostError, match="sample of sample fails closed") as refused:
            await operate.disable("sample", "me")
        assert "--force" in refused.value.hint
        assert bay.live()["pid"]
        await operate.disable("sample", "me", force=True)
        await bay.wait_for(lambda: not bay.plugin_pids())


async def test_l20_plugin_that_fell_asleep_is_started_once_for_ten_requests(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", is_filter=True))
    config = PATIENT + "packages: [{id: sample, start: first-use, idle: 2s}]\n"
    async with host(config=config) as bay:
        assert bay.plugin_pids() == set()
        assert (await bay.client.chat()).text == "v1"
        await bay.wait_for(lambda: not bay.plugin_pids(), within_s=30)
        before = bay.live()["generation"]
        answers = []

        async def one() -> None:
            answers.append(await bay.client.chat())

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(one)
        assert [(a.status, a.text) for a in answers] == [(200, "v1")] * 10
        assert bay.degraded() == {}
        assert bay.live()["generation"] == before + 1


async def test_spare_takes_over_when_the_live_process_is_killed(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + "packages: [{id: sample, standby: 1}]\n") as bay, bay.load(100) as load:
        await bay.wait_for(lambda: len(bay.host._supervisor.routines["sample"].instances) == 2)
        before = bay.live()
        os.kill(before["pid"], signal.SIGKILL)
        await bay.wait_for(lambda: bay.live()["pid"] not in (None, before["pid"]))
        assert bay.live()["generation"] == before["generation"] + 1, "the spare, which was there before"
        await bay.wait_for(lambda: len(bay.plugin_pids()) == 2)
        await load.more(10)
        assert load.failed == []


async def test_handover_never_runs_both_and_holds_calls_back_meanwhile(host, text, packages, tmp_path):
    lock = tmp_path / "alone"
    alone = f"os.open({str(lock)!r}, os.O_CREAT | os.O_EXCL)\nimport atexit\natexit.register(os.unlink, {str(lock)!r})"
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1", start=alone))
    config = PATIENT + "swap: {mode: handover, shadow: off, canary: off, guard: off}\n"
    async with host(config=config) as bay, bay.load(50) as load:
        await load.more(10)
        bay.publish(text.scorer("v2", start=alone), rev=2)
        await bay.rev_is_live(2)
        await load.more(20)
        assert load.failed == []
        assert bay.degraded() == {}
        assert bay.plugin()["restarts"] == 0


async def test_refs_with_a_key_have_a_process_of_their_own(host, text, packages, tmp_path):
    picker = text.picker.replace(
        "- {name: sample, type: sample-scorer}",
        "- {name: sample, type: sample-scorer}\n- {name: other, type: sample-scorer}",
    ).replace("[{pluginRef: sample}]", "[{pluginRef: sample}, {pluginRef: other}]")
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    config = "bindings: {sample: {deadline: 5s}, other: {deadline: 5s, key: mine}}\n"
    async with host(picker, config=config) as bay:
        assert bay.live("sample")["pid"] != bay.live("sample/mine")["pid"]
        assert (await bay.client.chat()).text == "v1"
        assert bay.degraded() == {}
        os.kill(bay.live("sample/mine")["pid"], signal.SIGKILL)
        await bay.wait_for(lambda: bay.plugin("sample/mine")["restarts"] == 1)
        assert bay.plugin("sample")["restarts"] == 0


async def test_version_waits_for_the_operators_approval(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + "swap: {approve: manual, shadow: off, canary: off, guard: off}\n") as bay:
        operate = bay.operations
        bay.publish(text.scorer("v2"), rev=2)
        await bay.wait_for(lambda: bay.plugin()["phase"] == "awaiting approval")
        assert bay.live()["rev"] == 1
        await operate.rollout("sample", "approve", "me")
        await bay.rev_is_live(2)
        await bay.wait_for(lambda: len(world(bay).all(History)) == 2)
        assert (await operate.history("sample"))["history"][-1]["who"] == "me"


REMEMBERS = """
import os
from hotbay_sdk import Plugin, Scorer

plugin = Plugin("sample")

@plugin.type("sample-scorer", state_versions=[1])
class Remembers(Scorer):
    def __init__(self, context, parameters=None):
        self.best = "{best}"

    def export_state(self, version):
        return self.best.encode()

    def import_state(self, version, pieces):
        self.best = {imported}

    def score_batch(self, requests, endpoints):
        return [[float(name == "default/" + self.best) for name in endpoints.ids] for _ in requests]
"""


@pytest.mark.parametrize("mode", ["overlap", "handover"])
async def test_state_goes_to_the_new_version(host, packages, tmp_path, mode):
    inherits = 'b"".join(pieces).decode()'
    packages.make(tmp_path / "packages" / "v1", REMEMBERS.format(best="v1", imported=inherits))
    config = PATIENT + f"swap: {{mode: {mode}, shadow: off, canary: off, guard: off}}\n"
    async with host(config=config) as bay:
        bay.publish(REMEMBERS.format(best="v2", imported=inherits), rev=2)
        await bay.rev_is_live(2)
        assert (await bay.client.chat()).text == "v1", "what the first version knew"
        assert bay.plugin()["cold"] == ""


async def test_version_that_cannot_use_the_state_starts_cold_and_says_so(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", REMEMBERS.format(best="v1", imported="None"))
    async with host(config=PATIENT + NO_STEPS) as bay:
        bay.publish(REMEMBERS.format(best="v2", imported="1 / 0"), rev=2)
        await bay.rev_is_live(2)
        assert (await bay.client.chat()).text == "v2"
        assert bay.plugin()["cold"].startswith("sample: cold")


async def test_quarantine_that_ends_lets_the_version_be_tried_again_by_itself(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    made = packages.make(tmp_path / "made", text.scorer("v2"), rev=2)
    async with host(config=PATIENT + NO_STEPS) as bay:
        ends_s = time.time_ns() / 1e9 + 2.0
        record = Quarantine(made.digest, "sample", 2, "TRIAL_FAILED", "as asked", 1, ends_s - 2.0, ends_s)
        await bay.host._supervisor.world.transact(lambda _view: [Put(record)])
        (tmp_path / "made").rename(tmp_path / "packages" / "v2")
        await bay.wait_for(
            lambda: any(c.rev == 2 for c in bay.host._supervisor.routines["sample"].state.facts.candidates)
        )
        assert bay.live()["rev"] == 1
        await bay.rev_is_live(2)
        assert time.time_ns() / 1e9 >= ends_s


async def test_rollback_and_pin_run_what_ran_though_other_content_has_its_revision_by_now(
    host, text, packages, tmp_path
):
    """The other content comes first by its digest, which is what counts where nothing of a revision ran."""
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host(config=PATIENT + NO_STEPS) as bay:
        ran = bay.publish(text.scorer("v2"), rev=2)
        await bay.rev_is_live(2)
        bay.publish(text.scorer("v3"), rev=3)
        await bay.rev_is_live(3)
        for n in range(100):
            other = packages.make(tmp_path / "made" / f"other{n}", text.scorer(f"other{n}"), rev=2)
            if other.digest < ran.digest:
                break
        shutil.move(tmp_path / "made" / f"other{n}", tmp_path / "packages" / "other")
        await bay.wait_for(lambda: (bay.error() or {}).get("code") == "DIGEST_CONFLICT")
        assert (bay.error()["digest"], bay.error()["message"].count(other.digest)) == (other.digest, 1)
        assert (await bay.operations.rollback("sample", "me"))["digest"] == ran.digest
        await bay.rev_is_live(2)
        assert bay.live()["digest"] == ran.digest
        assert (await bay.client.chat()).text == "v2"
        await bay.operations.unpin("sample", "me")
        await bay.rev_is_live(3)
        await bay.operations.pin("sample", digest=other.digest, who="me")
        await bay.wait_for(lambda: bay.live()["digest"] == other.digest)
