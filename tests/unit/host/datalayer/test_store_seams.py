"""What others put into the store: attributes, availability, the operator's word; and what stays the same object."""

import dataclasses
import math
from typing import Any

import pytest
from hotbay.datalayer import attributes
from hotbay.datalayer.attributes import AttributeRefusedError, AttributeValue, DynamicAttribute
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, EndpointState, Metrics, Upsert
from hotbay.datalayer.remote.results import read_attributes, read_of_endpoints
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.store import AGE_RESOLUTION_S, EndpointStore
from hotbay.datalayer.tables.freshness import Freshness
from hotbay_sdk.protocol.values import Encoder


def endpoint(name: str, port: int = 8000) -> EndpointMetadata:
    return EndpointMetadata(f"default/{name}", name, "10.0.0.1", port)


def store_of(*names: str, freshness: Freshness | None = None) -> EndpointStore:
    store = EndpointStore(freshness)
    for name in names:
        store.upsert(endpoint(name))
    return store


def column(store: EndpointStore, name: str, now: float = 1.0) -> list[float | None]:
    return [None if math.isnan(value) else value for value in store.publish(now).columns[name].tolist()]


# -- the live object -------------------------------------------------------------------------------


def test_the_live_object_is_one_for_life_and_keeps_the_last_it_had() -> None:
    store = store_of("a")
    live = store.endpoint("default/a")
    assert live is not None
    store.upsert(endpoint("a", 9000))
    store.update_metrics("default/a", Metrics(waiting=3.0), 7.0)
    store.put_attributes("default/a", {"k": 1}, 7.0)
    assert store.endpoint("default/a") is live
    store.delete("default/a")
    assert store.endpoint("default/a") is None
    assert (live.metadata.port, live.metrics.waiting, live.metrics.updated_at) == (9000, 3.0, {"waiting": 7.0})
    assert live.attributes.get("k") == 1
    store.upsert(endpoint("a"))
    again = store.endpoint("default/a")
    assert again is not live
    assert again is not None
    assert again.attributes.keys() == ()


# -- attributes ------------------------------------------------------------------------------------


def test_attributes_are_put_and_removed_together() -> None:
    store = store_of("a")
    live = store.endpoint("default/a")
    assert live is not None
    assert store.put_attributes("default/a", {"x": 1, "y": [2]}, 1.0)
    assert store.put_attributes("default/a", {"x": None, "z": "t"}, 1.0)
    assert {key: live.attributes.get(key) for key in live.attributes.keys()} == {"y": [2], "z": "t"}  # noqa: SIM118  # it is no mapping
    with pytest.raises(AttributeRefusedError, match=r"w\.b"):
        store.put_attributes("default/a", {"y": 3, "w": {"b": (1,)}}, 1.0)  # type: ignore[dict-item]  # that it is refused is the point
    assert live.attributes.get("y") == [2]
    assert not store.put_attributes("default/gone", {"x": 1}, 1.0)


def test_declared_attributes_are_columns_and_others_are_not() -> None:
    store = store_of("a", "b", "c")
    store.put_attributes("default/a", {"temperature": 71, "tokens": 1 << 62, "other": 1}, 1.0)
    store.declare_attributes({"temperature": "f32", "tokens": "i64"})
    store.put_attributes("default/c", {"temperature": 0.5, "tokens": 3}, 1.0)
    assert column(store, "attribute.temperature") == [71.0, None, 0.5]
    assert column(store, "attribute.tokens") == [1 << 62, -1, 3]
    assert "attribute.other" not in store.snapshot.columns
    store.put_attributes("default/a", {"temperature": None}, 1.0)
    store.delete("default/c")
    assert column(store, "attribute.temperature") == [None, None]
    store.declare_attributes({"tokens": "i64", "other": "f32"})
    assert column(store, "attribute.other") == [1.0, None]
    assert "attribute.temperature" not in store.snapshot.columns
    store.declare_attributes({})
    assert not [name for name in store.publish(1.0).columns if name.startswith("attribute.")]


