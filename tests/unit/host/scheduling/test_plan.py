"""Compiling plans: the reference's configuration cases, grouping by process, and every error with its place."""

from collections.abc import Mapping, Sequence

import pytest
from hotbay.errors import InputError, Place
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.plan import Plan, PlanInput, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay.scheduling.producers import missing_producers
from hotbay.scheduling.registry import DEFAULT_PRODUCERS, TypeIndex
from hotbay_sdk.protocol import TypeDeclaration

PLACE = Place("picker.yaml", 7, 3)


def generation(number: int) -> Generation:
    return Generation(number, Origin(f"p{number}", "1.0.0", 1, "sha256:0"), None, {}, 1)  # type: ignore[arg-type]


class Refs:
    """Refs with the points that a test gives them."""

    def __init__(self) -> None:
        self.refs: list[RefPlan] = []

    def remote(
        self,
        name: str,
        points: Sequence[str],
        owner: Generation | None,
        *,
        reads: Sequence[str] = (),
        consumes: Sequence[str] = (),
        produces: Sequence[str] = (),
    ) -> None:
        declaration = TypeDeclaration(name, tuple(points), tuple(reads), tuple(consumes), tuple(produces))
        if owner is not None:
            owner.handles[name] = len(owner.handles) + 1
        self.refs.append(RefPlan(name, name, "p", owner, declaration, {}, PLACE))

    def unknown(self, name: str) -> None:
        self.refs.append(RefPlan(name, name, "p", None, None, {}, PLACE))

    def builtin(self, name: str, **parameters: object) -> None:
        self.refs.append(RefPlan(name, name, None, None, None, parameters, PLACE))

    def compile(
        self,
        profiles: Mapping[str, Sequence[str]] | None = None,
        options: Mapping[str, BindingOptions] | None = None,
    ) -> Plan:
        made = tuple(
            ProfileInput(name, tuple(ProfileEntryPlan(ref, None, PLACE) for ref in refs))
            for name, refs in (profiles or {}).items()
        )
        return compile_plan(1, PlanInput(tuple(self.refs), made, options or {}))

    def problems(self, profiles: Mapping[str, Sequence[str]] | None = None, **kwargs: object) -> list[str]:
        with pytest.raises(InputError) as caught:
            self.compile(profiles, **kwargs)  # type: ignore[arg-type]
        return [str(problem) for problem in caught.value.problems]


def shape(plan: Plan, profile: str = "default") -> list[list[tuple[int, list[str], list[str]]]]:
    """Stages as (generation, filters, scorers)."""
    return [
        [(c.generation.number, [b.ref for b in c.filters], [b.ref for b in c.scorers]) for c in stage]  # type: ignore[attr-defined]
        for stage in plan.profiles[profile].stages
    ]


def test_scorer_without_weight_counts_once_ec13() -> None:
    refs = Refs()
    refs.remote("s", ["score"], generation(1))
    plan = refs.compile({"default": ["s"]})
    assert plan.profiles["default"].stages[0][0].bindings[0].weight == 1.0


def test_handler_and_picker_are_added_ec14() -> None:
    refs = Refs()
    refs.builtin("max-score-picker")
    plan = refs.compile({"default": ["max-score-picker"]})
    assert plan.handler.binding.type == "single-profile-handler"
    assert plan.profiles["default"].picker.binding.ref == "max-score-picker"


def test_profile_without_a_picker_takes_the_first_configured_one() -> None:
    refs = Refs()
    refs.builtin("random-picker")
    refs.builtin("weighted-random-picker")
    refs.remote("s", ["score"], generation(1))
    assert refs.compile({"default": ["s"]}).profiles["default"].picker.binding.ref == "random-picker"


def test_without_profiles_one_holds_everything_in_the_file_s_order() -> None:
    one = generation(1)
    refs = Refs()
    for name, point in (("s1", "score"), ("f1", "filter"), ("f2", "filter"), ("s2", "score"), ("x", "produce")):
        refs.remote(name, [point], one, produces=["X.y"] if point == "produce" else ())
    assert shape(refs.compile()) == [[(1, ["f1", "f2"], ["s1", "s2"])]]


def test_two_pickers_in_one_profile_are_named_ec28() -> None:
    refs = Refs()
    refs.builtin("max-score-picker")
    refs.builtin("random-picker")
    [problem] = refs.problems({"default": ["max-score-picker", "random-picker"]})
    assert problem.startswith("picker.yaml:7:3: CONFIG_INVALID")
    assert "'max-score-picker' and 'random-picker'" in problem


