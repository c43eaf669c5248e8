"""The tasks that poll: ticks, order, what a failure concerns, and what a stopped collector still writes."""

import math
import time
from contextlib import asynccontextmanager
from fractions import Fraction

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.source import NotAskedError, SourceError
from hotbay.datalayer.sources.polling import (
    CollectorExistsError,
    PolledSource,
    SourceCollectors,
    base_tick_s,
    whole_ticks,
)
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background
from hypothesis import given
from hypothesis import strategies as st

A = EndpointMetadata("n/a", "a", "10.0.0.1", 8000)
B = EndpointMetadata("n/b", "b", "10.0.0.2", 8000)
MICROSECONDS = st.integers(50_000, 10_000_000)


@pytest.mark.parametrize(
    ("interval_s", "ticks"),
    [(0.125, 3), (0.05, 1), (0.01, 1), (0.0, 1), (0.074, 1), (0.075, 2), (0.1, 2), (0.174, 3), (0.175, 4), (5.0, 100)],
)
def test_intervals_are_whole_ticks_and_halves_go_up(interval_s, ticks):
    assert whole_ticks(interval_s, 0.05) == ticks


@given(MICROSECONDS, MICROSECONDS)
def test_ticks_are_those_of_exact_numbers(interval, tick):
    exact = math.floor(Fraction(interval, tick) + Fraction(1, 2))
    assert whole_ticks(interval / 1e6, tick / 1e6) == max(1, exact)


@given(st.floats(0.0, 100.0), st.lists(st.floats(0.05, 100.0), max_size=4))
def test_the_tick_is_the_smallest_interval_and_not_below_50_ms(default_s, intervals_s):
    tick_s = base_tick_s(default_s, intervals_s)
    assert tick_s == max(0.05, min([default_s, *intervals_s]))
    assert all(whole_ticks(interval_s, tick_s) >= 1 for interval_s in intervals_s)


@asynccontextmanager
async def collecting(store, polled, counts, **options):
    collectors = SourceCollectors(
        store, polled, now=time.monotonic, counts=counts, background=Background(), **{"tick_s": 0.05, **options}
    )
    async with anyio.create_task_group() as group:
        yield collectors, group
        group.cancel_scope.cancel()


@pytest.fixture
def store():
    store = EndpointStore()
    store.upsert(A)
    store.upsert(B)
    return store


pytestmark = pytest.mark.anyio


async def test_the_first_poll_is_at_once_and_extractors_run_in_order(kit, counts, store):
    source, order = kit.polled(), []
    readers = [kit.reads(name) for name in ("b", "a", "c")]
    for reader in readers:

        async def found(payload, name=reader.name):
            order.append((name, payload))
            return {name: f"{payload} {name}"}

        reader.found = found
    async with collecting(store, [PolledSource(source, tuple(readers))], counts) as (collectors, group):
        collectors.start(group, A)
        await counts.until(lambda: len(readers[2].seen) == 1)
        await counts.until(lambda: store.endpoint(A.id).attributes.keys() == ("a", "b", "c"))
    assert order == [(name, "page 1") for name in ("b", "a", "c")]
    assert store.endpoint(A.id).attributes.get("c") == "page 1 c"
    assert store.endpoint(B.id).attributes.keys() == ()


async def test_endpoints_that_come_together_are_not_asked_together(kit, counts, store):
    source = kit.polled()
    phase = {A.id: 0.0, B.id: 0.5}.__getitem__
    async with collecting(store, [PolledSource(source)], counts, phase=phase) as (collectors, group):
        collectors.start(group, A)
        collectors.start(group, B)
        await anyio.wait_all_tasks_blocked()
        assert source.asked == [A]
        await counts.until(lambda: source.asked == [A, B])


async def test_metrics_of_an_extractor_are_metrics_of_the_endpoint(kit, counts, store):
    source, reader = kit.polled(), kit.reads("x")

    async def found(payload):
        return Metrics(waiting=4.0)

    reader.found = found
    async with collecting(store, [PolledSource(source, (reader, last := kit.reads("y")))], counts) as (
        collectors,
        group,
    ):
        collectors.start(group, A)
        await counts.until(lambda: last.seen)
    assert store.endpoint(A.id).metrics.waiting == 4.0


