"""Networks that an operator allows: what is let in, what is kept out and told, and what another list changes."""

from collections.abc import Callable

import pytest
from hotbay.datalayer.discovery.allowed import RESERVED, Gate
from hotbay.datalayer.discovery.places import listens_on, plain_address
from hotbay.datalayer.discovery.told import MAX_TOLD
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hypothesis import given
from hypothesis import strategies as st

FEED, FILE = "feed", "file"
NAMES = {FEED: "discovery 'scan'", FILE: "endpoints.yaml"}


def endpoint(name: str = "a", address: str = "10.0.0.1", **fields: str) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, address, 8000, **fields)


def gate(*networks: str, refused: Callable[[str], None] = lambda _reason: None) -> Gate:
    made = Gate(networks or None, refused)
    made.arrange(NAMES)
    return made


def is_in(made: Gate, one: EndpointMetadata) -> bool:
    (event,) = made.take(FEED, [Upsert(one)])
    assert event in (Upsert(one), Delete(one))
    return isinstance(event, Upsert)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("10.0.0.0", True),
        ("10.255.255.255", True),
        ("9.255.255.255", False),
        ("11.0.0.0", False),
        ("::ffff:10.0.0.1", True),
        ("::ffff:11.0.0.1", False),
        ("fd00::1", True),
        ("fe00::1", False),
        ("::", False),
        ("fdff::1", True),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
    ],
)
def test_an_address_in_one_of_the_networks_is_let_in_and_no_other(address: str, allowed: bool) -> None:
    assert is_in(gate("10.0.0.0/8", "fd00::/8", "192.0.2.7/32"), endpoint(address=address)) is allowed
    assert is_in(gate(), endpoint(address=address)) is (address != "::"), "without a list all are that lead anywhere"


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"metrics_host": "192.0.2.1:80"}, "metricsHost"),
        ({"metrics_host": "[fd00::1]:80"}, "metricsHost"),
        ({"metrics_host": "metrics.example:80"}, "metricsHost"),
        ({"node_address": "192.0.2.1"}, "nodeAddress"),
        ({"node_address": "node.example"}, "nodeAddress"),
    ],
)
def test_every_place_that_is_asked_for_an_endpoint_counts(fields: dict[str, str], path: str) -> None:
    made = gate("10.0.0.0/8")
    assert not is_in(made, endpoint(**fields))
    assert [problem.path for problem in made.problems] == [path]
    assert is_in(made, endpoint(metrics_host="10.0.0.2:80", node_address="10.0.0.3"))
    assert made.problems == ()
    assert is_in(gate(), endpoint(**fields))


@pytest.mark.parametrize("name", ["gpu.example", "localhost", "0x7f000001", "2130706433", "127.1", "0177.0.0.1"])
def test_a_name_is_refused_under_a_list_however_it_spells_an_address(name: str) -> None:
    assert not is_in(gate("0.0.0.0/0", "::/0"), endpoint(address=name))


def test_what_is_refused_is_told_with_endpoint_networks_and_what_to_do_and_counted() -> None:
    counted: list[str] = []
    made = gate("10.0.0.0/8", "fd00::/8", refused=counted.append)
    made.take(FEED, [Upsert(endpoint("a", "192.0.2.1")), Upsert(endpoint("b", "gpu.example")), Upsert(endpoint("c"))])
    first, second = made.problems
    assert str(first) == (
        "ADDRESS_REFUSED: address: the endpoint 'default/a' of discovery 'scan' is not used (expected an address in "
        "10.0.0.0/8, fd00::/8, found 192.0.2.1). add its network to `discovery.allowed_networks` of the HostConfig if it is "
        "meant, or have the discovery not name it"
    )
    assert "dns-discovery" in second.hint
    assert (counted, made.refused_count) == (["network", "name"], 2)
    made.take(FEED, [Delete(endpoint("a", "192.0.2.1"))])
    assert (counted, made.refused_count) == (["network", "name"], 1)


@pytest.mark.parametrize("networks", [None, ("10.0.0.0/8", "127.0.0.0/8")])
def test_no_discovery_names_where_the_host_itself_listens(networks: tuple[str, ...] | None) -> None:
    counted: list[str] = []
    made = Gate(networks, counted.append, own=listens_on("127.0.0.1", 8000))
    made.arrange(NAMES)
    assert is_in(made, endpoint())
    assert not is_in(made, endpoint(address="127.0.0.1"))
    assert str(made.problems[0]) == (
        "ADDRESS_REFUSED: address: the endpoint 'default/a' of discovery 'scan' is not used (expected an address that is not "
        "this host's own, found 127.0.0.1:8000). a request that is sent there comes back: name the address at which the model "
        "server listens"
    )
    assert not is_in(made, endpoint(metrics_host="127.0.0.1:8000"))
    assert is_in(made, endpoint(metrics_host="127.0.0.1:8001", node_address="127.0.0.1"))
    assert set(counted) == {RESERVED}


