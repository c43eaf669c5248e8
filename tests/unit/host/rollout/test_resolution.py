"""From a configuration and an index to refs: completed, checked, in the order in which they are made."""

import pytest
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.config.type_facts import TypeFacts
from hotbay.errors import InputError, Place
from hotbay.rollout.resolution import Allowance, Scheduling, resolve, specs
from hotbay.scheduling.binding import BindingOptions
from hotbay.scheduling.registry import TypeIndex

FACTS = {
    ("p", "scorer"): TypeFacts(frozenset({"score"}), "stable"),
    ("p", "handler"): TypeFacts(frozenset({"profile_handler"}), "stable", ("decider", "others.*")),
    ("p", "decider"): TypeFacts(frozenset({"dump_state"}), "stable", ("next",)),
    ("f", "utilization-detector"): TypeFacts(frozenset({"saturation", "filter"}), "stable"),
    ("x", "wild"): TypeFacts(frozenset({"score"}), "alpha"),
}
INDEX = TypeIndex.build(
    [("p", ["scorer", "handler", "decider"]), ("f", ["utilization-detector"]), ("x", ["wild"])], {}, facts=FACTS
)


def picker(text: str) -> PickerConfig:
    head = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
    return load_picker_config(head + text, file="picker.yaml")


def resolved(text: str, **more: object) -> Scheduling:
    return resolve(picker(text), INDEX, {}, **more)  # type: ignore[arg-type]


DECIDERS = """\
plugins:
- {name: h, type: handler, parameters: {decider: d1, others: [d2, s]}}
- {name: d1, type: decider, parameters: {next: d2}}
- {name: s, type: scorer}
- {name: d2, type: decider, parameters: {limit: 1}}
"""


def test_ec10_refs_are_made_behind_those_that_they_need() -> None:
    made = specs([ref for ref in resolved(DECIDERS).refs if ref.plugin_id == "p"])
    assert [it.name for it in made] == ["s", "d2", "d1", "h"]
    by_name = {it.name: it for it in made}
    assert by_name["h"].needs == (by_name["d1"], by_name["d2"], by_name["s"])


def test_ref_is_made_anew_with_what_it_needs_even_by_way_of_another() -> None:
    before, after = (
        {it.name: it for it in specs([ref for ref in resolved(text).refs if ref.plugin_id == "p"])}
        for text in (DECIDERS, DECIDERS.replace("limit: 1", "limit: 2"))
    )
    assert [name for name, spec in before.items() if after[name] != spec] == ["d2", "d1", "h"]


def test_place_of_a_parameter_is_kept() -> None:
    made = {it.name: it for it in specs([ref for ref in resolved(DECIDERS).refs if ref.plugin_id == "p"])}
    assert made["d2"].place_of("limit") == Place("picker.yaml", 7, 49)


def test_detector_is_made_by_default_only_where_a_request_can_be_shed() -> None:
    text = "plugins: [{type: scorer}]"
    assert resolved(text).detector is None
    assert "utilization-detector" not in {ref.name for ref in resolved(text).refs}
    found = resolved(text, allowance=Allowance(has_objectives=True))
    assert (found.detector, "utilization-detector" in {ref.name for ref in found.refs}) == (
        "utilization-detector",
        True,
    )


@pytest.mark.parametrize(
    "text",
    [
        "saturationDetector: {pluginRef: utilization-detector}",
        "featureGates: [flowControl]",
        "plugins: [{type: utilization-detector}]",
    ],
    ids=["named", "gate", "declared"],
)
def test_ec05_detector_that_is_asked_for_is_there(text: str) -> None:
    assert resolved(text).detector == "utilization-detector"


def test_ec35_parsers_are_in_their_order_and_all_where_nothing_is_written() -> None:
    assert resolved("").parsers == ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")
    assert resolved("parser: {pluginRef: passthrough-parser}").parsers == ("passthrough-parser",)


def test_e19_alpha_types_have_to_be_allowed() -> None:
    with pytest.raises(InputError, match=r"picker.yaml:3:11: CONFIG_INVALID.*'wild' is alpha"):
        resolved("plugins: [{type: wild}]")
    assert resolved("plugins: [{type: wild}]", allowance=Allowance(allow_experimental=True)).profiles


def test_unknown_types_and_misplaced_ones_are_told_at_once_with_the_sources_that_were_asked() -> None:
    text = "plugins: [{type: scorer}, {type: nobodys}]\nsaturationDetector: {pluginRef: scorer}"
    with pytest.raises(InputError) as caught:
        resolve(picker(text), INDEX, {"other": BindingOptions(None, None, 0.0)}, asked=["here"])
    assert [problem.code for problem in caught.value.problems] == ["UNKNOWN_TYPE", "CONFIG_INVALID", "UNDEFINED_REF"]
    assert "sources asked: here" in caught.value.problems[0].message


def test_warnings_are_kept() -> None:
    found = resolved("plugins: [{type: scorer}]\nschedulingProfiles: [{name: p, plugins: []}]")
    assert [warning.code for warning in found.warnings] == ["NO_EFFECT"]


def test_binding_of_a_ref_that_is_there_is_kept_even_of_one_that_is_made() -> None:
    options = {name: BindingOptions(None, 1.0, 0.0) for name in ("scorer", "max-score-picker")}
    assert resolve(picker("plugins: [{type: scorer}]"), INDEX, options).options == options
