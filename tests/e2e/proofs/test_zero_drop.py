"""Publications under load, with processes killed at random: no request fails, and nothing is degraded without a kill.

At scale 1: 10 minutes at half of the rate that the same machine reaches just before, 200 publications. The controls at
the end are a version that degrades every request and a host that cannot replace what is killed: both turn it red.
"""

import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.proofs.kit import Killer, Load, closed_loop_rate, sampling, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.timeout(1500), pytest.mark.anyio]

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: sample, type: sample-scorer}
- {name: steady, type: steady-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: sample}, {pluginRef: steady}]
"""
SHORT_SWAPS = """
swap:
  shadow: {sample: 0.5, calls: 20, for: 200ms}
  canary: {share: 0.2, for: 300ms, min_requests: 10}
  guard: {for: 300ms, calls: 10}
  drain: 10s
supervise: {budget: {failures: 1000, within: 10m}}
bindings: {sample: {deadline: 1s}, steady: {deadline: 1s}}
isolation: {level: none}
"""
PUBLICATIONS = 200
LOAD_S = 600.0
DESCRIPTORS_MORE = 8
THREADS_MORE = 4
TASKS_MORE = 4
POOLED = 2 * 128
"""Connections to the two model servers that a host keeps for later at most; each costs a descriptor and no task."""
RESIDENT_GROWTH_BYTES = 20 << 20


@dataclass
class Outcome:
    """What a run showed."""

    requests: int
    behind: int
    failed: int
    degraded: int
    degraded_inside: int
    mixed: int
    kills: int
    published: int
    done: int
    refused: int
    most_processes: int
    before: dict[str, int]
    after: dict[str, int]
    last_rev: int

    def wrong(self) -> list[str]:
        """Everything that the contract does not allow."""
        found = {
            f"{self.failed} of {self.requests} requests failed": self.failed > 0,
            f"{self.behind} requests were due and not sent beside {self.requests}": self.behind > self.requests / 20,
            f"{self.degraded - self.degraded_inside} degraded without a kill": self.degraded != self.degraded_inside,
            f"{self.mixed} cycles mixed generations": self.mixed > 0,
            f"{self.done} done + {self.refused} refused of {self.published}": self.done + self.refused
            != self.published,
            f"revision {self.last_rev} is live at the end": self.last_rev != self.published,
            f"{self.most_processes} processes of one plugin": self.most_processes > 2,
            f"descriptors {self.before} -> {self.after}": self.after["descriptors"]
            > self.before["descriptors"] + DESCRIPTORS_MORE,
            f"connections {self.before} -> {self.after}": self.after["connections"]
            > self.before["connections"] + POOLED,
            f"tasks {self.before} -> {self.after}": self.after["tasks"] > self.before["tasks"] + TASKS_MORE,
            f"threads {self.before} -> {self.after}": self.after["threads"] > self.before["threads"] + THREADS_MORE,
            f"memory {self.before} -> {self.after}": self.after["resident_bytes"]
            > self.before["resident_bytes"] + RESIDENT_GROWTH_BYTES,
        }
        return [text for text, is_wrong in found.items() if is_wrong]


def steady(text: Any) -> str:
    return text.scorer("v1", type="steady-scorer").replace('Plugin("sample")', 'Plugin("steady")')


def source_of(text: Any, rev: int) -> str:
    """Contents alternate, so that each publication is another package and every second one the same code."""
    return text.scorer("v1" if rev % 2 else "v2")


def processes_of(host: Any, plugin: str, labels: dict[int, str]) -> int:
    """How many processes of a plugin run now. Which plugin a process is of is read once from its command line."""
    count = 0
    for pid in host.plugin_pids():
        if pid not in labels:
            labels[pid] = label_of(pid)
        count += labels[pid] == plugin
    return count


def label_of(pid: int) -> str:
    """The plugin that a process belongs to: its command line ends with `plugin#generation`."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return line.rstrip("\0").rpartition("\0")[2].partition("#")[0]


