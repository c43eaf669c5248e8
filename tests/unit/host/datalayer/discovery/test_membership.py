"""Several feeds as one set: who is in, who waits, and in which order the store hears of it."""

from collections.abc import Callable

import pytest
from hotbay.datalayer.discovery.membership import Membership, canonical_address
from hotbay.datalayer.discovery.told import MAX_TOLD
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hypothesis import given
from hypothesis import strategies as st

CONFIG, FILE = "config", "file"
NAMES = {CONFIG: "the host configuration", FILE: "endpoints.yaml"}


def endpoint(name: str, address: str = "10.0.0.1", port: int = 8000) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, address, port)


def test_feeds_without_anything_in_common_are_all_in() -> None:
    members = Membership(NAMES)
    a, b = endpoint("a"), endpoint("b", "10.0.0.2")
    assert members.apply(FILE, [Upsert(a)]) == (Upsert(a),)
    assert members.apply(CONFIG, [Upsert(b)]) == (Upsert(b),)
    assert members.apply(FILE, [Upsert(a)]) == ()
    assert members.apply(FILE, [Delete(a)]) == (Delete(a),)
    assert members.apply(FILE, [Upsert(endpoint("c", "10.0.0.2"))]) == (), "b has that address"


def test_s23_one_server_in_two_feeds_gets_one_share_and_the_warning_names_both() -> None:
    members = Membership(NAMES)
    members.apply(CONFIG, [Upsert(endpoint("a")), Upsert(endpoint("b", "::ffff:10.0.0.9"))])
    events = members.apply(
        FILE,
        [
            Upsert(e)
            for e in (endpoint("c"), endpoint("d", "10.0.0.9"), endpoint("b", "10.0.0.7"), endpoint("e", port=1))
        ],
    )
    assert events == (Upsert(endpoint("e", port=1)),)
    assert len(members.warnings) == 3
    for warning in members.warnings.values():
        assert "the host configuration" in str(warning)
        assert "endpoints.yaml" in str(warning)


def test_s23_one_server_named_twice_in_one_feed_gets_one_share_and_the_warning_names_both() -> None:
    members = Membership(NAMES)
    events = members.apply(FILE, [Upsert(endpoint("a")), Upsert(endpoint("b"))])
    assert events == (Upsert(endpoint("a")),)
    (warning,) = members.warnings.values()
    assert str(warning).count("endpoints.yaml") == 2
    assert "'default/a'" in str(warning)
    assert "'default/b'" in str(warning)


def test_s23_the_second_takes_over_when_the_first_lets_go_and_the_pool_is_never_empty() -> None:
    members = Membership(NAMES)
    members.apply(CONFIG, [Upsert(endpoint("a"))])
    members.apply(FILE, [Upsert(endpoint("b"))])
    assert members.apply(CONFIG, [Delete(endpoint("a"))]) == (Upsert(endpoint("b")), Delete(endpoint("a")))
    assert members.warnings == {}


def test_s23_a_feed_with_precedence_takes_over_what_another_has() -> None:
    members = Membership(NAMES)
    members.apply(FILE, [Upsert(endpoint("b"))])
    assert members.apply(CONFIG, [Upsert(endpoint("a"))]) == (Upsert(endpoint("a")), Delete(endpoint("b")))


def test_an_id_that_passes_to_another_feed_changes_and_never_goes() -> None:
    members = Membership(NAMES)
    members.apply(CONFIG, [Upsert(endpoint("a"))])
    members.apply(FILE, [Upsert(endpoint("a", "10.0.0.2"))])
    assert members.apply(CONFIG, [Delete(endpoint("a"))]) == (Upsert(endpoint("a", "10.0.0.2")),)


def test_s26_an_address_that_passes_to_another_id_of_the_feed_has_one_endpoint_throughout() -> None:
    members = Membership(NAMES)
    members.apply(FILE, [Upsert(endpoint("rank-0")), Upsert(endpoint("rank-1", port=8001))])
    events = members.apply(FILE, [Upsert(endpoint("rank-0", port=8001)), Delete(endpoint("rank-1", port=8001))])
    assert events == (Upsert(endpoint("rank-0", port=8001)), Delete(endpoint("rank-1", port=8001)))
    assert members.warnings == {}


def test_s28_a_changed_label_is_one_event_and_a_no_op_is_none() -> None:
    members = Membership(NAMES)
    members.apply(FILE, [Upsert(endpoint("a"))])
    labelled = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"role": "decode"})
    assert members.apply(FILE, [Upsert(labelled)]) == (Upsert(labelled),)
    assert members.apply(FILE, [Upsert(labelled)]) == ()


def test_a_feed_that_is_left_out_goes_and_who_waited_takes_over() -> None:
    members = Membership(NAMES)
    members.apply(CONFIG, [Upsert(endpoint("a")), Upsert(endpoint("z", "10.0.0.3"))])
    members.apply(FILE, [Upsert(endpoint("b"))])
    events = members.arrange({FILE: "endpoints.yaml"})
    assert events == (Upsert(endpoint("b")), Delete(endpoint("a")), Delete(endpoint("z", "10.0.0.3")))


def test_another_order_of_feeds_decides_anew_and_other_names_are_warned_with() -> None:
    members = Membership(NAMES)
    members.apply(CONFIG, [Upsert(endpoint("a"))])
    members.apply(FILE, [Upsert(endpoint("b"))])
    events = members.arrange({FILE: "other.yaml", CONFIG: "the host configuration"})
    assert events == (Upsert(endpoint("b")), Delete(endpoint("a")))
    assert "'default/b' of other.yaml" in str(next(iter(members.warnings.values())))


