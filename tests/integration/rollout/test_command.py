"""`hotbay run` as a process of its own: L07, HB16, U09, U17, the drain on SIGTERM, and configurations that cannot be used."""

import asyncio
import json
import signal
from pathlib import Path

import anyio
import pytest
from hotbay.store.blobs import BlobStore

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

PATIENT = "bindings: {sample: {deadline: 5s}}\n"
PREFERS = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: TYPE}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}]
"""
STUBBORN = {
    "looping": {"score": "sum(range(10 ** 12))"},
    "ignoring": {"start": "signal.signal(signal.SIGTERM, signal.SIG_IGN)", "score": "time.sleep(60)"},
}
"""One keeps the interpreter's lock in a C loop, one ignores SIGTERM and reads its channel no more."""


async def test_l07_hb16_no_plugin_outlives_a_killed_host(command, text, packages, is_alive, until, tmp_path):
    source, kinds = tmp_path / "packages", ("idle", "looping", "ignoring")
    for kind in kinds:
        made = text.scorer("v1", type=f"{kind}-scorer", **STUBBORN.get(kind, {}))
        packages.make(source / kind, made, id=kind, types=(f"{kind}-scorer",))
    picker = (
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
        + "".join(f"- {{name: {kind}, type: {kind}-scorer}}\n" for kind in kinds)
        + "schedulingProfiles:\n- name: default\n  plugins: ["
        + ", ".join(f"{{pluginRef: {kind}}}" for kind in kinds)
        + "]\n"
    )
    async with command(picker) as run:
        for kind in kinds:
            await run.live(1, kind)
        # Two of them now sit in a call.
        assert (await run.client.chat()).status == 200
        pids = run.plugin_pids()
        assert len(pids) == 3
        run.process.kill()
        await until(lambda: not any(is_alive(pid) for pid in pids), within_s=5 * 2)


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_u09_half_a_package_is_never_used(command, text, packages, tmp_path):
    source, ran = tmp_path / "packages", tmp_path / "ran"
    packages.make(source / "v1", text.scorer("v1"))
    made = tmp_path / "made"
    packages.make(made, text.scorer("v2", start=f"open({str(ran)!r}, 'w').close()"), rev=2)
    # The index first and the plugin's own wheel last: the longest time in which only bytes are missing.
    files = sorted((p for p in made.rglob("*") if p.is_file()), key=lambda p: (p.parent != made, p.stat().st_size))
    total = sum(path.stat().st_size for path in files)
    copy = Copy(made, source / "v2", files)
    async with command(config=PATIENT) as run:
        await run.live(1)
        while copy.copied < total // 2:
            await copy.step()
            assert (await run.client.chat()).text == "v1"
        assert (await run.status())["plugins"][0]["live"]["rev"] == 1
        assert not ran.exists()
        run.process.kill()
    async with command(config=PATIENT) as run:
        await run.live(1)
        while copy.copied < total:
            assert not ran.exists()
            assert (await run.client.chat()).text == "v1"
            await copy.step()
        await run.live(2)
        assert (await run.client.chat()).text == "v2"
        assert (await run.status())["plugins"][0]["restarts"] == 0
    store = BlobStore(tmp_path / "state" / "store")
    assert len(json.loads((store.root / "index.json").read_text())["manifests"]) == 2
    assert not list(store.root.rglob("*.part"))


class Copy:
    """A slow copy: 8 KiB each 100 ms, which is the repro's own pace."""

    def __init__(self, made: Path, out: Path, files: list[Path]) -> None:
        self._pieces = [
            (out / path.relative_to(made), path.read_bytes()[start : start + 8192])
            for path in files
            for start in range(0, path.stat().st_size, 8192)
        ]
        self.copied = 0

    async def step(self) -> None:
        path, piece = self._pieces.pop(0)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(piece)
        self.copied += len(piece)
        await anyio.sleep(0.1)


