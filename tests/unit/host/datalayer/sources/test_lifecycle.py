"""Endpoints that come, change and go: what is told, when, and how it stands to their collectors."""

import dataclasses
import time
from contextlib import asynccontextmanager

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState
from hotbay.datalayer.source import EventType
from hotbay.datalayer.sources.lifecycle import EndpointNotificationSource, Lifecycle, WatchedSource
from hotbay.datalayer.sources.polling import PolledSource, SourceCollectors
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background
from hypothesis import given
from hypothesis import strategies as st

A = EndpointMetadata("n/a", "a", "10.0.0.1", 8000)
MOVED = dataclasses.replace(A, port=8001)
LABELLED = dataclasses.replace(A, labels={"role": "decode"})
ADD, DELETE = EventType.ADD_OR_UPDATE, EventType.DELETE
CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, 1, 2])), max_size=15)

pytestmark = pytest.mark.anyio


@pytest.fixture
def store():
    return EndpointStore()


@asynccontextmanager
async def living(store, counts, polled=(), watched=(), **options):
    collectors = SourceCollectors(
        store, polled, tick_s=0.05, now=time.monotonic, counts=counts, background=Background(), **options
    )
    lifecycle = Lifecycle(store, collectors, watched, now=time.monotonic, counts=counts, **options)
    async with anyio.create_task_group() as group:
        await group.start(lifecycle.run)
        collectors.lifecycle = lifecycle
        yield collectors
        group.cancel_scope.cancel()


def told(extractor):
    return [(event.type, event.endpoint) for event in extractor.seen]


async def test_s28_one_event_for_each_change_and_none_for_a_no_op_without_any_poller(kit, counts, store):
    heard = kit.hears("x")
    store.upsert(A)
    async with living(store, counts, watched=[WatchedSource(EndpointNotificationSource("life"), (heard,))]):
        store.upsert(A)
        store.upsert(LABELLED)
        store.upsert(LABELLED)
        store.delete(A.id)
        store.delete(A.id)
        await counts.until(lambda: len(heard.seen) >= 3)
    assert told(heard) == [(ADD, A), (ADD, LABELLED), (DELETE, LABELLED)]
    assert counts.seen["event", "life", "delivered"] == 3


async def test_s28_the_operators_word_on_an_endpoint_is_a_change_too(kit, counts, store):
    heard = kit.hears("x")
    store.upsert(A)
    async with living(store, counts, watched=[WatchedSource(EndpointNotificationSource("life"), (heard,))]):
        store.override(A.id, state=EndpointState.CORDONED, weight=None)
        store.override(A.id, state=EndpointState.CORDONED, weight=None)
        await counts.until(lambda: len(heard.seen) >= 2)
    assert [event.endpoint.state for event in heard.seen] == [EndpointState.ACTIVE, EndpointState.CORDONED]


async def test_coming_is_told_after_the_collector_started_and_going_ends_it_whoever_is_still_to_hear_of_it(
    kit, counts, store
):
    source, heard, order, may_go = kit.polled(), kit.hears("x"), [], anyio.Event()

    async def found(event):
        order.append((event.type, event.endpoint.id in collectors))
        if event.type is DELETE:
            await may_go.wait()
        return {}

    heard.found = found
    watched = [WatchedSource(kit.watched(), (heard,))]
    async with living(store, counts, [PolledSource(source)], watched, step_s=60.0) as collectors:
        store.upsert(A)
        await counts.until(lambda: len(heard.seen) == 1)
        store.delete(A.id)
        await counts.until(lambda: len(heard.seen) == 2)
        with anyio.fail_after(5):
            while A.id in collectors:
                await anyio.lowlevel.checkpoint()
        assert (source.forgotten, may_go.is_set()) == ([A.id], False)
        may_go.set()
    assert order[0] == (ADD, True)


