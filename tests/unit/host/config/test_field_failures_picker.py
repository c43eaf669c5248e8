"""Field failures and reference cases of an EndpointPickerConfig as a whole: read, completed and checked, at the cases' numbers."""

import subprocess
import sys

import orjson
import pytest
from hotbay.config.data_sources import read_data_layer
from hotbay.config.documents import decode_text
from hotbay.config.picker_checks import check_picker
from hotbay.config.picker_config import load_picker_config
from hotbay.config.system_defaults import complete
from hotbay.errors import InputError, Place

KINDS = ("apiVersion: llm-d.ai/v1alpha1\n", "apiVersion: inference.networking.x-k8s.io/v1alpha1\n")
EC01 = """kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {name: test1, type: a-filter, parameters: {threshold: 10}}
- {name: profileHandler, type: a-handler}
- {type: a-scorer, parameters: {blockSize: 32}}
- {name: testPicker, type: a-picker}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: test1}, {pluginRef: a-scorer, weight: 50}, {pluginRef: testPicker}]
"""
C19 = """apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {name: f3, type: decode-filter}
- {name: f1, type: prefill-filter}
- {name: f2, type: encode-filter}
- {type: random-picker}
- {type: max-score-picker}
schedulingProfiles: [{name: p, plugins: [{pluginRef: f3}, {pluginRef: f1}, {pluginRef: f2}]}]
"""
PLAN_OF = """
import sys
import orjson
from hotbay.config.picker_config import load_picker_config
from hotbay.config.system_defaults import complete
from hotbay.config.type_facts import TypeFacts
from hotbay.scheduling.known_types import BUILTIN_FACTS, FIRST_PARTY_TYPES

known = {**{name: TypeFacts(frozenset({"filter"}), "stable") for name in FIRST_PARTY_TYPES}, **BUILTIN_FACTS}
plans = set()
for _ in range(int(sys.argv[2])):
    config = complete(load_picker_config(sys.argv[1], file="p.yaml"), known.get)
    profiles = [[profile.name, [[entry.ref, entry.weight] for entry in profile.plugins]] for profile in config.profiles]
    plans.add(orjson.dumps([profiles, [entry.name for entry in config.plugins]]).decode())
print("\\n".join(sorted(plans)))
"""
LOADS = 50
"""Of one process: 200 of all."""


@pytest.fixture
def checked(facts):
    """Read, complete and check a whole text: the configuration, and what is wrong with it."""

    def check(text):
        config = complete(load_picker_config(text, file="p.yaml"), facts)
        return config, check_picker(config, facts, allow_experimental=False).problems

    return check


@pytest.mark.parametrize("kind", KINDS, ids=["ec01", "ec02"])
def test_ec01_ec02_full_configuration_has_no_problem_and_keeps_what_is_written(checked, kind):
    config, problems = checked(kind + EC01)
    assert problems == ()
    written = [(entry.name, entry.type, dict(entry.parameters)) for entry in config.plugins[:4]]
    assert written == [
        ("test1", "a-filter", {"threshold": 10}),
        ("profileHandler", "a-handler", {}),
        ("a-scorer", "a-scorer", {"blockSize": 32}),
        ("testPicker", "a-picker", {}),
    ]
    [profile] = config.profiles
    assert [(entry.ref, entry.weight) for entry in profile.plugins] == [
        ("test1", None),
        ("a-scorer", 50.0),
        ("testPicker", None),
    ]
    assert config.queues
    deprecated = [warning.place for warning in config.warnings if warning.code == "DEPRECATED"]
    assert deprecated == ([] if kind is KINDS[0] else [Place("p.yaml", 1, 1)])


def test_ec02_groups_differ_in_their_warning_alone(checked):
    new, old = (checked(kind + EC01)[0] for kind in KINDS)
    assert (new.plugins, new.profiles, new.flow_control, new.parsers) == (
        old.plugins,
        old.profiles,
        old.flow_control,
        old.parsers,
    )


def test_what_is_made_by_itself_has_no_parameters_and_no_place(checked):
    config, _ = checked(KINDS[0] + "kind: EndpointPickerConfig\nfeatureGates: [flowControl]\n")
    assert {entry.name for entry in config.plugins} >= {
        *("single-profile-handler", "max-score-picker", "utilization-detector", "metrics-data-source"),
        *("core-metrics-extractor", "openai-parser", "passthrough-parser", "static-usage-limit-policy"),
        *("fcfs-ordering-policy", "global-strict-fairness-policy"),
    }
    assert {(entry.name == entry.type, len(entry.parameters), entry.place) for entry in config.plugins} == {
        (True, 0, None)
    }


# -- C02: words that YAML 1.1 takes for booleans ---------------------------------------------------


@pytest.mark.parametrize("written", ["no", "yes", "on", "off", "NO", "'no'", '"true"'])
def test_c02_word_of_yaml_1_1_is_a_name_as_it_is_written(picker, written):
    (entry,) = picker(f"plugins: [{{type: a, name: {written}}}]").plugins
    assert entry.name == written.strip("'\"")


def test_c02_name_that_is_null_is_absent(picker):
    assert [entry.name for entry in picker("plugins: [{type: a, name: ~}]").plugins] == ["a"]


@pytest.mark.parametrize("field", ["name", "type"])
@pytest.mark.parametrize("written", ["true", "False"])
def test_c02_boolean_in_place_of_a_name_asks_for_quotes_at_its_line(picker_problems, field, written):
    entry = {"type": "a", field: written}
    (problem,) = picker_problems(f"plugins:\n- {{type: {entry['type']}, name: {entry.get('name', 'x')}}}\n")
    assert (problem.place.line, problem.path, problem.expected) == (4, f"plugins[0].{field}", "a text")
    assert "quote" in f"{problem.message} {problem.hint}"


