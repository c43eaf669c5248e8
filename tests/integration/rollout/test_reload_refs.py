"""Plugins that look others of their package up: made in the order of need, and made anew with what they need."""

import re

import anyio
import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import HostError
from hotbay.packages.manifest import TypeFactsEntry

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
CONFIG = "swap: {shadow: off, canary: off, guard: off, drain: 500ms}\nsupervise: {linger: 0s}\nbindings: {sample: {deadline: 5s}}\n"
PAIR = """
from dataclasses import dataclass
from hotbay_sdk import ParameterError, Plugin, Scorer, PreRequest

plugin = Plugin("sample")

@dataclass(frozen=True)
class Choice:
    prefer: str = "v1"

@plugin.type("chooser", parameters=Choice)
class Chooser(PreRequest):
    def pre_request(self, request, picked, endpoints):
        pass

@dataclass(frozen=True)
class Params:
    chooser: str = ""
    factors: list[float] = ()

@plugin.type("sample-scorer", parameters=Params)
class Follows(Scorer):
    def __init__(self, context, parameters):
        super().__init__(context, parameters)
        self.chooser = context.plugin(parameters.chooser, "chooser")
        self.prefer = self.chooser.parameters.prefer

    def score_batch(self, requests, endpoints):
        return [[float(name == f"default/{self.prefer}") for name in endpoints.ids] for _ in requests]
"""
FACTS = {
    "chooser": TypeFactsEntry(points=("pre_request",), stability="stable"),
    "sample-scorer": TypeFactsEntry(points=("score",), stability="stable", refs=("chooser",)),
}


def picker(prefer: str, *, factors: str = "[1.0]") -> str:
    """The one that needs stands first."""
    return (
        f"{HEAD}- name: sample\n  type: sample-scorer\n  parameters:\n    chooser: c\n    factors: {factors}\n"
        f"- {{name: c, type: chooser, parameters: {{prefer: {prefer}}}}}\n"
        "schedulingProfiles:\n- name: default\n  plugins: [{pluginRef: sample}]\n"
    )


def make(packages, tmp_path) -> None:
    packages.make(tmp_path / "packages" / "v1", PAIR, types=("chooser", "sample-scorer"), type_facts=FACTS)


async def adopt(bay, text: str) -> None:
    await bay.host.adopt(bay.configure(CONFIG), load_picker_config(text, file="picker.yaml"))


async def test_ec10_the_one_that_is_needed_is_made_first_and_both_anew_together_when_it_changes(
    host, packages, tmp_path
):
    make(packages, tmp_path)
    async with host(picker("v2"), config=CONFIG) as bay:
        before = bay.live()
        assert (await bay.client.chat()).text == "v2"
        async with bay.load(50) as load:
            for prefer in ("v1", "v2", "v1"):
                await adopt(bay, picker(prefer))
                assert (await bay.client.chat()).text == prefer
        assert load.failed == []
        # The one that needs it changes alone: it finds the one that is there.
        await adopt(bay, picker("v1", factors="[2.0]"))
        assert (await bay.client.chat()).text == "v1"
        assert (bay.live(), bay.degraded()) == (before, {})


async def test_ec22_field_that_the_process_refuses_e7_is_told_with_its_own_place(host, packages, tmp_path):
    make(packages, tmp_path)
    async with host(picker("v2"), config=CONFIG) as bay:
        with pytest.raises(HostError) as refused:
            await adopt(bay, picker("v2", factors="[1.0, asdf]"))
        assert refused.value.code == "CONFIG_INVALID"
        found = re.search(
            r"picker\.yaml:(\d+):(\d+): plugins 'sample': parameters\.factors\[1\]: ", refused.value.message
        )
        assert found is not None, refused.value.message
        assert (int(found[1]), int(found[2])) == (8, 20)
        assert (await bay.client.chat()).text == "v2"


async def test_e8_circles_and_names_that_are_not_there_change_nothing(host, packages, tmp_path):
    make(packages, tmp_path)
    async with host(picker("v2"), config=CONFIG) as bay:
        with pytest.raises(HostError, match="dependency on the unregistered plugin 'd'"):
            await adopt(bay, picker("v1").replace("chooser: c", "chooser: d"))
        with pytest.raises(HostError, match="cycle detected: 'sample' needs 'sample'"):
            await adopt(bay, picker("v1").replace("chooser: c", "chooser: sample"))
        with anyio.fail_after(30):
            assert (await bay.client.chat()).text == "v2"
