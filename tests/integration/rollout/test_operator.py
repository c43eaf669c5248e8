"""The operator's commands against a host that runs: the real command, the real socket, real plugin processes."""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"
NO_STEPS = "swap: {shadow: off, canary: off, guard: off}\n"
FOREVER = "swap: {shadow: {sample: 1, calls: 1000000, for: 600s}, canary: off, guard: off}\n"


@dataclass(frozen=True)
class Said:
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def page(self) -> dict:
        assert self.code == 0, self.err
        return json.loads(self.out)


Hotbay = Callable[..., Awaitable[Said]]


@pytest.fixture
def hotbay(tmp_path: Path) -> Hotbay:
    """hotbay("history sample"): runs the command against the host of `command`, as text; `page=True`: as JSON."""

    def call(arguments: list[str]) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "hotbay.cli", *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        return Said(done.returncode, done.stdout, done.stderr)

    async def ask(line: str, *, page: bool = False) -> Said:
        as_json = ["-o", "json"] if page else []
        return await anyio.to_thread.run_sync(call, [*line.split(), "-c", str(tmp_path / "host.yaml"), *as_json])

    return ask


def row(page: dict, name: str = "sample") -> dict:
    return next(row for row in page["plugins"] if row["plugin"] == name)


def in_phase(phase: str) -> Callable[[dict], bool]:
    return lambda page: any(r["plugin"] == "sample" and r["phase"] == phase for r in page.get("plugins", []))


def publish(packages, text, source: Path, rev: int, **more):
    return packages.make(source / f"v{rev}", text.scorer(f"v{(rev - 1) % 2 + 1}"), rev=rev, **more)


async def test_operator_looks_goes_back_pins_and_lets_go(command, text, packages, hotbay, tmp_path):
    source = tmp_path / "packages"
    packages.make(source / "v1", text.scorer("v1", start="print('hello from v1')"))
    async with command(config=PATIENT + NO_STEPS) as run:
        await run.live(1)
        made = publish(packages, text, source, 2)
        await run.live(2)

        said = await hotbay("status")
        assert (said.code, said.err) == (0, "")
        assert "sample" in said.out
        page = (await hotbay("status", page=True)).page
        assert (row(page)["live"]["rev"], row(page)["phase"]) == (2, "live")
        assert "hello from v1" in (await hotbay("logs sample")).out
        assert (await hotbay("plan", page=True)).page == {"changes": [], "not_chosen": [], "waiting": []}

        said = await hotbay("rollback sample", page=True)
        assert said.page["rev"] == 1
        await run.live(1)
        await run.wait_for(in_phase("live"))
        assert (await run.client.chat()).text == "v1"
        history = (await hotbay("history sample", page=True)).page["history"]
        assert [(entry["rev"], entry["why"]) for entry in history] == [
            (1, "first version"),
            (2, "newer version"),
            (1, "the operator went to it"),
        ]
        assert history[-1]["who"].startswith("uid ") or history[-1]["who"]
        text_history = (await hotbay("history sample")).out
        assert "newer version" in text_history

        assert (await hotbay("unpin sample")).code == 0
        await run.live(2)
        assert (await hotbay("pin sample@1")).code == 0
        await run.live(1)
        assert (await hotbay(f"pin sample@{made.digest}")).code == 0
        await run.live(2)
        publish(packages, text, source, 3)
        await run.wait_for(lambda page: page["sources"][0]["scans"] > 3)
        assert row(await run.status())["live"]["rev"] == 2

        said = await hotbay("pin sample@9")
        assert (said.code, "known revisions: 1, 2" in said.err) == (78, True)
        said = await hotbay("history smaple")
        assert (said.code, "did you mean 'sample'?" in said.err) == (78, True)
        said = await hotbay("rollout promote sample")
        assert (said.code, "nothing to promote" in said.err) == (1, True)


async def test_operator_steers_a_rollout(command, text, packages, hotbay, tmp_path):
    source = tmp_path / "packages"
    publish(packages, text, source, 1)
    async with command(config=PATIENT + FOREVER) as run:
        await run.live(1)
        made = publish(packages, text, source, 2)
        await run.wait_for(in_phase("shadow"))
        [change] = (await hotbay("plan", page=True)).page["changes"]
        assert (change["action"], change["from"]["rev"], change["to"]["rev"]) == ("upgrade", 1, 2)
        assert "upgrade" in (await hotbay("plan")).out

        assert (await hotbay("rollout abort sample", page=True)).page["action"] == "abort"
        await run.wait_for(in_phase("live"))
        [entry] = (await hotbay("quarantine list", page=True)).page["quarantine"]
        assert (entry["digest"], entry["code"], entry["rev"]) == (made.digest, "ABORTED", 2)
        assert "aborted by" in (await hotbay("quarantine list")).out
        assert (await hotbay(f"quarantine clear {made.digest}", page=True)).page["cleared"][0]["rev"] == 2
        await run.wait_for(in_phase("shadow"))

        assert (await hotbay("rollout pause sample")).code == 0
        page = await run.wait_for(lambda page: row(page)["paused"])
        assert row(page)["phase"] == "shadow"
        assert (await hotbay("rollout resume sample")).code == 0
        await run.wait_for(lambda page: not row(page)["paused"])
        assert (await hotbay("rollout promote sample")).code == 0
        await run.live(2)
        assert (await run.client.chat()).text == "v2"
        assert (await hotbay("quarantine list")).out == "quarantine: none\n"
        refused = await hotbay("quarantine clear sample")
        assert (refused.code, "nothing of sample is in quarantine" in refused.err) == (1, True)


