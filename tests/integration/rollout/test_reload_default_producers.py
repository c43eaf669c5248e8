"""Producers that are made by themselves because of a reload: they answer when the plan that needs them is in force."""

import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.packages.manifest import TypeFactsEntry

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

TYPE = "approx-prefix-cache-producer"
CONSUMES = """
from dataclasses import dataclass
from hotbay_sdk import Plugin, Scorer

plugin = Plugin("sample")

@dataclass(frozen=True)
class Params:
    wants: bool = False

@plugin.type("sample-scorer", parameters=Params, consumes=["*"])
class Consumes(Scorer):
    def __init__(self, context, parameters):
        super().__init__(context, parameters)
        if parameters.wants:
            self.consumes = ["PrefixCacheMatchInfo.hit"]

    def score_batch(self, requests, endpoints):
        best = "v1"
        if self.parameters.wants:
            best = f"v{endpoints.data('PrefixCacheMatchInfo.hit')[0]:.0f}"
        return [[float(name == f"default/{best}") for name in endpoints.ids] for _ in requests]
"""
PRODUCES = """
from hotbay_sdk import DataProducer, Plugin

plugin = Plugin("{id}")

@plugin.type("approx-prefix-cache-producer", produces={{"PrefixCacheMatchInfo.hit": "request"}})
class Produces(DataProducer):
    def produce_batch(self, requests, endpoints):
        return {{"PrefixCacheMatchInfo.hit": [{hit}] * len(requests)}}
"""
CONFIG = (
    "swap: {shadow: off, canary: off, guard: off, drain: 500ms}\nsupervise: {linger: 0s}\n"
    "bindings: {sample: {deadline: 5s}}\n"
)


def picker(wants: bool) -> str:
    return (
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
        f"- {{name: sample, type: sample-scorer, parameters: {{wants: {str(wants).lower()}}}}}\n"
        "schedulingProfiles:\n- name: default\n  plugins: [{pluginRef: sample}]\n"
    )


def make(packages, tmp_path, **hits: float) -> None:
    """The scorer, and a package of the producer for each of `hits`."""
    packages.make(tmp_path / "packages" / "sample", CONSUMES)
    for name, hit in hits.items():
        source = PRODUCES.format(id=name, hit=hit)
        packages.make(tmp_path / "packages" / name, source, id=name, types=(TYPE,))


async def adopt(bay, text: str, config: str = CONFIG) -> None:
    await bay.host.adopt(bay.configure(config), load_picker_config(text, file="picker.yaml"))


async def test_producer_that_parameters_ask_for_answers_when_they_are_in_force(host, packages, tmp_path):
    make(packages, tmp_path, prefix=2.0)
    async with host(picker(wants=False), config=CONFIG) as bay:
        assert (await bay.client.chat()).text == "v1"
        assert [row["plugin"] for row in bay.status()["plugins"]] == ["sample"]
        await adopt(bay, picker(wants=True))
        assert bay.live("prefix")["rev"] == 1
        assert (await bay.client.chat()).text == "v2"
        assert bay.degraded() == {}
        await adopt(bay, picker(wants=False))
        await bay.wait_for(lambda: [row["plugin"] for row in bay.status()["plugins"]] == ["sample"])


async def test_producer_of_the_package_that_is_ranked_now_answers_when_the_ranking_is_in_force(
    host, packages, tmp_path
):
    make(packages, tmp_path, one=1.0, two=2.0)
    first, second = (f"{CONFIG}types: {{{TYPE}: {name}}}\n" for name in ("one", "two"))
    async with host(picker(wants=True), config=first) as bay:
        assert (await bay.client.chat()).text == "v1"
        async with bay.load(50) as load:
            await adopt(bay, picker(wants=True), second)
            assert (await bay.client.chat()).text == "v2"
            await bay.wait_for(lambda: {row["plugin"] for row in bay.status()["plugins"]} == {"sample", "two"})
        assert load.failed == []
        assert bay.degraded() == {}
        assert (await bay.client.chat()).text == "v2"


CHAIN = """
from hotbay_sdk import DataProducer, Plugin, Scorer

plugin = Plugin("both")

@plugin.type("idle-scorer")
class Idle(Scorer):
    def score_batch(self, requests, endpoints):
        return [[0.0] * len(endpoints) for _ in requests]

@plugin.type("approx-prefix-cache-producer", produces={"PrefixCacheMatchInfo.hit": "request"}, consumes=["*"])
class Passes(DataProducer):
    consumes = ["Other.hit"]

    def produce_batch(self, requests, endpoints):
        return {"PrefixCacheMatchInfo.hit": [float(hit) for hit in endpoints.data("Other.hit")]}
"""


async def test_package_that_a_producer_asks_for_that_is_made_in_a_live_process_is_started(host, packages, tmp_path):
    out = tmp_path / "packages"
    packages.make(out / "sample", CONSUMES)
    packages.make(out / "both", CHAIN, id="both", types=("idle-scorer", TYPE))
    source = PRODUCES.format(id="other", hit=2.0).replace("PrefixCacheMatchInfo", "Other").replace(TYPE, "other-maker")
    facts = {"other-maker": TypeFactsEntry(points=("produce",), stability="stable", produces_default=("Other",))}
    packages.make(out / "other", source, id="other", types=("other-maker",), type_facts=facts)
    text = picker(wants=False).replace("plugins:\n", "plugins:\n- {name: idle, type: idle-scorer}\n", 1)
    async with host(text, config=CONFIG) as bay:
        assert (await bay.client.chat()).text == "v1"
        wants = CONSUMES.replace("if parameters.wants", "if True").replace("if self.parameters.wants", "if True")
        packages.make(out / "sample-2", wants, rev=2)
        await bay.wait_for(lambda: "other" in [row["plugin"] for row in bay.status()["plugins"]])
        await bay.rev_is_live(1, "other")
        await bay.rev_is_live(2)
        await bay.wait_for(lambda: "other-maker" in {binding.ref for binding in bay.host._router.plan.bindings})
        assert (await bay.client.chat()).text == "v2"


ADMITS = """
from hotbay_sdk import Admitter, Plugin

raise ValueError("not today")
"""


async def test_host_with_an_admitter_that_cannot_start_is_not_ready_and_admits_nobody(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "sample", CONSUMES)
    facts = {"door": TypeFactsEntry(points=("admit",), stability="stable")}
    packages.make(tmp_path / "packages" / "door", ADMITS, id="door", types=("door",), type_facts=facts)
    text = picker(wants=False).replace("plugins:\n", "plugins:\n- {name: door, type: door}\n", 1)
    async with host(text, config=CONFIG, ready=False) as bay:
        await bay.wait_for(lambda: bay.plugin("door")["last_error"] is not None)
        await bay.rev_is_live(1)
        assert bay.status()["ready"] is False
        assert (await bay.client.chat()).status == 503
