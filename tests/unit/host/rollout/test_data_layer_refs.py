"""Plugins whose types belong to the data layer: where they are answered, what plans make of them, how their trials end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.errors import InputError, PluginFault
from hotbay.rollout.deployment import Deployment, Part
from hotbay.rollout.resolution import Allowance, ResolvedRef, Scheduling, resolve
from hotbay.rollout.services import TrialPolicies
from hotbay.rollout.state import Phase
from hotbay.rollout.verdicts import CanaryPolicy, GuardPolicy, Ruling, ShadowPolicy
from hotbay.rollout.watching import TrialWatch
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.plan import Plan, ProfileEntryPlan, ProfileInput
from hotbay.scheduling.registry import TypeIndex
from hotbay.scheduling.statistics import CallCounters, CallStatistics
from hotbay_sdk.protocol import DataDeclaration, TypeDeclaration

EXTRACTOR = TypeDeclaration("e", ("extract",), data=DataDeclaration("json", (), {"a": "f32"}))
SCORER = TypeDeclaration("s", ("score",))
LEARNER = TypeDeclaration("l", ("pre_request",))


@dataclass
class Router:
    """Keeps the plans that are published."""

    plan: Plan | None = None
    woken: list[str] = field(default_factory=list)

    def publish(self, plan: Plan, **_: object) -> None:
        self.plan = plan

    @property
    def wake(self) -> Callable[[str], None]:
        return self.woken.append


def generation(number: int, refs: Mapping[str, TypeDeclaration]) -> Generation:
    client = SimpleNamespace(fault=None, figures={})
    types = {declared.type: declared for declared in refs.values()}
    made = Generation(number, Origin("p", "1.0.0", 1, "sha256:0"), client, types, 1)  # type: ignore[arg-type]
    made.handles.update({name: n for n, name in enumerate(refs, 1)})
    return made


def deployment(
    refs: Mapping[str, str], *, data: Sequence[str] = (), profile: Sequence[str] | None = None
) -> tuple[Deployment, Router]:
    """Refs by name and type, all of one package."""
    router = Router()
    resolved = tuple(ResolvedRef(name, kind, "p", {}, data=name in data) for name, kind in refs.items())
    made = () if profile is None else (ProfileInput("default", tuple(ProfileEntryPlan(ref) for ref in profile)),)
    return Deployment(router, Scheduling(resolved, made), TypeIndex({}, {})), router  # type: ignore[arg-type]


# -- where refs are answered ---------------------------------------------------------------------


def test_ref_is_answered_by_what_is_live_and_who_watches_is_told() -> None:
    made, _ = deployment({"e1": "e", "s1": "s"})
    told: list[int] = []
    unwatch = made.watch(lambda: told.append(1))
    assert made.current("e1") is None
    first, second = (generation(n, {"e1": EXTRACTOR, "s1": SCORER}) for n in (1, 2))
    made.cut_over("p", first)
    live = made.current("e1")
    assert live is not None
    assert (live.generation, live.handle, live.declaration) == (first, (1, 1), EXTRACTOR)
    assert made.current("nobody") is None
    made.cut_over("p", second)
    assert made.current("e1").generation is second  # type: ignore[union-attr]  # as above
    assert len(told) == 2
    made.remove("p")
    assert (made.current("e1"), len(told) > 2) == (None, True)
    unwatch()
    made.cut_over("p", first)
    assert len(told) < 6


@pytest.mark.parametrize("what", ["fault", "leaving", "handle"])
def test_ref_is_answered_by_nothing_that_is_gone_or_told_to_go_or_lacks_it(what: str) -> None:
    made, _ = deployment({"e1": "e"})
    live = generation(1, {"e1": EXTRACTOR})
    made.cut_over("p", live)
    if what == "fault":
        live.client.fault = PluginFault("CRASHED", "it ended")  # type: ignore[misc]  # of the test
    elif what == "leaving":
        live.leave()
    else:
        live.handles.clear()
    assert made.current("e1") is None


def test_what_a_type_declared_is_known_when_nothing_runs_and_asking_wakes_nobody() -> None:
    made, router = deployment({"e1": "e"})
    assert made.declared("e1") is None
    made.learn_types("p", {"e": EXTRACTOR})
    made.sleep(["p"])
    assert made.declared("e1") == EXTRACTOR
    other = EXTRACTOR._replace(points=("source",))
    made.cut_over("p", generation(1, {"e1": other}))
    assert (made.declared("e1"), made.declared("nobody"), router.woken) == (other, None, [])


def test_ref_that_sleeps_is_woken_by_who_asks_for_it() -> None:
    made, router = deployment({"e1": "e"})
    made.sleep(["p"])
    assert made.current("e1") is None
    assert router.woken == ["p"]


def test_who_waits_for_a_generation_to_be_told_to_go_is_told_once() -> None:
    made, told = generation(1, {}), []
    made.on_leaving(lambda: told.append("before"))
    made.leave()
    made.leave()
    made.on_leaving(lambda: told.append("after"))
    assert told == ["before", "after"]


# -- plans ---------------------------------------------------------------------------------------


def refs_of(plan: Plan) -> list[str]:
    return [binding.ref for binding in plan.profiles["default"].bindings]


def test_type_of_the_data_layer_is_in_no_default_profile_once_it_is_known() -> None:
    made, router = deployment({"e1": "e", "s1": "s"})
    made.cut_over("p", generation(1, {"e1": EXTRACTOR, "s1": SCORER}))
    assert router.plan is not None
    assert refs_of(router.plan) == ["s1"]
    made.learn_types("p", {"e": EXTRACTOR, "s": SCORER})
    made.remove("p")
    assert [binding.ref for binding in router.plan.profiles["default"].absent] == ["s1"]


def test_what_the_data_layer_names_is_no_scorer_before_it_was_ever_ready() -> None:
    made, router = deployment({"e1": "e", "s1": "s"}, data=["e1"])
    made.publish()
    assert router.plan is not None
    assert refs_of(router.plan) == ["s1"]
    made.sleep(["p"])
    assert router.plan.dormant == ("p",), "for the scorer"
    alone, router = deployment({"e1": "e"}, data=["e1"])
    alone.publish()
    alone.sleep(["p"])
    assert router.plan is not None
    assert (refs_of(router.plan), router.plan.dormant) == ([], ())


@pytest.mark.parametrize("is_live", [True, False])
def test_type_that_is_known_to_be_no_scorer_is_refused_in_a_profile_with_a_process_or_without(is_live: bool) -> None:
    made, _ = deployment({"e1": "e"}, profile=["e1"])
    made.learn_types("p", {"e": EXTRACTOR})
    live = generation(1, {"e1": EXTRACTOR})
    act = (lambda: made.cut_over("p", live)) if is_live else made.publish
    with pytest.raises(InputError, match="is no filter, scorer or picker"):
        act()


def test_configuration_says_which_refs_the_data_layer_names() -> None:
    config = load_picker_config(
        """
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins:
        - {name: find, type: d}
        - {name: metrics-data-source, type: metrics-data-source}
        - {name: read, type: e}
        - {name: rate, type: s}
        dataLayer:
          discovery: {pluginRef: find}
          sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: read}]}]
        """,
        file="picker.yaml",
    )
    index = TypeIndex.build([("p", ["d", "e", "s"])], {})
    found = resolve(config, index, {}, allowance=Allowance(allow_experimental=True))
    assert {ref.name for ref in found.refs if ref.data} == {"find", "metrics-data-source", "read"}


def test_package_says_which_refs_see_no_request_before_it_was_ever_ready() -> None:
    text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{name: e1, type: e}, {name: s1, type: s}]\n"
    config = load_picker_config(text, file="picker.yaml")
    index = TypeIndex.build([("p", ["e", "s"])], {}, data=[("p", "e"), ("q", "s")])
    found = resolve(config, index, {}, allowance=Allowance(allow_experimental=True))
    assert {ref.name for ref in found.refs if ref.data} == {"e1", "metrics-data-source", "core-metrics-extractor"}


# -- trials --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refs", "part"),
    [
        ({"e1": EXTRACTOR}, Part(asked=False, told=False)),
        ({"l1": LEARNER}, Part(asked=False, told=True)),
        ({"e1": EXTRACTOR, "s1": SCORER}, Part(asked=True, told=True)),
    ],
)
def test_part_that_requests_have_in_a_candidate(refs: dict[str, TypeDeclaration], part: Part) -> None:
    made, _ = deployment({name: declared.type for name, declared in refs.items()})
    made.cut_over("p", generation(1, refs))
    assert made.part_of("p", generation(2, refs)) == part


@dataclass
class Watched:
    """A trial of a candidate of which some calls are counted; time is the test's."""

    counts: bool
    phase: Phase
    now: float = 0.0
    counters: CallCounters = field(default_factory=lambda: CallCounters(Quiet()))

    def watch(self) -> TrialWatch:
        policies = TrialPolicies(ShadowPolicy(), CanaryPolicy(), GuardPolicy())
        services: Any = SimpleNamespace(now=lambda: self.now, policies=lambda: policies, measures=self, deployment=None)
        live = generation(1, {"e1": EXTRACTOR})
        candidate = generation(2, {"e1": EXTRACTOR})
        return TrialWatch(services, self.phase, candidate=candidate, live=live, salt="x", counts=self.counts)

    def statistics(self, number: int) -> CallStatistics:
        return self.counters.read() if number == 2 else CallStatistics()

    def arms(self, _salt: str) -> None:
        return None


