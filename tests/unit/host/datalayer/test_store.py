"""The endpoint store: rows, freshness per field, publication."""

import dataclasses
import math

import numpy as np
import pytest
from hotbay.datalayer.endpoint import EndpointEvent, EndpointMetadata, EndpointState, Metrics, Upsert
from hotbay.datalayer.store import AGE_RESOLUTION_S, EndpointStore
from hotbay.datalayer.tables.snapshot import EMPTY_SNAPSHOT
from hotbay_sdk.protocol.calls import COLUMN_FORMATS


def endpoint(name: str, port: int = 8000) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", port)


def store_of(*names: str) -> EndpointStore:
    store = EndpointStore()
    for name in names:
        store.upsert(endpoint(name))
    return store


def test_an_empty_store_shows_an_empty_snapshot() -> None:
    store = EndpointStore()
    assert store.publish(1.0) is EMPTY_SNAPSHOT
    assert (EMPTY_SNAPSHOT.epoch, EMPTY_SNAPSHOT.rows, EMPTY_SNAPSHOT.ids) == (0, 0, ())
    assert EMPTY_SNAPSHOT.columns.keys() == COLUMN_FORMATS.keys()


def test_rows_stay_while_endpoints_live_and_the_lowest_free_row_is_reused() -> None:
    store = store_of("a", "b", "c", "d")
    store.delete("default/b")
    store.delete("default/a")
    snapshot = store.publish(1.0)
    assert snapshot.ids == ("", "", "default/c", "default/d")
    assert snapshot.live.tolist() == [False, False, True, True]
    assert snapshot.endpoints[:2] == (None, None)
    store.upsert(endpoint("e"))
    assert store.publish(2.0).ids == ("default/e", "", "default/c", "default/d")
    assert store.snapshot.row_of == {"default/e": 0, "default/c": 2, "default/d": 3}


def test_free_rows_at_the_end_are_dropped_and_later_given_again() -> None:
    store = store_of("a", "b", "c")
    store.delete("default/c")
    store.delete("default/b")
    assert store.publish(1.0).rows == 1
    store.upsert(endpoint("d"))
    store.upsert(endpoint("e"))
    assert store.publish(2.0).ids == ("default/a", "default/d", "default/e")


def test_a_reused_row_knows_nothing_of_its_former_endpoint() -> None:
    store = store_of("a", "b")
    full = Metrics(3.0, 2.0, 0.5, 100, 16, 10, 4.0, {"x": 0}, {}, "m", "vllm")
    store.update_metrics("default/a", full, 1.0)
    store.delete("default/a")
    for publish_between in (True, False):
        if publish_between:
            store.publish(2.0)
        store.upsert(endpoint("c"))
        snapshot = store.publish(3.0)
        assert snapshot.ids[0] == "default/c"
        known = {"endpoint.in_flight", "endpoint.in_flight_tokens", "endpoint.weight", "endpoint.slow_start"}
        for name, code in COLUMN_FORMATS.items():
            value = snapshot.columns[name][0]
            if name not in known:
                assert value == -1 if code == "q" else math.isnan(value), name
        facts = snapshot.facts[0]
        assert facts is not None
        assert facts.engine is None
        store.delete("default/c")


def test_columns_carry_what_was_reported_in_their_formats() -> None:
    store = store_of("a", "b")
    store.update_metrics("default/b", Metrics(3.0, 2.0, 0.5, 160, 16, 10, 4.0, {"x": 2}, {"y": 0}, "m", "vllm"), 9.5)
    snapshot = store.publish(10.0)
    values = {name.removeprefix("endpoint."): column[1].item() for name, column in snapshot.columns.items()}
    assert values == {
        "healthy": 1.0,
        "waiting": 3.0,
        "running": 2.0,
        "in_flight": 0.0,
        "max_active_models": 4.0,
        "kv_usage": 0.5,
        "kv_capacity_tokens": 160,
        "in_flight_tokens": 0,
        "block_size": 16,
        "num_blocks": 10,
        "age_waiting": 0.5,
        "age_running": 0.5,
        "age_kv_usage": 0.5,
        "age_lora": 0.5,
        "weight": 1.0,
        "slow_start": 1.0,
    }
    for name, code in COLUMN_FORMATS.items():
        assert snapshot.columns[name].dtype == (np.float32 if code == "f" else np.int64)
    facts = snapshot.facts[1]
    assert facts is not None
    assert (facts.model, facts.engine, facts.active_models) == ("m", "vllm", {"x": 2})


def test_freshness_is_kept_per_field() -> None:
    store = store_of("a")
    store.update_metrics("default/a", Metrics(waiting=1.0, running=1.0), 10.0)
    store.update_metrics("default/a", Metrics(waiting=2.0), 15.0)
    columns = store.publish(16.0).columns
    assert (columns["endpoint.waiting"][0], columns["endpoint.age_waiting"][0]) == (2.0, 1.0)
    assert math.isnan(columns["endpoint.running"][0])
    assert columns["endpoint.age_running"][0] == 6.0
    assert math.isnan(columns["endpoint.age_kv_usage"][0])


