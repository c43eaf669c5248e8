"""Which plugins are made before which, by the parameters that name them."""

import itertools
from graphlib import CycleError

import pytest
from hotbay.config.ref_graph import construction_problems, named_refs, ordered
from hypothesis import given
from hypothesis import strategies as st

NESTED = ("nested.pluginRef", "pointer.*.pluginRef", "list.pluginRef", "names")


@pytest.fixture
def problems(picker, facts):
    return lambda text: list(construction_problems(picker(text), facts))


def test_ec10_dependency_that_is_declared_later_is_made_first(problems):
    text = "plugins: [{name: d, type: dependent, parameters: {dependency: test1}}, {name: test1, type: a-plugin}]"
    assert problems(text) == []
    assert ordered(("d", "test1"), {"d": ("test1",)}) == ("test1", "d")


def test_ec11_dependencies_are_found_in_mappings_wildcards_and_lists(problems):
    parameters = "{nested: {pluginRef: test1}, pointer: {x: {pluginRef: test2}}, list: [{pluginRef: test3}, {pluginRef: test4}], names: [test1]}"
    plugins = "".join(f", {{name: test{n}, type: a-plugin}}" for n in (1, 2, 3, 4))
    assert problems(f"plugins: [{{type: nested, parameters: {parameters}}}{plugins}]") == []
    value = {
        "nested": {"pluginRef": "test1"},
        "pointer": {"x": {"pluginRef": "test2"}},
        "list": [{"pluginRef": "test3"}, {"pluginRef": "test4"}],
        "names": ["test1"],
    }
    assert [name for _, name in named_refs(value, NESTED)] == ["test1", "test2", "test3", "test4", "test1"]
    assert named_refs(value, NESTED)[3][0] == ("list", 1, "pluginRef")


def test_e8_unregistered_dependency_is_named_with_its_place(problems):
    text = "plugins:\n- type: nested\n  parameters:\n    list:\n    - pluginRef: a-plugn\n- type: a-plugin\n"
    (found,) = problems(text)
    assert "dependency on the unregistered plugin 'a-plugn'" in found.message
    assert (found.code, found.path) == ("UNDEFINED_REF", "plugins[0].parameters.list[0].pluginRef")
    assert (found.place.line, found.place.column, found.hint) == (7, 18, "did you mean 'a-plugin'?")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_e8_circle_is_named_in_the_direction_of_need(problems, size):
    entries = [f"{{name: p{n}, type: dependent, parameters: {{dependency: p{(n + 1) % size}}}}}" for n in range(size)]
    (found,) = problems(f"plugins: [{', '.join(entries)}]")
    assert found.message.startswith("cycle detected: ")
    circle = found.message.removeprefix("cycle detected: ").replace("'", "").split(" needs ")
    assert circle[0] == circle[-1]
    assert all(int(b[1]) == (int(a[1]) + 1) % size for a, b in itertools.pairwise(circle))
    assert found.place.line == 3


def test_parameter_that_is_absent_or_no_name_needs_nothing():
    for value in (
        {},
        {"dependency": ""},
        {"dependency": 3},
        {"dependency": None},
        {"dependency": {"x": "y"}},
        None,
        "x",
    ):
        assert named_refs(value, ("dependency", "dependency.deeper.x", "*.*")) in ((), ((("dependency", "x"), "y"),))


def test_order_is_that_of_the_file_where_nothing_is_needed():
    assert ordered(("b", "a", "c"), {}) == ("b", "a", "c")
    assert ordered(("b", "a", "c"), {"b": ("nobody",)}) == ("b", "a", "c")
    with pytest.raises(CycleError):
        ordered(("a", "b"), {"a": ("b",), "b": ("a",)})


def test_chain_of_thousands_is_ordered():
    names = [f"p{n}" for n in range(5000)]
    needs = {name: (other,) for name, other in itertools.pairwise(names)}
    assert ordered(names, needs) == tuple(reversed(names))


@given(st.dictionaries(st.integers(0, 9), st.sets(st.integers(0, 9)), max_size=10))
def test_each_stands_behind_what_it_needs(graph):
    names = [str(n) for n in range(10)]
    needs = {str(n): tuple(str(m) for m in sorted(others) if m < n) for n, others in graph.items()}
    found = ordered(names, needs)
    assert sorted(found) == sorted(names)
    assert all(found.index(other) < found.index(name) for name, others in needs.items() for other in others)
