"""The index of types: who provides one, what is known of it, who could provide one that nobody does."""

import pytest
from hotbay.config.type_facts import KNOWN_POINTS, UNKNOWN, TypeFacts
from hotbay.errors import Place, Problem
from hotbay.scheduling.known_types import BUILTIN_FACTS, FIRST_PARTY_TYPES, WOULD_PROVIDE
from hotbay.scheduling.registry import (
    BUILTIN_HANDLERS,
    BUILTIN_PARSERS,
    BUILTIN_PICKERS,
    BUILTIN_PRODUCERS,
    DEFAULT_PRODUCERS,
    SCHEDULING_TYPES,
    TypeIndex,
)

PLACE = Place("picker.yaml", 3, 1)
SCORER = TypeFacts(frozenset({"score"}), "beta")


def test_host_has_the_types_that_it_is_said_to_have() -> None:
    assert {"max-score-picker", "random-picker", "weighted-random-picker"} == BUILTIN_PICKERS
    assert {"single-profile-handler", "header-profile-handler", "data-parallel-profile-handler"} == BUILTIN_HANDLERS
    assert {"openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser"} == BUILTIN_PARSERS
    assert {"inflight-load-producer", "token-producer", "tokenizer"} == BUILTIN_PRODUCERS
    assert "metrics-data-source" not in SCHEDULING_TYPES


def test_every_type_is_of_one_kind_and_every_point_has_a_word() -> None:
    kinds = (set(BUILTIN_FACTS), set(FIRST_PARTY_TYPES), set(WOULD_PROVIDE))
    assert sum(map(len, kinds)) == len(set().union(*kinds))
    assert all(facts.points and facts.points <= KNOWN_POINTS for facts in BUILTIN_FACTS.values())


def test_facts_are_those_of_who_provides_the_type() -> None:
    said = {("a", "t"): SCORER, ("b", "t"): TypeFacts(frozenset({"filter"}))}
    offers = [("a", ["t", "u"]), ("b", ["t"])]
    assert TypeIndex.build(offers, {}, facts=said).facts("t") is None
    assert TypeIndex.build(offers, {"t": "b"}, facts=said).facts("t") == TypeFacts(frozenset({"filter"}))
    index = TypeIndex.build(offers[:1], {}, facts=said)
    assert (index.facts("t"), index.facts("u"), index.facts("v")) == (SCORER, UNKNOWN, None)
    builtin = index.facts("max-score-picker")
    assert builtin is not None
    assert builtin.builtin


def test_default_producers_are_those_of_manifests_and_the_hosts_own() -> None:
    said = {
        ("a", "mine"): TypeFacts(produces_default=("MyKey", "PrefixCacheMatchInfo")),
        ("b", "yours"): TypeFacts(produces_default=("MyKey",)),
    }
    index = TypeIndex.build([("a", ["mine"]), ("b", ["yours"])], {}, facts=said)
    assert index.default_producers == {
        "MyKey": "mine",
        "PrefixCacheMatchInfo": "mine",
        "InFlightLoad": "inflight-load-producer",
        "TokenizedPrompt": "token-producer",
    }
    known = TypeIndex.build([("p", ["approx-prefix-cache-producer"]), ("a", ["mine"])], {}, facts=said)
    assert known.default_producers["PrefixCacheMatchInfo"] == "approx-prefix-cache-producer"
    assert set(DEFAULT_PRODUCERS) == {"PrefixCacheMatchInfo"}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (
            "lora-affinity-scorer",
            "is in the package lora, which comes with the host: see that sources has {name: bundled}",
        ),
        ("lora-afinity-scorer", "did you mean 'lora-affinity-scorer'? 'lora-affinity-scorer' is in the package lora"),
        ("vertexai-parser", "one with the point parse would provide it"),
        ("max-scor-picker", "did you mean 'max-score-picker'?"),
        ("zzzz", "add a source that has a package which provides it"),
    ],
)
def test_e6_unknown_type_names_who_could_provide_it_c23(name: str, hint: str) -> None:
    found = TypeIndex.build([("a", ["t"])], {}).resolve(name, PLACE)
    assert isinstance(found, Problem)
    assert (found.code, found.place) == ("UNKNOWN_TYPE", PLACE)
    assert hint in found.hint
    assert "one of" in found.expected


def test_type_that_a_source_provides_is_no_longer_one_that_is_lacking() -> None:
    assert TypeIndex.build([("a", ["vertexai-parser"])], {}).resolve("vertexai-parser", PLACE) == "a"


def test_package_that_provides_a_type_of_the_host_has_to_be_ranked() -> None:
    offers = [("a", ["max-score-picker"]), ("a", ["max-score-picker"])]
    found = TypeIndex.build(offers, {}).resolve("max-score-picker", PLACE)
    assert isinstance(found, Problem)
    assert "is provided by a and the host itself" in found.message
    assert TypeIndex.build(offers, {"max-score-picker": "a"}).resolve("max-score-picker", PLACE) == "a"
    assert isinstance(TypeIndex.build(offers, {"t": "b"}).resolve("t", PLACE), Problem)