async def test_u17_broken_configuration_changes_nothing_and_its_correction_is_applied(
    command, text, packages, tmp_path
):
    for name in ("v1", "v2"):
        made = text.scorer(name, type=f"{name}-scorer")
        packages.make(tmp_path / "packages" / name, made, id=name, types=(f"{name}-scorer",))
    async with command(PREFERS.replace("TYPE", "v1-scorer"), config=PATIENT) as run:
        await run.live(1, "v1")
        assert (await run.client.chat()).text == "v1"
        run.picker.write_text(
            PREFERS.replace("TYPE", "v2-scorer").replace("schedulingProfiles:", "schedulingProfiles: ]")
        )
        page = await run.wait_for(lambda page: page["problems"])
        line = PREFERS.splitlines().index("schedulingProfiles:") + 1
        assert f"picker.yaml:{line}:21: " in page["problems"][0]
        assert (await run.client.chat()).text == "v1"
        run.picker.write_text(PREFERS.replace("TYPE", "v2-scorer"))
        await run.wait_for(lambda page: not page["problems"])
        assert (await run.client.chat()).text == "v2"
        assert "degraded_total{" not in (await run.client.send(b"GET /metrics")).text


async def test_sigterm_lets_streams_end_and_leaves_no_plugin(command, text, packages, is_alive, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with command() as run:
        await run.live(1)
        pids = run.plugin_pids()
        reader, writer = await asyncio.open_connection(*run.client.address)
        body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hello"}]}'
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        with anyio.fail_after(10):
            await reader.readuntil(b"data: {}\n\n")
        run.process.send_signal(signal.SIGTERM)
        # It says that it drains while the stream goes on.
        await run.wait_for(lambda page: page.get("not_ready") == ["draining"] or page == {})
        assert run.process.poll() is None
        for server in run.servers:
            server.finish.set()
        with anyio.fail_after(10):
            assert (await reader.read()).endswith(b"data: {}\n\n\r\n0\r\n\r\n")
        writer.close()
        assert await run.ended() == 0
        assert not any(is_alive(pid) for pid in pids)


UNUSABLE = {
    "unknown type": ("sample-scorre", "picker.yaml:5:3: UNKNOWN_TYPE: ", "did you mean 'sample-scorer'?"),
    "missing package": ("rtt-estimate", "picker.yaml:5:3: UNKNOWN_TYPE: ", "add a source that has a package"),
    "damaged package": ("other-scorer", "DIGEST_MISMATCH: ", "Copy the package again"),
    "half a package": ("other-scorer", "NOT_COMPLETE_YET: ", "If the copy has ended, copy the package again."),
}


@pytest.mark.parametrize("fault", UNUSABLE)
async def test_host_that_cannot_start_says_why_and_exits_78(command, text, packages, tmp_path, fault):
    kind, message, hint = UNUSABLE[fault]
    source = tmp_path / "packages"
    packages.make(source / "v1", text.scorer("v1"))
    if fault in ("damaged package", "half a package"):
        packages.make(source / "other", text.scorer("v1"), id="other", types=("other-scorer",))
        blob = max((source / "other" / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
        whole = blob.read_bytes()
        blob.write_bytes(whole[:-1] if fault == "half a package" else whole[:-1] + bytes([whole[-1] ^ 1]))
    async with command(PREFERS.replace("TYPE", kind), serves=False) as run:
        assert await run.ended() == 78
        said = run.log.read_text()
        assert message in said
        assert hint in said
        assert "Traceback" not in said


async def test_damaged_new_version_is_a_problem_and_changes_nothing(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", text.scorer("v1"))
    async with host() as bay:
        before = bay.live()
        made = tmp_path / "made"
        packages.make(made, text.scorer("v2"), rev=2)
        blob = max((made / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
        blob.write_bytes(b"!" + blob.read_bytes()[1:])
        made.rename(tmp_path / "packages" / "v2")
        await bay.wait_for(lambda: any("DIGEST_MISMATCH" in problem for problem in bay.status()["problems"]))
        assert bay.live() == before
