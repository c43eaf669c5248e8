"""EndpointPickerConfig: what is read, the reference's cases, and problems with their places."""

import pytest
from hotbay.config.picker_config import DEFAULT_TEXT, load_picker_config
from hotbay.errors import InputError, Place
from hypothesis import given
from hypothesis import strategies as st

PROFILE = "plugins: [{type: s}]\nschedulingProfiles:\n- name: default\n  plugins:\n"


def test_plugins_and_profiles_keep_the_order_of_the_file(picker):
    config = picker(
        "plugins: [{type: b}, {name: x, type: a, parameters: {t: 1}}]\nschedulingProfiles: [{name: p, plugins: [{pluginRef: x, weight: 50}, {pluginRef: b}]}]"
    )
    assert [(p.name, p.type, p.parameters) for p in config.plugins] == [("b", "b", {}), ("x", "a", {"t": 1})]
    assert [(r.ref, r.weight) for r in config.profiles[0].plugins] == [("x", 50.0), ("b", None)]


def test_ec02_deprecated_version_is_accepted_with_a_warning():
    config = load_picker_config(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n", file="p.yaml"
    )
    assert [(w.code, w.place) for w in config.warnings] == [("DEPRECATED", Place("p.yaml", 1, 1))]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n"])
def test_ec04_empty_text_is_the_built_in_default(text):
    config = load_picker_config(text, file="p.yaml")
    assert config == load_picker_config(DEFAULT_TEXT, file="p.yaml")
    assert [(r.ref, r.weight) for r in config.profiles[0].plugins] == [
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("prefix-cache-scorer", 3.0),
    ]
    assert config.data_layer.inject_defaults


@pytest.mark.parametrize("text", ["not yaml", "a: [", "[1]", "a: b: c"])
def test_ec07_text_that_is_no_configuration_is_refused(text):
    with pytest.raises(InputError, match=r"CONFIG_INVALID: p\.yaml:1:"):
        load_picker_config(text, file="p.yaml")


@pytest.mark.parametrize(
    "text",
    ["plugins: []", "kind: EndpointPickerConfig\napiVersion: v1", "apiVersion: llm-d.ai/v1alpha1\nkind: HostConfig"],
)
def test_e1_missing_or_other_version_and_kind_are_refused(text):
    with pytest.raises(InputError, match="CONFIG_INVALID"):
        load_picker_config(text, file="p.yaml")


def test_ec08_unknown_gate_is_refused(picker_problems):
    (problem,) = picker_problems("featureGates: [qwerty]")
    assert "feature gate 'qwerty' is unknown or unregistered" in problem.message
    assert problem.place == Place("picker.yaml", 3, 16)


def test_e3_gate_that_is_no_boolean_is_refused(picker_problems):
    (problem,) = picker_problems("featureGates: [flowControl=maybe]")
    assert "not a valid value for the feature gate" in problem.message


def test_gates_are_read_as_the_reference_does(picker):
    gates = picker("featureGates: ['flowControl = F ', haPopulateNonLeaderDatastore=0]").feature_gates
    assert gates == {"flowControl": False, "haPopulateNonLeaderDatastore": False}


def test_gate_that_has_no_effect_yet_is_warned_of(picker):
    assert [w.code for w in picker("featureGates: [flowControl]").warnings] == ["NOT_SUPPORTED"]


def test_ec20_plugin_without_type_is_refused(picker_problems):
    (problem,) = picker_problems("plugins: [{name: x}]")
    assert problem.message == "plugin 'x' is missing a type"


def test_ec23_two_plugins_of_one_name_are_refused_with_both_lines(picker_problems):
    (problem,) = picker_problems("plugins:\n- {name: x, type: a}\n- {name: x, type: b}\n")
    assert (problem.code, problem.place.line) == ("DUPLICATE_NAME", 5)
    assert "lines 4 and 5" in problem.message


def test_c17_two_unnamed_plugins_of_one_type_are_told_to_take_names(picker_problems):
    (problem,) = picker_problems("plugins:\n- type: a\n- type: a\n")
    assert problem.code == "DUPLICATE_NAME"
    assert "add `name`" in problem.hint


def test_ec25_entry_without_reference_is_refused(picker_problems):
    (problem,) = picker_problems(PROFILE + "  - weight: 2\n")
    assert problem.message == "this entry is missing a 'pluginRef'"
    assert problem.path == "schedulingProfiles[0].plugins[0]"


def test_ec26_entry_naming_an_undeclared_plugin_is_refused(picker_problems):
    (problem,) = picker_problems(
        "plugins: [{type: queue-scorer}]\nschedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorr}]}]"
    )
    assert (problem.code, problem.hint) == ("UNDEFINED_REF", "did you mean 'queue-scorer'?")


def test_e9_profile_without_name_or_with_a_used_one_is_refused(picker_problems):
    problems = picker_problems("schedulingProfiles:\n- {}\n- {name: a}\n- {name: a}\n")
    assert [(p.place.line, p.code) for p in problems] == [(4, "CONFIG_INVALID"), (6, "DUPLICATE_NAME")]


