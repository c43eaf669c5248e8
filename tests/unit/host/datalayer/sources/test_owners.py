"""An attribute has one maker, and whoever else would make it is told of with both names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotbay.datalayer.sources.owners import made_by, share_out


@dataclass
class Extractor:
    """One of a package."""

    name: str
    attributes: frozenset[str]
    taken: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Own:
    """One of the host's."""

    name: str
    columns: Mapping[str, str]


def test_attribute_belongs_to_who_is_named_first_and_both_are_told_of() -> None:
    first, second = Extractor("one", frozenset("ab")), Extractor("two", frozenset("bcd"))
    (problem,) = share_out([first, second])  # type: ignore[list-item]  # what matters of extractors
    assert (first.taken, second.taken) == ({}, {"b": "one"})
    assert problem.message == "what 'two' says of the attribute b is left out: 'one' makes it"


def test_attribute_of_the_hosts_own_is_the_hosts_wherever_it_stands() -> None:
    mine, own = Extractor("mine", frozenset("ab")), Own("gpu", {"a": "f32"})
    (problem,) = share_out([mine, own])  # type: ignore[list-item]  # as above
    assert (mine.taken, "'gpu' makes it" in problem.message) == ({"a": "gpu"}, True)


def test_one_ref_behind_two_sources_is_one_maker() -> None:
    both = [Extractor("mine", frozenset("a")), Extractor("mine", frozenset("a"))]
    assert share_out(both) == ()  # type: ignore[arg-type]  # as above
    assert [one.taken for one in both] == [{}, {}]


def test_what_is_free_again_is_the_next_ones() -> None:
    first, second = Extractor("one", frozenset("a")), Extractor("two", frozenset("a"))
    share_out([first, second])  # type: ignore[list-item]  # as above
    first.attributes = frozenset()
    assert share_out([first, second]) == ()  # type: ignore[list-item]  # as above
    assert second.taken == {}


def test_attributes_that_are_made_are_those_that_are_said_now() -> None:
    changes, own = Extractor("one", frozenset("ab")), Own("two", {"b": "f32"})
    before = made_by([changes, own])  # type: ignore[list-item]  # as above
    changes.attributes = frozenset("ac")
    assert (before, made_by([changes, own])) == (frozenset("ab"), frozenset("abc"))  # type: ignore[list-item]  # as above
    assert before - made_by([own]) == frozenset("a")  # type: ignore[list-item]  # as above
