"""Dependencies that plugins register, resolved beside what is configured."""

import dataclasses

import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.sources.lifecycle import EndpointNotificationSource
from hotbay.datalayer.sources.registrar import (
    Binding,
    MissingPolicy,
    PendingRegistration,
    PendingRegistrations,
    RegistrationError,
    check_bindings,
    variants,
)
from hotbay.errors import InputError

POD, NODE = ObjectKind("", "v1", "Pod"), ObjectKind("", "v1", "Node")


def resolve(configured, *pending):
    registrar = PendingRegistrations()
    for one in pending:
        registrar.register(one)
    return registrar.resolve(configured)


def names(resolution):
    return [(b.source.name, [e.name for e in b.extractors]) for b in resolution.bindings]


def test_an_extractor_goes_to_the_first_source_of_the_type(kit):
    configured = [Binding(kit.polled("one"), (kit.reads("x"),)), Binding(kit.polled("two"))]
    resolution = resolve(configured, PendingRegistration("p", "test-source", kit.reads("y")))
    assert names(resolution) == [("one", ["x", "y"]), ("two", [])]
    assert [b.extractors for b in configured][1] == ()


def test_a_default_source_is_created_when_there_is_none_and_only_once(kit):
    pending = [
        PendingRegistration("p", "test-source", kit.reads("x"), default_source=kit.polled("made")),
        PendingRegistration("q", "test-source", kit.reads("y"), default_source=kit.polled("made too")),
    ]
    assert names(resolve([], *pending)) == [("made", ["x", "y"])]
    assert names(resolve([Binding(kit.polled("own"))], *pending)) == [("own", ["x", "y"])]


def test_a_default_notification_source_has_to_be_of_the_same_kind(kit):
    pending = PendingRegistration("p", "test-notification", kit.hears("x", POD), default_source=kit.told("made", POD))
    assert names(resolve([Binding(kit.told("nodes", NODE))], pending)) == [("nodes", []), ("made", ["x"])]
    assert names(resolve([Binding(kit.told("nodes", NODE)), Binding(kit.told("pods", POD))], pending)) == [
        ("nodes", []),
        ("pods", ["x"]),
    ]


def test_a_missing_source_is_an_error_or_a_warning_as_the_plugin_wants(kit):
    fails = PendingRegistration("p", "test-source", kit.reads("x"))
    assert fails.if_missing is MissingPolicy.FAIL
    with pytest.raises(InputError, match="'p' needs a source of type 'test-source'"):
        resolve([], fails)
    resolution = resolve([], dataclasses.replace(fails, if_missing=MissingPolicy.WARN))
    assert (resolution.bindings, len(resolution.warnings)) == ((), 1)
    assert "dataLayer.sources" in resolution.warnings[0].hint


def test_the_policy_does_not_matter_beside_a_default_source(kit):
    pending = PendingRegistration("p", "test-source", kit.reads("x"), kit.polled("made"), MissingPolicy.FAIL)
    assert names(resolve([], pending)) == [("made", ["x"])]


def test_the_operators_extractor_of_a_type_wins(kit):
    asked = kit.reads("asked")
    asked.type = "type-x"
    pending = PendingRegistration("p", "test-source", asked)
    resolution = resolve([Binding(kit.polled("one"), (kit.reads("x"),))], pending)
    assert (names(resolution), resolution.dropped) == ([("one", ["x"])], (pending,))


def test_the_first_that_asks_wins_over_later_ones_of_its_type(kit):
    first, second, other = kit.reads("first"), kit.reads("second"), kit.reads("other")
    first.type = second.type = "t"
    pending = [PendingRegistration("p", "test-source", one) for one in (first, second, other)]
    resolution = resolve([Binding(kit.polled("one"))], *pending)
    assert (names(resolution), resolution.dropped) == ([("one", ["first", "other"])], (pending[1],))


def test_a_registration_without_an_extractor_is_refused(kit):
    registrar = PendingRegistrations()
    for extractor in (None, object(), kit.polled("s")):
        with pytest.raises(RegistrationError, match="p: expected an extractor for test-source, found none"):
            registrar.register(PendingRegistration("p", "test-source", extractor))
    assert registrar.resolve([]).bindings == ()


@pytest.mark.parametrize(("owner", "source_type"), [("", "test-source"), ("p", "")])
def test_a_registration_says_who_and_what(kit, owner, source_type):
    with pytest.raises(RegistrationError, match="expected an owner and a type"):
        PendingRegistrations().register(PendingRegistration(owner, source_type, kit.reads("x")))


def test_a_default_source_is_of_the_type_that_is_asked_for(kit):
    with pytest.raises(RegistrationError, match="expected a default source of other, found test-source"):
        PendingRegistrations().register(PendingRegistration("p", "other", kit.reads("x"), kit.polled("made")))


@pytest.mark.parametrize("extractor", ["events", "another payload"])
def test_an_extractor_that_does_not_fit_its_source_is_refused(kit, extractor):
    wrong = kit.hears("x") if extractor == "events" else kit.reads("x", bytes)
    with pytest.raises(InputError, match="'x' cannot read what 'one' brings"):
        resolve([Binding(kit.polled("one"))], PendingRegistration("p", "test-source", wrong))


def test_an_extractor_of_a_more_general_payload_fits(kit):
    assert check_bindings([Binding(kit.polled("one"), (kit.reads("x", object),))]) == ()


def test_extractors_of_events_fit_their_kind_only(kit):
    endpoints, pods = EndpointNotificationSource("life"), kit.told("pods", POD)
    assert check_bindings([Binding(endpoints, (kit.hears("x"),)), Binding(pods, (kit.hears("y", POD),))]) == ()
    for source, extractor in ((endpoints, kit.hears("y", POD)), (pods, kit.hears("x")), (pods, kit.hears("z", NODE))):
        (problem,) = check_bindings([Binding(source, (extractor,))])
        assert "cannot read what" in problem.message


def test_e21_a_source_is_of_one_variant(kit):
    class Both(type(kit.polled())):
        async def notify_endpoint(self, event):
            return event

    class Neither:
        name, type = "none", "none"

    polled = kit.polled("s")
    polled.__class__ = Both
    assert variants(polled) == {"polling", "endpoint"}
    found = [p.found for p in check_bindings([Binding(polled), Binding(Neither())])]
    assert found == ["endpoint and polling", "nothing"]


def test_e21_names_kinds_and_extractor_types_are_used_once(kit):
    first, second = kit.reads("x"), kit.reads("y")
    second.type = first.type
    bindings = [
        Binding(kit.polled("one"), (first, second)),
        Binding(kit.polled("one")),
        Binding(kit.told("a", POD)),
        Binding(kit.told("b", POD)),
    ]
    messages = [p.message for p in check_bindings(bindings)]
    assert len(messages) == 3
    assert all(
        part in " ".join(messages) for part in ("second extractor of type", "called 'one'", "second source of /v1/Pod")
    )


def test_e21_a_type_is_of_one_variant_everywhere(kit):
    other = kit.watched("e")
    other.type = "test-source"
    (problem,) = check_bindings([Binding(kit.polled("one")), Binding(other)])
    assert (problem.expected, problem.found) == ("polling", "endpoint")
