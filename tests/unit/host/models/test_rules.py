"""Which model a request is for."""

import math
from collections import Counter
from random import Random

import pytest
from hotbay.models.rules import NO_RULES, Objective, Rewrite, Rule, Target, make_rules
from hypothesis import given
from hypothesis import strategies as st


def rewrite(name, created_s, *rules):
    return Rewrite(name, created_s, tuple(Rule(tuple(models), tuple(targets)) for models, targets in rules))


def drawn(targets, draws=10_000):
    rules = make_rules((), [rewrite("r", 0.0, ([], targets))])
    return Counter(rules.target("m", random) for random in [Random(5).random] for _ in range(draws))


def target(rules, model):
    return rules.target(model, lambda: 0.0)


def test_without_rules_no_model_is_another():
    assert target(NO_RULES, "m") is None
    assert not NO_RULES.has_rewrites


def test_rule_that_names_the_model_beats_an_older_one_that_takes_any():
    rules = make_rules(
        (), [rewrite("any", 1.0, ([], [Target("generic")])), rewrite("one", 2.0, (["m"], [Target("exact")]))]
    )
    assert (target(rules, "m"), target(rules, "other")) == ("exact", "generic")


@pytest.mark.parametrize("models", [["m"], []])
def test_older_resource_wins_and_one_without_a_time_is_the_youngest(models):
    young, old, undated = (rewrite(n, at, (models, [Target(n)])) for n, at in [("y", 9.0), ("o", 1.0), ("u", math.inf)])
    assert target(make_rules((), [undated, young, old]), "m") == "o"
    assert target(make_rules((), [undated, young]), "m") == "y"


def test_of_one_age_the_first_counts_and_of_one_resource_the_first_rule():
    first = rewrite("a", 1.0, (["m"], [Target("a1")]), (["m", "n"], [Target("a2")]))
    second = rewrite("b", 1.0, (["m", "n"], [Target("b1")]))
    rules = make_rules((), [first, second])
    assert (target(rules, "m"), target(rules, "n")) == ("a1", "a2")


def test_targets_are_drawn_by_weight():
    found = drawn([Target("a", 10), Target("b", 90)])
    assert found["a"] / 10_000 == pytest.approx(0.1, abs=0.05)
    assert found["b"] / 10_000 == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("weight", [None, 0])
def test_without_any_weight_each_is_drawn_alike(weight):
    found = drawn([Target("a", weight), Target("b", weight)])
    assert found["a"] / 10_000 == pytest.approx(0.5, abs=0.05)


def test_target_without_a_weight_is_never_drawn_among_those_with_one():
    assert set(drawn([Target("a"), Target("b", 1), Target("c", 0), Target("d", 1)])) == {"b", "d"}


def test_objectives_are_known_by_name():
    assert make_rules([Objective("gold", 10)], ()).objectives["gold"].priority == 10


@given(st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=5), st.floats(0, 1, exclude_max=True))
def test_whatever_the_draw_a_target_that_may_be_drawn_is(weights, number):
    targets = [Target(str(index), weight) for index, weight in enumerate(weights)]
    found = make_rules((), [rewrite("r", 0.0, ([], targets))]).target("m", lambda: number)
    assert found in {one.model for one in targets if one.weight or not any(weights)}
