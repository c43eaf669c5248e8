"""What a host holds does not grow with what it did: swaps of one plugin, and reloads of its configuration.

At scale 1 the numbers are those of the field failures. What is held is read from `/proc` after a warm-up and at the
end, once the last process of the last swap is gone. Connections of clients and to model servers come and go with the
load and are none of it. The control at the end has a host hold more, and the same reading says so.
"""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from hotbay.datalayer.pages.exposition import PageReader

from tests.e2e.proofs.kit import HostUnderProof, Load, wait_until
from tests.integration.conftest import POLL_S, Text, children_of

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(2400), pytest.mark.anyio]

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}]
"""
AT_ONCE = """
swap: {shadow: off, canary: off, guard: off, drain: 5s}
bindings: {sample: {deadline: 5s}}
isolation: {level: none}
"""
SWAPS, WARM_UP, FEWEST_SWAPS = 1000, 50, 60
UNCHANGED, CHANGED, FEWEST_RELOADS = 1000, 200, 20
RELOAD_WARM_UP, RELOAD_WITHIN_S = 5, 30
RATE_PER_S = 20
DESCRIPTORS_MORE, THREADS_MORE = 5, 2
RESIDENT_GROWTH_BYTES = 20_000_000
RELOAD_DESCRIPTORS_MORE = 3
RELOADS = PageReader(["hotbay_config_reloads_total"])
OFFERED = 3
"""Revisions that the watched folder offers at a time."""


@dataclass(frozen=True)
class Held:
    """What a host holds, connections over TCP aside.

    `watches` are those of inotify, `leftovers` files that nobody needs any more.
    """

    descriptors: int
    threads: int
    zombies: int
    plugins: int
    watches: int
    leftovers: tuple[str, ...]
    resident_bytes: int

    @classmethod
    def of(cls, host: HostUnderProof, temporary: Path) -> "Held":
        vitals = host.vitals()
        return cls(
            descriptors=vitals["descriptors"],
            threads=vitals["threads"],
            zombies=sum(_state(pid) == "Z" for pid in children_of(host.pid)),
            plugins=len(host.plugin_pids()),
            watches=_watches(host.pid),
            leftovers=tuple(sorted(_leftovers(host, temporary))),
            resident_bytes=vitals["resident_bytes"],
        )


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _watches(pid: int) -> int:
    count = 0
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(OSError):
            count += entry.read_text().count("inotify wd:")
    return count


def _leftovers(host: HostUnderProof, temporary: Path) -> Iterator[str]:
    """Temporary files, parts of downloads and of environments, and records of processes that are gone."""
    yield from (path.name for path in temporary.iterdir())
    state = host.folder / "state"
    yield from (
        str(path.relative_to(state)) for path in state.rglob("*") if re.search(r"\.(part|tmp|new)\b", path.name)
    )
    alive = children_of(host.pid)
    for path in (state / "processes").rglob("*"):
        pid = re.search(r"\d+", path.name)
        if path.is_file() and pid is not None and int(pid[0]) not in {*alive, host.pid}:
            yield str(path.relative_to(state))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the host under proof, and of nobody else."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def publisher(host: HostUnderProof, text: Text) -> Callable[[int], None]:
    """Publishes revisions of two contents in turn: two environments serve them all, and each is another package."""

    def publish(rev: int) -> None:
        shutil.rmtree(host.folder / "making", ignore_errors=True)
        host.publish(text.scorer("v1" if rev % 2 else "v2"), rev=rev, version=f"{rev % 2 + 1}.0.0")
        shutil.rmtree(host.source / f"sample-{rev - OFFERED}", ignore_errors=True)

    return publish


async def at_rest(host: HostUnderProof, temporary: Path) -> Held:
    """What is held when one process is left, and nothing of those before."""
    await wait_until(lambda: len(children_of(host.pid)) == 1, within_s=60, told=host.tail)
    return Held.of(host, temporary)


async def swap(host: HostUnderProof, publish: Callable[[int], None], rev: int) -> None:
    publish(rev)
    await host.wait_row(lambda row: (row["live"] or {}).get("rev") == rev)


async def test_z01_a_thousand_swaps_under_load_leave_nothing_behind(host, text, scale, temporary, capsys):
    swaps, warm_up = max(FEWEST_SWAPS, round(SWAPS * scale)), max(10, round(WARM_UP * scale))

    def prepare(found: HostUnderProof) -> None:
        publisher(found, text)(1)

    async with host(PICKER, AT_ONCE, prepare=prepare) as running:
        publish = publisher(running, text)
        load = Load(running.client, RATE_PER_S)
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            for rev in range(2, warm_up + 2):
                await swap(running, publish, rev)
            before = await at_rest(running, temporary)
            for rev in range(warm_up + 2, warm_up + swaps + 2):
                await swap(running, publish, rev)
            after = await at_rest(running, temporary)
            load.stop()
        with capsys.disabled():
            print(f"\n{swaps} swaps, {len(load.answers)} requests:\n{before}\n{after}")  # noqa: T201  # its report
        assert (await running.row())["swaps"] == warm_up + swaps
        assert load.failed == []
        assert await running.degraded() == 0
        assert after.descriptors <= before.descriptors + DESCRIPTORS_MORE
        assert after.threads <= before.threads + THREADS_MORE
        assert (after.zombies, after.plugins, after.leftovers) == (0, 1, ())
        assert after.resident_bytes < before.resident_bytes + RESIDENT_GROWTH_BYTES


async def reloads(host: HostUnderProof, result: str) -> int:
    """How many saved configurations had this result."""
    answer = await host.client.send(b"GET /metrics")
    samples = RELOADS.read(answer.text.encode()).samples.get("hotbay_config_reloads_total", ())
    return int(sum(sample.value for sample in samples if sample.labels["result"] == result))


def write(file: Path, text: str, *, by_rename: bool) -> None:
    """Save a file as editors do, one or the other way."""
    if by_rename:
        aside = file.with_suffix(".new")
        aside.write_text(text)
        aside.rename(file)
    else:
        file.write_text(text)


async def save(host: HostUnderProof, file: Path, text: str, *, result: str, by_rename: bool) -> None:
    """Save a file; return when the host has seen it."""
    before = await reloads(host, result)
    write(file, text, by_rename=by_rename)
    deadline_s = time.monotonic() + RELOAD_WITHIN_S
    while await reloads(host, result) == before:
        assert time.monotonic() < deadline_s, host.tail()
        await anyio.sleep(POLL_S)


async def save_unchanged(host: HostUnderProof, count: int) -> None:
    said = host.config.read_text()
    for number in range(count):
        text = f"{said}# save {number}\n"
        await save(host, host.config, text, result="unchanged", by_rename=number % 2 == 0)
    await save(host, host.config, said, result="unchanged", by_rename=True)


async def save_changed(host: HostUnderProof, count: int) -> None:
    """A binding's deadline and a second object of the scorer in turn: another plan, and one object made and one dropped."""
    said, picker = host.config.read_text(), host.folder / "picker.yaml"
    for number in range(count):
        if number % 2:
            text = said.replace("deadline: 5s", f"deadline: {5000 + number}ms")
            await save(host, host.config, text, result="applied", by_rename=number % 4 == 1)
        else:
            text = PICKER.replace(
                "schedulingProfiles", f"- {{name: s{number}, type: sample-scorer}}\nschedulingProfiles"
            )
            text = text.replace("{pluginRef: sample}", f"{{pluginRef: sample}}, {{pluginRef: s{number}}}")
            await save(host, picker, text, result="applied", by_rename=number % 4 == 0)
    await save(host, host.config, said, result="applied", by_rename=True)


