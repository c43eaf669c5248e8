"""Another scheduling configuration under load: refs of live processes change, packages come and go, errors change nothing."""

import re
from pathlib import Path

import anyio
import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import HostError, InputError
from hotbay.rollout.adoption import ReplacedError

pytestmark = [pytest.mark.process, pytest.mark.anyio, pytest.mark.timeout(90)]

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n"
CONFIG = "swap: {shadow: off, canary: off, guard: off, drain: 500ms}\nsupervise: {linger: 0s}\nbindings: {sample: {deadline: 5s}}\n"
CHOOSES = """
import os, time
from dataclasses import dataclass
from hotbay_sdk import ParameterError, Plugin, Scorer

plugin = Plugin("sample")

@dataclass(frozen=True)
class Params:
    prefer: str = "v1"

    def __post_init__(self):
        if self.prefer not in ("v1", "v2"):
            raise ParameterError("prefer", f"{self.prefer} is no endpoint")

@plugin.type("sample-scorer", parameters=Params)
class Chooses(Scorer):
    def score_batch(self, requests, endpoints):
        return [[float(name == f"default/{self.parameters.prefer}") for name in endpoints.ids] for _ in requests]
"""


WAITS_IN_INIT = """
    def __init__(self, context, parameters):
        super().__init__(context, parameters)
        open({made!r}, "w").close()
        while not os.path.exists({go!r}):
            time.sleep(0.01)
"""
GATE = """
import os, time
from hotbay_sdk import Filter, Plugin

plugin = Plugin("gate")

@plugin.type("gate-filter")
class Gate(Filter):
    def keep_batch(self, requests, endpoints):
        open({reached!r}, "w").close()
        while not os.path.exists({go!r}):
            time.sleep(0.01)
        return [[True] * len(endpoints) for _ in requests]
"""


def picker(*plugins: str, weights: str = "{pluginRef: sample}") -> str:
    return (
        HEAD + "".join(f"- {plugin}\n" for plugin in plugins)
        + f"schedulingProfiles:\n- name: default\n  plugins: [{weights}]\n"
    )  # fmt: skip


def prefer(endpoint: str) -> str:
    return picker(f"{{name: sample, type: sample-scorer, parameters: {{prefer: {endpoint}}}}}")


async def adopt(bay, text: str, config: str = CONFIG) -> None:
    """What `hotbay run` does with changed files."""
    await bay.host.adopt(bay.configure(config), load_picker_config(text, file="picker.yaml"))


