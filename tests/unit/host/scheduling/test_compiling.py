"""What the parts of a compilation refuse or leave out, and which parts of a plan hang on what is there."""

from collections.abc import Callable, Mapping, Sequence

import pytest
from hotbay.errors import InputError
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.binding import BindingOptions, Policy
from hotbay.scheduling.compiler import compile_plan
from hotbay.scheduling.plan import Before, Plan, PlanInput, ProfileEntryPlan, ProfileInput, RefPlan
from hotbay_sdk.protocol import TypeDeclaration
from hotbay_sdk.protocol.calls import InstanceFacts

CLOSED = BindingOptions(on_failure=Policy.FAIL_CLOSED)
POINTS = ("request_headers", "screen", "produce", "admit", "pre_request", "response_body", "parse", "saturation")


class Refs:
    """Refs of one process, or of none."""

    def __init__(self) -> None:
        self.generation = Generation(1, Origin("p", "1.0.0", 1, "sha256:0"), None, {}, 1)  # type: ignore[arg-type]
        self.refs: list[RefPlan] = []

    def add(self, name: str, *points: str, there: bool = True, facts: InstanceFacts | None = None) -> "Refs":
        declared = TypeDeclaration(name, points)
        self.generation.handles[name] = len(self.generation.handles) + 1
        if facts is not None:
            self.generation.facts[name] = facts
        self.refs.append(RefPlan(name, name, "p", self.generation if there else None, declared, {}))
        return self

    def never_ready(self, name: str, *points: str) -> "Refs":
        """One that no process has declared; `points` are what its manifest says."""
        self.refs.append(RefPlan(name, name, "p", None, None, {}, points=frozenset(points)))
        return self

    def builtin(self, name: str, **parameters: object) -> "Refs":
        self.refs.append(RefPlan(name, name, None, None, None, parameters))
        return self

    def plan(
        self,
        *profile: str,
        detector: str | None = None,
        options: Mapping[str, BindingOptions] | None = None,
        parsers: Sequence[str] | None = None,
    ) -> Plan:
        made = (ProfileInput("default", tuple(ProfileEntryPlan(name) for name in profile)),)
        names = None if parsers is None else tuple(parsers)
        return compile_plan(1, PlanInput(tuple(self.refs), made, options or {}, detector, parsers=names))

    def problems(self, *profile: str, detector: str | None = None) -> list[str]:
        with pytest.raises(InputError) as caught:
            self.plan(*profile, detector=detector)
        return [problem.message for problem in caught.value.problems]


def test_stages_are_those_of_the_points_in_their_order() -> None:
    refs = Refs()
    for point in reversed(POINTS):
        refs.add(point, point)
    plan = refs.plan(detector="saturation")
    assert [kind for kind, _ in plan.before] == [
        Before.HEADERS,
        Before.SATURATION,
        Before.SHED,
        Before.SCREEN,
        Before.SCREENED,
        Before.PRODUCE,
        Before.ADMIT,
    ]
    assert [binding.ref for call in plan.calls.values() for binding in call.bindings] == [
        *("request_headers", "saturation", "screen", "produce", "admit")
    ]
    assert [learner.binding.ref for learner in plan.told] == ["pre_request", "response_body"]
    assert [parser.binding.ref for parser in plan.parsers] == ["parse"]


def test_instance_that_sets_headers_is_asked_and_not_told() -> None:
    facts = InstanceFacts(response_headers=("x-back",))
    plan = Refs().add("sets", "pre_request", facts=facts).add("learns", "pre_request").plan()
    assert [call.bindings[0].ref for call in plan.edits] == ["sets"]
    assert [learner.binding.ref for learner in plan.learners] == ["learns"]
    assert [setter.binding.ref for setter in plan.setters] == ["sets"]


@pytest.mark.parametrize(
    ("point", "options", "absent"),
    [
        ("request_headers", {}, False),
        ("request_headers", {"x": CLOSED}, True),
        ("screen", {"x": CLOSED}, True),
        ("admit", {}, True),
        ("produce", {"x": CLOSED}, True),
        ("pre_request", {}, False),
        ("pre_request", {"x": CLOSED}, True),
        ("response_body", {"x": CLOSED}, False),
        ("parse", {}, True),
    ],
)
def test_readiness_waits_for_what_every_request_would_be_refused_for(
    point: str, options: Mapping[str, BindingOptions], absent: bool
) -> None:
    refs = Refs().add("x", point, there=False)
    if point == "response_body":
        with pytest.raises(InputError, match="does not fit a response_body"):
            Refs().add("x", point).plan(options=options)
        return
    assert refs.plan(options=options).fail_closed_absent == (("x",) if absent else ())


