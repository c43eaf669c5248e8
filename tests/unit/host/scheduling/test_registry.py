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
        ("b", "yours"): TypeFacts(produces_default=("YourKey",)),
    }
    index = TypeIndex.build([("a", ["mine"]), ("b", ["yours"])], {}, facts=said)
    assert index.default_producers(allow_experimental=True).types == {
        "MyKey": "mine",
        "YourKey": "yours",
        "PrefixCacheMatchInfo": "mine",
        "InFlightLoad": "inflight-load-producer",
        "TokenizedPrompt": "token-producer",
    }
    known = TypeIndex.build([("p", ["approx-prefix-cache-producer"]), ("a", ["mine"])], {}, facts=said)
    assert (
        known.default_producers(allow_experimental=True).types["PrefixCacheMatchInfo"] == "approx-prefix-cache-producer"
    )


BOTH = [("a", ["mine"]), ("b", ["yours"])]
CLAIMS = {
    ("a", "mine"): TypeFacts(stability="beta", produces_default=("MyKey",)),
    ("b", "yours"): TypeFacts(stability="beta", produces_default=("MyKey",)),
}


def test_key_that_two_packages_claim_has_no_default_unless_one_is_ranked() -> None:
    found = TypeIndex.build(BOTH, {}, facts=CLAIMS).default_producers(allow_experimental=True)
    assert "MyKey" not in found.types
    assert found.withheld["MyKey"] == (
        "'mine' of the package a and 'yours' of the package b are both to be made for it by themselves: list one of them "
        "under plugins, or rank one: types: {mine: a}"
    )
    for name, package in (("mine", "a"), ("yours", "b")):
        ranked = TypeIndex.build(BOTH, {name: package}, facts=CLAIMS).default_producers(allow_experimental=True)
        assert (ranked.types["MyKey"], ranked.withheld) == (name, {})
    all_ranked = TypeIndex.build(BOTH, {"mine": "a", "yours": "b"}, facts=CLAIMS)
    assert "MyKey" in all_ranked.default_producers(allow_experimental=True).withheld


def test_type_of_two_packages_is_the_default_of_the_one_that_is_ranked() -> None:
    said = {(package, "mine"): CLAIMS["a", "mine"] for package in ("a", "b")}
    offers = [("a", ["mine"]), ("b", ["mine"])]
    assert "MyKey" in TypeIndex.build(offers, {}, facts=said).default_producers(allow_experimental=True).withheld
    ranked = TypeIndex.build(offers, {"mine": "b"}, facts=said)
    assert ranked.default_producers(allow_experimental=True).types["MyKey"] == "mine"


def test_package_that_comes_later_takes_no_key_from_who_makes_it() -> None:
    said = {pair: CLAIMS[pair] for pair in [("b", "yours")]}
    before = TypeIndex.build(BOTH[1:], {}, facts=said)
    after = TypeIndex.build(BOTH, {}, facts=CLAIMS).keeping(before)
    assert after.default_producers(allow_experimental=True).types["MyKey"] == "yours"
    gone = TypeIndex.build(BOTH[:1], {}, facts={pair: CLAIMS[pair] for pair in [("a", "mine")]}).keeping(after)
    assert gone.default_producers(allow_experimental=True).types["MyKey"] == "mine"


@pytest.mark.parametrize(
    ("stability", "made"), [("alpha", False), (None, False), ("beta", True), ("stable", True)], ids=str
)
def test_es19_default_producer_that_is_alpha_is_made_where_that_is_allowed(stability: str | None, made: bool) -> None:
    said = {("a", "mine"): TypeFacts(stability=stability, produces_default=("MyKey",))}
    index = TypeIndex.build(BOTH[:1], {}, facts=said)
    assert index.default_producers(allow_experimental=True).types["MyKey"] == "mine"
    found = index.default_producers(allow_experimental=False)
    assert ("MyKey" in found.types) is made
    if not made:
        assert found.withheld["MyKey"].startswith(
            "'mine', which is made for it by itself, is alpha: write `scheduling:"
        )
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