def test_two_handlers_ec29_several_profiles_without_one_e13_and_with_the_single_one_ec31() -> None:
    refs = Refs()
    refs.remote("h1", ["profile_handler"], generation(1))
    refs.remote("h2", ["profile_handler"], generation(2))
    assert "multiple profile handlers" in refs.problems({"a": []})[0]
    assert "no profile handler" in Refs().problems({"a": [], "b": []})[0]
    single = Refs()
    single.builtin("single-profile-handler")
    assert "cannot choose among 2 profiles" in single.problems({"a": [], "b": []})[0]


def test_entry_that_names_nothing_and_entry_that_is_no_scheduling_plugin_are_both_reported() -> None:
    refs = Refs()
    refs.remote("maker", ["produce"], generation(1), produces=["X.y"])
    problems = refs.problems({"default": ["nothing", "maker"]})
    assert [p.split(": ")[1] for p in problems] == ["UNDEFINED_REF", "CONFIG_INVALID"]


def test_consecutive_steps_of_one_process_are_one_call_and_scorers_of_others_go_beside() -> None:
    one, two, three = generation(1), generation(2), generation(3)
    refs = Refs()
    for name, points, owner in (
        ("f1", "filter", one), ("f2", "filter", one), ("f3", "filter", two),
        ("s1", "score", one), ("s2", "score", two), ("s3", "score", three), ("s4", "score", three),
    ):  # fmt: skip
        refs.remote(name, [points], owner)
    plan = refs.compile({"default": ["f1", "f2", "f3", "s1", "s2", "s3", "s4"]})
    assert shape(plan) == [
        [(1, ["f1", "f2"], [])],
        [(2, ["f3"], ["s2"])],
        [(1, [], ["s1"]), (3, [], ["s3", "s4"])],
    ]


def test_only_declared_columns_and_fields_cross() -> None:
    one = generation(1)
    refs = Refs()
    refs.remote("a", ["score"], one, reads=["endpoint.waiting", "request.model"])
    refs.remote("b", ["score"], one, reads=["endpoint.running"])
    call = refs.compile({"default": ["a"]}).profiles["default"].stages[0][0]
    assert call.columns == ("endpoint.running", "endpoint.waiting")
    assert call.fields == ("request.model",)


def test_reads_that_this_host_does_not_have_are_refused() -> None:
    refs = Refs()
    refs.remote("a", ["score"], generation(1), reads=["endpoint.wating"])
    assert "reads endpoint.wating" in refs.problems({"default": ["a"]})[0]


def test_producers_run_in_the_order_of_their_needs() -> None:
    refs = Refs()
    refs.remote("second", ["produce"], generation(1), consumes=["A.x"], produces=["B.x"])
    refs.remote("first", ["produce"], generation(2), produces=["A.x"])
    plan = refs.compile({"default": []})
    assert [[c.bindings[0].ref for c in stage] for stage in plan.producers] == [["first"], ["second"]]


def test_producers_in_a_circle_are_refused() -> None:
    refs = Refs()
    refs.remote("a", ["produce"], generation(1), consumes=["B.x"], produces=["A.x"])
    refs.remote("b", ["produce"], generation(2), consumes=["A.x"], produces=["B.x"])
    assert "in a circle" in refs.problems({"default": []})[0]


def test_default_producer_is_wanted_only_while_nobody_produces_its_key() -> None:
    refs = Refs()
    refs.remote("s", ["score"], generation(1), consumes=["PrefixCacheMatchInfo.matched_blocks"])
    assert missing_producers(refs.refs, DEFAULT_PRODUCERS) == ("approx-prefix-cache-producer",)
    refs.remote("p", ["produce"], generation(1), produces=["PrefixCacheMatchInfo.matched_blocks"])
    assert missing_producers(refs.refs, DEFAULT_PRODUCERS) == ()


def test_ref_without_a_process_is_absent_and_known_by_its_declared_point() -> None:
    refs = Refs()
    refs.remote("f", ["filter"], None)
    refs.unknown("u")
    plan = refs.compile({"default": ["f", "u"]}, {"f": BindingOptions(on_failure=Policy.FAIL_CLOSED)})
    assert [(b.ref, b.point) for b in plan.profiles["default"].absent] == [("f", "filter"), ("u", "score")]
    assert plan.fail_closed_absent == ("f",)


def test_policy_that_does_not_fit_the_point_is_refused() -> None:
    refs = Refs()
    refs.remote("f", ["filter"], generation(1))
    problems = refs.problems({"default": ["f"]}, options={"f": BindingOptions(on_failure=Policy.NEUTRAL)})
    assert "'neutral' does not fit a filter" in problems[0]