async def test_operator_approves_disables_and_enables(command, text, packages, hotbay, tmp_path):
    source = tmp_path / "packages"
    publish(packages, text, source, 1)
    config = PATIENT + NO_STEPS.replace("{shadow", "{approve: manual, shadow")
    async with command(config=config) as run:
        await run.live(1)
        publish(packages, text, source, 2)
        await run.wait_for(in_phase("awaiting approval"))
        assert "awaits approval" in (await hotbay("plan", page=True)).page["changes"][0]["why"]
        assert (await hotbay("rollout approve sample")).code == 0
        await run.live(2)

        assert (await hotbay("disable sample", page=True)).page["plugin"] == "sample"
        await run.wait_for(lambda page: in_phase("disabled")(page) and not run.plugin_pids())
        assert (await run.client.chat()).status == 200
        assert (await hotbay("enable sample")).code == 0
        await run.wait_for(in_phase("live"))
        assert (await run.client.chat()).text == "v2"


async def test_fail_closed_plugin_is_disabled_by_force_only(command, text, packages, hotbay, tmp_path):
    publish(packages, text, tmp_path / "packages", 1)
    closed = "bindings: {sample: {deadline: 5s, on_failure: fail_closed}}\n"
    async with command(config=closed + NO_STEPS) as run:
        await run.live(1)
        refused = await hotbay("disable sample")
        assert (refused.code, "--force" in refused.err) == (1, True)
        assert (await run.client.chat()).status == 200
        assert (await hotbay("disable sample --force")).code == 0
        await run.wait_for(in_phase("disabled"))
        answer = await run.client.chat()
        assert (answer.status, answer.reason) == (503, "plugin-unavailable")


async def test_package_that_asks_for_a_capability_waits_for_its_grant(command, text, packages, hotbay, tmp_path):
    publish(packages, text, tmp_path / "packages", 1, capabilities=("net",))
    async with command(config=PATIENT + NO_STEPS, serves=False) as run:
        page = await run.wait_for(in_phase("awaiting grant"))
        assert (row(page)["live"], len(row(page)["awaiting_grant"])) == (None, 1)
        assert not run.plugin_pids()
        [change] = (await hotbay("plan", page=True)).page["changes"]
        assert "rev 1 awaits a grant" in change["why"]
        [passed] = (await hotbay("plan", page=True)).page["not_chosen"]
        assert (passed["rev"], passed["why"]) == (1, "it asks for net, which is not granted")
        assert passed["hint"] == "`hotbay grant sample net` allows it"
        assert (await hotbay("grant sample storage")).code == 0
        assert row(await run.status())["phase"] == "awaiting grant"
        assert (await hotbay("grant sample nett")).code == 78
        assert (await hotbay("grant sample net", page=True)).page["capabilities"] == ["net"]
        await run.live(1)
        publish(packages, text, tmp_path / "packages", 2, capabilities=("net", "dial"))
        await run.wait_for(in_phase("awaiting grant"))
        page = (await hotbay("plan", page=True)).page
        assert page["changes"] == []
        [passed] = page["not_chosen"]
        assert (passed["rev"], passed["hint"]) == (2, "`hotbay grant sample dial net` allows it")


