"""Pages that somebody else fetched, and their extractors."""

import time
from dataclasses import replace

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.sources.extracting import Extraction
from hotbay.datalayer.sources.pages import PageExtraction
from hotbay.datalayer.store import EndpointStore

A = EndpointMetadata("n/a", "a", "10.0.0.1", 8000)
B = EndpointMetadata("n/b", "b", "10.0.0.2", 8000)

pytestmark = pytest.mark.anyio


async def test_a_slow_extractor_sees_the_newest_page_of_each_endpoint_and_delays_no_other(kit, counts):
    store, reader, go = EndpointStore(), kit.reads("x"), anyio.Event()
    store.upsert(A)
    store.upsert(B)

    async def found(payload):
        if payload == "a1":
            await go.wait()
        return {"x": payload}

    reader.found = found
    extraction = Extraction("s", [reader], store=store, now=time.monotonic, counts=counts)
    pages = PageExtraction(extraction, store.endpoint)
    async with anyio.create_task_group() as group:
        await group.start(pages.run)
        pages.arrived(A, "a1")
        await counts.until(lambda: reader.seen)
        for page in ("a2", "a3", "a4"):
            pages.arrived(A, page)
        pages.arrived(B, "b1")
        await counts.until(lambda: ("b1", B.id) in reader.seen)
        go.set()
        await counts.until(lambda: ("a4", A.id) in reader.seen)
        group.cancel_scope.cancel()
    assert [payload for payload, endpoint_id in reader.seen if endpoint_id == A.id] == ["a1", "a4"]
    assert store.endpoint(A.id).attributes.get("x") == "a4"


async def test_plugin_that_is_slow_with_a_page_keeps_no_newer_one_from_another_plugin_or_the_host(kit, counts):
    store, slow, plugin, own, go = EndpointStore(), *(kit.reads(name) for name in "spo"), anyio.Event()
    store.upsert(A)

    async def found(payload):
        await go.wait()
        return {"s": payload}

    slow.found, slow.step_s, plugin.step_s = found, 60.0, 60.0
    extraction = Extraction("s", [slow, own, plugin], store=store, now=time.monotonic, counts=counts)
    pages = PageExtraction(extraction, store.endpoint)
    async with anyio.create_task_group() as group:
        await group.start(pages.run)
        for number in range(1, 4):
            pages.arrived(A, f"a{number}")
            await counts.until(lambda: len(own.seen) == len(plugin.seen) == number)  # noqa: B023 - awaited here
        assert [payload for payload, _ in slow.seen] == ["a1"]
        go.set()
        await counts.until(lambda: len(slow.seen) == 2)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert [payload for payload, _ in slow.seen] == ["a1", "a3"]
    assert {key: store.endpoint(A.id).attributes.get(key) for key in "spo"} == {"s": "a3", "p": "a3", "o": "a3"}


async def test_plugins_behind_one_source_are_asked_beside_each_other(kit, counts):
    store, readers, go = EndpointStore(), [kit.reads(name) for name in "xyz"], anyio.Event()
    store.upsert(A)

    async def found(payload):
        await go.wait()
        return {}

    for reader in readers[:2]:
        reader.found, reader.step_s = found, 60.0
    extraction = Extraction("s", readers, store=store, now=time.monotonic, counts=counts)
    async with anyio.create_task_group() as group:
        group.start_soon(extraction.run, "page", A.id, lambda: True)
        await counts.until(lambda: all(reader.seen for reader in readers))
        go.set()


@pytest.mark.parametrize("change", ["removed and put back", "moved"])
async def test_what_a_page_says_is_not_written_into_another_life_of_its_endpoint(kit, counts, change):
    store, reader, go = EndpointStore(), kit.reads("x"), anyio.Event()
    store.upsert(A)

    async def found(payload):
        if payload == "of the first life":
            await go.wait()
        return {"x": payload}

    reader.found = found
    extraction = Extraction("s", [reader], store=store, now=time.monotonic, counts=counts)
    pages = PageExtraction(extraction, store.endpoint)
    async with anyio.create_task_group() as group:
        await group.start(pages.run)
        pages.arrived(A, "of the first life")
        await counts.until(lambda: reader.seen)
        if change == "moved":
            store.upsert(replace(A, address="10.0.0.9"))
        else:
            store.delete(A.id)
            store.upsert(A)
        store.upsert(B)
        pages.arrived(B, "b")
        go.set()
        await counts.until(lambda: store.endpoint(B.id).attributes.get("x") == "b" and not pages.busy)
        group.cancel_scope.cancel()
    assert store.endpoint(A.id).attributes.get("x") is None