@pytest.mark.parametrize(
    ("value", "f32", "i64"),
    [
        (True, None, -1),
        ("1", None, -1),
        ([1], None, -1),
        (-5, -5.0, -5),
        (2.5, 2.5, -1),
        (math.nan, None, -1),
        (math.inf, None, -1),
        (3.4e38, pytest.approx(3.4e38), -1),
        (3.5e38, None, -1),
        ((1 << 63) - 1, float(1 << 63), (1 << 63) - 1),
        (1 << 63, float(1 << 63), -1),
        (-(1 << 63), -float(1 << 63), -(1 << 63)),
    ],
)
def test_what_a_column_has_no_room_for_is_unknown(value: AttributeValue, f32: float | None, i64: int) -> None:
    store = store_of("a")
    store.declare_attributes({"f": "f32", "i": "i64"})
    store.put_attributes("default/a", {"f": value, "i": value}, 1.0)
    assert column(store, "attribute.f") == [f32]
    assert column(store, "attribute.i") == [i64]


@pytest.mark.parametrize("columns", [{"x": "f64"}, {"x": "f32", "a b": "f32"}])
def test_a_declaration_that_cannot_be_is_refused_whole(columns: dict[str, str]) -> None:
    store = store_of("a")
    store.declare_attributes({"y": "f32"})
    with pytest.raises(ValueError, match="expected"):
        store.declare_attributes(columns)
    assert [name for name in store.publish(1.0).columns if name.startswith("attribute.")] == ["attribute.y"]


def test_attribute_columns_grow_with_the_rows_and_are_forgotten_with_their_endpoint() -> None:
    store = EndpointStore()
    store.declare_attributes({"n": "i64"})
    assert column(store, "attribute.n") == []
    for number in range(100):
        store.upsert(endpoint(f"e{number}"))
        store.put_attributes(f"default/e{number}", {"n": number}, 1.0)
    assert column(store, "attribute.n") == list(range(100))
    store.delete("default/e7")
    store.upsert(endpoint("new"))
    assert column(store, "attribute.n")[7] == -1


def test_an_attribute_put_directly_is_seen_too_and_a_dynamic_one_is_asked_when_a_snapshot_freezes() -> None:
    store = store_of("a", "b")
    store.declare_attributes({"load": "f32", "direct": "f32"})
    live = store.endpoint("default/a")
    assert live is not None
    loads: list[AttributeValue | None] = [1.0]
    asked: list[float] = []

    def load() -> AttributeValue | None:
        asked.append(store.snapshot.at)
        return loads[0]

    live.attributes.put("load", DynamicAttribute(load))
    live.attributes.put("direct", 4.0)
    assert column(store, "attribute.load", 1.0) == [1.0, None]
    assert column(store, "attribute.direct", 1.0) == [4.0, None]
    count = len(asked)
    loads[0] = 2.0
    assert column(store, "attribute.load", 1.0) == [1.0, None], "nothing froze"
    assert len(asked) == count
    assert column(store, "attribute.load", 1.0 + AGE_RESOLUTION_S) == [2.0, None]
    loads[0] = ["no number"]
    assert column(store, "attribute.load", 2.0) == [None, None]
    loads[0] = (1,)  # type: ignore[assignment]  # what may not be kept is unknown
    assert column(store, "attribute.load", 3.0) == [None, None]
    live.attributes.put("load", 9)
    asked.clear()
    assert column(store, "attribute.load", 4.0) == [9.0, None]
    assert column(store, "attribute.load", 5.0) == [9.0, None]
    assert asked == []
    live.attributes.put("load", DynamicAttribute(load))
    store.publish(6.0)
    store.delete("default/a")
    asked.clear()
    assert column(store, "attribute.load", 7.0) == [None, None]
    assert asked == []