def test_a_failed_scrape_leaves_values_and_lets_them_age() -> None:
    store = store_of("a")
    store.update_metrics("default/a", Metrics(waiting=1.0), 10.0)
    store.record_scrape_failure("default/a", "answered 500")
    columns = store.publish(12.0).columns
    assert (columns["endpoint.waiting"][0], columns["endpoint.age_waiting"][0]) == (1.0, 2.0)
    status = store.scrape_status("default/a")
    assert status is not None
    assert (status.scrapes, status.errors, status.consecutive_errors) == (2, 1, 1)
    assert (status.last_success_at, status.last_error) == (10.0, "answered 500")
    store.update_metrics("default/a", Metrics(), 13.0)
    recovered = store.scrape_status("default/a")
    assert recovered is not None
    assert (recovered.errors, recovered.consecutive_errors) == (1, 0)


def test_news_of_an_endpoint_that_is_gone_change_nothing() -> None:
    store = store_of("a")
    store.publish(1.0)
    assert not store.update_metrics("default/gone", Metrics(waiting=1.0), 1.0)
    assert not store.record_scrape_failure("default/gone", "x")
    assert not store.delete("default/gone")
    assert store.scrape_status("default/gone") is None
    assert store.publish(1.0).epoch == 1


def test_an_equal_upsert_is_a_no_op() -> None:
    store = store_of("a")
    events: list[EndpointEvent] = []
    store.subscribe(events.append)
    first = store.publish(1.0)
    assert not store.upsert(endpoint("a"))
    assert events == []
    assert store.publish(1.0) is first


def test_changed_metadata_keeps_row_and_membership_but_not_the_epoch() -> None:
    store = store_of("a", "b")
    store.update_metrics("default/b", Metrics(waiting=1.0), 1.0)
    first, labelled = store.publish(1.0), dataclasses.replace(endpoint("b"), labels={"zone": "x"})
    assert store.upsert(labelled)
    second = store.publish(1.0)
    assert (second.epoch, second.membership) == (first.epoch + 1, first.membership)
    assert second.endpoints[1] == labelled
    assert second.columns["endpoint.waiting"][1] == 1.0
    assert store.upsert(endpoint("b", port=9000))
    third = store.publish(1.0)
    assert (third.epoch, third.membership) == (first.epoch + 2, first.membership)
    assert third.endpoints[1] == endpoint("b", port=9000)


def test_membership_changes_when_ids_do() -> None:
    store = store_of("a")
    numbers = [store.publish(1.0).membership]
    store.upsert(endpoint("b"))
    numbers.append(store.publish(1.0).membership)
    store.delete("default/b")
    numbers.append(store.publish(1.0).membership)
    assert numbers == [1, 2, 3]


def test_a_cordoned_endpoint_stays_listed_and_is_not_live() -> None:
    store = store_of("a", "b")
    before = store.publish(1.0)
    store.upsert(dataclasses.replace(endpoint("a"), state=EndpointState.CORDONED))
    after = store.publish(1.0)
    assert after.ids == before.ids
    assert after.membership == before.membership
    assert after.live.tolist() == [False, True]
    assert before.live.tolist() == [True, True]


def test_a_listener_hears_until_it_unsubscribes() -> None:
    store = EndpointStore()
    events: list[EndpointEvent] = []
    unsubscribe = store.subscribe(events.append)
    store.upsert(endpoint("a"))
    unsubscribe()
    store.delete("default/a")
    assert events == [Upsert(endpoint("a"))]


def test_nothing_is_published_when_nothing_changed() -> None:
    store = store_of("a")
    first = store.publish(1.0)
    assert store.publish(1.0 + AGE_RESOLUTION_S / 2) is first
    assert store.publish(1.0 + AGE_RESOLUTION_S).epoch == first.epoch + 1


@pytest.mark.parametrize("change", ["metrics", "in_flight", "endpoints"])
def test_each_kind_of_change_is_published(change: str) -> None:
    store = store_of("a")
    first = store.publish(1.0)
    match change:
        case "metrics":
            store.update_metrics("default/a", Metrics(waiting=1.0), 1.0)
        case "in_flight":
            store.ledger.started("default/a")
        case _:
            store.upsert(endpoint("b"))
    second = store.publish(1.0)
    assert second.epoch == first.epoch + 1
    assert store.publish(1.0) is second


def test_a_published_snapshot_never_changes() -> None:
    store = store_of("a")
    store.update_metrics("default/a", Metrics(waiting=1.0), 1.0)
    snapshot = store.publish(1.0)
    store.update_metrics("default/a", Metrics(waiting=7.0), 2.0)
    store.ledger.started("default/a")
    store.publish(2.0)
    store.delete("default/a")
    store.publish(3.0)
    assert snapshot.columns["endpoint.waiting"].tolist() == [1.0]
    assert snapshot.columns["endpoint.in_flight"].tolist() == [0.0]
    assert snapshot.ids == ("default/a",)
    for column in snapshot.columns.values():
        assert not column.flags.writeable
    assert not snapshot.live.flags.writeable