async def test_z03_reloads_leave_no_watch_and_no_descriptor_behind(host, text, scale, temporary, capsys):
    unchanged, changed = (max(FEWEST_RELOADS, round(count * scale)) for count in (UNCHANGED, CHANGED))

    def prepare(found: HostUnderProof) -> None:
        publisher(found, text)(1)

    async with host(PICKER, AT_ONCE, prepare=prepare) as running:
        await save_unchanged(running, RELOAD_WARM_UP)
        await save_changed(running, RELOAD_WARM_UP)
        before = await at_rest(running, temporary)
        await save_unchanged(running, unchanged)
        await save_changed(running, changed)
        after = await at_rest(running, temporary)
        with capsys.disabled():
            print(f"\n{unchanged} + {changed} reloads:\n{before}\n{after}")  # noqa: T201  # its report
        assert (await running.row())["swaps"] == 0
        assert await reloads(running, "refused") == 0
        assert after.watches == before.watches
        assert after.descriptors <= before.descriptors + RELOAD_DESCRIPTORS_MORE
        assert after.threads <= before.threads + THREADS_MORE


async def test_what_a_host_holds_more_is_seen(host, text, temporary):
    """The control: open streams of events, and a file that was left."""

    def prepare(found: HostUnderProof) -> None:
        publisher(found, text)(1)

    async with host(PICKER, AT_ONCE, prepare=prepare) as running:
        before = await at_rest(running, temporary)
        streams = [running.admin.lines("/status/stream") for _ in range(DESCRIPTORS_MORE + 1)]
        for stream in streams:
            await anyio.to_thread.run_sync(next, stream)
        (temporary / "left").touch()
        after = Held.of(running, temporary)
        for stream in streams:
            stream.close()
        assert after.descriptors > before.descriptors + DESCRIPTORS_MORE
        assert after.leftovers == ("left",)