async def test_a_failed_extractor_is_counted_and_concerns_nobody_else(kit, counts, store, caplog):
    source = kit.polled(interval_s=0.05)
    raises, refused, good = kit.reads("raises"), kit.reads("refused"), kit.reads("good")

    async def fail(payload):
        raise ZeroDivisionError("no")

    async def bad_value(payload):
        return {"refused": object()}

    raises.found, refused.found = fail, bad_value
    async with collecting(store, [PolledSource(source, (raises, refused, good))], counts) as (collectors, group):
        collectors.start(group, A)
        await counts.until(lambda: len(good.seen) >= 3)
    assert counts.seen["extract", "s", "raises"] >= 3
    assert counts.seen["extract", "s", "refused"] >= 3
    assert ("extract", "s", "good") not in counts.seen
    assert ("poll", "s") not in counts.seen
    assert store.endpoint(A.id).attributes.keys() == ("good",)
    # Logged once for each in ten seconds, with its traceback.
    assert sum("extract_failed source=s extractor=raises" in r.getMessage() for r in caplog.records) == 1


async def test_an_extractor_that_hangs_has_a_time_of_its_own(kit, counts, store):
    hangs, good = kit.reads("hangs"), kit.reads("good")
    hangs.found = lambda payload: anyio.sleep_forever()
    polled = [PolledSource(kit.polled(), (hangs, good))]
    async with collecting(store, polled, counts, step_s=0.05) as (collectors, group):
        collectors.start(group, A)
        await counts.until(lambda: good.seen)
    assert counts.seen["extract", "s", "hangs"] == 1


@pytest.mark.parametrize("failure", ["raises", "hangs"])
async def test_a_failed_poll_is_counted_and_leaves_what_is_known(kit, counts, store, failure):
    source, reader = kit.polled(interval_s=0.05), kit.reads("x")
    store.put_attributes(A.id, {"x": "before"}, 0.0)

    async def answer(endpoint):
        if failure == "hangs":
            await anyio.sleep_forever()
        raise SourceError("status", "answered 503")

    source.answer = answer
    async with collecting(store, [PolledSource(source, (reader,))], counts, step_s=0.02) as (collectors, group):
        collectors.start(group, A)
        await counts.until(lambda: counts.seen["poll", "s"] >= 2)
    assert (reader.seen, store.endpoint(A.id).attributes.get("x")) == ([], "before")


async def test_a_slow_poll_delays_neither_other_endpoints_nor_other_sources_and_none_overlaps(kit, counts, store):
    slow, other = kit.polled("slow", 0.05), kit.polled("other", 0.05)

    async def answer(endpoint):
        if endpoint.id == A.id:
            await anyio.sleep_forever()
        return "page"

    slow.answer = answer
    async with collecting(store, [PolledSource(slow), PolledSource(other)], counts, step_s=60.0) as (collectors, group):
        collectors.start(group, A)
        collectors.start(group, B)
        await counts.until(lambda: sum(e.id == A.id for e in other.asked) >= 4)
        await counts.until(lambda: sum(e.id == B.id for e in slow.asked) >= 4)
        assert sum(e.id == A.id for e in slow.asked) == 1
    assert (slow.most_under_way, other.most_under_way) == (1, 1)


async def test_an_endpoint_has_one_collector(kit, counts, store):
    source = kit.polled()
    async with collecting(store, [PolledSource(source)], counts) as (collectors, group):
        collectors.start(group, A)
        with pytest.raises(CollectorExistsError, match="n/a"):
            collectors.start(group, A)
        await counts.until(lambda: source.asked)
        await collectors.stop(A.id)
        assert A.id not in collectors
        collectors.start(group, A)
        await counts.until(lambda: len(source.asked) == 2)
    assert source.forgotten == [A.id, A.id]