def test_unchanged_columns_are_shared_between_snapshots_with_their_bytes() -> None:
    store = store_of("a")
    first = store.publish(1.0)
    packed = first.column_bytes("endpoint.waiting")
    first.column_bytes("endpoint.in_flight")
    store.ledger.started("default/a")
    second = store.publish(1.0)
    assert second.columns["endpoint.waiting"] is first.columns["endpoint.waiting"]
    assert second.column_bytes("endpoint.waiting") is packed
    assert second.column_bytes("endpoint.in_flight") == np.array([1.0], "<f4").tobytes()


def test_column_bytes_are_little_endian_and_made_once() -> None:
    store = store_of("a", "b")
    store.update_metrics("default/b", Metrics(waiting=2.0, block_size=16), 1.0)
    snapshot = store.publish(1.0)
    assert snapshot.column_bytes("endpoint.waiting") == np.array([np.nan, 2.0], "<f4").tobytes()
    assert snapshot.column_bytes("endpoint.block_size") == (-1).to_bytes(8, "little", signed=True) + (16).to_bytes(
        8, "little"
    )
    assert snapshot.column_bytes("endpoint.waiting") is snapshot.column_bytes("endpoint.waiting")


def test_five_thousand_endpoints_keep_their_values_while_the_store_grows() -> None:
    store = EndpointStore()
    for number in range(5000):
        store.upsert(endpoint(f"e{number}"))
        store.update_metrics(f"default/e{number}", Metrics(waiting=float(number)), 1.0)
        store.ledger.started(f"default/e{number}", number)
    snapshot = store.publish(1.0)
    assert snapshot.rows == 5000
    assert snapshot.columns["endpoint.waiting"].tolist() == list(map(float, range(5000)))
    assert snapshot.columns["endpoint.in_flight_tokens"].tolist() == list(range(5000))


@pytest.mark.parametrize(
    "moved",
    [
        {"address": "10.0.0.2"},
        {"port": 1},
        {"metrics_host": "10.0.0.1:9"},
        {"node_address": "10.1.0.1"},
        {"scheme": "https"},
    ],
)
def test_an_endpoint_that_moves_is_as_unknown_as_one_that_comes(moved: dict[str, object]) -> None:
    store, events = store_of("a", "b"), []
    store.declare_attributes({"gpus": "i64"})
    store.update_metrics("default/a", Metrics(3.0, 2.0, 0.5, 100, 16, 10, 4.0, {"x": 0}, {}, "m", "vllm"), 1.0)
    store.put_attributes("default/a", {"gpus": 4, "zone": "x"}, 1.0)
    store.record_scrape_failure("default/a", "refused")
    store.set_availability("default/a", healthy=0.0, slow_start=0.5, admits=False)
    store.ledger.started("default/a")
    live = store.endpoint("default/a")
    store.publish(1.0)
    store.subscribe(events.append)
    elsewhere = dataclasses.replace(endpoint("a"), **moved)  # type: ignore[arg-type]
    store.upsert(elsewhere)
    assert events == [Upsert(elsewhere)]
    snapshot = store.publish(2.0)
    fresh = store_of("a", "b")
    fresh.declare_attributes({"gpus": "i64"})
    fresh.ledger.started("default/a")
    as_new = fresh.publish(2.0)
    assert snapshot.columns.keys() == as_new.columns.keys()
    for name, column in as_new.columns.items():
        assert np.array_equal(snapshot.columns[name], column, equal_nan=column.dtype == np.float32), name
    assert snapshot.facts == as_new.facts
    assert snapshot.live.tolist() == [True, True]
    assert live is not None
    assert store.endpoint("default/a") is live
    assert (live.metrics, live.attributes.keys()) == (Metrics(), ())
    assert store.scrape_status("default/a") == fresh.scrape_status("default/a")


def test_an_endpoint_that_is_labelled_anew_is_known_as_before() -> None:
    store = store_of("a")
    store.update_metrics("default/a", Metrics(waiting=3.0), 1.0)
    store.set_availability("default/a", healthy=0.0, slow_start=0.5, admits=False)
    store.upsert(dataclasses.replace(endpoint("a"), labels={"zone": "x"}))
    snapshot = store.publish(1.0)
    assert snapshot.columns["endpoint.waiting"][0] == 3.0
    assert not snapshot.live[0]


def test_look_gives_an_endpoint_as_it_is_and_none_that_takes_nothing() -> None:
    store, decided = store_of("a", "b"), endpoint("a")
    assert store.look(decided) == decided
    moved = endpoint("a", 9)
    store.upsert(moved)
    assert store.look(decided) == moved
    store.override("default/a", state=EndpointState.CORDONED, weight=None)
    assert store.look(decided) is None
    store.override("default/a", state=None, weight=None)
    assert store.look(decided) == moved
    store.delete("default/a")
    assert store.look(decided) is None