@pytest.mark.parametrize(
    "address", ["0.0.0.0", "::", "::ffff:0.0.0.0", "224.0.0.1", "239.255.255.255", "ff02::1", "255.255.255.255"]
)
@pytest.mark.parametrize("networks", [(), ("0.0.0.0/0", "::/0")])
def test_no_discovery_names_what_is_no_machines_address(address: str, networks: tuple[str, ...]) -> None:
    counted: list[str] = []
    made = gate(*networks, refused=counted.append)
    assert not is_in(made, endpoint(address=address))
    assert made.problems[0].expected == "no unspecified, multicast or broadcast address"
    assert counted == [RESERVED]
    assert is_in(made, endpoint(address="169.254.1.1")), "what an operator writes may be anywhere that is"


@pytest.mark.parametrize("count", [5, 6])
def test_of_many_networks_the_first_are_shown(count: int) -> None:
    made = gate(*(f"10.{number}.0.0/16" for number in range(count)))
    made.take(FEED, [Upsert(endpoint(address="192.0.2.1"))])
    assert ("and 1 more networks" in made.problems[0].expected) is (count == 6)
    assert "10.4.0.0/16" in made.problems[0].expected


@pytest.mark.parametrize("count", [MAX_TOLD, MAX_TOLD + 1])
def test_of_many_that_are_refused_the_first_are_told(count: int) -> None:
    made = gate("10.0.0.0/8")
    made.take(FEED, [Upsert(endpoint(f"e{number}", "192.0.2.1")) for number in range(count)])
    assert [problem.message for problem in made.problems[MAX_TOLD:]] == ["and 1 more"] * (count - MAX_TOLD)


def test_an_endpoint_that_moves_to_where_it_may_not_be_is_gone() -> None:
    made, moved = gate("10.0.0.0/8"), endpoint(address="192.0.2.1")
    assert made.take(FEED, [Upsert(endpoint())]) == (Upsert(endpoint()),)
    assert made.take(FEED, [Upsert(moved)]) == (Delete(moved),)
    assert made.take(FEED, [Upsert(endpoint())]) == (Upsert(endpoint()),)
    assert made.problems == ()


def test_another_list_counts_for_all_that_was_named() -> None:
    counted: list[str] = []
    made = gate(refused=counted.append)
    a, b = endpoint("a"), endpoint("b", "192.0.2.1")
    made.take(FEED, [Upsert(a), Upsert(b)])
    made.take(FILE, [Upsert(b)])
    assert made.allow(("10.0.0.0/8",)) == {FEED: (Upsert(a), Delete(b)), FILE: (Delete(b),)}
    assert counted == ["network", "network"]
    assert made.allow(("10.0.0.0/8",)) == {}
    assert made.allow(("10.0.0.0/9",)) == {FEED: (Upsert(a), Delete(b)), FILE: (Delete(b),)}
    assert counted == ["network", "network"], "refused before, and told already"
    assert made.allow(None) == {FEED: (Upsert(a), Upsert(b)), FILE: (Upsert(b),)}
    assert made.problems == ()


def test_what_a_feed_named_goes_with_it() -> None:
    made = gate("10.0.0.0/8")
    made.take(FEED, [Upsert(endpoint(address="192.0.2.1"))])
    made.arrange({FILE: "endpoints.yaml"})
    assert (made.problems, dict(made.allow(None))) == ((), {})


def test_addresses_are_read_as_they_are_connected_to() -> None:
    assert [str(plain_address(text)) for text in ("::ffff:10.0.0.1", "fd00::1", "10.0.0.1", "a")] == [
        "10.0.0.1",
        "fd00::1",
        "10.0.0.1",
        "None",
    ]


LISTS = st.sampled_from([None, ("10.0.0.0/8",), ("192.0.2.0/24", "fd00::/8"), ("0.0.0.0/0", "::/0")])
ENDPOINTS = st.builds(endpoint, st.sampled_from("abc"), st.sampled_from(["10.0.0.1", "192.0.2.1", "fd00::1", "name"]))
STEPS = st.lists(ENDPOINTS.map(Upsert) | ENDPOINTS.map(Delete) | LISTS, max_size=20)


@given(STEPS)
def test_whatever_is_said_in_whatever_order_what_is_in_depends_on_the_last_words(steps: list[object]) -> None:
    made, named, networks = gate(), dict[str, EndpointMetadata](), None
    held: dict[str, EndpointMetadata] = {}

    def hear(events: tuple[EndpointEvent, ...]) -> None:
        for event in events:
            if isinstance(event, Upsert):
                held[event.endpoint.id] = event.endpoint
            else:
                held.pop(event.endpoint.id, None)

    for step in steps:
        if isinstance(step, Upsert | Delete):
            hear(made.take(FEED, [step]))
            named.pop(step.endpoint.id, None)
            if isinstance(step, Upsert):
                named[step.endpoint.id] = step.endpoint
        else:
            networks = step
            for events in made.allow(networks).values():
                hear(events)
    fresh = Gate(networks)
    expected = {one.id: one for one in named.values() if is_in(fresh, one)}
    assert held == expected
    assert made.refused_count == len(named) - len(expected)
