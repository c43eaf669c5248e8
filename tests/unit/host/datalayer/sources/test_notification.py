"""Events of notification sources: order, copies, what a source may do to them, and what a failure concerns."""

import dataclasses
import datetime
import time
from contextlib import asynccontextmanager

import anyio
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.attributes import AttributeMap, AttributeRefusedError
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.source import EventType, ObjectEvent
from hotbay.datalayer.sources import event_attributes
from hotbay.datalayer.sources.event_attributes import EventAttributes, TooManyAttributesError
from hotbay.datalayer.sources.notification import Notifications, NotifiedSource
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background
from hypothesis import given
from hypothesis import strategies as st

POD = ObjectKind("", "v1", "Pod")
A = EndpointMetadata("n/a", "a", "10.0.0.1", 8000)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "come", "go"]),
        st.sampled_from("ab"),
        st.sampled_from([1, 2, None]),
        st.sampled_from("xy"),
    ),
    max_size=12,
)

pytestmark = pytest.mark.anyio


def event(key="n/a", value=0, type_=EventType.ADD_OR_UPDATE):
    return ObjectEvent(type_, POD, key, {"spec": {"value": value}})


@pytest.fixture
def store():
    return EndpointStore()


@asynccontextmanager
async def notifying(store, counts, *notified, **options):
    attributes = EventAttributes(store, now=time.monotonic)
    notifications = Notifications(notified, attributes=attributes, counts=counts, background=Background(), **options)
    unfollow = attributes.follow()
    async with anyio.create_task_group() as group:
        notifications.start(group)
        with anyio.fail_after(5):
            for one in notified:
                await one.source.runs.wait()
        yield
        group.cancel_scope.cancel()
    unfollow()


async def test_events_reach_every_extractor_in_order(kit, counts, store):
    source, one, two = kit.told(), kit.hears("one", POD), kit.hears("two", POD)
    async with notifying(store, counts, NotifiedSource(source, (one, two))):
        for value in range(20):
            await source.emit(event(value=value))
        await anyio.wait_all_tasks_blocked()
    for extractor in (one, two):
        assert [seen.object["spec"]["value"] for seen in extractor.seen] == list(range(20))
    assert counts.seen["event", "n", "delivered"] == 20


async def test_one_event_is_under_way_at_a_time_even_if_a_source_emits_several(kit, counts, store):
    source, slow = kit.told(), kit.hears("slow", POD)
    under_way, most, order = 0, 0, []

    async def found(seen):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(seen.object["spec"]["value"] % 3):
            await anyio.lowlevel.checkpoint()
        order.append(seen.object["spec"]["value"])
        under_way -= 1
        return {}

    slow.found = found
    async with notifying(store, counts, NotifiedSource(source, (slow,))), anyio.create_task_group() as group:
        for value in range(10):
            group.start_soon(source.emit, event(value=value))
        await counts.until(lambda: len(slow.seen) == 10)
        await anyio.wait_all_tasks_blocked()
    assert (most, order) == (1, list(range(10)))


async def test_each_extractor_has_a_copy_of_its_own(kit, counts, store):
    source, rude, other = kit.told(), kit.hears("rude", POD), kit.hears("other", POD)
    original = event(value=1)

    async def found(seen):
        seen.object["spec"]["value"] = "changed"
        return {}

    rude.found = found

    def say(seen):
        seen.object["said"] = True
        return seen

    source.say = say
    async with notifying(store, counts, NotifiedSource(source, (rude, other))):
        await source.emit(original)
        await counts.until(lambda: rude.seen and other.seen)
    assert other.seen[0].object == {"spec": {"value": 1}, "said": True}
    assert original.object == {"spec": {"value": 1}}


async def test_a_document_that_cannot_cross_is_copied_for_each_extractor_too(kit, counts, store):
    source, rude, other = kit.told(), kit.hears("rude", POD), kit.hears("other", POD)
    document = {"spec": {7: datetime.date(2026, 1, 2)}}

    async def found(seen):
        seen.object["spec"].clear()
        return {}

    rude.found = found
    async with notifying(store, counts, NotifiedSource(source, (rude, other))):
        await source.emit(ObjectEvent(EventType.ADD_OR_UPDATE, POD, "n/a", document))
        await counts.until(lambda: rude.seen and other.seen)
        await anyio.wait_all_tasks_blocked()
    assert other.seen[0].object == document == {"spec": {7: datetime.date(2026, 1, 2)}}


async def test_a_source_may_change_or_drop_an_event(kit, counts, store):
    source, heard = kit.told(), kit.hears("x", POD)
    source.say = lambda seen: None if seen.object["spec"]["value"] == 1 else dataclasses.replace(seen, key="other")
    async with notifying(store, counts, NotifiedSource(source, (heard,))):
        for value in range(3):
            await source.emit(event(value=value))
        await counts.until(lambda: len(heard.seen) == 2)
    assert [(e.key, e.object["spec"]["value"]) for e in heard.seen] == [("other", 0), ("other", 2)]
    assert (counts.seen["event", "n", "dropped"], counts.seen["event", "n", "delivered"]) == (1, 2)


