"""What a host holds does not grow with what it did: swaps of one plugin, and reloads of its configuration.

At scale 1 the numbers are those of the field failures. What is held is read from `/proc` after a warm-up and at the
end, once the last process of the last swap is gone. The control at the end holds files on purpose, and the same
reading says so.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from tests.e2e.proofs.kit import HostUnderProof, Load, wait_until
from tests.integration.conftest import Text, children_of

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(1800), pytest.mark.anyio]

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
RATE_PER_S = 20
DESCRIPTORS_MORE, THREADS_MORE = 5, 2
RESIDENT_GROWTH_BYTES = 20_000_000
RELOAD_DESCRIPTORS_MORE = 3
OFFERED = 3
"""Revisions that the watched folder offers at a time."""


@dataclass(frozen=True)
class Held:
    """What a host holds. `watches` are those of inotify, `leftovers` files that nobody needs any more."""

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
        # A descriptor may be closed between the listing and the look.
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
