"""Which plugins may sleep until a request needs them."""

from types import SimpleNamespace
from typing import Any

import pytest
from hotbay.config.type_facts import TypeFacts
from hotbay.rollout.deployment import Deployment
from hotbay.rollout.resolution import ResolvedRef, Scheduling
from hotbay.rollout.sleepers import Sleepers
from hotbay.scheduling.registry import TypeIndex
from hotbay_sdk.protocol import TypeDeclaration

FACTS = {("words", "words"): TypeFacts(frozenset({"parse"})), ("rate", "rate"): TypeFacts(frozenset({"score"}))}


@pytest.fixture
def deployment() -> Deployment:
    refs = tuple(ResolvedRef(name, name, name, {}) for name in ("words", "rate", "old"))
    router: Any = SimpleNamespace(plan=None, wake=None)
    return Deployment(router, Scheduling(refs, ()), TypeIndex.build([], {}, facts=FACTS))


def sleepers(deployment: Deployment, *, first_use: bool = True) -> Sleepers:
    settings = SimpleNamespace(first_use=first_use, idle_s=1.0)
    services: Any = SimpleNamespace(settings=lambda _: settings, deployment=deployment)
    return Sleepers(services, tuple)


def test_plugin_with_a_parser_never_sleeps_and_any_other_does_until_it_is_woken(deployment: Deployment) -> None:
    made = sleepers(deployment)
    assert [made.is_asleep(name) for name in ("words", "rate", "old")] == [False, True, True]
    assert [made.wake(name) for name in ("words", "rate", "rate")] == [False, True, False]
    assert made.is_asleep("rate") is False
    assert [sleepers(deployment, first_use=False).is_asleep(name) for name in ("words", "rate")] == [False, False]


def test_parser_of_a_package_that_says_nothing_sleeps_no_more_once_it_was_there(deployment: Deployment) -> None:
    made = sleepers(deployment)
    deployment.learn_types("old", {"old": TypeDeclaration("old", ("parse",))})
    deployment.learn_types("words", {"words": TypeDeclaration("words", ("score",))})
    assert [made.is_asleep(name) for name in ("words", "old")] == [True, False]


def test_parser_of_a_configuration_that_comes_does_not_sleep(deployment: Deployment) -> None:
    deployment.incoming = Scheduling((ResolvedRef("next", "words", "words/k", {}),), ())
    assert sleepers(deployment).is_asleep("words/k") is False
