"""What a configuration means where it says nothing, by the table of defaults: in the order of the file, and once for all."""

import pytest
from hotbay.config.picker_config import load_picker_config
from hotbay.config.system_defaults import DEFAULT_PARSERS, complete
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ONE = "schedulingProfiles: [{name: p, plugins: [{pluginRef: a-scorer}]}]"


@pytest.fixture
def completed(picker, facts):
    return lambda text: complete(picker(text), facts)


def names(config):
    return [entry.name for entry in config.plugins]


def uses(config):
    return {profile.name: [(entry.ref, entry.weight) for entry in profile.plugins] for profile in config.profiles}


def test_ec01_full_configuration_stays_as_it_is_written(completed):
    config = completed(
        "featureGates: [flowControl]\n"
        "plugins:\n- {name: test1, type: a-plugin, parameters: {threshold: 10}}\n- {name: profileHandler, type: a-handler}\n"
        "- {type: a-scorer, parameters: {blockSize: 32}}\n- {name: testPicker, type: a-picker}\n"
        "schedulingProfiles: [{name: default, plugins: [{pluginRef: test1}, {pluginRef: a-scorer, weight: 50}, {pluginRef: testPicker}]}]"
    )
    assert uses(config) == {"default": [("test1", None), ("a-scorer", 50.0), ("testPicker", None)]}
    assert names(config)[:4] == ["test1", "profileHandler", "a-scorer", "testPicker"]
    assert "single-profile-handler" not in names(config)


def test_ec04_empty_text_has_the_default_scorers_and_the_metrics_of_endpoints(facts):
    known = {"queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer"}
    config = complete(
        load_picker_config("", file="p.yaml"), lambda name: facts("a-scorer") if name in known else facts(name)
    )
    assert uses(config) == {
        "default": [
            ("queue-scorer", 2.0),
            ("kv-cache-utilization-scorer", 2.0),
            ("prefix-cache-scorer", 3.0),
            ("max-score-picker", None),
        ]
    }
    (source,) = config.data_layer.sources
    assert (source.source.ref, [entry.ref for entry in source.extractors]) == (
        "metrics-data-source",
        ["core-metrics-extractor"],
    )


def test_ec13_scorer_without_weight_and_ep05_has_the_weight_1(completed):
    config = completed(f"plugins: [{{type: a-scorer}}, {{type: single-profile-handler}}]\n{ONE}")
    assert uses(config)["p"][0] == ("a-scorer", 1.0)


def test_weight_of_what_is_no_scorer_stays_unset(completed):
    config = completed("plugins: [{type: a-filter}, {type: a-picker}]")
    assert uses(config)["default"] == [("a-filter", None), ("a-picker", None)]


def test_ec14_one_profile_without_handler_gets_the_single_one(completed):
    config = completed(
        "plugins: [{type: max-score-picker}]\nschedulingProfiles: [{name: p, plugins: [{pluginRef: max-score-picker}]}]"
    )
    assert names(config)[:2] == ["max-score-picker", "single-profile-handler"]
    assert config.plugin("single-profile-handler").place is None


def test_ec16_default_bands_have_the_default_policies(completed):
    config = completed("featureGates: [flowControl]\nflowControl: {maxBytes: '1024', priorityBands: [{priority: 1}]}")
    for band in config.flow_control.all_bands:
        assert (band.fairness.ref, band.ordering.ref) == ("global-strict-fairness-policy", "fcfs-ordering-policy")
    assert config.flow_control.usage_limit.ref == "static-usage-limit-policy"
    made = {
        "global-strict-fairness-policy",
        "fcfs-ordering-policy",
        "static-usage-limit-policy",
        "utilization-detector",
    }
    assert made <= set(names(config))


def test_policies_are_made_with_the_gate_alone(completed):
    assert not {name for name in names(completed("")) if name.endswith("-policy")}


def test_default_policy_that_is_named_is_made_and_a_declared_one_is_not(completed):
    head = "featureGates: [flowControl]\n"
    config = completed(head + "flowControl: {defaultPriorityBand: {orderingPolicyRef: fcfs-ordering-policy}}")
    assert names(config).count("fcfs-ordering-policy") == 1
    declared = "plugins: [{name: fcfs-ordering-policy, type: b-policy}]\n"
    config = completed(head + declared + "flowControl: {}")
    assert config.plugin("fcfs-ordering-policy").type == "b-policy"


def test_ec05_default_detector_is_made_named_or_not(completed):
    for text in ("", "saturationDetector: {pluginRef: utilization-detector}"):
        config = completed(text)
        assert config.flow_control.saturation_detector.ref == "utilization-detector"
        assert config.plugin("utilization-detector").place is None
    config = completed("plugins: [{name: d, type: filtering-detector}]\nsaturationDetector: {pluginRef: d}")
    assert "utilization-detector" not in names(config)


def test_listed_detector_that_filters_is_a_filter_of_the_default_profile_and_one_that_is_made_is_not(completed):
    assert ("filtering-detector", None) in uses(completed("plugins: [{type: filtering-detector}]"))["default"]
    assert "utilization-detector" not in dict(uses(completed("plugins: [{type: a-scorer}]"))["default"])


