"""`host-minimal.yaml`, `picker-minimal.yaml` and `host-default.yaml`: short queues and free caches first."""

from pathlib import Path

import pytest
from hotbay.sim.config import FakeMetrics, SimConfig

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-default.yaml"
MINIMAL = (Path(__file__).resolve().parents[3] / "manifests" / "picker-minimal.yaml").read_text()
REQUESTS = 16
QUEUE = {"server-1": SimConfig(fake_metrics=FakeMetrics(waiting_requests=20))}
BUSY = QUEUE | {"server-2": SimConfig(fake_metrics=FakeMetrics(kv_cache_usage=0.5))}


async def cold(bay, prompt_of, **how) -> set[str]:
    """Who answers prompts that nobody knows."""
    return set(await bay.asks([prompt_of(f"cold {n}", 100) for n in range(REQUESTS)], **how))


async def test_one_server_is_enough(starter):
    async with starter.run("host-minimal.yaml") as bay:
        assert await bay.asks(["hello", "hello again"]) == ["server-0", "server-0"]


async def test_default_goes_where_queue_and_cache_are_free(starter, prompt_of):
    async with starter.run(MANIFEST, sims=BUSY) as bay:
        assert await cold(bay, prompt_of) == {"server-0"}


async def test_default_keeps_to_cached_prompts_and_uses_several_servers(bay, prompt_of):
    prompts = [prompt_of(f"known {n}", 320) for n in range(REQUESTS)]
    first = await bay.asks(prompts, rested=False)
    assert await bay.asks(prompts) == first
    assert len(set(first)) > 1


async def test_minimal_scheduling_looks_at_queues_alone(starter, prompt_of):
    async with starter.run(MANIFEST, picker=MINIMAL, sims=BUSY) as bay:
        assert await cold(bay, prompt_of) == {"server-0", "server-2"}


async def test_with_random_picks_full_servers_get_as_many(starter, prompt_of, random_picker):
    async with starter.run(MANIFEST, picker=random_picker, sims=BUSY) as bay:
        assert len(await cold(bay, prompt_of, rested=False)) > 1
