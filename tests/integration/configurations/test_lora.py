"""`host-lora.yaml`: requests of an adapter go where it is loaded, those of another one where there is room."""

import pytest
from hotbay.sim.config import LoraModule, SimConfig

pytestmark = [pytest.mark.slow, pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(180)]

MANIFEST = "host-lora.yaml"
SIM = SimConfig(loras=(LoraModule("sql"), LoraModule("poems")))
SIMS = {"server-0": SIM, "server-1": SIM}
PROMPTS = [f"question {n}" for n in range(6)]


async def test_requests_of_an_adapter_go_where_it_is_loaded(starter):
    async with starter.run(MANIFEST, sims=SIMS) as bay:
        for adapter, other in (("sql", "poems"), ("poems", "sql")):
            async with bay.busy("one that takes long", model=adapter) as server:
                (room,) = set(bay.servers) - {server}
                assert await bay.asks(PROMPTS, model=adapter) == [server] * len(PROMPTS)
                # Each server holds one adapter.
                assert await bay.asks(PROMPTS, model=other) == [room] * len(PROMPTS)
        models = {seen.model for server in bay.servers.values() for seen in server.seen}
        assert models == {"sql", "poems"}


async def test_with_random_picks_adapters_are_everywhere(starter, random_picker):
    async with starter.run(MANIFEST, picker=random_picker, sims=SIMS) as bay, bay.busy("long", model="sql"):
        assert set(await bay.asks(PROMPTS * 5, rested=False, model="sql")) == set(bay.servers)
