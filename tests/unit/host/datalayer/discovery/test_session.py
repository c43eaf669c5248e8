"""What one run of a feed does to the feed's set."""

import pytest
from hotbay.datalayer.discovery.session import MAX_ENDPOINTS, DiscoverySession, TooManyEndpointsError
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hypothesis import given
from hypothesis import strategies as st

IDS = "abcd"


def endpoint(name: str, port: int = 1) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", port)


def held(*names: str) -> dict[str, EndpointMetadata]:
    return {f"default/{name}": endpoint(name) for name in names}


def test_an_upsert_and_a_delete_are_events_and_no_ops_are_none() -> None:
    session = DiscoverySession()
    assert session.upsert(endpoint("a")) == (Upsert(endpoint("a")),)
    assert session.upsert(endpoint("a")) == ()
    assert session.upsert(endpoint("a", 2)) == (Upsert(endpoint("a", 2)),)
    assert session.delete("default/a") == (Delete(endpoint("a", 2)),)
    assert session.delete("default/a") == ()


def test_a_new_run_takes_nothing_away_before_it_is_synced_and_then_what_it_did_not_name() -> None:
    session = DiscoverySession(held("a", "b", "c"))
    assert session.upsert(endpoint("b")) == ()
    assert session.delete("default/a") == ()
    assert dict(session.held) == held("a", "b", "c")
    assert session.sync() == (Delete(endpoint("a")), Delete(endpoint("c")))
    assert dict(session.held) == held("b")
    assert session.sync() == ()


def test_an_upsert_that_is_followed_by_a_delete_is_gone_after_the_sync() -> None:
    session = DiscoverySession(held("a"))
    session.upsert(endpoint("a", 2))
    assert session.delete("default/a") == ()
    assert session.sync() == (Delete(endpoint("a", 2)),)


def test_what_is_new_in_a_run_goes_when_the_run_takes_it_back() -> None:
    session = DiscoverySession(held("a"))
    session.upsert(endpoint("b"))
    assert session.delete("default/b") == (Delete(endpoint("b")),)


def test_a_whole_set_upserts_in_its_order_and_then_deletes() -> None:
    session = DiscoverySession()
    session.replace([endpoint("a"), endpoint("b")])
    session.sync()
    events = session.replace([endpoint("d"), endpoint("b", 2), endpoint("c")])
    assert events == (Upsert(endpoint("d")), Upsert(endpoint("b", 2)), Upsert(endpoint("c")), Delete(endpoint("a")))


def test_a_feed_may_have_its_most_endpoints_and_not_one_more() -> None:
    session = DiscoverySession()
    session.replace(endpoint(str(number)) for number in range(MAX_ENDPOINTS))
    with pytest.raises(TooManyEndpointsError, match=f"at most {MAX_ENDPOINTS}"):
        session.upsert(endpoint("one more"))
    with pytest.raises(TooManyEndpointsError):
        session.replace(endpoint(str(number)) for number in range(MAX_ENDPOINTS + 1))
    assert len(session.held) == MAX_ENDPOINTS
    session.sync()
    session.replace(endpoint(f"x{number}") for number in range(MAX_ENDPOINTS))
    assert len(session.held) == MAX_ENDPOINTS


def many(prefix: str, count: int) -> list[EndpointMetadata]:
    return [endpoint(f"{prefix}{number}") for number in range(count)]


def test_a_whole_set_needs_no_room_for_what_an_earlier_run_left_and_leaves_no_pool_empty() -> None:
    earlier = {one.id: one for one in many("x", 4)}
    session = DiscoverySession(earlier, most=4)
    with pytest.raises(TooManyEndpointsError, match="at most 4"):
        session.replace(many("y", 1))
    assert (dict(session.held), session.is_synced) == (earlier, False)
    with pytest.raises(TooManyEndpointsError, match="at most 4"):
        session.replace(many("y", 5), is_all=True)
    assert (dict(session.held), session.is_synced) == (earlier, False)
    kept = endpoint("x0")
    events = session.replace([kept, *many("y", 3)], is_all=True)
    assert events == (*map(Upsert, many("y", 3)), *map(Delete, many("x", 4)[1:]))
    assert session.is_synced
    assert session.sync() == ()


def test_what_was_left_under_another_bound_makes_room_first() -> None:
    session = DiscoverySession({one.id: one for one in many("x", 5)}, most=2)
    with pytest.raises(TooManyEndpointsError):
        session.upsert(endpoint("y"))
    session.upsert(endpoint("x0"))
    session.sync()
    session.upsert(endpoint("y"))
    assert sorted(session.held) == ["default/x0", "default/y"]


CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("upsert"), st.sampled_from(IDS), st.integers(1, 2)),
        st.tuples(st.just("delete"), st.sampled_from(IDS), st.just(0)),
        st.tuples(st.just("replace"), st.text(IDS, max_size=4), st.integers(1, 2)),
        st.tuples(st.just("all"), st.text(IDS, max_size=4), st.integers(1, 2)),
        st.tuples(st.just("sync"), st.just(""), st.just(0)),
    ),
    max_size=25,
)


def carry_out(events: tuple[EndpointEvent, ...], into: dict[str, EndpointMetadata]) -> None:
    for event in events:
        if isinstance(event, Upsert):
            into[event.endpoint.id] = event.endpoint
        else:
            # A delete says what is there to be deleted.
            assert into.pop(event.endpoint.id) == event.endpoint


@given(st.text(IDS, max_size=4), CALLS)
def test_whatever_a_run_says_its_events_make_its_set(earlier: str, calls: list[tuple[str, str, int]]) -> None:
    before = held(*earlier)
    session, store, named, synced = DiscoverySession(before), dict(before), {}, False
    for call, name, port in calls:
        match call:
            case "upsert":
                carry_out(session.upsert(endpoint(name, port)), store)
                named[f"default/{name}"] = endpoint(name, port)
            case "delete":
                carry_out(session.delete(f"default/{name}"), store)
                named.pop(f"default/{name}", None)
            case "replace" | "all":
                carry_out(session.replace((endpoint(one, port) for one in name), is_all=call == "all"), store)
                synced = synced or call == "all"
                named = {f"default/{one}": endpoint(one, port) for one in name}
            case _:
                carry_out(session.sync(), store)
                synced = True
        assert dict(session.held) == store
        assert store == named if synced else store.keys() == named.keys() | before.keys()
        assert named.items() <= store.items()