def test_c02_key_on_is_the_unknown_field_on_and_not_true(picker_problems):
    (problem,) = picker_problems("on: []\n")
    assert (problem.code, problem.path, problem.place.line) == ("UNKNOWN_FIELD", "on", 3)


# -- C06, C11: one configuration in other clothes --------------------------------------------------


@pytest.mark.parametrize(
    ("yaml", "json", "weight"),
    [("1e3", "1e3", 1000.0), ("1.0e+3", "1.0e+3", 1000.0), (".5", "0.5", 0.5), ("1.", "1", 1)],
)
def test_c06_weight_is_the_same_number_from_yaml_and_json(yaml, json, weight):
    entry = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: s}]\nschedulingProfiles:\n- {name: p, plugins: [{pluginRef: s, weight: %s}]}\n"
    same = '{"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig", "plugins": [{"type": "s"}], "schedulingProfiles": [{"name": "p", "plugins": [{"pluginRef": "s", "weight": %s}]}]}'
    found = [load_picker_config(text, file="p").profiles[0].plugins[0].weight for text in (entry % yaml, same % json)]
    assert found == [weight, weight]
    assert {type(one) for one in found} == {float}


@pytest.mark.parametrize("encode", [
    lambda text: ("\ufeff" + text).encode(),
    lambda text: ("\ufeff" + text).encode("utf-16-le"),
    lambda text: ("\ufeff" + text).encode("utf-16-be"),
    lambda text: text.replace("\n", "\r\n").encode(),
    lambda text: orjson.dumps({
        "apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
        "plugins": [{"name": "ü", "type": "a", "parameters": {"text": "x", "n": [1, 2.5]}}],
    }),
], ids=["bom", "utf-16-le", "utf-16-be", "crlf", "json"])  # fmt: skip
def test_c11_other_encodings_and_line_ends_are_an_equal_configuration_that_changes_nothing(encode):
    text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- {name: ü, type: a, parameters: {text: x, n: [1, 2.5]}}\n"
    plain, other = (
        load_picker_config(decode_text(data, file="p.yaml"), file="p.yaml") for data in (text.encode(), encode(text))
    )
    # What is equal is not adopted anew: no process is touched.
    assert other == plain


# -- C19, C24 --------------------------------------------------------------------------------------


def test_c19_two_hundred_loads_in_processes_of_different_hash_seeds_give_one_plan():
    """Sets and hashes of texts differ from process to process, not from load to load: four seeds of fifty loads."""
    found = []
    for seed in ("0", "1", "2", "3"):
        ran = subprocess.run(
            [sys.executable, "-c", PLAN_OF, C19, str(LOADS)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        )
        found += ran.stdout.splitlines()
    assert len(found) == 4, "all loads of a process agree"
    assert len(set(found)) == 1
    profiles, names = orjson.loads(found[0])
    assert profiles == [["p", [["f3", None], ["f1", None], ["f2", None], ["random-picker", None]]]]
    assert names[:5] == ["f3", "f1", "f2", "random-picker", "max-score-picker"]


def test_c24_profile_handlers_that_do_not_fit_are_three_errors_and_one_profile_without_is_none(picker, facts):
    two = "schedulingProfiles: [{name: a}, {name: b}]"
    wrong = [
        f"plugins: [{{type: a-scorer}}]\n{two}",
        f"plugins: [{{type: a-handler}}, {{name: again, type: a-handler}}]\n{two}",
        f"plugins: [{{type: single-profile-handler}}]\n{two}",
    ]
    messages = []
    for text in wrong:
        (problem,) = check_picker(complete(picker(text), facts), facts, allow_experimental=False).problems
        assert problem.place.line is not None
        messages.append(problem.message)
    assert [
        expected in message
        for expected, message in zip(
            ("no profile handler configured", "multiple profile handlers found", "cannot support multiple profiles"),
            messages,
            strict=True,
        )
    ] == [True] * 3
    one = complete(picker("plugins: [{type: a-scorer}]\nschedulingProfiles: [{name: a}]"), facts)
    assert one.plugin("single-profile-handler") is not None
    assert check_picker(one, facts, allow_experimental=False).problems == ()


# -- C30: addresses of the short form --------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["", "a b", "http://h:0", "http://h:70000", "http://h:true", "http://h:8000.0", "http://h:08000x", "ftp://h:1"],
)
def test_c30_url_of_an_endpoint_without_a_port_or_host_that_can_be_is_refused_with_its_path(host_problems, url):
    problems = host_problems(
        f"apiVersion: hotbay/v1alpha1\nkind: HostConfig\nstate_dir: /s\nendpoints:\n- {{url: '{url}'}}\n"
    )
    assert [(problem.path, problem.place.line) for problem in problems] == [("endpoints[0].url", 5)]


@pytest.mark.parametrize("port", ["true", "0", "70000", "8000.0", "'x'"])
def test_c30_port_to_scrape_that_is_none_is_refused_with_its_path(facts, picker, port):
    text = (
        f"plugins: [{{type: metrics-data-source, parameters: {{port: {port}}}}}]\n"
        "dataLayer: {sources: [{pluginRef: metrics-data-source}]}"
    )
    with pytest.raises(InputError) as caught:
        read_data_layer(picker(text))
    assert [problem.path for problem in caught.value.problems] == ["plugins[0].parameters.port"]