async def test_server_that_comes_again_is_polled_and_told_to_others_while_a_plugin_hangs_in_its_going(
    kit, counts, store
):
    """A plugin that hears endpoint events slowly holds neither the collector of a server nor another plugin."""
    source, slow, other, may_go = kit.polled(interval_s=0.05), kit.hears("slow"), kit.hears("other"), anyio.Event()

    async def found(event):
        if event.type is DELETE:
            await may_go.wait()
        return {}

    slow.found = found
    elsewhere = kit.hears("elsewhere")
    watched = [WatchedSource(kit.watched(), (slow, other)), WatchedSource(kit.watched("f"), (elsewhere,))]
    store.upsert(A)
    async with living(store, counts, [PolledSource(source)], watched, step_s=60.0) as collectors:
        await counts.until(lambda: source.asked)
        store.delete(A.id)
        await counts.until(lambda: len(slow.seen) == 2)
        asked = len(source.asked)
        store.upsert(LABELLED)
        await counts.until(lambda: len(source.asked) >= asked + 2 and len(other.seen) == len(elsewhere.seen) == 3)
        assert (told(slow), may_go.is_set()) == ([(ADD, A), (DELETE, A)], False)
        assert collectors.lifecycle.problems == ()
        may_go.set()
        await counts.until(lambda: len(slow.seen) == 3)
    assert told(slow) == told(other) == told(elsewhere) == [(ADD, A), (DELETE, A), (ADD, LABELLED)]


async def test_what_a_slow_plugin_says_of_a_server_is_not_written_to_the_one_that_took_its_place(kit, counts, store):
    heard, may_go, b = kit.hears("x"), anyio.Event(), dataclasses.replace(A, id="n/b", name="b", port=9)

    async def found(event):
        if len(heard.seen) == 1:
            await may_go.wait()
            return {A.id: {"life": 1}, b.id: {"of": "another"}}
        if len(heard.seen) == 2:
            await may_come.wait()
        return {event.endpoint.id: {"life": len(heard.seen)}}

    heard.found, may_come = found, anyio.Event()
    store.upsert(A)
    store.upsert(b)
    async with living(store, counts, watched=[WatchedSource(kit.watched(), (heard,))], step_s=60.0):
        await counts.until(lambda: heard.seen)
        store.delete(A.id)
        store.upsert(A)
        may_go.set()
        await counts.until(lambda: len(heard.seen) == 2)
        assert store.endpoint(A.id).attributes.keys() == ()
        assert store.endpoint(b.id).attributes.get("of") == "another"
        may_come.set()
        await counts.until(lambda: len(heard.seen) == 4)
        await anyio.wait_all_tasks_blocked()
    assert told(heard) == [(ADD, A), (ADD, b), (DELETE, A), (ADD, A)]
    assert store.endpoint(A.id).attributes.get("life") == 4


async def test_source_that_is_watched_no_more_hears_nothing_and_delays_nobody(kit, counts, store):
    first, second = kit.hears("x"), kit.hears("y")
    watched = [WatchedSource(kit.watched("one"), (first,)), WatchedSource(kit.watched("two"), (second,))]
    async with living(store, counts, watched=watched) as collectors:
        store.upsert(A)
        await counts.until(lambda: first.seen and second.seen)
        collectors.lifecycle.unwatch("one")
        store.upsert(LABELLED)
        await counts.until(lambda: len(second.seen) == 2)
        with pytest.raises(KeyError):
            collectors.lifecycle.unwatch("one")
    assert told(first) == [(ADD, A)]


async def test_nothing_is_written_for_an_endpoint_that_went_and_came_again(kit, counts, store):
    source, reader, heard = kit.polled(), kit.reads("r"), kit.hears("x")
    answers, answered, may_go = anyio.Event(), anyio.Event(), anyio.Event()

    async def found(event):
        if event.type is DELETE:
            await may_go.wait()
        return {}

    heard.found = found

    async def answer(endpoint):
        if len(source.asked) == 1:
            with anyio.CancelScope(shield=True):
                await answers.wait()
            answered.set()
            return "of the first life"
        return "of the second"

    source.answer = answer
    watched = [WatchedSource(kit.watched(), (heard,))]
    async with living(store, counts, [PolledSource(source, (reader,))], watched):
        store.upsert(A)
        await counts.until(lambda: len(source.asked) == 1)
        store.delete(A.id)
        store.upsert(A)
        # The collector of the first life goes on while its end is being told, and an answer comes.
        await counts.until(lambda: len(heard.seen) >= 2)
        answers.set()
        await answered.wait()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        may_go.set()
        await counts.until(lambda: len(heard.seen) == 3 and reader.seen)
    assert told(heard) == [(ADD, A), (DELETE, A), (ADD, A)]
    assert [payload for payload, _ in reader.seen] == ["of the second"]


