"""What is wrong with a completed configuration: who may stand where, as far as types are known."""

from dataclasses import replace

import pytest
from hotbay.config.picker_checks import check_picker
from hotbay.config.system_defaults import complete

PROFILE = "schedulingProfiles: [{name: p, plugins: [%s]}]"
LINE = 3


@pytest.fixture
def checked(picker, facts):
    def check(text, *, allow=False):
        return check_picker(complete(picker(text), facts), facts, allow_experimental=allow)

    return check


@pytest.fixture
def problem(checked):
    def only(text):
        (found,) = checked(text).problems
        return found

    return only


def refs(*names):
    return PROFILE % ", ".join(f"{{pluginRef: {name}}}" for name in names)


def test_ec28_two_pickers_in_a_profile_c18_are_both_named(problem):
    found = problem("plugins: [{type: a-picker}, {name: other, type: b-picker}]\n" + refs("a-picker", "other"))
    assert "'a-picker' and 'other'" in found.message
    assert "already have a registered picker" in found.message
    assert (found.path, found.place.line) == ("schedulingProfiles[0].plugins[1]", LINE + 1)


def test_c18_two_pickers_and_no_profile_are_both_named_with_their_place(problem):
    found = problem("plugins:\n- {type: a-picker}\n- {type: b-picker}")
    assert "profile 'default' has 2 pickers, 'a-picker' and 'b-picker'" in found.message
    assert (found.place.line, found.path) == (LINE + 2, "plugins[1]")
    assert "write profiles" in found.hint


def test_ec29_two_profile_handlers_c24_are_both_named(problem):
    found = problem("plugins: [{type: a-handler}, {type: single-profile-handler}]")
    assert found.message == "multiple profile handlers found: 'a-handler' and 'single-profile-handler'"
    assert found.place.line == LINE


def test_e13_two_profiles_without_handler_c24(problem):
    found = problem("plugins: [{type: a-scorer}]\nschedulingProfiles: [{name: a}, {name: b}]")
    assert found.message == "no profile handler configured, and there are 2 profiles"
    assert found.place.line == LINE + 1


def test_ec31_two_profiles_and_the_single_handler_c24(problem):
    found = problem("plugins: [{type: single-profile-handler}]\nschedulingProfiles: [{name: a}, {name: b}]")
    assert "cannot support multiple profiles" in found.message


def test_two_profiles_wait_for_the_handler_that_an_unknown_type_may_be(checked):
    assert checked("plugins: [{type: unknown}]\nschedulingProfiles: [{name: a}, {name: b}]").problems == ()


def test_handler_that_chooses_fits_any_number_of_profiles(checked):
    text = "plugins: [{type: a-handler}]\nschedulingProfiles: [{name: a}, {name: b}]"
    assert checked(text).problems == ()


@pytest.mark.parametrize("name", ["a-plugin", "a-producer", "file-discovery", "openai-parser", "a-policy"])
def test_reference_of_a_profile_to_what_has_no_part_in_it_is_refused(problem, name):
    found = problem(f"plugins: [{{type: {name}, parameters: {{}}}}]\n" + refs(name))
    assert found.expected == "a filter, scorer or picker"
    assert (found.path, found.place.line) == ("schedulingProfiles[0].plugins[0]", LINE + 1)


def test_reference_of_a_profile_to_a_handler_is_accepted_with_a_warning(checked):
    found = checked("plugins: [{type: a-handler}]\n" + refs("a-handler"))
    assert found.problems == ()
    assert [w.code for w in found.warnings] == ["NO_EFFECT"]
    assert checked("plugins: [{type: all-in-one}]\n" + refs("all-in-one")).warnings == ()


def test_e15_detector_that_is_none_is_refused(problem, checked):
    found = problem("plugins: [{type: a-scorer}]\nsaturationDetector: {pluginRef: a-scorer}")
    assert "is no saturation detector" in found.message
    assert found.place.line == LINE + 1
    assert checked("saturationDetector: {pluginRef: utilization-detector}").problems == ()


def test_e16_parser_that_is_not_there_or_is_none_is_refused(problem):
    found = problem("requestHandler: {parsers: [{pluginRef: opnai-parser}]}")
    assert (found.code, found.path) == ("UNDEFINED_REF", "requestHandler.parsers[0].pluginRef")
    found = problem("plugins: [{type: a-scorer}]\nrequestHandler: {parsers: [{pluginRef: a-scorer}]}")
    assert "is no parser plugin" in found.message


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{defaultPriorityBand: {fairnessPolicyRef: o}}", "fairness policy"),
        ("{priorityBands: [{priority: 3, orderingPolicyRef: f}]}", "ordering policy"),
        ("{usageLimitPolicyPluginRef: f}", "usage limit policy"),
    ],
)
def test_e18_policy_of_another_kind_is_refused(problem, text, what):
    plugins = "plugins: [{name: f, type: a-policy}, {name: o, type: b-policy}]\n"
    found = problem(f"featureGates: [flowControl]\n{plugins}flowControl: {text}")
    assert f"is no {what}" in found.message
    assert found.place.line == LINE + 2


@pytest.mark.parametrize(
    ("name", "said"), [("alpha-scorer", "is alpha"), ("silent-scorer", "counts as alpha")], ids=["alpha", "silent"]
)
def test_e19_alpha_type_is_refused_unless_allowed(checked, name, said):
    text = f"plugins: [{{type: {name}}}]"
    (found,) = checked(text).problems
    assert (said in found.message, found.place.line) == (True, LINE)
    assert "--allow-experimental-plugins" in found.hint
    assert checked(text, allow=True) == checked("plugins: [{type: a-scorer}]", allow=True)


def test_e19_is_a_warning_where_nobody_can_say_what_is_allowed(checked):
    found = checked("plugins: [{type: alpha-scorer}]", allow=None)
    assert found.problems == ()
    assert ["is alpha" in w.message for w in found.warnings] == [True]


def test_e19_names_types_that_are_made_by_themselves(picker, facts):
    def known(name):
        return replace(facts(name), stability=None) if name == "utilization-detector" else facts(name)

    found = check_picker(complete(picker(""), known), known, allow_experimental=False)
    assert "(made by itself)" in found.problems[0].message


def test_c21_weights_of_0_alone_are_a_warning(checked):
    text = "plugins: [{type: a-scorer}, {type: b-scorer}]\n"
    profile = PROFILE % "{pluginRef: a-scorer, weight: 0}, {pluginRef: b-scorer, weight: %s}"
    (warning,) = checked(text + profile % 0).warnings
    assert "weight 0" in warning.message
    assert checked(text + profile % 0.5).warnings == ()


def test_c23_unused_plugin_is_a_warning_only(checked):
    found = checked("plugins: [{type: a-scorer}, {type: b-scorer}, {type: a-producer}]\n" + refs("a-scorer"))
    assert found.problems == ()
    assert [w.message for w in found.warnings] == ["the plugin 'b-scorer' is used by no profile"]


def test_all_problems_are_found_at_once(checked):
    text = (
        "plugins: [{type: a-handler}, {type: single-profile-handler}, {type: alpha-scorer}, {type: a-picker}, {type: b-picker}, "
        "{type: dependent, parameters: {dependency: nobody}}]\n"
        + refs("a-picker", "b-picker")
        + "\nparser: {pluginRef: a-picker}\nsaturationDetector: {pluginRef: a-picker}"
    )
    found = checked(text).problems
    assert len(found) == 6
    assert all(p.place and p.place.line and p.place.column for p in found)