@pytest.mark.parametrize(
    ("point", "absent"), [("admit", True), ("parse", True), ("screen", False), ("pick", False), ("filter", False)]
)
def test_what_its_manifest_says_counts_of_a_ref_that_was_never_ready(point: str, absent: bool) -> None:
    refs = Refs().never_ready("x", point)
    assert refs.plan().fail_closed_absent == (("x",) if absent else ())
    closed = Refs().never_ready("x", "screen").plan(options={"x": CLOSED})
    assert closed.fail_closed_absent == ("x",)
    assert [(binding.ref, binding.point) for binding in closed.absent] == [("x", "screen")]


def test_admitter_that_was_never_ready_decides_before_anything_is_called_and_is_no_scorer() -> None:
    plan = compile_plan(1, PlanInput(tuple(Refs().never_ready("x", "admit").refs), (), {}))
    assert [(binding.ref, binding.point, binding.policy) for binding in plan.absent] == [("x", "admit", "fail_closed")]
    assert plan.profiles["default"].absent == ()


def test_ref_of_which_nobody_says_anything_counts_as_a_scorer() -> None:
    plan = Refs().never_ready("x").plan("x")
    assert plan.fail_closed_absent == ()
    assert [(binding.ref, binding.point) for binding in plan.profiles["default"].absent] == [("x", "score")]
    assert Refs().never_ready("x").plan("x", options={"x": CLOSED}).fail_closed_absent == ("x",)


def test_parser_that_was_never_ready_takes_what_nobody_before_it_does() -> None:
    plan = Refs().add("p", "parse").never_ready("q", "parse").plan(parsers=("p", "q"))
    assert [(it.binding.ref, it.claims, it.generation) for it in plan.parsers][1] == ("q", (), None)


def test_profile_that_names_what_its_manifest_calls_an_admitter_is_refused() -> None:
    assert Refs().never_ready("x", "admit").problems("x") == [
        "profile 'default': 'x' of type 'x' is no filter, scorer or picker"
    ]


def test_detector_that_is_none_is_refused_and_one_without_a_process_sheds_nothing() -> None:
    assert Refs().add("s", "score").problems(detector="s") == [
        "saturationDetector: 's' of type 's' is no saturation detector"
    ]
    assert Refs().add("d", "saturation", there=False).plan(detector="d").before == ()
    assert Refs().plan(detector="ghost").before == ()


def test_parameters_of_the_hosts_own_handlers_are_checked() -> None:
    for name in ("header-profile-handler", "data-parallel-profile-handler"):
        [problem] = Refs().builtin(name, wrong=1).problems()
        assert problem == f"plugins '{name}': unknown parameter 'wrong'"


def test_parsers_are_those_that_are_listed() -> None:
    refs = Refs().add("p", "parse").add("q", "parse").add("s", "score")
    assert [parser.binding.ref for parser in refs.plan(parsers=("q", "ghost", "s")).parsers] == ["q"]


def test_profiles_say_what_is_wrong_with_them() -> None:
    refs = Refs().add("l", "pre_request").builtin("max-score-picker", maxNumOfEndpoints="2").builtin("random-picker")
    assert refs.problems("ghost", "l", "max-score-picker", "random-picker") == [
        "profile 'default' names 'ghost'",
        "profile 'default': 'l' of type 'l' is no filter, scorer or picker",
        "profile 'default' has two pickers: 'max-score-picker' and 'random-picker'",
        "plugins 'max-score-picker': maxNumOfEndpoints is an integer",
    ]


def test_picker_without_a_process_is_fallen_back_from() -> None:
    plan = Refs().add("p", "pick", there=False).plan()
    assert plan.profiles["default"].picker.absent
    assert [b.ref for b in plan.profiles["default"].absent] == ["p"]


def test_policies_of_refs_are_those_at_their_points() -> None:
    plan = Refs().add("x", "score", "admit").plan("x")
    assert plan.facts.policies["x"] == "fail_closed/neutral"


def test_plan_without_a_generation_takes_no_part(in_loop: Callable) -> None:
    async def body(bay) -> None:
        bay.router.publish(Refs().plan())
        assert (bay.router.plan.generations, bay.router.plan.calls) == ((), {})

    in_loop(body)