async def at_rest(host: Any) -> dict[str, int]:
    """What the host holds without requests: its clients are gone, and one process of each plugin is left."""
    host.client.close()
    await wait_until(
        lambda: host.vitals()["connections"] <= POOLED and len(host.plugin_pids()) == 2, within_s=60, told=host.tail
    )
    return {**host.vitals(), "tasks": await host.tasks()}


async def prove(host: Any, text: Any, *, scale: float, seed: int, kills: bool = True) -> Outcome:
    """One run; what it showed."""
    publications = max(6, round(PUBLICATIONS * scale))
    interval_s = LOAD_S * scale / publications
    rate = await closed_loop_rate(host.client) / 2
    rng = random.Random(seed)
    killer = Killer(host, rng)
    load = Load(host.client, rate)
    before = await at_rest(host)
    mixed = "hotbay_mixed_cycles_total"
    degraded_before = await host.degraded()
    labels: dict[int, str] = {}
    async with anyio.create_task_group() as group:
        group.start_soon(load.run)
        await load.more(50)
        with sampling(lambda: processes_of(host, "sample", labels), group) as seen:
            due_s = time.monotonic()
            for rev in range(2, publications + 2):
                host.publish(source_of(text, rev), rev=rev)
                host.withdraw(rev=rev - 4)
                due_s += interval_s
                if kills and rng.random() < 0.5:
                    await anyio.sleep(rng.uniform(0, interval_s / 2))
                    await killer.kill_one()
                await anyio.sleep(max(0.0, due_s - time.monotonic()))
            row = await host.wait_row(
                lambda now: (now["live"] or {}).get("rev") == publications + 1 and now["phase"] == "live"
            )
            await load.more(50)
        load.stop()
    after = await at_rest(host)
    history = await host.ask("/history/sample")
    went_live = {entry["rev"] for entry in history["history"]} - {1}
    counters = await host.counters()
    return Outcome(
        requests=len(load.answers),
        behind=load.behind,
        failed=len(load.failed),
        degraded=await host.degraded() - degraded_before,
        degraded_inside=killer.degraded_inside,
        mixed=int(sum(value for (name, _), value in counters.items() if name == mixed)),
        kills=killer.kills,
        published=publications + 1,
        done=len(went_live) + 1,
        refused=publications - len(went_live),
        most_processes=max(seen),
        before=before,
        after=after,
        last_rev=row["live"]["rev"],
    )


async def test_no_request_fails_through_two_hundred_publications_and_random_kills(host, text, scale, capsys):
    def prepare(found: Any) -> None:
        found.publish(source_of(text, 1), rev=1)
        found.publish(steady(text), rev=1, plugin="steady", types=("steady-scorer",))

    async with host(PICKER, SHORT_SWAPS, prepare=prepare) as running:
        outcome = await prove(running, text, scale=scale, seed=7)
        with capsys.disabled():
            print(f"\nzero drop: {outcome}")  # noqa: T201  # the proof's own report
        assert outcome.wrong() == []
        assert outcome.kills >= 2
        assert outcome.done >= outcome.published * 0.7, Counter([outcome.done, outcome.refused])


async def test_a_version_that_degrades_everything_turns_the_proof_red(host, text, scale):
    """The control: with every step of the swap off, nothing keeps the bad version out."""

    def prepare(found: Any) -> None:
        found.publish(source_of(text, 1), rev=1)
        found.publish(steady(text), rev=1, plugin="steady", types=("steady-scorer",))

    config = SHORT_SWAPS.replace("  shadow: {sample: 0.5, calls: 20, for: 200ms}", "  shadow: off")
    config = config.replace("  canary: {share: 0.2, for: 300ms, min_requests: 10}", "  canary: off")
    config = config.replace("  guard: {for: 300ms, calls: 10}", "  guard: off")
    async with host(PICKER, config, prepare=prepare) as running:
        load = Load(running.client, 50)
        before = await running.degraded()
        async with anyio.create_task_group() as group:
            group.start_soon(load.run)
            running.publish(text.scorer("v1", score="raise ValueError('no')"), rev=2)
            await running.wait_row(lambda row: (row["live"] or {}).get("rev") == 2)
            await load.more(50)
            load.stop()
        assert not load.failed
        assert await running.degraded() > before