@pytest.mark.parametrize(
    "weight", [".nan", "NaN", ".inf", "-.inf", "-1", "-0.001", "1e999", "true", "'1'", "012", "[]"]
)
def test_c21_weight_that_is_no_finite_number_from_0_is_refused_with_its_place(picker_problems, weight):
    (problem,) = picker_problems(PROFILE + f"  - {{pluginRef: s, weight: {weight}}}\n")
    assert (problem.code, problem.place) == ("CONFIG_INVALID", Place("picker.yaml", 7, 28))


@pytest.mark.parametrize(("written", "weight"), [("0", 0.0), ("1e3", 1000.0), (".5", 0.5), ("null", None)])
def test_c21_weight_is_any_finite_number_from_0(picker, written, weight):
    assert picker(PROFILE + f"  - {{pluginRef: s, weight: {written}}}\n").profiles[0].plugins[0].weight == weight


def test_entry_with_a_type_is_an_instance_of_its_own(picker):
    config = picker(PROFILE + "  - {type: s, weight: 2, parameters: {x: 1}}\n  - {type: s}\n  - {pluginRef: s}\n")
    assert [r.ref for r in config.profiles[0].plugins] == ["default/s", "default/s#2", "s"]
    entry = config.plugin("default/s")
    assert (entry.type, entry.parameters) == ("s", {"x": 1})
    assert config.place(*entry.path, "parameters", "x").line == 7


@pytest.mark.parametrize("entry", ["{pluginRef: s, type: s}", "{pluginRef: s, parameters: {}}", "{parameters: {}}"])
def test_entry_that_is_both_or_neither_is_refused(picker_problems, entry):
    assert [p.code for p in picker_problems(PROFILE + f"  - {entry}\n")] == ["CONFIG_INVALID"]


@pytest.mark.parametrize(
    ("text", "path", "guess"),
    [
        ("pluginz: []", "pluginz", "plugins"),
        ("plugins: [{type: a, paramters: {}}]", "plugins[0].paramters", "parameters"),
        ("schedulingProfiles: [{nam: x, name: x}]", "schedulingProfiles[0].nam", "name"),
        ("schedulingProfiles: [{name: x, plugins: [{type: x, wieght: 5}]}]", "schedulingProfiles[0].plugins[0].wieght", "weight"),
        ("dataLayer: {injectDefault: true}", "dataLayer.injectDefault", "injectDefaults"),
        ("plugins: [{type: x}]\ndataLayer: {discovery: {pluginRef: x, pluginref: x}}", "dataLayer.discovery.pluginref", "pluginRef"),
        ("plugins: [{type: x}]\ndataLayer: {sources: [{pluginRef: x, extractor: []}]}", "dataLayer.sources[0].extractor", "extractors"),
    ],
)  # fmt: skip
def test_c15_typo_is_named_with_path_line_and_nearest_name(picker_problems, text, path, guess):
    (problem,) = picker_problems(text)
    assert (problem.code, problem.path, problem.place.line) == ("UNKNOWN_FIELD", path, 2 + len(text.split("\n")))
    assert problem.hint == f"did you mean {guess!r}?"


@pytest.mark.parametrize(
    ("text", "today"),
    [
        ("plugin_references: [{type: a}]", "plugins"),
        ("scheduling_profiles: []", "schedulingProfiles"),
        ("endpointPickingProfiles: []", "schedulingProfiles"),
        ("plugins: [{type: a, args: {x: 1}}]", "parameters"),
        ("discovery: {pluginRef: a}", "dataLayer.discovery"),
        ("plugins: [{type: a}]\nschedulingProfiles: [{name: a, plugins: [{plugin_ref: a}]}]", "pluginRef"),
    ],
)
def test_old_spelling_is_refused_naming_the_key_of_today(picker_problems, text, today):
    (problem,) = picker_problems(text)
    assert (problem.code, problem.hint) == ("UNKNOWN_FIELD", f"today's key is {today!r}")


def test_references_to_misspelt_plugins_are_no_further_problems(picker_problems):
    text = "plugin_references: [{type: a}]\nschedulingProfiles: [{name: x, plugins: [{pluginRef: a}]}]"
    assert len(picker_problems(text)) == 1


@pytest.mark.parametrize("text", ["{peerDiscovery: {pluginRef: x}}", "{crossReplicaSyncerPluginRef: x}"])
def test_what_joins_replicas_is_refused_as_not_carried_out_when_it_is_used(picker_problems, text):
    (problem,) = picker_problems(f"plugins: [{{type: x}}]\ndataLayer: {text}")
    assert (problem.code, problem.place.line) == ("NOT_SUPPORTED", 4)


@pytest.mark.parametrize("text", ["{peerDiscovery: {pluginRef: ''}}", "{crossReplicaSyncerPluginRef: 1}"])
def test_what_joins_replicas_is_no_more_than_wrong_where_it_is_no_reference(picker_problems, text):
    assert [p.code for p in picker_problems(f"plugins: [{{type: x}}]\ndataLayer: {text}")] == ["CONFIG_INVALID"]


