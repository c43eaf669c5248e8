"""Side tables of snapshots: their version changes with labels and facts alone, and what did not change is not encoded again."""

import dataclasses
import struct

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState, Metrics
from hotbay.datalayer.store import EndpointStore
from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.datalayer.tables.side_tables import NO_TABLES, SideTables
from hotbay_sdk.protocol import check_value
from hotbay_sdk.protocol.calls import SIDE_TABLES, UNKNOWN_CODE

NAMES = tuple(sorted(SIDE_TABLES))


def endpoint(name: str, port: int = 8000, **labels: str) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", port, labels=labels)


def rows(tables: SideTables, name: str) -> list[object]:
    """A table row by row, None for what is not known."""
    values, codes = tables.encoded(name).wire
    assert isinstance(values, list)
    assert isinstance(codes, bytes)
    numbers = struct.unpack(f"<{len(codes) // 4}I", codes)
    return [None if number == UNKNOWN_CODE else values[number] for number in numbers]


def store_of(*endpoints: EndpointMetadata, freshness: Freshness | None = None) -> EndpointStore:
    store = EndpointStore(freshness)
    for one in endpoints:
        store.upsert(one)
    store.publish(0.0)
    return store


def test_every_table_says_what_is_known_of_each_row() -> None:
    store = store_of(endpoint("a", **{"llm-d.ai/role": "decode"}), endpoint("b"), endpoint("c", zone="x"))
    known = Metrics(active_models={"y": 1, "x": 2}, waiting_models={}, model="m", engine="vllm")
    store.update_metrics("default/c", known, 1.0)
    store.delete("default/b")
    tables = store.publish(1.0).tables
    assert {name: rows(tables, name) for name in NAMES} == {
        "endpoint.labels": [{"llm-d.ai/role": "decode"}, None, {"zone": "x"}],
        "endpoint.role": ["decode", None, ""],
        "endpoint.active_models": [None, None, [["x", 2], ["y", 1]]],
        "endpoint.waiting_models": [None, None, []],
        "endpoint.model": [None, None, "m"],
        "endpoint.engine": [None, None, "vllm"],
        "endpoint.address": ["10.0.0.1:8000", None, "10.0.0.1:8000"],
    }


def test_an_address_that_changes_is_told_and_one_of_six_stands_in_brackets() -> None:
    store = store_of(endpoint("a"), endpoint("b"))
    before = store.snapshot.tables
    store.upsert(EndpointMetadata("default/b", "b", "::1", 8001))
    after = store.publish(1.0).tables
    assert after.version == before.version + 1
    assert rows(after, "endpoint.address") == ["10.0.0.1:8000", "[::1]:8001"]


def test_equal_values_stand_in_a_table_once() -> None:
    store = store_of(*(endpoint(f"e{number}", zone="x", tier=f"t{number % 2}") for number in range(50)))
    values, codes = store.snapshot.tables.encoded("endpoint.labels").wire
    assert values == [{"zone": "x", "tier": "t0"}, {"zone": "x", "tier": "t1"}]
    assert codes == struct.pack("<50I", *(number % 2 for number in range(50)))


def test_the_order_of_labels_makes_no_other_value() -> None:
    store = store_of(
        endpoint("a", zone="x", tier="y"), endpoint("b", tier="y", zone="x"), endpoint("c", zone="x", tier="y")
    )
    values, codes = store.snapshot.tables.encoded("endpoint.labels").wire
    assert (values, codes) == ([{"zone": "x", "tier": "y"}], bytes(12))


def test_the_version_stays_while_no_label_and_no_fact_differs() -> None:
    store = store_of(endpoint("a", zone="x"), endpoint("b"))
    facts = Metrics(model="m", active_models={"x": 1}, waiting_models={})
    store.update_metrics("default/a", facts, 1.0)
    first = store.publish(1.0)
    store.update_metrics("default/a", dataclasses.replace(facts, waiting=3.0), 2.0)
    store.ledger.started("default/a", 10)
    store.upsert(dataclasses.replace(endpoint("a", zone="x"), weight=0.5, state=EndpointState.CORDONED))
    later = store.publish(2.0)
    assert later.epoch > first.epoch
    assert later.tables is first.tables
    assert later.tables_version == first.tables_version


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.upsert(endpoint("a", zone="y")),
        lambda store: store.upsert(endpoint("c", zone="x")),
        lambda store: store.delete("default/b"),
        lambda store: store.delete("default/a"),
        lambda store: store.update_metrics("default/a", Metrics(model="n"), 1.0),
        lambda store: store.update_metrics("default/b", Metrics(active_models={}), 1.0),
    ],
)
def test_another_label_row_or_fact_is_another_version(change) -> None:
    store = store_of(endpoint("a", zone="x"), endpoint("b"))
    before = store.snapshot.tables_version
    change(store)
    assert store.publish(1.0).tables_version == before + 1


def test_adapters_that_are_stale_are_unknown_and_the_rest_is_not() -> None:
    store = store_of(endpoint("a", zone="x"), freshness=Freshness(stale_after_s=1.0, policy=StalePolicy.UNKNOWN))
    store.update_metrics("default/a", Metrics(active_models={"x": 1}, waiting_models={}, model="m"), 1.0)
    fresh = store.publish(1.0).tables
    stale = store.publish(3.0).tables
    assert (stale.version, rows(stale, "endpoint.active_models")) == (fresh.version + 1, [None])
    assert (rows(stale, "endpoint.model"), rows(stale, "endpoint.labels")) == (["m"], [{"zone": "x"}])
    assert store.publish(4.0).tables is stale


def test_a_table_that_did_not_change_is_the_same_list_in_the_next_version() -> None:
    store = store_of(endpoint("a", zone="x"), endpoint("b"))
    store.update_metrics("default/a", Metrics(model="m", active_models={"x": 1}), 1.0)
    first = store.publish(1.0).tables
    before = {name: first.encoded(name).wire for name in NAMES}
    store.update_metrics("default/a", Metrics(active_models={"x": 2}), 2.0)
    second = store.publish(2.0).tables
    changed = {name for name in NAMES if second.encoded(name).wire is not before[name]}
    assert changed == {"endpoint.active_models"}
    store.upsert(endpoint("a", zone="y"))
    third = store.publish(3.0).tables
    changed = {name for name in NAMES if third.encoded(name).wire is not second.encoded(name).wire}
    assert changed == {"endpoint.labels"}


def test_a_table_is_encoded_once_for_all_snapshots_of_its_version() -> None:
    store = store_of(endpoint("a", zone="x"))
    first = store.publish(1.0).tables.encoded("endpoint.labels")
    store.update_metrics("default/a", Metrics(waiting=1.0), 2.0)
    assert store.publish(2.0).tables.encoded("endpoint.labels") is first


def test_what_cannot_cross_in_one_row_costs_the_others_nothing() -> None:
    store = store_of(endpoint("a", zone="\ud800", tier="ü"))
    store.update_metrics("default/a", Metrics(active_models={"x": 2**70, "y": -1}, waiting_models={}), 1.0)
    tables = store.publish(1.0).tables
    for name in NAMES:
        check_value(tables.encoded(name).wire)
    assert rows(tables, "endpoint.labels") == [{"zone": "?", "tier": "ü"}]
    assert rows(tables, "endpoint.active_models") == [[["x", 2**63 - 1], ["y", 0]]]


def test_tables_of_no_endpoints_are_empty() -> None:
    assert EndpointStore().snapshot.tables is NO_TABLES
    assert {name: NO_TABLES.encoded(name).wire for name in NAMES} == {name: [[], b""] for name in NAMES}
