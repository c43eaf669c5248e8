"""Producers that are made by themselves, because a ref says that it consumes what nobody makes."""

from types import SimpleNamespace
from typing import Any

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
INDEX = TypeIndex.build([("p", ["s", PRODUCER])], {})


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