class Quiet:
    """A tally that nobody reads."""

    def invalid_scores(self, ref: str, count: int) -> None:
        pass

    def plugin_error(self, point: str, ref: str, code: str) -> None:
        pass

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        return lambda _: None


@pytest.mark.parametrize(
    ("phase", "counts", "ends_at_s"),
    [
        (Phase.SHADOW, False, 2.0),
        (Phase.CANARY, False, 10.0),
        (Phase.CANARY, True, 300.0),
        (Phase.GUARD, False, 30.0),
        (Phase.GUARD, True, 300.0),
    ],
)
def test_trial_that_no_request_can_say_anything_about_ends_with_its_time(
    phase: Phase, counts: bool, ends_at_s: float
) -> None:
    it = Watched(counts, phase)
    watch = it.watch()
    it.now = ends_at_s - 0.01
    assert watch._rule().ruling is Ruling.WAIT
    it.now = ends_at_s
    assert watch._rule().ruling is Ruling.PASS


def test_guard_fails_by_what_the_data_layer_asked_the_new_version_for() -> None:
    it = Watched(counts=False, phase=Phase.GUARD)
    watch = it.watch()
    for n in range(60):
        it.counters.called("extract", "e1", 0.001, "PLUGIN_ERROR" if n % 2 else "", "PLUGIN_ERROR: no")
    verdict = watch._rule()
    assert (verdict.ruling, verdict.figure) == (Ruling.FAIL, "failures")
    assert (it.counters.calls, it.counters.errors, it.counters.complaint) == (60, 30, "PLUGIN_ERROR: no")


def test_call_that_failed_for_the_host_blames_nobody() -> None:
    counters = CallCounters(Quiet())
    counters.called("extract", "e1", 0.001, "UNAVAILABLE", "UNAVAILABLE: later")
    assert (counters.calls, counters.read().failures, counters.complaint) == (1, 0, "")
