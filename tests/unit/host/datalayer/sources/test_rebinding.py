"""Extractors of events that come and go behind a source that goes on: who stays misses nothing, who goes says nothing more."""

import time
from contextlib import asynccontextmanager

import anyio
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.source import EventType, ObjectEvent
from hotbay.datalayer.sources.event_attributes import EventAttributes
from hotbay.datalayer.sources.notification import Notifications, NotifiedSource
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background

POD = ObjectKind("", "v1", "Pod")
A = EndpointMetadata("n/a", "a", "10.0.0.1", 8000)
CAME, WENT = EventType.ADD_OR_UPDATE, EventType.DELETE

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def notifying(counts, source, *extractors):
    store = EndpointStore()
    store.upsert(A)
    attributes = EventAttributes(store, now=time.monotonic)
    attributes.follow()
    notifications = Notifications(
        [NotifiedSource(source, extractors)], attributes=attributes, counts=counts, background=Background()
    )
    async with anyio.create_task_group() as group:
        notifications.start(group)
        await source.runs.wait()
        yield notifications, store.endpoint(A.id)
        group.cancel_scope.cancel()


def event(key="n/a", type_=CAME):
    return ObjectEvent(type_, POD, key, {})


def told(extractor):
    return [(seen.type, seen.key) for seen in extractor.seen]


async def test_who_stays_goes_on_with_what_is_under_way_and_hears_what_waits(kit, counts):
    source, stays, goes, comes = kit.told(), kit.hears("stays", POD), kit.hears("goes", POD), kit.hears("comes", POD)
    answers = anyio.Event()

    async def found(event):
        await answers.wait()
        return {"n/a": {"stays": event.key}}

    stays.found = found
    async with notifying(counts, source, stays, goes) as (notifications, endpoint):
        for one in (event(), event("n/b"), event("n/b", WENT)):
            await source.emit(one)
        await counts.until(lambda: len(stays.seen) == 1 and len(goes.seen) == 3)
        notifications.rebind("n", [comes, stays])
        answers.set()
        await source.emit(event("n/c"))
        await counts.until(lambda: len(stays.seen) == 4 and len(comes.seen) == 1)
        assert told(stays) == [(CAME, "n/a"), (CAME, "n/b"), (WENT, "n/b"), (CAME, "n/c")]
        assert told(comes) == [(CAME, "n/c")]
        assert len(goes.seen) == 3
        assert endpoint.attributes.get("stays") is not None


@pytest.mark.parametrize("ends", ["rebind", "close"])
async def test_answer_of_one_that_went_is_not_written(kit, counts, ends):
    source, goes, answers = kit.told(), kit.hears("goes", POD), anyio.Event()

    async def found(_event):
        with anyio.CancelScope(shield=True):
            await answers.wait()
        return {"n/a": {"goes": 1}}

    goes.found = found
    async with notifying(counts, source, goes) as (notifications, endpoint):
        await source.emit(event())
        await counts.until(lambda: goes.seen)
        if ends == "rebind":
            notifications.rebind("n", [])
        else:
            notifications.close()
        answers.set()
        await anyio.wait_all_tasks_blocked()
        assert endpoint.attributes.get("goes") is None


async def test_only_one_that_is_new_has_everything_told_again(kit, counts):
    source, stays, comes = kit.told(), kit.hears("stays", POD), kit.hears("comes", POD)
    again = []
    source.tell_again = lambda: again.append(1)
    async with notifying(counts, source, stays) as (notifications, _):
        notifications.rebind("n", [stays])
        notifications.rebind("n", [])
        assert again == []
        source.runs = anyio.Event()
        notifications.rebind("n", [comes])
        await source.runs.wait()
        assert again == [1], "and it is run again, so that it looks at once"