async def test_a_source_that_fails_at_an_event_loses_that_one_only(kit, counts, store):
    source, heard = kit.told(), kit.hears("x", POD)

    def say(seen):
        if seen.object["spec"]["value"] == 0:
            raise ZeroDivisionError("no")
        return seen

    source.say = say
    async with notifying(store, counts, NotifiedSource(source, (heard,))):
        for value in range(2):
            await source.emit(event(value=value))
        await counts.until(lambda: heard.seen)
    assert [e.object["spec"]["value"] for e in heard.seen] == [1]
    assert counts.seen["event", "n", "failed"] == 1


async def test_extractor_that_hangs_holds_neither_who_finds_events_nor_the_other_extractors(kit, counts, store):
    source, slow, other, may_end = kit.told(), kit.hears("slow", POD), kit.hears("other", POD), anyio.Event()

    async def found(seen):
        await may_end.wait()
        return {}

    slow.found = found
    async with notifying(store, counts, NotifiedSource(source, (slow, other)), step_s=60.0):
        with anyio.fail_after(5):
            for value in range(3):
                await source.emit(event(value=value))
        await counts.until(lambda: len(other.seen) == 3)
        assert len(slow.seen) == 1
        may_end.set()
        await counts.until(lambda: len(slow.seen) == 3)
    for extractor in (slow, other):
        assert [seen.object["spec"]["value"] for seen in extractor.seen] == [0, 1, 2]


async def test_while_an_extractor_hangs_the_newest_event_of_each_object_waits_for_it_and_others_hear_all(
    kit, counts, store
):
    source, slow, other, may_end = kit.told(), kit.hears("slow", POD), kit.hears("other", POD), anyio.Event()

    async def found(seen):
        await may_end.wait()
        return {}

    slow.found = found
    async with notifying(store, counts, NotifiedSource(source, (slow, other)), step_s=60.0, most_waiting=10):
        for value in range(100):
            await source.emit(event(f"n/{value % 3}", value))
            await anyio.wait_all_tasks_blocked()
        may_end.set()
        await counts.until(lambda: slow.seen[-1].object["spec"]["value"] == 99)
    assert [seen.object["spec"]["value"] for seen in other.seen] == list(range(100))
    heard = [seen.object["spec"]["value"] for seen in slow.seen]
    assert heard == sorted(heard)
    assert counts.seen["skip", "n", "slow", "superseded"] == 100 - len(heard)
    assert not counts.seen["event", "n", "superseded"]


@pytest.mark.parametrize("failure", ["raises", "hangs", "bad value", "bad key"])
async def test_a_failed_extractor_is_counted_and_the_others_see_the_event(kit, counts, store, failure):
    source, bad, good = kit.told(), kit.hears("bad", POD), kit.hears("good", POD)
    store.upsert(A)

    async def found(seen):
        if failure == "raises":
            raise ZeroDivisionError("no")
        if failure == "hangs":
            await anyio.sleep_forever()
        return {"n/a": {"x": object()} if failure == "bad value" else {"not a key": 1}}

    bad.found = found
    async with notifying(store, counts, NotifiedSource(source, (bad, good)), step_s=0.05):
        await source.emit(event())
        await counts.until(lambda: counts.seen["extract", "n", "bad"])
    assert (len(good.seen), counts.seen["extract", "n", "bad"]) == (1, 1)
    assert store.endpoint("n/a").attributes.keys() == ()


async def test_an_extractor_that_bounds_its_own_calls_is_not_cut_off(kit, counts, store):
    source, patient = kit.told(), kit.hears("patient", POD)
    patient.step_s = float("inf")
    may_end = anyio.Event()

    async def found(seen):
        await may_end.wait()
        return {}

    patient.found = found
    notified = NotifiedSource(source, (patient,))
    async with notifying(store, counts, notified, step_s=0.001), anyio.create_task_group() as group:
        group.start_soon(source.emit, event())
        await counts.until(lambda: patient.seen)
        with anyio.move_on_after(0.05):
            await counts.until(lambda: counts.seen["extract", "n", "patient"])
        may_end.set()
        await anyio.wait_all_tasks_blocked()
    assert ("extract", "n", "patient") not in counts.seen


async def test_what_an_event_said_waits_for_its_endpoint_and_outlives_it(kit, counts, store):
    source, heard = kit.told(), kit.hears("x", POD)

    async def found(seen):
        return {seen.key: {"value": seen.object["spec"]["value"], "b": None}}

    heard.found = found
    async with notifying(store, counts, NotifiedSource(source, (heard,))):
        await source.emit(event(value=7))
        await anyio.wait_all_tasks_blocked()
        store.upsert(A)
        assert store.endpoint("n/a").attributes.get("value") == 7
        await source.emit(event(value=8))
        await anyio.wait_all_tasks_blocked()
        assert store.endpoint("n/a").attributes.get("value") == 8
        store.delete("n/a")
        store.upsert(A)
        assert store.endpoint("n/a").attributes.get("value") == 8