def test_ec34_default_source_stands_behind_those_that_are_written(completed):
    config = completed(
        "plugins: [{name: mySource, type: models-data-source}]\ndataLayer: {sources: [{pluginRef: mySource}]}"
    )
    assert [entry.source.ref for entry in config.data_layer.sources] == ["mySource", "metrics-data-source"]


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("dataLayer: {injectDefaults: false}", []),
        (
            (
                "plugins: [{name: metrics-data-source, type: dcgm-data-source}]\n"
                "dataLayer: {sources: [{pluginRef: metrics-data-source}]}"
            ),
            ["metrics-data-source"],
        ),
        (
            "plugins: [{name: mine, type: metrics-data-source}]\ndataLayer: {sources: [{pluginRef: mine}]}",
            ["mine", "metrics-data-source"],
        ),
    ],
    ids=["off", "named", "typed"],
)
def test_default_source_is_tested_for_by_name(completed, text, sources):
    assert [entry.source.ref for entry in completed(text).data_layer.sources] == sources


def test_ec35_without_parsers_there_are_four_in_this_order(completed):
    config = completed("")
    assert tuple(entry.ref for entry in config.parsers) == DEFAULT_PARSERS
    assert DEFAULT_PARSERS == ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")
    assert set(DEFAULT_PARSERS) <= set(names(config))


def test_explicit_list_of_parsers_gains_no_fallback_and_a_type_stands_for_its_parser(completed):
    config = completed("requestHandler: {parsers: [{pluginRef: vllmhttp-parser}]}")
    assert [entry.ref for entry in config.parsers] == ["vllmhttp-parser"]
    assert config.plugin("vllmhttp-parser").type == "vllmhttp-parser"
    assert config.plugin("openai-parser") is None


def test_profile_without_picker_borrows_the_first_of_the_file_or_gets_max_score(completed):
    two = "plugins: [{type: a-scorer}, {type: b-picker}, {type: a-picker}]\n"
    assert uses(completed(two + ONE))["p"][-1] == ("b-picker", None)
    assert uses(completed("plugins: [{type: a-scorer}]\n" + ONE))["p"][-1] == ("max-score-picker", None)


def test_default_profile_holds_filters_scorers_and_pickers_in_the_order_of_the_file(completed):
    config = completed(
        "plugins: [{type: b-scorer}, {type: a-producer}, {type: a-filter}, {type: a-handler}, {type: a-scorer}, {type: a-picker}]"
    )
    assert uses(config) == {"default": [("b-scorer", 1.0), ("a-filter", None), ("a-scorer", 1.0), ("a-picker", None)]}


def test_c19_two_hundred_loads_give_one_plan_in_the_order_of_the_file(completed):
    text = (
        "plugins: [{name: f3, type: a-filter}, {name: f1, type: a-filter}, {name: f2, type: a-filter}, {type: b-picker}, {type: a-picker}]\n"
        "schedulingProfiles: [{name: p, plugins: [{pluginRef: f3}, {pluginRef: f1}, {pluginRef: f2}]}]"
    )
    found = [uses(completed(text)) for _ in range(200)]
    assert all(it == found[0] for it in found)
    assert [ref for ref, _ in found[0]["p"]] == ["f3", "f1", "f2", "b-picker"]


def test_what_depends_on_an_unknown_type_is_left_to_when_it_is_ready(completed):
    config = completed("plugins: [{type: unknown}, {type: a-scorer}]")
    assert (config.profiles, config.plugin("single-profile-handler")) == ((), None)
    config = completed("plugins: [{type: unknown}, {type: a-scorer}]\n" + ONE)
    assert uses(config)["p"] == [("a-scorer", 1.0)]
    assert completed("plugins: [{type: nobody-provides-it}]").profiles == ()


def test_unknown_type_of_the_data_layer_keeps_nothing_open(completed):
    config = completed("plugins: [{type: unknown}, {type: a-scorer}]\ndataLayer: {sources: [{pluginRef: unknown}]}")
    assert uses(config) == {"default": [("a-scorer", 1.0), ("max-score-picker", None)]}


def test_what_nobody_provides_is_not_made(picker, facts):
    lacking = {"utilization-detector", "fcfs-ordering-policy", "metrics-data-source", "openai-parser"}
    config = complete(picker("featureGates: [flowControl]"), lambda name: None if name in lacking else facts(name))
    assert not lacking & set(names(config))
    assert config.flow_control.saturation_detector is None
    assert config.data_layer.sources == ()
    assert [entry.ref for entry in config.parsers] == list(DEFAULT_PARSERS[1:])


TYPES = st.sampled_from(["a-filter", "a-scorer", "a-picker", "b-picker", "a-handler", "a-producer", "unknown", "lost"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    types=st.lists(TYPES, max_size=6),
    profiles=st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=3),
    gate=st.booleans(),
)
def test_completing_twice_is_completing_once_and_keeps_what_is_written(facts, types, profiles, gate):
    from_file = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "featureGates": [f"flowControl={str(gate).lower()}"],
        "plugins": [{"name": f"p{n}", "type": name} for n, name in enumerate(types)],
        "schedulingProfiles": [
            {"name": f"s{n}", "plugins": [{"pluginRef": f"p{i}"} for i in refs if i < len(types)]}
            for n, refs in enumerate(profiles)
        ],
    }
    config = load_picker_config(str(from_file), file="p.yaml")
    once = complete(config, facts)
    assert complete(once, facts) == once
    assert once.plugins[: len(config.plugins)] == config.plugins
    declared = {entry.name for entry in once.plugins}
    assert {entry.ref for profile in once.profiles for entry in profile.plugins} <= declared