async def test_nothing_is_written_after_a_stop_whatever_is_under_way(kit, counts, store):
    source, reader = kit.polled(), kit.reads("x")
    go = anyio.Event()

    async def found(payload):
        # What was already on its way arrives although it was cancelled.
        with anyio.CancelScope(shield=True):
            await go.wait()
        return {"x": "late"}

    reader.found = found
    async with collecting(store, [PolledSource(source, (reader,))], counts) as (collectors, group):
        collectors.start(group, A)
        await counts.until(lambda: reader.seen)

        async def release():
            go.set()

        async with anyio.create_task_group() as stopping:
            stopping.start_soon(collectors.stop, A.id)
            stopping.start_soon(release)
        assert A.id not in collectors
    assert store.endpoint(A.id).attributes.keys() == ()


async def test_a_retired_collector_polls_on_and_writes_nothing(kit, counts, store):
    source, reader = kit.polled(interval_s=0.05), kit.reads("x")
    async with collecting(store, [PolledSource(source, (reader,))], counts) as (collectors, group):
        collectors.start(group, A)
        collectors.retire(A.id)
        await counts.until(lambda: len(source.asked) >= 2)
    assert (reader.seen, store.endpoint(A.id).attributes.keys()) == ([], ())


async def test_an_endpoint_that_is_gone_from_the_store_is_not_written(kit, counts, store):
    source, reader = kit.polled(interval_s=0.05), kit.reads("x")
    store.delete(A.id)
    async with collecting(store, [PolledSource(source, (reader,))], counts) as (collectors, group):
        collectors.start(group, A)
        await counts.until(lambda: len(source.asked) >= 2)
    assert reader.seen == []


async def test_what_nobody_foresaw_in_a_source_stays_with_one_endpoint(kit, counts, store):
    source = kit.polled(interval_s=0.05)

    async def answer(endpoint):
        if endpoint.id == A.id:
            raise ZeroDivisionError("no")
        return "page"

    source.answer = answer
    async with collecting(store, [PolledSource(source)], counts) as (collectors, group):
        collectors.start(group, A)
        collectors.start(group, B)
        await counts.until(lambda: sum(e.id == B.id for e in source.asked) >= 3)


async def test_a_poll_that_was_not_made_is_no_failure_and_leaves_what_is_known(kit, counts, store):
    source, reader = kit.polled(interval_s=0.05), kit.reads("x")

    async def answer(endpoint):
        raise NotAskedError("others were asked")

    source.answer = answer
    async with collecting(store, [PolledSource(source, (reader,))], counts) as (collectors, group):
        collectors.start(group, A)
        await counts.until(lambda: counts.seen["skip", "s"] >= 3)
    assert (reader.seen, counts.seen["poll", "s"]) == ([], 0)


async def test_a_source_that_bounds_its_polls_itself_has_its_own_time(kit, counts, store):
    source, other = kit.polled(), kit.polled("t")
    source.step_s = 60.0
    source.answer = other.answer = lambda endpoint: anyio.sleep_forever()
    async with collecting(store, [PolledSource(source), PolledSource(other)], counts, step_s=0.01) as (
        collectors,
        group,
    ):
        collectors.start(group, A)
        await counts.until(lambda: source.asked and counts.seen["poll", "t"])
    assert counts.seen["poll", "s"] == 0


async def test_an_interval_that_is_another_one_counts_from_the_next_poll_on(kit, counts, store):
    source = kit.polled(interval_s=0.05)

    async def answer(endpoint):
        if len(source.asked) == 2:
            source.interval_s = 3600.0
        return "page"

    source.answer = answer
    async with collecting(store, [PolledSource(source), PolledSource(kit.polled("t", 0.05))], counts) as (
        collectors,
        group,
    ):
        collectors.start(group, A)
        await counts.until(lambda: len(source.asked) == 2)
        asked = len(source.asked)
        other = collectors._polled[1].source
        await counts.until(lambda: len(other.asked) >= 5)
    assert len(source.asked) == asked


async def test_a_source_is_told_who_reads_it_and_who_does_later(kit, counts, store):
    source, first, later = kit.polled(), kit.reads("a"), kit.reads("b")
    told = []
    source.read_for = told.append
    async with collecting(store, [PolledSource(source, (first,)), PolledSource(kit.polled("t"))], counts) as (
        collectors,
        _,
    ):
        collectors.rebind("s", [later])
        collectors.rebind("t", [first])
    assert told == [(first,), [later]]
