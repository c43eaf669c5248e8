"""The first-party prefix cache across swaps and rollbacks: what it learned moves along, so its hits stay."""

import os
import signal
from pathlib import Path

import orjson
import pytest
from hotbay.packages.layout import blob_path, read_layout, write_layout
from hotbay.packages.manifest import Manifest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

LAYOUT = Path(__file__).resolve().parents[3] / "build" / "packages" / "prefix-cache"
NAME = "prefix-cache"
PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: learn, type: approx-prefix-cache-producer}
- {name: rate, type: prefix-cache-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: rate}]
"""
CONFIG = "bindings: {learn: {deadline: 5s}, rate: {deadline: 5s}}\n"
PROMPTS = 40


def repack(out: Path, rev: int) -> None:
    """The packed package under another revision."""
    (manifest,) = read_layout(LAYOUT)
    wheels = {blob.name: blob_path(LAYOUT, blob.digest) for blob in manifest.blobs}
    write_layout(out, Manifest(**(manifest.model_dump() | {"rev": rev})), wheels)


def prompt(n: int) -> bytes:
    """Some blocks long, and another one from the first block on for each number."""
    text = f"conversation {n}: " + f"{n * 7919} apples and pears; " * 200
    return orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text}]})


async def ask(bay, numbers: range) -> list[str]:
    """Which endpoint answered each prompt, one after the other."""
    answers = [await bay.client.send(b"POST /v1/chat/completions", prompt(n)) for n in numbers]
    assert [answer.status for answer in answers] == [200] * len(answers)
    return [answer.text for answer in answers]


def hit_rate(before: list[str], after: list[str]) -> float:
    """Share of prompts that went again to the endpoint that holds them."""
    return sum(a == b for a, b in zip(before, after, strict=True)) / len(before)


async def test_hit_rate_is_kept_across_a_swap_and_a_rollback(host, tmp_path):
    repack(tmp_path / "packages" / "v1", 1)
    async with host(PICKER, config=CONFIG) as bay:
        first = await ask(bay, range(PROMPTS))
        assert set(first) == {"v1", "v2"}, "what nobody knows goes anywhere"
        assert hit_rate(first, await ask(bay, range(PROMPTS))) == 1.0

        repack(tmp_path / "packages" / "v2", 2)
        await bay.rev_is_live(2, NAME)
        assert bay.plugin(NAME)["cold"] == ""
        assert hit_rate(first, await ask(bay, range(PROMPTS))) == 1.0

        more = await ask(bay, range(PROMPTS, 2 * PROMPTS))
        await bay.operations.rollback(NAME, "me")
        await bay.rev_is_live(1, NAME)
        assert bay.plugin(NAME)["cold"] == ""
        assert hit_rate(first + more, await ask(bay, range(2 * PROMPTS))) == 1.0

        # The negative control: a process that is killed hands nothing over.
        before = bay.live(NAME)
        os.kill(before["pid"], signal.SIGKILL)
        await bay.wait_for(lambda: bay.live(NAME)["pid"] and bay.live(NAME)["generation"] > before["generation"])
        assert hit_rate(first + more, await ask(bay, range(2 * PROMPTS))) < 0.8


async def test_what_is_learned_on_guard_is_known_after_the_way_back(host, tmp_path):
    repack(tmp_path / "packages" / "v1", 1)
    config = CONFIG + "swap: {shadow: off, canary: off, guard: {for: 600s, calls: 100000}}\n"
    async with host(PICKER, config=config) as bay:
        first = await ask(bay, range(PROMPTS))
        old = bay.live(NAME)
        repack(tmp_path / "packages" / "v2", 2)
        await bay.wait_for(lambda: bay.plugin(NAME)["phase"] == "guard")
        more = await ask(bay, range(PROMPTS, 2 * PROMPTS))
        assert hit_rate(first, await ask(bay, range(PROMPTS))) == 1.0
        await bay.operations.rollback(NAME, "me")
        await bay.wait_for(lambda: bay.live(NAME)["generation"] == old["generation"])
        assert hit_rate(first + more, await ask(bay, range(2 * PROMPTS))) == 1.0
        assert bay.degraded() == {}