def test_attributes_go_stale_only_by_a_limit_of_their_own() -> None:
    store = store_of("a", "b", freshness=Freshness(fields={"attribute.x": 1.0}))
    store.put_attributes("default/a", {"x": 1.0, "y": 1.0}, 10.0)
    store.declare_attributes({"x": "f32", "y": "f32"})
    store.put_attributes("default/b", {"x": 2.0}, 11.0)
    assert column(store, "attribute.x", 11.0) == [1.0, 2.0]
    assert column(store, "attribute.x", 11.5) == [None, 2.0]
    assert (store.snapshot.stale["attribute.x"], store.snapshot.stale["attribute.y"]) == (1, 0)
    assert store.snapshot.oldest_stale_s == {"attribute.x": pytest.approx(1.5)}
    store.put_attributes("default/a", {"x": 1.0}, 11.51)
    assert column(store, "attribute.x", 11.51) == [1.0, 2.0], "back at once, though the value is the same"
    assert column(store, "attribute.y", 100.0) == [1.0, None]


# -- availability ----------------------------------------------------------------------------------


def test_availability_is_in_columns_and_an_ejected_endpoint_is_not_live() -> None:
    store = store_of("a", "b")
    assert store.set_availability("default/a", healthy=0.5, slow_start=0.25, admits=False)
    assert column(store, "endpoint.healthy") == [0.5, None]
    assert column(store, "endpoint.slow_start") == [0.25, 1.0]
    assert store.snapshot.live.tolist() == [False, True]
    last = store.snapshot
    store.set_availability("default/a", healthy=0.5, slow_start=0.25, admits=False)
    assert store.publish(1.0) is last
    store.set_availability("default/a", healthy=math.nan, slow_start=1.0, admits=True)
    assert column(store, "endpoint.healthy") == [None, None]
    assert store.snapshot.live.tolist() == [True, True]
    assert not store.set_availability("default/gone", healthy=1.0, slow_start=1.0, admits=True)


def test_health_is_the_worse_of_scraping_and_serving() -> None:
    store = store_of("a", freshness=Freshness(failures=1))
    store.update_metrics("default/a", Metrics(), 1.0)
    store.set_availability("default/a", healthy=0.5, slow_start=1.0, admits=True)
    assert column(store, "endpoint.healthy") == [0.5]
    store.record_scrape_failure("default/a", "x")
    assert column(store, "endpoint.healthy") == [0.0]
    store.update_metrics("default/a", Metrics(), 1.0)
    store.set_availability("default/a", healthy=1.0, slow_start=1.0, admits=True)
    assert column(store, "endpoint.healthy") == [1.0]


def test_a_returned_endpoint_is_available_again() -> None:
    store = store_of("a", "b")
    store.set_availability("default/a", healthy=0.0, slow_start=0.0, admits=False)
    store.delete("default/a")
    store.upsert(endpoint("a"))
    assert column(store, "endpoint.slow_start") == [1.0, 1.0]
    assert store.snapshot.live.tolist() == [True, True]


# -- the operator's word ---------------------------------------------------------------------------


def test_the_operators_word_stands_over_discovery_until_it_is_taken_back() -> None:
    store = store_of("a")
    events: list[EndpointEvent] = []
    store.subscribe(events.append)
    store.override("default/a", state=EndpointState.CORDONED, weight=0.5)
    shown = dataclasses.replace(endpoint("a"), state=EndpointState.CORDONED, weight=0.5)
    assert (store.get("default/a"), store.endpoints(), events) == (shown, (shown,), [Upsert(shown)])
    assert column(store, "endpoint.weight") == [0.5]
    assert store.snapshot.live.tolist() == [False]
    assert store.snapshot.endpoints == (shown,)
    assert not store.upsert(dataclasses.replace(endpoint("a"), weight=0.9)), "it stays under the operator's word"
    assert store.upsert(dataclasses.replace(endpoint("a", 9000), weight=0.9))
    moved = dataclasses.replace(shown, port=9000)
    assert events[1:] == [Upsert(moved)]
    store.override("default/a", state=None, weight=0.5)
    store.override("default/a", state=None, weight=None)
    assert store.get("default/a") == dataclasses.replace(endpoint("a", 9000), weight=0.9)
    assert len(events) == 4
    assert column(store, "endpoint.weight") == [pytest.approx(0.9)]
    assert store.snapshot.live.tolist() == [True]


