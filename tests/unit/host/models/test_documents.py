"""What stands in the files of models, and where it is wrong."""

import math

import pytest
from hotbay.errors import InputError
from hotbay.models.documents import read_models
from hotbay.models.rules import Objective, Rewrite, Rule, Target
from hypothesis import given
from hypothesis import strategies as st

OBJECTIVE = """\
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: gold, namespace: x}
spec: {priority: 10, poolRef: {group: inference.networking.k8s.io, name: pool}}
"""
REWRITE = """\
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModelRewrite
metadata:
  name: split
  creationTimestamp: "1970-01-01T00:01:00Z"
spec:
  poolRef: {name: pool}
  rules:
    - matches: [{model: {type: Exact, value: a}}, {model: {value: b}}]
      targets: [{modelRewrite: a-v1, weight: 9}, {modelRewrite: a-v2, weight: 1}]
    - targets: [{modelRewrite: c}]
"""


def test_both_kinds_are_read_from_one_text():
    found = read_models(f"{OBJECTIVE}---\n{REWRITE}", file="f.yaml")
    assert found.objectives == (Objective("gold", 10),)
    rules = (Rule(("a", "b"), (Target("a-v1", 9), Target("a-v2", 1))), Rule((), (Target("c"),)))
    assert found.rewrites == (Rewrite("split", 60.0, rules),)


def test_objective_without_a_priority_is_0_and_a_rewrite_without_a_time_the_youngest():
    text = (
        OBJECTIVE.replace("priority: 10, ", "")
        + "---\n"
        + REWRITE.replace('  creationTimestamp: "1970-01-01T00:01:00Z"\n', "")
    )
    found = read_models(text, file="f")
    assert (found.objectives[0].priority, found.rewrites[0].created_s) == (0, math.inf)


def test_empty_match_takes_any_model():
    text = REWRITE.replace("{model: {value: b}}", "{}")
    assert read_models(text, file="f").rewrites[0].rules[0].models == ()


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ("kind: InferenceModelRewrite", "kind: InferencePool", "f.yaml:2:7"),
        ("kind: InferenceModelRewrite", "kinds: InferenceModelRewrite", "f.yaml:2:1"),
        ("apiVersion: inference.networking.x-k8s.io/v1alpha2", "apiVersion: v1", "f.yaml:1:13"),
        ("name: split", "name: ''", "f.yaml:4:9"),
        ('"1970-01-01T00:01:00Z"', "yesterday", "f.yaml:5:22"),
        ("weight: 9", "weight: 1000001", "f.yaml:10:46"),
        ("weight: 9", "weight: -1", "f.yaml:10:46"),
        ("weight: 9", "weight: 1.5", "f.yaml:10:46"),
        ("weight: 9", "weigth: 9", "f.yaml:10:38"),
        ("type: Exact", "type: Prefix", "f.yaml:9:32"),
        ("modelRewrite: c", "modelRewrite: 7", "f.yaml:11:32"),
        ("[{modelRewrite: c}]", "[]", "f.yaml:11:16"),
        ("targets: [{modelRewrite: c}]", "matches: []", "f.yaml:11:7"),
        ("poolRef: {name: pool}", "poolRef: {names: pool}", "f.yaml:7:13"),
        ("poolRef: {name: pool}", "poolRef: pool", "f.yaml:7:12"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(before, after, place):
    assert before in REWRITE
    with pytest.raises(InputError) as error:
        read_models(REWRITE.replace(before, after), file="f.yaml")
    assert place in [str(problem.place) for problem in error.value.problems]


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1, "high", True, 1.5])
def test_priority_is_a_number_of_32_bits(priority):
    with pytest.raises(InputError):
        read_models(OBJECTIVE.replace("10", str(priority)), file="f")


@pytest.mark.parametrize("priority", [2**31 - 1, -(2**31)])
def test_priority_at_its_bounds(priority):
    assert read_models(OBJECTIVE.replace("10", str(priority)), file="f").objectives[0].priority == priority


@pytest.mark.parametrize("weight", [0, 1_000_000])
def test_weight_at_its_bounds(weight):
    found = read_models(REWRITE.replace("weight: 9", f"weight: {weight}"), file="f")
    assert found.rewrites[0].rules[0].targets[0].weight == weight


def test_all_problems_of_all_documents_are_told_at_once():
    text = f"{OBJECTIVE.replace('gold', '7')}---\n{REWRITE.replace('modelRewrite: c', 'model: c')}---\n[broken\n"
    with pytest.raises(InputError) as error:
        read_models(text, file="f")
    assert {problem.place.line for problem in error.value.problems} >= {3, 16}
    assert len(error.value.problems) >= 3


def test_second_of_a_name_in_one_file_is_told_and_another_kind_may_have_it():
    with pytest.raises(InputError, match="a second InferenceObjective 'gold'"):
        read_models(f"{OBJECTIVE}---\n{OBJECTIVE}", file="f")
    read_models(f"{OBJECTIVE}---\n{REWRITE.replace('split', 'gold')}", file="f")


@pytest.mark.parametrize("text", ["{}", "[]", "7", "spec: {}"])
def test_what_is_no_resource_is_told(text):
    with pytest.raises(InputError):
        read_models(text, file="f")


def test_text_without_documents_says_nothing():
    assert read_models("# nothing\n---\n", file="f").rewrites == ()


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda data: REWRITE + data.decode("latin-1")))
def test_no_text_raises_anything_else(text):
    problems = ()
    try:
        read_models(text, file="f")
    except InputError as error:
        problems = error.problems
    assert all(problem.place is not None for problem in problems)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"1970-01-01T00:01:00Z"', "7"),
        ("  rules:\n", "  rules: []\n  x:\n"),
        ("modelRewrite: c", f"modelRewrite: {'c' * 254}"),
        ("value: a}}", "value: [a]}}"),
        ("metadata:\n  name: split\n", "metadata: split\nx:\n"),
    ],
)
def test_other_mistakes_are_told(before, after):
    assert before in REWRITE
    with pytest.raises(InputError):
        read_models(REWRITE.replace(before, after), file="f")


def test_rewrite_without_rules_says_nothing_and_is_told():
    text = REWRITE.partition("  rules:")[0] + "  rules: []\n"
    with pytest.raises(InputError, match="at least one rule"):
        read_models(text, file="f")


def test_time_without_a_zone_is_utc_and_the_longest_name_a_name():
    text = REWRITE.replace("00:01:00Z", "00:01:00").replace("modelRewrite: c", f"modelRewrite: {'c' * 253}")
    assert read_models(text, file="f").rewrites[0].created_s == 60.0
