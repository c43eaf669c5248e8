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
