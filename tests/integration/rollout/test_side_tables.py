"""Labels that change reach a filter in a real process, and swaps and deaths do not keep them from it."""

import os
import signal
from dataclasses import replace

import anyio
import pytest

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

PICKER = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: tier, type: tier-filter}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: tier}]
"""
TIERS = """
from hotbay_sdk import Filter, Plugin

plugin = Plugin("tiers")

@plugin.type("tier-filter", reads=["endpoint.labels", "endpoint.role", "endpoint.active_models"])
class Tier(Filter):
    def keep(self, request, endpoint):
        return endpoint.labels.get("tier") == "gold" and endpoint.role == endpoint.labels.get("llm-d.ai/role", "")
"""
CONFIG = "bindings: {tier: {deadline: 5s, on_failure: fail_closed}}\n"


async def label(bay, **tiers: str) -> None:
    """Give the servers other labels, as discovery does, and wait for the next publication: no later one is waited for."""
    store = bay.host._data.store
    before = store.snapshot
    for name, tier in tiers.items():
        known = store.get(f"default/{name}")
        assert known is not None
        store.upsert(replace(known, labels={"tier": tier, "llm-d.ai/role": f"role of {name}"}))
    await bay.wait_for(lambda: store.snapshot.tables_version != before.tables_version)
    assert store.snapshot.tables_version == before.tables_version + 1


async def test_a_label_that_changes_reaches_a_filter_with_the_next_publication(host, packages, tmp_path):
    def make(rev: int) -> None:
        packages.make(tmp_path / "packages" / f"tiers-{rev}", TIERS, id="tiers", types=("tier-filter",), rev=rev)

    make(1)
    async with host(PICKER, config=CONFIG) as bay:
        for gold, silver in (("v1", "v2"), ("v2", "v1"), ("v1", "v2")):
            await label(bay, **{gold: "gold", silver: "silver"})
            async with anyio.create_task_group() as group:
                answers: list[str] = []

                async def ask(answers=answers) -> None:
                    answers.append((await bay.client.chat()).text)

                for _ in range(4):
                    group.start_soon(ask)
            assert answers == [gold] * 4
        # Another version, and a process that died, begin without any of them.
        make(2)
        await bay.rev_is_live(2, "tiers")
        assert (await bay.client.chat()).text == "v1"
        pid = bay.live("tiers")["pid"]
        os.kill(pid, signal.SIGKILL)
        await bay.wait_for(lambda: (bay.live("tiers") or {}).get("pid") not in (None, pid))
        await bay.ready()
        await label(bay, v1="silver", v2="gold")
        assert (await bay.client.chat()).text == "v2"
        assert bay.degraded() == {}
