"""Polled sources that come and go while endpoints do: who is polled by whom, and what is left of a source that goes."""

import time
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.sources.all_collectors import AllCollectors
from hotbay.datalayer.sources.lifecycle import Lifecycle
from hotbay.datalayer.sources.polling import PolledSource, SourceCollectors
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

A = EndpointMetadata("n/a", "a", "10.0.0.1", 8000)
B = EndpointMetadata("n/b", "b", "10.0.0.2", 8000)
STEPS = st.lists(
    st.sampled_from(["add s", "add t", "remove s", "remove t", "up a", "up b", "move a", "down a", "down b", "wait"]),
    max_size=15,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def store():
    return EndpointStore()


def collectors_of(store, counts, source, *extractors):
    return SourceCollectors(
        store, [PolledSource(source, extractors)], tick_s=0.05, now=time.monotonic, counts=counts,
        background=Background(),
    )  # fmt: skip


@asynccontextmanager
async def living(store, counts):
    every = AllCollectors()
    lifecycle = Lifecycle(store, every, (), now=time.monotonic, counts=counts)
    async with anyio.create_task_group() as group:
        await group.start(lifecycle.run)
        yield every, group
        group.cancel_scope.cancel()


def asked(source):
    return sorted(endpoint.id for endpoint in source.asked)


async def test_source_that_comes_is_polled_for_who_is_there_and_for_who_comes(kit, counts, store):
    source = kit.polled()
    store.upsert(A)
    async with living(store, counts) as (every, _):
        every.add(collectors_of(store, counts, source))
        await counts.until(lambda: asked(source) == ["n/a"])
        store.upsert(B)
        await counts.until(lambda: asked(source) == ["n/a", "n/b"])


async def test_source_that_goes_is_let_go_of_and_the_others_are_not_touched(kit, counts, store):
    stays, goes = kit.polled("stays"), kit.polled("goes")
    store.upsert(A)
    async with living(store, counts) as (every, group):
        for source in (stays, goes):
            source.collectors = collectors_of(store, counts, source)
            every.add(source.collectors)
        await counts.until(lambda: asked(stays) == asked(goes) == ["n/a"])
        every.remove(goes.collectors, group)
        await anyio.wait_all_tasks_blocked()
        assert (goes.forgotten, stays.forgotten) == (["n/a"], [])
        store.upsert(B)
        await counts.until(lambda: asked(stays) == ["n/a", "n/b"])
        assert asked(goes) == ["n/a"]


async def test_poll_that_is_under_way_when_its_source_goes_writes_nothing(kit, counts, store):
    source, reads, answers = kit.polled(), kit.reads("x"), anyio.Event()
    store.upsert(A)

    async def late(_payload):
        with anyio.CancelScope(shield=True):
            await answers.wait()
        return {"x": "late"}

    reads.found = late
    async with living(store, counts) as (every, group):
        collectors = collectors_of(store, counts, source, reads)
        every.add(collectors)
        await counts.until(lambda: reads.seen)
        # Its task has its turn before those that end it.
        answers.set()
        every.remove(collectors, group)
        await anyio.wait_all_tasks_blocked()
        assert store.endpoint(A.id).attributes.get("x") is None
        assert source.forgotten == ["n/a"]


async def test_endpoint_that_is_going_is_polled_by_no_source_that_comes(kit, counts, store):
    there, comes = kit.polled("there"), kit.polled("comes")
    store.upsert(A)
    async with living(store, counts) as (every, _):
        every.add(collectors_of(store, counts, there))
        await counts.until(lambda: there.asked)
        store.delete(A.id)
        collectors = collectors_of(store, counts, comes)
        every.add(collectors)
        assert A.id not in collectors
        store.upsert(A)
        await counts.until(lambda: comes.asked)


async def test_endpoint_that_changes_and_goes_at_once_while_a_source_comes_stops_nobody(kit, counts, store):
    there, comes = kit.polled("there"), kit.polled("comes")
    store.upsert(A)
    async with living(store, counts) as (every, _):
        every.add(collectors_of(store, counts, there))
        await counts.until(lambda: there.asked)
        store.upsert(replace(A, labels={"role": "decode"}))
        store.delete(A.id)
        every.add(collectors_of(store, counts, comes))
        await anyio.wait_all_tasks_blocked()
        store.upsert(B)
        await counts.until(lambda: asked(there) == ["n/a", "n/b"] and asked(comes) == ["n/b"])


async def test_source_that_goes_with_an_endpoint_leaves_no_task(kit, counts, store):
    source = kit.polled()
    store.upsert(A)
    async with living(store, counts) as (every, group):
        collectors = collectors_of(store, counts, source)
        every.add(collectors)
        await counts.until(lambda: source.asked)
        store.delete(A.id)
        every.remove(collectors, group)
        await anyio.wait_all_tasks_blocked()
        assert A.id not in collectors


@given(steps=STEPS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_comes_and_goes_each_source_has_a_collector_for_each_endpoint(kit, counts, steps):
    async def walk():
        store = EndpointStore()
        members = {}
        async with living(store, counts) as (every, group):
            for step in steps:
                match step.split():
                    case ["add", name] if name not in members:
                        members[name] = collectors_of(store, counts, kit.polled(name))
                        every.add(members[name])
                    case ["remove", name] if name in members:
                        gone = members.pop(name)
                        every.remove(gone, group)
                        await anyio.wait_all_tasks_blocked()
                        assert not [one for one in "ab" if f"n/{one}" in gone]
                    case ["up", name]:
                        store.upsert(EndpointMetadata(f"n/{name}", name, "10.0.0.1", 8000))
                    case ["move", name]:
                        store.upsert(EndpointMetadata(f"n/{name}", name, "10.0.0.1", 9000))
                    case ["down", name]:
                        store.delete(f"n/{name}")
                    case ["wait"]:
                        await anyio.wait_all_tasks_blocked()
            await anyio.wait_all_tasks_blocked()
            for collectors in members.values():
                assert [name for name in "ab" if f"n/{name}" in collectors] == sorted(e.name for e in store.endpoints())

    anyio.run(walk)
