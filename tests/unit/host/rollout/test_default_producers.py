"""Producers that are made by themselves, because a ref says that it consumes what nobody makes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hotbay.config.type_facts import TypeFacts
from hotbay.errors import InputError
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.refs import CreatedRef, RefSpec
from hotbay.rollout.resolution import ResolvedRef, Scheduling
from hotbay.rpc.leases import Generation, Origin
from hotbay.scheduling.plan import Plan
from hotbay.scheduling.registry import TypeIndex
from hotbay_sdk.protocol import TypeDeclaration
from hotbay_sdk.protocol.calls import InstanceFacts

MATCHED = "PrefixCacheMatchInfo.matched_blocks"
PRODUCER = "approx-prefix-cache-producer"
ANYTHING = TypeDeclaration("s", ("score",), consumes=("*",))
TYPES = {"s": ANYTHING, PRODUCER: TypeDeclaration(PRODUCER, ("produce",), produces=(MATCHED,))}
STABLE = TypeFacts(stability="stable")
INDEX = TypeIndex.build([("p", ["s", PRODUCER])], {}, facts={("p", PRODUCER): STABLE})


class Router:
    """Keeps the plan that is published."""

    plan: Plan | None = None
    wake = None

    def publish(self, plan: Plan, **_: object) -> None:
        self.plan = plan


def deployment(**parameters: object) -> Deployment:
    router: Any = Router()
    return Deployment(router, Scheduling((ResolvedRef("s", "s", "p", parameters),), ()), INDEX)


def said(*consumes: str, **parameters: object) -> CreatedRef:
    return CreatedRef(RefSpec("s", "s", parameters), 1, None, InstanceFacts(consumes=consumes))


def names(made: Deployment) -> list[str]:
    return [spec.name for spec in made.refs_of("p")]


def generation(number: int, *refs: CreatedRef) -> Generation:
    client: Any = SimpleNamespace(fault=None, figures={})
    made = Generation(number, Origin("p", f"{number}.0.0", number, "sha256:0"), client, TYPES, 1)
    for ref in refs:
        made.handles[ref.spec.name] = ref.handle
        made.facts[ref.spec.name] = ref.facts
    return made


def test_what_an_instance_needs_is_made_once_it_has_said_so() -> None:
    made = deployment()
    assert made.learn_types("p", TYPES) is False
    assert names(made) == ["s"]
    assert made.learn_facts("p", [said(MATCHED)]) is True
    assert names(made) == ["s", PRODUCER]
    assert made.learn_facts("p", [said(MATCHED)]) is False


def test_what_an_instance_takes_from_a_producer_of_another_name_is_not_made() -> None:
    made = deployment()
    made.learn_types("p", TYPES)
    assert made.learn_facts("p", [said("PrefixCacheMatchInfo/precise.matched_blocks")]) is False
    assert names(made) == ["s"]


def test_word_of_an_instance_holds_for_its_parameters_alone() -> None:
    made = deployment(w=2)
    made.learn_types("p", TYPES)
    assert made.learn_facts("p", [said(MATCHED, w=1)]) is False
    assert names(made) == ["s"]
    assert made.learn_facts("p", [said(MATCHED, w=2)]) is True


def test_version_that_needs_more_than_the_live_one_is_no_bad_one() -> None:
    made = deployment()
    first, second = generation(1, said()), generation(2, said(MATCHED))
    made.learn_types("p", TYPES)
    made.cut_over("p", first)
    plan = made.check("p", second)
    assert [binding.ref for binding in plan.absent] == [PRODUCER]
    made.cut_over("p", second)
    assert made.learn_facts("p", [said(MATCHED)]) is True
    assert names(made) == ["s", PRODUCER]


def test_words_of_instances_that_are_gone_are_forgotten() -> None:
    made = deployment()
    for n in range(1000):
        made.learn_facts("p", [said(MATCHED, w=n)])
    assert len(made._said) < 100


@pytest.mark.parametrize(("stability", "allowed", "made"), [("alpha", False, False), ("alpha", True, True)], ids=str)
def test_es19_alpha_producer_is_made_by_itself_where_that_is_allowed(stability: str, allowed: bool, made: bool) -> None:
    index = TypeIndex.build([("p", ["s", PRODUCER])], {}, facts={("p", PRODUCER): TypeFacts(stability=stability)})
    scheduling = Scheduling((ResolvedRef("s", "s", "p", {}),), (), allow_experimental=allowed)
    router: Any = Router()
    found = Deployment(router, scheduling, index)
    found.learn_types("p", TYPES)
    assert found.learn_facts("p", [said(MATCHED)]) is made
    if not made:
        with pytest.raises(InputError) as caught:
            found.check("p", generation(1, said(MATCHED)))
        assert "needs PrefixCacheMatchInfo.matched_blocks, which nothing produces" in caught.value.message
        assert "is alpha: write `scheduling: {allow_experimental: true}`" in (caught.value.hint or "")


def test_key_that_two_packages_claim_is_an_error_for_who_needs_it_that_names_both() -> None:
    claims = TypeFacts(stability="stable", produces_default=("K",))
    index = TypeIndex.build(
        [("p", ["s"]), ("a", ["mine"]), ("b", ["yours"])], {}, facts={("a", "mine"): claims, ("b", "yours"): claims}
    )
    router: Any = Router()
    found = Deployment(router, Scheduling((ResolvedRef("s", "s", "p", {}),), ()), index)
    found.learn_types("p", TYPES)
    with pytest.raises(InputError) as caught:
        found.check("p", generation(1, said("K.c")))
    assert "'mine' of the package a and 'yours' of the package b" in (caught.value.hint or "")
    found.check("p", generation(1, said()))


def test_refs_of_a_configuration_that_comes_are_those_of_its_own_ranking() -> None:
    facts = {(package, PRODUCER): STABLE for package in ("a", "b")}
    index = TypeIndex.build([("p", ["s"]), ("a", [PRODUCER]), ("b", [PRODUCER])], {PRODUCER: "a"}, facts=facts)
    refs = (ResolvedRef("s", "s", "p", {}),)
    router: Any = Router()
    made = Deployment(router, Scheduling(refs, (), ranking={PRODUCER: "a"}), index)
    made.learn_types("p", TYPES)
    made.learn_facts("p", [said(MATCHED)])
    assert list(made.wanted) == ["p", "a"]
    made.incoming = incoming = Scheduling(refs, (), ranking={PRODUCER: "b"})
    assert made.needed_by(incoming) == ("p", "b")
    assert list(made.wanted) == ["p", "a", "b"]
    made.adopt(incoming, replace(index, ranking={PRODUCER: "b"}))
    made.incoming = None
    assert list(made.wanted) == ["p", "b"]
    plan = router.plan
    assert [binding.ref for binding in plan.absent] == []


def test_process_that_needs_a_restart_for_what_its_ref_needs_gets_one() -> None:
    types = {"s": TypeDeclaration("s", ("score",), needs_restart=True), "d": TypeDeclaration("d", ())}

    def with_decider(limit: int) -> Scheduling:
        refs = (ResolvedRef("s", "s", "p", {}, needs=("d",)), ResolvedRef("d", "d", "p", {"limit": limit}))
        return Scheduling(refs, ())

    router: Any = Router()
    made = Deployment(router, with_decider(1), INDEX)
    made.learn_types("p", types)
    before = made.restart_key("p")
    made.adopt(with_decider(1), INDEX)
    assert made.restart_key("p") == before
    made.adopt(with_decider(2), INDEX)
    assert made.restart_key("p") != before


def test_default_producer_that_comes_restarts_nothing() -> None:
    made = deployment()
    made.learn_types(
        "p", {**TYPES, PRODUCER: TypeDeclaration(PRODUCER, ("produce",), produces=(MATCHED,), needs_restart=True)}
    )
    before = made.restart_key("p")
    assert made.learn_facts("p", [said(MATCHED)]) is True
    assert made.restart_key("p") == before


def test_admitter_whose_package_never_started_refuses_by_what_its_manifest_says() -> None:
    index = TypeIndex.build([("p", ["s"])], {}, facts={("p", "s"): TypeFacts(frozenset({"admit"}), "stable")})
    router: Any = Router()
    made = Deployment(router, Scheduling((ResolvedRef("s", "s", "p/k", {}),), ()), index)
    made.publish()
    assert router.plan.fail_closed_absent == ("s",)
    made.reindex(TypeIndex.build([("p", ["s"])], {}))
    made.publish()
    assert router.plan.fail_closed_absent == ()