def test_the_operators_word_waits_for_an_endpoint_and_outlives_it() -> None:
    store = EndpointStore()
    store.override("default/a", state=EndpointState.CORDONED, weight=None)
    events: list[EndpointEvent] = []
    store.subscribe(events.append)
    cordoned = dataclasses.replace(endpoint("a"), state=EndpointState.CORDONED)
    assert store.upsert(endpoint("a"))
    assert events == [Upsert(cordoned)]
    store.delete("default/a")
    store.upsert(endpoint("a"))
    assert events == [Upsert(cordoned), Delete(cordoned), Upsert(cordoned)]
    assert store.publish(1.0).live.tolist() == [False]


def test_an_override_that_changes_nothing_is_not_told() -> None:
    store = store_of("a")
    events: list[EndpointEvent] = []
    store.subscribe(events.append)
    last = store.publish(1.0)
    store.override("default/a", state=EndpointState.ACTIVE, weight=1.0)
    assert events == []
    assert store.publish(1.0) is last


# -- what stays the same object --------------------------------------------------------------------


def test_a_column_whose_values_did_not_change_stays_the_same_array() -> None:
    store = store_of("a", "b")
    store.declare_attributes({"x": "f32"})
    page = Metrics(waiting=1.0, running=2.0, kv_usage=0.5, block_size=16, engine="vllm")
    store.update_metrics("default/a", page, 1.0)
    first = store.publish(1.0)
    store.update_metrics("default/a", dataclasses.replace(page, waiting=5.0), 1.05)
    second = store.publish(1.05)
    changed = {name for name in second.columns if second.columns[name] is not first.columns[name]}
    ages = {"endpoint.age_waiting", "endpoint.age_running", "endpoint.age_kv_usage"}
    assert changed == {"endpoint.waiting", *ages}
    assert (second.facts, second.live, second.ids) == (first.facts, first.live, first.ids)
    assert second.facts is first.facts
    assert second.live is first.live


def test_a_page_that_says_the_same_is_no_reason_to_publish_before_ages_are() -> None:
    store = store_of("a")
    store.update_metrics("default/a", Metrics(waiting=1.0), 1.0)
    first = store.publish(1.0)
    store.update_metrics("default/a", Metrics(waiting=1.0), 1.05)
    assert store.publish(1.05) is first
    later = store.publish(1.0 + AGE_RESOLUTION_S)
    assert later.columns["endpoint.age_waiting"][0] == pytest.approx(0.05)
    assert later.columns["endpoint.waiting"] is first.columns["endpoint.waiting"]


def test_a_weight_alone_leaves_figures_alone() -> None:
    store = store_of("a")
    store.update_metrics("default/a", Metrics(waiting=1.0), 1.0)
    first = store.publish(1.0)
    store.override("default/a", state=None, weight=0.5)
    second = store.publish(1.0)
    assert second.columns["endpoint.waiting"] is first.columns["endpoint.waiting"]
    assert second.columns["endpoint.weight"] is not first.columns["endpoint.weight"]
    assert second.membership == first.membership


def test_what_a_plugin_says_of_endpoints_is_packed_once_on_its_way_into_the_store(monkeypatch) -> None:
    packed: list[object] = []

    class Counting(Encoder):
        def pack(self, value: Any) -> bytes:
            packed.append(value)
            return super().pack(value)

    monkeypatch.setattr(attributes, "Encoder", Counting)
    store = EndpointStore()
    kept = EventAttributes(store, now=lambda: 1.0)
    kept.follow()
    store.upsert(endpoint("a"))
    store.put_attributes("default/a", read_attributes({"x": [1]}, {"x": "value"}), 1.0)
    assert packed == [[1]]
    kept.of("e").put(read_of_endpoints({"default/a": {"x": [2]}, "default/b": {"x": [3]}}, {"x": "value"}))
    # One that comes later has what was kept of it.
    store.upsert(endpoint("b"))
    assert packed == [[1], [2], [3]]
    live = [store.endpoint(f"default/{name}") for name in "ab"]
    assert [one.attributes.get("x") for one in live if one is not None] == [[2], [3]]