async def test_new_parameters_act_in_the_running_process(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    async with host(prefer("v1"), config=CONFIG) as bay:
        before = bay.live()
        async with bay.load(100) as load:
            await load.more(10)
            for endpoint in ("v2", "v1", "v2"):
                await adopt(bay, prefer(endpoint))
                assert (await bay.client.chat()).text == endpoint
            # Old refs are dropped when the drain time is over: nothing that is still decided needs them.
            await load.more(100)
        assert load.failed == []
        assert bay.degraded() == {}
        assert bay.live() == before
        assert load.answers[-1].text == "v2"


async def test_parameters_that_the_plugin_rejects_change_nothing(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    async with host(prefer("v1"), config=CONFIG) as bay:
        with pytest.raises(HostError) as refused:
            await adopt(bay, prefer("nowhere"))
        assert refused.value.code == "CONFIG_INVALID"
        assert re.search(r"picker\.yaml:\d+:\d+: plugins 'sample': parameters\.?(prefer)?: ", refused.value.message)
        assert "nowhere is no endpoint" in refused.value.message
        assert (await bay.client.chat()).text == "v1"
        await adopt(bay, prefer("v2"))
        assert (await bay.client.chat()).text == "v2"
        assert (bay.degraded(), bay.plugin()["restarts"]) == ({}, 0)


async def test_rejected_parameters_at_start_are_told_and_mended_by_an_edit(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    config = CONFIG + "packages: []\n"
    budget = config.replace("{linger: 0s}", "{linger: 0s, budget: {failures: 1}}")
    async with host(prefer("nowhere"), config=budget) as bay:
        assert bay.plugin()["phase"] == "disabled"
        assert bay.error()["code"] == "CONFIG_INVALID"
        assert re.search(r"picker\.yaml:\d+:\d+: plugins 'sample': parameters", bay.error()["message"])
        await adopt(bay, prefer("v2"), budget)
        await bay.wait_for(bay.live)
        assert (await bay.client.chat()).text == "v2"


async def test_configuration_that_does_not_compile_changes_nothing(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    async with host(prefer("v1"), config=CONFIG) as bay:
        with pytest.raises(InputError, match="no-scorr"):
            await adopt(bay, picker("{name: sample, type: no-scorr}"))
        not_compiled = picker(
            "{name: sample, type: sample-scorer, parameters: {prefer: v2}}",
            "{name: x, type: random-picker, parameters: {wrong: 1}}",
            weights="{pluginRef: sample}, {pluginRef: x}",
        )
        with pytest.raises(InputError, match="unknown parameter 'wrong'"):
            await adopt(bay, not_compiled)
        assert (await bay.client.chat()).text == "v1"
        assert bay.degraded() == {}


async def test_package_that_is_added_runs_before_it_counts_and_goes_when_it_is_not_named(
    host, text, packages, tmp_path
):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    slow = text.scorer("v2", type="other-scorer", start="time.sleep(0.5)")
    packages.make(tmp_path / "packages" / "other", slow, id="other", types=("other-scorer",))
    config = CONFIG.replace("}}", "}, other: {deadline: 5s}}")
    both = picker(
        "{name: sample, type: sample-scorer}",
        "{name: other, type: other-scorer}",
        weights="{pluginRef: sample, weight: 1}, {pluginRef: other, weight: 3}",
    )
    async with host(prefer("v1"), config=CONFIG) as bay, bay.load(100) as load:
        for _ in range(2):
            await adopt(bay, both, config)
            assert (await bay.client.chat()).text == "v2"
            pid = bay.live("other")["pid"]
            await adopt(bay, prefer("v1"))
            assert (await bay.client.chat()).text == "v1"
            await bay.wait_for(lambda pid=pid: pid not in bay.plugin_pids())
            await bay.wait_for(lambda: [row["plugin"] for row in bay.status()["plugins"]] == ["sample"])
        await load.more(10)
    assert load.failed == []
    assert bay.degraded() == {}


# -- a configuration that waits ----------------------------------------------------------------------

BOTH = picker(
    "{name: sample, type: sample-scorer}",
    "{name: other, type: other-scorer}",
    weights="{pluginRef: sample, weight: 1}, {pluginRef: other, weight: 3}",
)


def make_gated(text, packages, tmp_path: Path) -> Path:
    """A package whose processes do not say HELLO before the file exists."""
    gate = tmp_path / "gate"
    waits = f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.01)"
    slow = text.scorer("v2", type="other-scorer", start=waits)
    packages.make(tmp_path / "packages" / "other", slow, id="other", types=("other-scorer",))
    return gate


def pin_of(bay, name: str) -> int | None:
    """What the routine was told last of its pin."""
    pin = bay.host._supervisor.routines[name].state.facts.policy.pin
    return pin.rev if pin is not None else None


async def test_settings_of_a_configuration_that_waits_act_on_nothing_that_is_in_force(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    gate = make_gated(text, packages, tmp_path)
    pins = "packages: [{id: sample, pin: 1}, {id: other, pin: 1}]\n"
    async with host(prefer("v1"), config=CONFIG) as bay, anyio.create_task_group() as group:
        supervisor = bay.host._supervisor
        group.start_soon(adopt, bay, BOTH, CONFIG.replace("}}", "}, other: {deadline: 5s}}") + pins)
        await bay.wait_for(lambda: "other" in supervisor.routines and bay.plugin("other")["phase"] == "launching")
        supervisor.look()
        assert (pin_of(bay, "sample"), pin_of(bay, "other")) == (None, 1)
        gate.touch()
        await bay.wait_for(lambda: pin_of(bay, "sample") == 1)
        assert (await bay.client.chat()).text == "v2"


async def test_newer_configuration_takes_the_place_of_one_that_waits(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    make_gated(text, packages, tmp_path)
    async with host(prefer("v1"), config=CONFIG) as bay, anyio.create_task_group() as group:
        supervisor, replaced = bay.host._supervisor, []

        async def first() -> None:
            with pytest.raises(ReplacedError) as error:
                await adopt(
                    bay, BOTH, CONFIG.replace("}}", "}, other: {deadline: 5s}}") + "packages: [{id: sample, pin: 1}]\n"
                )
            replaced.append(error.value)

        group.start_soon(first)
        await bay.wait_for(lambda: "other" in supervisor.routines)
        with anyio.fail_after(30):
            await adopt(bay, prefer("v2"))
        assert (await bay.client.chat()).text == "v2"
        await bay.wait_for(lambda: replaced)
        assert "waited for other" in replaced[0].message
        assert pin_of(bay, "sample") is None
        await bay.wait_for(lambda: set(supervisor.routines) == {"sample"})
        assert bay.live("sample")["rev"] == 1


async def test_settings_of_a_configuration_that_is_refused_are_forgotten(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    other = text.scorer("v2", type="other-scorer")
    packages.make(tmp_path / "packages" / "other", other, id="other", types=("other-scorer",))
    not_compiled = picker(
        "{name: sample, type: sample-scorer}",
        "{name: other, type: other-scorer}",
        "{name: x, type: random-picker, parameters: {wrong: 1}}",
        weights="{pluginRef: sample}, {pluginRef: other}, {pluginRef: x}",
    )
    config = CONFIG.replace("linger: 0s", "linger: 60s")
    pins = "packages: [{id: sample, pin: 1}, {id: other, pin: 1}]\n"
    async with host(prefer("v1"), config=config) as bay:
        with pytest.raises(InputError, match="unknown parameter 'wrong'"):
            await adopt(bay, not_compiled, config + pins)
        assert (pin_of(bay, "sample"), pin_of(bay, "other")) == (None, None)


async def test_plugin_that_is_named_first_while_rollouts_are_frozen_starts_and_is_frozen_too(
    host, text, packages, tmp_path
):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    other = text.scorer("v2", type="other-scorer")
    packages.make(tmp_path / "packages" / "other", other, id="other", types=("other-scorer",))
    config = CONFIG.replace("}}", "}, other: {deadline: 5s}}")
    async with host(prefer("v1"), config=CONFIG) as bay:
        supervisor = bay.host._supervisor
        supervisor.freeze()
        supervisor.freeze()
        await adopt(bay, BOTH, config)
        assert (bay.live("other")["rev"], bay.plugin("other")["paused"]) == (1, True)
        made = bay.publish(text.scorer("v1", type="other-scorer"), id="other", rev=2, types=("other-scorer",))
        state = supervisor.routines["other"].state
        await bay.wait_for(
            lambda: any(
                c.digest == made.digest and c.complete for c in supervisor.routines["other"].state.facts.candidates
            )
        )
        assert supervisor.routines["other"].state.live == state.live
        assert supervisor.routines["other"].state.candidate is None
        supervisor.thaw()
        assert not bay.plugin("other")["paused"]
        assert not bay.plugin("sample")["paused"]
        await bay.rev_is_live(2, "other")


async def test_plugin_that_is_named_again_within_the_linger_time_goes_on(host, text, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    other = text.scorer("v2", type="other-scorer")
    packages.make(tmp_path / "packages" / "other", other, id="other", types=("other-scorer",))
    config = CONFIG.replace("linger: 0s", "linger: 1s")
    alone = picker("{name: other, type: other-scorer}", weights="{pluginRef: other}")
    config_other = config.replace("sample:", "other:")
    async with host(prefer("v1"), config=config) as bay:
        before = bay.live()
        await adopt(bay, alone, config_other)
        assert (await bay.client.chat()).text == "v2"
        await adopt(bay, prefer("v1"), config)
        await bay.wait_for(lambda: [row["plugin"] for row in bay.status()["plugins"]] == ["sample"])
        assert bay.live() == before
        assert (await bay.client.chat()).text == "v1"


async def test_plugin_that_is_dropped_wanted_and_dropped_again_while_it_ends_is_gone_in_the_end(
    host, text, packages, tmp_path, is_alive
):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    other = text.scorer("v2", type="other-scorer")
    packages.make(tmp_path / "packages" / "other", other, id="other", types=("other-scorer",))
    alone = picker("{name: other, type: other-scorer}", weights="{pluginRef: other}")
    config_other = CONFIG.replace("sample:", "other:")
    async with host(prefer("v1"), config=CONFIG) as bay:
        for _ in range(3):
            pid = bay.live()["pid"]
            await adopt(bay, alone, config_other)
            # It ends now, in tens of milliseconds: it is wanted again before it is gone.
            await adopt(bay, prefer("v1"), CONFIG)
            await bay.wait_for(lambda: bay.live() is not None and bay.live()["pid"] and bay.plugin()["phase"] == "live")
            await bay.wait_for(lambda pid=pid: bay.live()["pid"] == pid or not is_alive(pid))
            assert (await bay.client.chat()).text == "v1"
        await adopt(bay, alone, config_other)
        await bay.wait_for(lambda: [row["plugin"] for row in bay.status()["plugins"]] == ["other"])
        await bay.wait_for(lambda: bay.plugin_pids() == {(bay.live("other") or {}).get("pid")})


async def test_configuration_and_version_that_change_together_end_up_both(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    made, go = tmp_path / "made", tmp_path / "go"
    waits = WAITS_IN_INIT.format(made=str(made), go=str(go))
    async with host(prefer("v1"), config=CONFIG) as bay:
        bay.publish(CHOOSES + waits, rev=2)
        # The candidate is being given the old parameters when the new ones come.
        await bay.wait_for(made.exists)
        await adopt(bay, prefer("v2"))
        assert (await bay.client.chat()).text == "v2"
        go.touch()
        await bay.rev_is_live(2)
        assert [(await bay.client.chat()).text for _ in range(3)] == ["v2"] * 3
        assert bay.degraded() == {}


async def test_decision_that_began_before_a_reload_ends_as_it_began(host, packages, tmp_path):
    reached, go = tmp_path / "reached", tmp_path / "go"
    packages.make(tmp_path / "packages" / "v1", CHOOSES)
    packages.make(
        tmp_path / "packages" / "gate",
        GATE.format(reached=str(reached), go=str(go)),
        id="gate",
        types=("gate-filter",),
    )
    gate = "{name: gate, type: gate-filter}"
    both = "{pluginRef: gate}, {pluginRef: sample}"
    before, after = (
        picker(gate, f"{{name: sample, type: sample-scorer, parameters: {{prefer: {at}}}}}", weights=both)
        for at in ("v1", "v2")
    )
    config = CONFIG.replace("500ms", "10s").replace("{sample:", "{gate: {deadline: 60s}, sample:")
    async with host(before, config=config) as bay:
        async with anyio.create_task_group() as group:
            answers = []

            async def one():
                answers.append(await bay.client.chat())

            group.start_soon(one)
            await bay.wait_for(reached.exists)
            await adopt(bay, after, config)
            # A second reload comes after what the first one may have dropped at once.
            await adopt(bay, after, config)
            go.touch()
        assert [answer.text for answer in answers] == ["v1"]
        assert (await bay.client.chat()).text == "v2"
        assert bay.degraded() == {}


CONSUMES = """
from hotbay_sdk import Plugin, Scorer

plugin = Plugin("sample")

@plugin.type("sample-scorer", consumes=["PrefixCacheMatchInfo.hit"])
class Consumes(Scorer):
    def score_batch(self, requests, endpoints):
        hits = endpoints.data("PrefixCacheMatchInfo.hit")
        return [[float(hits[0] == (2.0 if name == "default/v2" else 1.0)) for name in endpoints.ids] for _ in requests]
"""
PRODUCES = """
from hotbay_sdk import DataProducer, Plugin, Scorer

plugin = Plugin("prefix")

@plugin.type("approx-prefix-cache-producer", produces={"PrefixCacheMatchInfo.hit": "request"})
class Produces(DataProducer):
    def produce_batch(self, requests, endpoints):
        return {"PrefixCacheMatchInfo.hit": [2.0] * len(requests)}

@plugin.type("idle-scorer")
class Idle(Scorer):
    def score_batch(self, requests, endpoints):
        return [[0.0] * len(endpoints) for _ in requests]
"""
PREFIX_TYPES = ("approx-prefix-cache-producer", "idle-scorer")
SAMPLE = "{name: sample, type: sample-scorer}"


async def test_default_producer_of_another_package_is_made_by_itself(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", CONSUMES)
    packages.make(tmp_path / "packages" / "prefix", PRODUCES, id="prefix", types=PREFIX_TYPES)
    async with host(picker(SAMPLE), config=CONFIG) as bay:
        assert bay.live("prefix")
        assert (await bay.client.chat()).text == "v2"
        # Named by hand it takes the place of the one that was made, and leaving it out makes that one again.
        await adopt(bay, picker(SAMPLE, "{name: mine, type: approx-prefix-cache-producer}"))
        assert (await bay.client.chat()).text == "v2"
        await adopt(bay, picker(SAMPLE))
        assert (await bay.client.chat()).text == "v2"
        assert bay.degraded() == {}


async def test_default_producer_is_made_in_a_process_that_runs_already(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", "import time\ntime.sleep(1)\n" + CONSUMES)
    packages.make(tmp_path / "packages" / "prefix", PRODUCES, id="prefix", types=PREFIX_TYPES)
    both = picker(SAMPLE, "{name: idle, type: idle-scorer}", weights="{pluginRef: sample}, {pluginRef: idle}")
    config = CONFIG.replace("}}", "}, idle: {deadline: 5s}}")
    async with host(both, config=config, ready=False) as bay:
        await bay.wait_for(lambda: bay.live("prefix"))
        assert not bay.live("sample")
        await bay.ready()
        # Without the producer every second one would, by chance.
        assert [(await bay.client.chat()).text for _ in range(20)] == ["v2"] * 20
        assert bay.degraded() == {}
        assert bay.plugin("prefix")["restarts"] == 0


TWO_TYPES = (
    CHOOSES.replace('"sample-scorer", parameters=Params', '"sample-scorer", parameters=Params, needs_restart=True')
    + """

@plugin.type("light-scorer", parameters=Params)
class Light(Scorer):
    def score_batch(self, requests, endpoints):
        return [[0.0] * len(endpoints) for _ in requests]
"""
)


def both(sample: str, light: str) -> str:
    return picker(
        f"{{name: sample, type: sample-scorer, parameters: {{prefer: {sample}}}}}",
        f"{{name: light, type: light-scorer, parameters: {{prefer: {light}}}}}",
        weights="{pluginRef: sample}, {pluginRef: light}",
    )


async def test_parameters_that_need_a_restart_get_another_process_beside_the_old_one(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", TWO_TYPES, types=("sample-scorer", "light-scorer"))
    config = CONFIG.replace("}}", "}, light: {deadline: 5s}}")
    async with host(both("v1", "v1"), config=config) as bay, bay.load(100) as load:
        before = bay.live()
        bay.host._supervisor.look()
        await load.more(20)
        assert bay.live() == before, "what the plugin says of its types restarts nothing"
        await adopt(bay, both("v1", "v2"), config)
        await load.more(20)
        assert bay.live() == before, "this type needs no other process"

        await adopt(bay, both("v2", "v2"), config)
        assert bay.plugin()["phase"] != "idle"
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
        assert (await bay.client.chat()).text == "v2"
        await bay.wait_for(lambda: bay.plugin_pids() == {bay.live()["pid"]})
        second = bay.live()
        assert second["digest"] == before["digest"]
        assert (bay.plugin()["restarts"], bay.plugin()["swaps"]) == (0, 0)

        # The next version starts with the same parameters, and once.
        bay.publish(TWO_TYPES, rev=2, types=("sample-scorer", "light-scorer"))
        await bay.rev_is_live(2)
        await bay.wait_for(lambda: bay.plugin_pids() == {bay.live()["pid"]})
        assert bay.live()["generation"] == second["generation"] + 1
        assert (await bay.client.chat()).text == "v2"
        bay.host._supervisor.look()
        await load.more(20)
        assert bay.live()["generation"] == second["generation"] + 1
    assert load.failed == []
    assert bay.degraded() == {}


async def test_parameters_that_need_a_restart_and_are_rejected_leave_the_old_process(host, packages, tmp_path):
    packages.make(tmp_path / "packages" / "v1", TWO_TYPES, types=("sample-scorer", "light-scorer"))
    config = CONFIG.replace("}}", "}, light: {deadline: 5s}}")
    async with host(both("v1", "v1"), config=config) as bay:
        before = bay.live()
        await adopt(bay, both("nowhere", "v1"), config)
        await bay.wait_for(bay.error)
        assert bay.error()["code"] == "CONFIG_INVALID"
        assert "nowhere is no endpoint" in bay.error()["message"]
        assert bay.live() == before
        assert (await bay.client.chat()).text == "v1"
        await adopt(bay, both("v2", "v1"), config)
        await bay.wait_for(lambda: bay.live()["generation"] > before["generation"] and bay.live()["pid"])
        assert (await bay.client.chat()).text == "v2"
        assert bay.degraded() == {}