@pytest.mark.parametrize(
    ("address", "canonical"),
    [
        ("FD00::0010", "fd00::10"),
        ("::ffff:10.0.0.9", "10.0.0.9"),
        ("10.0.0.9", "10.0.0.9"),
        ("GPU-1.Example.", "gpu-1.example"),
    ],
)
def test_s24_an_address_has_one_spelling(address: str, canonical: str) -> None:
    assert canonical_address(address) == canonical


FEEDS = ("x", "y", "z")
CALL = st.tuples(
    st.sampled_from(FEEDS),
    st.lists(
        st.tuples(st.booleans(), st.sampled_from("abcd"), st.sampled_from(["10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1"])),
        max_size=4,
    ),
)


def expected(claims: dict[str, dict[str, EndpointMetadata]], order: tuple[str, ...]) -> dict[str, EndpointMetadata]:
    """Feed by feed, and in each in the order of its ids: who comes first has it."""
    ids: dict[str, EndpointMetadata] = {}
    addresses: set[str] = set()
    for feed in order:
        for one in claims[feed].values():
            if one.id not in ids and canonical_address(one.address) not in addresses:
                ids[one.id] = one
                addresses.add(canonical_address(one.address))
    return ids


@given(st.lists(CALL, max_size=20), st.permutations(FEEDS))
def test_what_is_in_depends_on_the_feeds_alone_and_events_lead_there(
    calls: list[tuple[str, list[tuple[bool, str, str]]]], last_order: list[str]
) -> None:
    members = Membership({feed: feed for feed in FEEDS})
    claims: dict[str, dict[str, EndpointMetadata]] = {feed: {} for feed in FEEDS}
    store: dict[str, EndpointMetadata] = {}

    def carry_out(events: tuple[EndpointEvent, ...], order: tuple[str, ...]) -> None:
        kinds = [type(event) for event in events]
        assert kinds == sorted(kinds, key=lambda kind: kind is Delete), "an upsert after a delete"
        for event in events:
            if isinstance(event, Upsert):
                assert store.get(event.endpoint.id) != event.endpoint, "an event without a change"
                store[event.endpoint.id] = event.endpoint
            else:
                assert store.pop(event.endpoint.id) == event.endpoint
        assert store == expected(claims, order)
        ignored = {(feed, one.id) for feed, of_feed in claims.items() for one in of_feed.values()}
        for one in store.values():
            feed = next(feed for feed in order if claims[feed].get(one.id) == one)
            ignored.remove((feed, one.id))
        assert members.warnings.keys() == ignored
        assert members.ignored_count == len(ignored)

    for feed, said in calls:
        events: list[EndpointEvent] = []
        for exists, name, address in said:
            one = endpoint(name, address)
            events.append(Upsert(one) if exists else Delete(one))
            if exists:
                claims[feed][one.id] = one
            else:
                claims[feed].pop(one.id, None)
        carry_out(members.apply(feed, events), FEEDS)
    carry_out(members.arrange({feed: feed for feed in last_order}), tuple(last_order))


MANY = 2_000


def test_one_more_of_many_that_claim_one_address_costs_as_much_as_one_of_few(
    calls: Callable[[Callable[[], object]], int],
) -> None:
    few, many = Membership(NAMES), Membership(NAMES)
    for members, count in ((few, 2), (many, MANY)):
        members.apply(FILE, [Upsert(endpoint(f"e{number}")) for number in range(count)])
    came, labelled = endpoint("z"), EndpointMetadata("default/z", "z", "10.0.0.1", 8000, labels={"a": "b"})
    for event in (Upsert(came), Upsert(labelled), Delete(labelled), Delete(endpoint("e0"))):
        cost = calls(lambda event=event: few.apply(FILE, [event]))
        assert calls(lambda event=event: many.apply(FILE, [event])) <= cost + 10, event
    assert many.ignored_count == MANY - 2


def test_many_that_go_in_turn_hand_an_address_on_in_their_order() -> None:
    members = Membership(NAMES)
    members.apply(FILE, [Upsert(endpoint(f"e{number}")) for number in range(MANY)])
    for number in range(MANY - 1):
        events = members.apply(FILE, [Delete(endpoint(f"e{number}"))])
        assert events == (Upsert(endpoint(f"e{number + 1}")), Delete(endpoint(f"e{number}")))
    assert members.ignored_count == 0


def test_those_that_come_and_go_while_they_wait_leave_nothing() -> None:
    members = Membership(NAMES)
    members.apply(FILE, [Upsert(endpoint("first"))])
    for _ in range(100):
        members.apply(FILE, [Upsert(endpoint("a")), Upsert(endpoint("b"))])
        members.apply(FILE, [Delete(endpoint("a"))])
    (waiting,) = members._waiting.values()
    assert len(waiting._heap) <= 20
    assert members.apply(FILE, [Delete(endpoint("first"))]) == (Upsert(endpoint("b")), Delete(endpoint("first")))
    assert members._waiting == {}


@pytest.mark.parametrize("ignored", [MAX_TOLD, MAX_TOLD + 1])
def test_only_the_first_that_are_ignored_are_warned_of(ignored: int) -> None:
    members = Membership(NAMES)
    members.apply(FILE, [Upsert(endpoint(f"e{number}")) for number in range(ignored + 1)])
    assert len(members.warnings) == MAX_TOLD
    assert members.ignored_count == ignored
