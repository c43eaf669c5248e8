"""Adapters in memory, and what is said of those that requests name."""

import pytest
from hotbay.sim import adapters
from hotbay.sim.adapters import AdapterInfo, AdapterMemory


def test_adapter_is_loaded_once_while_it_stays_in_memory():
    memory = AdapterMemory(2)
    assert [memory.use(name) for name in ("a", "b", "a", "b")] == [True, True, False, False]


def test_adapter_used_longest_ago_makes_room():
    memory = AdapterMemory(2)
    for name in ("a", "b", "a", "c"):
        memory.use(name)
    assert memory.held == ("a", "c")
    assert memory.use("b")


def test_adapter_that_was_removed_is_loaded_again():
    memory = AdapterMemory(2)
    memory.use("a")
    memory.forget("a")
    memory.forget("never there")
    assert memory.use("a")


def test_requests_without_adapters_say_nothing_before_the_first_with_one():
    info = AdapterInfo()
    info.look(["", ""], [""], 1.0)
    assert info.series == ()
    info.look(["b", "", "a", "b"], ["", "a"], 2.0)
    info.look([], [], 3.0)
    info.look(["b", "a"], ["a"], 4.0)
    assert info.series == (("b,a", "a", 4.0), ("", "", 3.0))


def test_old_combinations_are_shown_up_to_a_bound(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adapters, "SERIES_MAX", 3)
    info = AdapterInfo()
    for number in range(5):
        info.look([f"a{number}"], [], float(number))
    assert [running for running, _, _ in info.series] == ["a2", "a3", "a4"]