def test_misspelt_reference_is_one_problem(picker_problems):
    (problem,) = picker_problems("plugins: [{type: x}]\ndataLayer: {discovery: {pluginref: x}}")
    assert (problem.code, problem.hint) == ("UNKNOWN_FIELD", "did you mean 'pluginRef'?")


def test_interval_of_replicas_alone_asks_for_nothing(picker, picker_problems):
    assert [w.code for w in picker("dataLayer: {crossReplicaSyncInterval: 200ms}").warnings] == ["NO_EFFECT"]
    (problem,) = picker_problems("dataLayer: {crossReplicaSyncInterval: 200}")
    assert problem.expected == "a duration such as 60s, 250ms or 1m30s"


def test_e15_reference_to_a_detector_that_is_not_there_is_refused(picker_problems):
    (problem,) = picker_problems("saturationDetector: {pluginRef: x}")
    assert (problem.code, problem.path) == ("UNDEFINED_REF", "saturationDetector.pluginRef")
    (problem,) = picker_problems("flowControl: {saturationDetector: {pluginRef: ''}}")
    assert problem.message == "this entry is missing a 'pluginRef'"


def test_ec05_top_level_detector_is_copied_under_flow_control(picker):
    config = picker("saturationDetector: {pluginRef: utilization-detector}")
    assert config.flow_control.saturation_detector.ref == "utilization-detector"
    assert [(w.code, w.place.line) for w in config.warnings] == [("DEPRECATED", 3)]


def test_deprecated_places_have_no_effect_beside_those_of_today(picker):
    config = picker(
        "plugins: [{type: a}, {type: b}]\nsaturationDetector: {pluginRef: a}\nparser: {pluginRef: a}\n"
        "flowControl: {saturationDetector: {pluginRef: b}}\nrequestHandler: {parsers: [{pluginRef: b}]}\n"
    )
    assert config.flow_control.saturation_detector.ref == "b"
    assert [entry.ref for entry in config.parsers] == ["b"]
    assert [w.code for w in config.warnings] == ["DEPRECATED", "DEPRECATED"]
    assert all("has no effect" in w.message for w in config.warnings)


def test_parsers_are_read_in_their_order_whether_declared_or_not(picker):
    config = picker("requestHandler: {parsers: [{pluginRef: passthrough-parser}, {pluginRef: mine}]}")
    assert [entry.ref for entry in config.parsers] == ["passthrough-parser", "mine"]
    assert picker("parser: {pluginRef: openai-parser}").parsers[0].ref == "openai-parser"


def test_c08_null_is_an_absent_field(picker):
    config = picker("plugins:\nschedulingProfiles:\nfeatureGates:\ndataLayer:\nrequestHandler:\nflowControl:\n")
    assert (config.plugins, config.profiles) == ((), ())
    assert picker("plugins: [{type: a, name: null, parameters: null}]").plugins[0].name == "a"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plugins: {a: b}", "a list"),
        ("plugins: [x]", "a mapping"),
        ("plugins: [{type: 1}]", "a text"),
        ("plugins: [{type: a, name: true}]", "a text"),
        ("plugins: [{type: a, parameters: [1]}]", "a mapping"),
        ('plugins: [{type: "a\\nb"}]', "a printable name of at most 253 characters"),
        ("dataLayer: {injectDefaults: no}", "true or false"),
        ("featureGates: [1]", "a text"),
        ("plugins: [{type: a}]\ndataLayer: {discovery: {pluginRef: 1}}", "a text"),
    ],
)
def test_wrong_value_is_refused_with_what_was_expected(picker_problems, text, expected):
    assert [p.expected for p in picker_problems(text)] == [expected]


def test_equal_contents_are_equal_wherever_they_stand(picker):
    assert picker("plugins: [{type: a}]") == picker("# x\nplugins:\n- type: a\n")
    assert picker("plugins: [{type: a}]") != picker("plugins: [{type: a, parameters: {x: 1}}]")


def test_data_layer_is_read(picker):
    config = picker(
        "plugins: [{name: d, type: file-discovery}]\n"
        "dataLayer: {discovery: {pluginRef: d}, sources: [{pluginRef: d, extractors: [{pluginRef: d}]}]}"
    )
    assert config.data_layer.discovery.ref == "d"
    assert [(s.source.ref, [e.ref for e in s.extractors]) for s in config.data_layer.sources] == [("d", ["d"])]


_KEYS = st.sampled_from(
    ["plugins", "type", "name", "pluginRef", "schedulingProfiles", "weight", "dataLayer", "discovery"]
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "b", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=15,
)


@given(st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_no_content_raises_anything_but_input_error(value):
    head = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
    text = str(head | value).replace("None", "null")
    try:
        config = load_picker_config(text, file="p.yaml")
    except InputError:
        return
    names = [plugin.name for plugin in config.plugins]
    assert len(set(names)) == len(names)
    assert {r.ref for profile in config.profiles for r in profile.plugins} <= set(names)