async def test_lock_mode_changes_nothing_until_the_lock_file_is_applied(command, text, packages, hotbay, tmp_path):
    source, lock = tmp_path / "packages", tmp_path / "hotbay.lock"
    publish(packages, text, source, 1)
    async with command(config=PATIENT + NO_STEPS) as run:
        await run.live(1)
        said = await hotbay(f"lock --out {lock}")
        assert said.code == 0, said.err
        assert [p["rev"] for p in json.loads(lock.read_text())["packages"]] == [1]
    async with command(config=PATIENT + NO_STEPS + f"lock: {lock}\n") as run:
        await run.live(1)
        publish(packages, text, source, 2)
        other = packages.make(tmp_path / "aside", text.scorer("v2"), rev=2)
        await run.wait_for(lambda page: page["sources"][0]["scans"] > 2)
        assert row(await run.status())["live"]["rev"] == 1

        document = json.loads(lock.read_text())
        document["packages"][0] |= {"rev": 2, "digest": str(other.digest)}
        lock.write_text(json.dumps(document))
        [change] = (await hotbay("plan", page=True)).page["changes"]
        assert (change["from"]["rev"], change["to"]["rev"]) == (1, 2)
        assert row(await run.status())["live"]["rev"] == 1, "a plan changes nothing"
        said = await hotbay("apply", page=True)
        assert [c["to"]["rev"] for c in said.page["changes"]] == [2]
        await run.live(2)
        assert (await hotbay("plan", page=True)).page["changes"] == []

        lock.write_text("kind: Lock\n")
        refused = await hotbay("apply")
        assert (refused.code, "hotbay.lock" in refused.err) == (78, True)
        assert row(await run.status())["live"]["rev"] == 2


async def test_manual_reload_waits_for_apply(command, text, packages, hotbay, tmp_path):
    source = tmp_path / "packages"
    publish(packages, text, source, 1)
    packages.make(source / "other", text.scorer("v2", type="other-scorer"), id="other", types=("other-scorer",))
    async with command(config=NO_STEPS + "reload: manual\n") as run:
        await run.live(1)
        valid = run.picker.read_text()
        run.picker.write_text(
            text.picker.replace("sample-scorer", "other-scorer")
            .replace("name: sample", "name: other")
            .replace("pluginRef: sample", "pluginRef: other")
        )
        await run.wait_for(lambda _page: "reload_held_back" in run.log.read_text())
        assert (await hotbay("plan", page=True)).page["waiting"] == ["picker"]
        assert (await run.client.chat()).text == "v1"
        assert (await hotbay("apply", page=True)).page["applied"] == ["picker"]
        await run.live(1, "other")
        assert (await run.client.chat()).text == "v2"
        assert (await hotbay("plan", page=True)).page["waiting"] == []
        # One that cannot be put in force is refused, also right after it was saved, and in place of the one before it.
        run.picker.write_text(valid)
        run.picker.write_text("kind: [\n")
        refused = await hotbay("apply")
        assert (refused.code, "picker.yaml:2:1" in refused.err) == (78, True)
        assert (await run.client.chat()).text == "v2"


async def test_what_nothing_needs_is_removed_and_what_runs_is_not(command, text, packages, hotbay, tmp_path):
    source = tmp_path / "packages"
    publish(packages, text, source, 1)
    async with command(config=PATIENT + NO_STEPS + "limits: {keep_versions: 1}\n") as run:
        await run.live(1)
        for rev in (2, 3):
            publish(packages, text, source, rev)
            await run.live(rev)
            await run.wait_for(in_phase("live"))
        blobs = tmp_path / "state" / "store" / "blobs" / "sha256"
        before = sorted(path.name for path in blobs.iterdir())
        dry = (await hotbay("gc --dry-run", page=True)).page
        assert dry["dry_run"] is True
        assert len(dry["completions"]) == 2
        assert sorted(path.name for path in blobs.iterdir()) == before
        done = (await hotbay("gc", page=True)).page
        assert done == dry | {"dry_run": False}
        after = {path.name for path in blobs.iterdir()}
        assert len(after) == len(before) - done["blobs"]
        assert (await hotbay("gc --dry-run", page=True)).page["blobs"] == 0
        live = row(await run.status())["live"]
        assert live["rev"] == 3
        assert live["digest"].removeprefix("sha256:") in after
        assert (await run.client.chat()).text == "v1"


async def test_bundle_of_what_runs_runs_where_no_source_is_reached(command, text, packages, hotbay, tmp_path):
    publish(packages, text, tmp_path / "packages", 1)
    out = tmp_path / "carried"
    async with command(config=PATIENT + NO_STEPS) as run:
        digest = (await run.live(1))["digest"]
        said = await hotbay(f"bundle {out}", page=True)
        assert [(p["plugin"], p["digest"]) for p in said.page["packages"]] == [("sample", digest)]
        refused = await hotbay(f"bundle {out}")
        assert (refused.code, "exists" in refused.err) == (78, True)
    (tmp_path / "packages").rename(tmp_path / "gone")
    out.rename(tmp_path / "packages")
    config = PATIENT + NO_STEPS
    async with command(config=config) as run:
        assert (await run.live(1))["digest"] == digest
        assert (await run.client.chat()).text == "v1"


async def test_no_host_answers_is_told(hotbay, tmp_path):
    (tmp_path / "host.yaml").write_text(
        f"apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: {tmp_path / 'state'}\n"
    )
    said = await hotbay("status")
    assert (said.code, "hotbay run" in said.err) == (69, True)