async def test_s26_an_endpoint_that_moved_is_polled_at_its_new_place_only(kit, counts, store):
    source, heard = kit.polled(interval_s=0.05), kit.hears("x")
    store.upsert(A)
    async with living(store, counts, [PolledSource(source)], [WatchedSource(kit.watched(), (heard,))]):
        await counts.until(lambda: source.asked)
        store.upsert(MOVED)
        asked = len(source.asked)
        await counts.until(lambda: len(source.asked) >= asked + 2)
    assert {endpoint.port for endpoint in source.asked[asked:]} == {8001}
    assert source.forgotten == [A.id, A.id]
    assert told(heard) == [(ADD, A), (ADD, MOVED)]


async def test_a_changed_label_keeps_the_collector(kit, counts, store):
    source = kit.polled(interval_s=0.05)
    store.upsert(A)
    async with living(store, counts, [PolledSource(source)]):
        await counts.until(lambda: source.asked)
        store.upsert(LABELLED)
        await counts.until(lambda: LABELLED in source.asked)
        assert source.forgotten == []


async def test_a_source_may_change_or_drop_what_is_told(kit, counts, store):
    source, heard = kit.watched(), kit.hears("x")
    source.say = lambda event: None if event.type is DELETE else dataclasses.replace(event, endpoint=LABELLED)
    async with living(store, counts, watched=[WatchedSource(source, (heard,))]):
        store.upsert(A)
        store.delete(A.id)
        await counts.until(lambda: counts.seen["event", "e", "dropped"])
    assert told(heard) == [(ADD, LABELLED)]


async def test_a_source_that_is_watched_later_is_told_of_what_the_others_were_told_of_that_is_there(kit, counts, store):
    first, second = kit.hears("x"), kit.hears("y")
    other = dataclasses.replace(A, id="n/b", name="b")
    store.upsert(A)
    store.upsert(other)
    async with living(store, counts, watched=[WatchedSource(kit.watched(), (first,))]) as collectors:
        store.delete(other.id)
        await counts.until(lambda: len(first.seen) == 3)
        collectors.lifecycle.watch(WatchedSource(EndpointNotificationSource("late"), (second,)))
        store.upsert(LABELLED)
        store.delete(A.id)
        await counts.until(lambda: len(second.seen) == 3 and len(first.seen) == 5)
    assert told(second) == [(ADD, A), (ADD, LABELLED), (DELETE, LABELLED)]


async def test_failures_are_counted_and_concern_nobody_else(kit, counts, store):
    bad_source, good_source = kit.watched("bad"), kit.watched("good")
    bad, good = kit.hears("b"), kit.hears("g")

    def fail(event):
        raise ZeroDivisionError("no")

    async def raise_(event):
        raise ZeroDivisionError("no")

    bad_source.say, bad.found = fail, raise_
    watched = [WatchedSource(bad_source, ()), WatchedSource(good_source, (bad, good))]
    async with living(store, counts, watched=watched):
        store.upsert(A)
        store.delete(A.id)
        await counts.until(lambda: len(good.seen) == 2)
    assert counts.seen["event", "bad", "failed"] == 2
    assert counts.seen["extract", "good", "b"] == 2


async def test_what_an_extractor_says_of_an_endpoint_is_written(kit, counts, store):
    heard, last = kit.hears("x"), kit.hears("y")

    async def found(event):
        return {event.endpoint.id: {"role": event.endpoint.labels.get("role", "")}, "n/nobody": {"role": "x"}}

    heard.found = found
    async with living(store, counts, watched=[WatchedSource(kit.watched(), (heard, last))]):
        store.upsert(LABELLED)
        await counts.until(lambda: last.seen)
    assert store.endpoint(A.id).attributes.get("role") == "decode"


async def hanging(kit, store, counts, change, most_waiting):
    """What an extractor hears that hangs in its first event while `change` happens, and how many events wait then."""
    heard, told, goes_on = kit.hears("x"), anyio.Event(), anyio.Event()

    async def found(event):
        told.set()
        await goes_on.wait()
        return {}

    heard.found = found
    collectors = SourceCollectors(
        store, (), tick_s=0.05, now=time.monotonic, counts=counts, background=Background(), step_s=60.0
    )
    watched = [WatchedSource(kit.watched(), (heard,))]
    lifecycle = Lifecycle(
        store, collectors, watched, now=time.monotonic, counts=counts, step_s=60.0, most_waiting=most_waiting
    )
    async with anyio.create_task_group() as group:
        await group.start(lifecycle.run)
        store.upsert(A)
        await told.wait()
        change()
        await anyio.wait_all_tasks_blocked()
        waiting = lifecycle._audiences["e"].waiting["x"]
        goes_on.set()
        store.upsert(EndpointMetadata("n/last", "last", "10.0.0.9", 1))
        await counts.until(lambda: heard.seen[-1].endpoint.id == "n/last")
        group.cancel_scope.cancel()
    return told_of(heard), waiting


