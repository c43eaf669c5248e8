"""Counters of plugins: each its own, bounded, and read as Prometheus reads them."""

import sys

import pytest
from hotbay.observe.metrics import Metrics
from hotbay.observe.plugin_counters import MAX_NAMES, MAX_SERIES, OTHER, PluginCounters
from hypothesis import given
from hypothesis import strategies as st


def totals(counters: PluginCounters) -> dict[tuple[str, str, tuple[tuple[str, str], ...]], float]:
    return {(s.plugin, s.name, s.labels): s.value for s in counters.items()}


def test_counters_grow_by_plugin_name_and_labels_whatever_their_order() -> None:
    counters = PluginCounters()
    counters.add("p", "hits", 1, {"a": "1", "b": "2"})
    counters.add("p", "hits", 0.5, {"b": "2", "a": "1"})
    counters.add("q", "hits", 2, {})
    assert totals(counters) == {("p", "hits", (("a", "1"), ("b", "2"))): 1.5, ("q", "hits", ()): 2}


@pytest.mark.parametrize("kind", ["names", "series"])
def test_what_goes_beyond_counts_as_other_and_costs_no_other_plugin_anything(kind: str) -> None:
    counters = PluginCounters()
    most = MAX_NAMES if kind == "names" else MAX_SERIES
    for number in range(most + 3):
        if kind == "names":
            counters.add("p", f"n{number}", 1, {})
        else:
            counters.add("p", "n", 1, {"k": str(number)})
    found = totals(counters)
    assert len(found) == most + 1
    assert found["p", OTHER, ()] == 3
    counters.add("p", "n0" if kind == "names" else "n", 1, {} if kind == "names" else {"k": "0"})
    assert totals(counters)["p", OTHER, ()] == 3
    counters.add("q", "n", 1, {"k": "v"})
    assert totals(counters)["q", "n", (("k", "v"),)] == 1


def test_sums_stay_finite() -> None:
    counters = PluginCounters()
    for _ in range(3):
        counters.add("p", "n", sys.float_info.max, {})
    assert totals(counters)["p", "n", ()] == sys.float_info.max


@given(st.lists(st.tuples(st.sampled_from("pq"), st.text(max_size=3), st.floats(0, 1e6), st.text(max_size=3))))
def test_nothing_is_lost(added: list[tuple[str, str, float, str]]) -> None:
    counters = PluginCounters()
    for plugin, name, amount, label in added:
        counters.add(plugin, name, amount, {"k": label})
    for plugin in "pq":
        wanted = sum(amount for owner, _, amount, _ in added if owner == plugin)
        assert sum(s.value for s in counters.items() if s.plugin == plugin) == pytest.approx(wanted)


def test_page_shows_them_beside_the_hosts_own() -> None:
    metrics = Metrics()
    metrics.plugin_counters.add("p", "hits", 2.5, {"kind": 'a"b'})
    metrics.plugin_counters.add("p", "hits", 1, {})
    lines = metrics.render().decode().splitlines()
    assert 'hotbay_plugin_counted_total{kind="a\\"b",name="hits",plugin="p"} 2.5' in lines
    assert 'hotbay_plugin_counted_total{name="hits",plugin="p"} 1.0' in lines