@given(STEPS)
def test_an_endpoint_always_has_what_was_said_last(steps):
    store = EndpointStore()
    attributes = EventAttributes(store, now=time.monotonic)
    attributes.follow()
    said = {}
    for what, name, value, by in steps:
        endpoint = EndpointMetadata(f"n/{name}", name, "10.0.0.1", 8000)
        if what == "put":
            attributes.of(by).put({endpoint.id: {"v": value}})
            said[endpoint.id] = value
        elif what == "come":
            store.upsert(endpoint)
        else:
            store.delete(endpoint.id)
        for known in store.endpoints():
            assert store.endpoint(known.id).attributes.get("v") == said.get(known.id)


def test_what_is_refused_changes_nothing():
    store = EndpointStore()
    store.upsert(A)
    attributes = EventAttributes(store, now=time.monotonic)
    attributes.follow()
    attributes.of("x").put({"n/a": {"v": 1}})
    with pytest.raises(AttributeRefusedError):
        attributes.of("x").put({"n/a": {"v": 2}, "n/b": {"v": object()}})
    assert store.endpoint("n/a").attributes.get("v") == 1


def kept_of(attributes, store, *names):
    """What endpoints that come now have of `v`."""
    for name in names:
        store.upsert(EndpointMetadata(f"n/{name}", name, "10.0.0.1", 8000))
    return {name: store.endpoint(f"n/{name}").attributes.get("v") for name in names}


def test_an_extractor_that_invents_endpoints_costs_no_other_anything(monkeypatch):
    monkeypatch.setattr(event_attributes, "MAX_KEPT_ENDPOINTS", 2)
    store = EndpointStore()
    attributes = EventAttributes(store, now=time.monotonic)
    attributes.follow()
    attributes.of("good").put({"n/a": {"v": 1}})
    for number in range(10):
        attributes.of("bad").put({f"n/{number}": {"v": number}})
    attributes.of("good").put({"n/b": {"v": 2}})
    assert (attributes.of("bad").evicted, attributes.of("good").evicted) == (8, 0)
    assert kept_of(attributes, store, "a", "b", "7", "8", "9") == {"a": 1, "b": 2, "7": None, "8": 8, "9": 9}


def test_endpoints_that_are_not_there_are_forgotten_first_those_that_went_the_longest_ago(monkeypatch):
    monkeypatch.setattr(event_attributes, "MAX_KEPT_ENDPOINTS", 3)
    store = EndpointStore()
    attributes = EventAttributes(store, now=time.monotonic)
    attributes.follow()
    kept_of(attributes, store, "a", "b", "c")
    assert attributes.of("x").put({f"n/{name}": {"v": 1} for name in "abc"}) == 0
    store.delete("n/b")
    store.delete("n/a")
    assert attributes.of("x").put({"n/d": {"v": 1}}) == 1
    assert kept_of(attributes, store, "a", "b") == {"a": 1, "b": None}
    assert store.endpoint("n/c").attributes.get("v") == 1


def test_an_endpoint_that_moves_has_what_was_said_of_it():
    store = EndpointStore()
    store.upsert(A)
    attributes = EventAttributes(store, now=time.monotonic)
    attributes.follow()
    attributes.of("x").put({A.id: {"v": 1}})
    for moved in (dataclasses.replace(A, port=8001), dataclasses.replace(A, address="10.0.0.9")):
        store.upsert(moved)
        assert store.endpoint(A.id).attributes.get("v") == 1


def test_bytes_are_bounded_on_both_sides(monkeypatch):
    store = EndpointStore()
    store.upsert(A)
    attributes = EventAttributes(store, now=time.monotonic)
    attributes.follow()
    one = AttributeMap()
    one.put("v", "x" * 1000)
    monkeypatch.setattr(event_attributes, "MAX_KEPT_BYTES", 2 * one.size_bytes())
    x = attributes.of("x")
    assert x.put({"n/a": {"v": "a" * 1000}, "n/b": {"v": "b" * 1000}}) == 0
    assert x.put({"n/c": {"v": "c" * 1000}}) == 1
    assert x.put({"n/a": {"v": "a" * 1001}}) == 1
    store.upsert(EndpointMetadata("n/d", "d", "10.0.0.2", 8000))
    with pytest.raises(TooManyAttributesError, match="x: expected attributes of at most"):
        x.put({"n/d": {"v": "d" * 1000}})
    assert store.endpoint("n/d").attributes.get("v") is None
    assert x.put({"n/d": {"v": "d" * 999}}) == 0


async def test_what_was_forgotten_is_counted(kit, counts, store, monkeypatch):
    monkeypatch.setattr(event_attributes, "MAX_KEPT_ENDPOINTS", 1)
    source, heard = kit.told(), kit.hears("x", POD)

    async def found(seen):
        return {seen.key: {"v": 1}}

    heard.found = found
    async with notifying(store, counts, NotifiedSource(source, (heard,))):
        for name in "abc":
            await source.emit(event(f"n/{name}"))
        await counts.until(lambda: counts.seen["event", source.name, "forgotten"] == 2)
    assert counts.seen["event", source.name, "forgotten"] == 2
    assert not [what for what in counts.seen if what[0] == "extract"]