def superseded(counts):
    """Events that neither the source nor the extractor behind it heard, for newer ones."""
    return counts.seen["event", "e", "superseded"] + counts.seen["skip", "e", "x", "superseded"]


def told_of(heard):
    return [(event.type, event.endpoint.id, event.endpoint.port) for event in heard.seen]


async def test_while_a_source_hangs_the_newest_event_of_each_endpoint_waits(kit, counts, store):
    z = EndpointMetadata("n/z", "z", "10.0.0.3", 1)

    def change():
        for port in range(1, 1001):
            store.upsert(dataclasses.replace(z, port=port))
        store.delete(A.id)

    seen, waiting = await hanging(kit, store, counts, change, most_waiting=10)
    assert waiting <= 11
    assert seen[0] == (ADD, A.id, A.port)
    assert seen[-2:] == [(DELETE, A.id, A.port), (ADD, "n/last", 1)]
    assert (ADD, "n/z", 1000) in seen
    assert superseded(counts) == 1003 - len(seen)


async def test_endpoints_that_went_before_a_source_heard_of_them_are_passed_over_and_leave_nothing(kit, counts, store):
    def change():
        for number in range(1000):
            store.upsert(EndpointMetadata(f"n/{number}", str(number), "10.0.0.3", 1))
            store.delete(f"n/{number}")

    seen, waiting = await hanging(kit, store, counts, change, most_waiting=10)
    assert waiting <= 11
    assert len(seen) <= 13


async def test_up_to_the_bound_every_event_is_told(kit, counts, store):
    def change():
        for port in range(1, 10):
            store.upsert(dataclasses.replace(A, port=port))

    seen, waiting = await hanging(kit, store, counts, change, most_waiting=10)
    assert waiting == 9
    assert [port for _, _, port in seen] == [A.port, *range(1, 10), 1]
    assert not superseded(counts)


@given(CHANGES)
def test_whatever_happens_events_are_those_of_the_store_in_its_order(changes):
    anyio.run(_follows, changes, backend_options={"use_uvloop": True})


class Recorder:
    """Notes what it hears, and how much of that it has heard, slowly now and then."""

    name, type, kind = "x", "t", None

    def __init__(self, expected):
        self.expected = expected
        self.seen = []
        self.news = anyio.Event()

    async def extract_event(self, event):
        self.seen.append((event.type, event.endpoint))
        if len(self.seen) % 2:
            await anyio.lowlevel.checkpoint()
        self.news.set()
        self.news = anyio.Event()
        return {}

    async def heard_all(self):
        while len(self.seen) < len(self.expected):
            await self.news.wait()


class Nothing:
    """Counts nothing."""

    def poll_failed(self, source): ...
    def poll_skipped(self, source): ...
    def extract_failed(self, source, extractor): ...
    def extract_skipped(self, source, extractor, reason): ...
    def event(self, source, outcome): ...


def _change(store, name, port):
    """The event that the change has to give, if any."""
    before = store.get(f"n/{name}")
    if port is None:
        return (DELETE, before) if store.delete(f"n/{name}") else None
    endpoint = EndpointMetadata(f"n/{name}", name, "10.0.0.1", port)
    return (ADD, endpoint) if store.upsert(endpoint) else None


async def _follows(changes):
    store, expected = EndpointStore(), []
    recorder, other = Recorder(expected), Recorder(expected)
    watched = [WatchedSource(EndpointNotificationSource("life"), (recorder, other))]
    async with living(store, Nothing(), watched=watched) as collectors:
        expected += [event for name, port in changes if (event := _change(store, name, port)) is not None]
        present = {endpoint.id for endpoint in store.endpoints()}
        with anyio.fail_after(5):
            await recorder.heard_all()
            await other.heard_all()
            while {f"n/{name}" for name in "abc" if f"n/{name}" in collectors} != present:
                await anyio.lowlevel.checkpoint()
    assert recorder.seen == other.seen == expected
