"""DNS records as endpoints."""

import pytest
from hotbay.datalayer.discovery.dns_endpoints import (
    RETRY_S,
    ServiceRecord,
    address_endpoints,
    next_look_s,
    service_endpoints,
)
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hypothesis import given
from hypothesis import strategies as st


def services(*records: ServiceRecord) -> tuple[EndpointMetadata, ...]:
    return service_endpoints(records, namespace="default", labels={"pool": "p"})


def record(address: str, *, priority: int = 0, weight: int = 0, port: int = 8000) -> ServiceRecord:
    return ServiceRecord(priority, weight, port, f"host-{address}", (address,))


def test_addresses_are_endpoints_in_an_order_of_their_own() -> None:
    found = address_endpoints(["10.0.0.10", "10.0.0.9", "10.0.0.10"], port=80, namespace="n", labels={"a": "b"})
    assert found == (
        EndpointMetadata("n/10.0.0.9:80", "10.0.0.9:80", "10.0.0.9", 80, labels={"a": "b"}),
        EndpointMetadata("n/10.0.0.10:80", "10.0.0.10:80", "10.0.0.10", 80, labels={"a": "b"}),
    )


def test_s24_an_ipv6_address_has_brackets_in_its_name_and_one_spelling() -> None:
    (found,) = address_endpoints(["FD00::0010"], port=8000, namespace="default", labels={})
    assert (found.id, found.address, found.authority) == ("default/[fd00::10]:8000", "fd00::10", "[fd00::10]:8000")


def test_services_have_the_records_port_and_say_where_they_come_from() -> None:
    (found,) = services(record("10.0.0.1", priority=3, port=9000))
    assert found.authority == "10.0.0.1:9000"
    assert dict(found.labels) == {"pool": "p", "srv_priority": "3", "srv_target": "host-10.0.0.1"}
    assert (found.state, found.weight) == (EndpointState.ACTIVE, 1.0)


def test_weights_are_shares_of_the_largest_and_zero_is_a_small_one() -> None:
    found = services(record("10.0.0.1", weight=0), record("10.0.0.2", weight=50), record("10.0.0.3", weight=200))
    assert [one.weight for one in found] == [0.001, 0.25, 1.0]


def test_a_worse_priority_is_cordoned_while_there_is_a_better_one_and_has_weights_of_its_own() -> None:
    best, spare = record("10.0.0.1", priority=1, weight=10), record("10.0.0.2", priority=2, weight=1)
    assert [(one.state, one.weight) for one in services(best, spare)] == [
        (EndpointState.ACTIVE, 1.0),
        (EndpointState.CORDONED, 1.0),
    ]
    assert [one.state for one in services(spare)] == [EndpointState.ACTIVE]


def test_a_priority_whose_targets_have_no_address_is_not_the_best_one() -> None:
    gone = ServiceRecord(0, 1, 8000, "gone", ())
    assert [one.state for one in services(gone, record("10.0.0.2", priority=2))] == [EndpointState.ACTIVE]
    assert services(gone) == ()


def test_several_ports_of_one_address_are_its_ranks() -> None:
    found = services(record("10.0.0.1", port=8001), record("10.0.0.1", port=8000), record("10.0.0.2", port=8001))
    assert [(one.authority, one.rank_index) for one in found] == [
        ("10.0.0.1:8000", 0),
        ("10.0.0.1:8001", 1),
        ("10.0.0.2:8001", 0),
    ]


def test_s23_two_records_for_one_server_are_one_endpoint_of_the_better_priority() -> None:
    (found,) = services(record("10.0.0.1", priority=5), record("10.0.0.1", priority=1))
    assert found.labels["srv_priority"] == "1"


@pytest.mark.parametrize(
    ("ttls_s", "failed", "expected_s"),
    [
        ([30.0, 20.0], False, 20.0),
        ([0.0], False, 2.0),
        ([2.0], False, 2.0),
        ([86400.0], False, 60.0),
        ([60.0], False, 60.0),
        ([], False, 60.0),
        ([], True, RETRY_S),
        ([30.0], True, RETRY_S),
        ([3.0], True, 3.0),
    ],
)
def test_the_next_look_is_when_the_first_answer_runs_out_within_the_bounds(
    ttls_s: list[float], failed: bool, expected_s: float
) -> None:
    assert next_look_s(ttls_s, failed=failed, shortest_s=2.0, longest_s=60.0) == expected_s


RECORDS = st.builds(
    ServiceRecord,
    st.integers(0, 2),
    st.integers(0, 65535),
    st.integers(1, 3),
    st.sampled_from(["x", "y"]),
    st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1"]), max_size=3).map(tuple),
)


@given(st.lists(RECORDS, max_size=8), st.randoms(use_true_random=False))
def test_endpoints_do_not_depend_on_the_order_of_records(records: list[ServiceRecord], random: object) -> None:
    found = services(*records)
    shuffled = list(records)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert services(*shuffled) == found
    servers = {(address, one.port) for one in records for address in one.addresses}
    assert {(one.address, one.port) for one in found} == servers
    assert len(found) == len(servers)
    assert all(0 < one.weight <= 1 for one in found)
    assert not found or any(one.state is EndpointState.ACTIVE for one in found)