@pytest.mark.parametrize(("given", "count"), [({}, 1), ({"maxNumOfEndpoints": 0}, 1), ({"maxNumOfEndpoints": 4}, 4)])
def test_picker_count(given: dict[str, object], count: int) -> None:
    refs = Refs()
    refs.builtin("max-score-picker", **given)
    assert refs.compile({"default": []}).profiles["default"].picker.count == count


def test_picker_s_parameters_are_checked() -> None:
    refs = Refs()
    refs.builtin("max-score-picker", maxNumEndpoints="x")
    assert "unknown parameter 'maxNumEndpoints'" in refs.problems({"default": []})[0]


def test_type_index_names_providers_and_near_misses() -> None:
    index = TypeIndex.build([("a", ["t", "queue-scorer"]), ("b", ["t"])], {})
    assert index.resolve("queue-scorer", PLACE) == "a"
    assert index.resolve("max-score-picker", PLACE) is None
    assert "did you mean 'queue-scorer'" in str(index.resolve("que-scorer", PLACE))
    assert "provided by a and b" in str(index.resolve("t", PLACE))
    assert TypeIndex.build([("a", ["t"]), ("b", ["t"])], {"t": "b"}).resolve("t", PLACE) == "b"
    assert "does not provide" in str(TypeIndex.build([("a", ["t"])], {"t": "c"}).resolve("t", PLACE))


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0, 1e31, 1e308])
def test_weight_that_float32_totals_cannot_hold_is_refused_with_its_place(weight: float) -> None:
    refs = Refs()
    refs.remote("s", ["score"], generation(1))
    profile = ProfileInput("default", (ProfileEntryPlan("s", weight, PLACE),))
    with pytest.raises(InputError) as caught:
        compile_plan(1, PlanInput(tuple(refs.refs), (profile,), {}))
    [problem] = caught.value.problems
    assert (problem.code, problem.place) == ("CONFIG_INVALID", PLACE)
    assert "from 0 to 1e+30" in problem.hint


@pytest.mark.parametrize("policy", list(Policy))
def test_policy_of_a_ref_that_was_never_ready_is_not_judged(policy: Policy) -> None:
    refs = Refs()
    refs.unknown("later")
    plan = refs.compile({"default": ["later"]}, {"later": BindingOptions(on_failure=policy)})
    [binding] = plan.profiles["default"].absent
    assert binding.ref == "later"


def test_readiness_waits_for_an_absent_fail_closed_handler() -> None:
    refs = Refs()
    refs.remote("h", ["profile_handler"], None)
    plan = refs.compile({"x": [], "y": []}, {"h": BindingOptions(on_failure=Policy.FAIL_CLOSED)})
    assert plan.fail_closed_absent == ("h",)


def test_handler_of_several_profiles_may_be_a_plugin_that_is_still_to_start() -> None:
    refs = Refs()
    refs.unknown("perhaps-a-handler")
    assert refs.compile({"a": [], "b": []}).handler.pick is None


@pytest.mark.parametrize(("asked", "before"), [("queue-scorer", ""), ("queue-scorre", "did you mean 'queue-scorer'? ")])
def test_first_party_type_without_its_source_says_which_to_add(asked, before):
    found = TypeIndex.build([("a", ["t"])], {}).resolve(asked, PLACE)

    comes = "'queue-scorer' is in the package standard, which comes with the host: see that sources has {name: bundled}"
    assert found.hint == before + comes


def test_misspelt_type_that_a_source_offers_names_the_right_one():
    found = TypeIndex.build([("standard", ["queue-scorer"])], {}).resolve("queue-scorre", PLACE)

    assert found.hint == "did you mean 'queue-scorer'?"


def test_bindings_of_a_plan_are_every_use_once() -> None:
    refs = Refs()
    refs.remote("s", ["score"], generation(1))
    refs.remote("p", ["produce", "pre_request"], generation(2), produces=["X.y"])
    refs.remote("gone", ["filter"], None)
    refs.builtin("max-score-picker")
    refs.remote("h", ["profile_handler"], generation(3))
    plan = refs.compile({"a": ["s", "gone", "max-score-picker"], "b": ["s", "max-score-picker"]})
    assert sorted((b.ref, str(b.point)) for b in plan.bindings) == [
        ("gone", "filter"),
        ("h", "profile_handler"),
        ("max-score-picker", "pick"),
        ("p", "pre_request"),
        ("p", "produce"),
        ("s", "score"),
    ]
