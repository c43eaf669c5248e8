"""Events to whichever process is live: one at a time, in order, each answered once, whatever becomes of processes."""

import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.remote import deliveries as deliveries_module
from hotbay.datalayer.remote.calls import RefCalls
from hotbay.datalayer.remote.deliveries import MAX_DELIVERIES, MAX_REFUSALS, MAX_WAITING
from hotbay.datalayer.remote.extractors import RemoteEventExtractor
from hotbay.datalayer.source import AttributesOf, EndpointNews, Event, EventType
from hotbay.datalayer.sources.lifecycle import EndpointNotificationSource, Lifecycle, WatchedSource
from hotbay.datalayer.sources.polling import SourceCollectors
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics
from hotbay_sdk.protocol import Method

pytestmark = pytest.mark.anyio

WAIT_S = 10.0
A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
NEWS = EndpointNews(EventType.ADD_OR_UPDATE, A)


def extractor_of(bay: Any) -> RemoteEventExtractor:
    return RemoteEventExtractor("t", "endpoint", RefCalls("ref", "extract", bay, bay))


def numbers_of(client: Any) -> list[int]:
    return [call[2] for call in client.calls]


class Notes:
    """An extractor of the host's own that notes what it hears."""

    name, type, kind = "notes", "notes", None

    def __init__(self) -> None:
        self.seen: list[Event] = []

    async def extract_event(self, event: Event) -> AttributesOf:
        self.seen.append(event)
        return {}


async def test_events_are_numbered_and_go_one_at_a_time(bay: Any, asking: Callable[..., Any]) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = asking(group)
        for _ in range(3):
            asked.begin(lambda: remote.extract_event(NEWS))
        with anyio.fail_after(WAIT_S):
            await client.asked.wait()
        await anyio.wait_all_tasks_blocked()
        assert numbers_of(client) == [1]
        client.hold.set()
    assert numbers_of(client) == [1, 2, 3]
    assert client.calls[0] == [
        Method.EVENT_EXTRACT,
        [1, 1],
        1,
        {"type": "add_or_update", "endpoint": {**client.calls[0][3]["endpoint"]}},
    ]


async def test_event_at_a_process_that_retires_is_answered_by_it_and_the_next_goes_on(
    bay: Any, asking: Callable[..., Any]
) -> None:
    old, remote = bay.swap(), extractor_of(bay)
    retiring = bay.live
    old.hold = anyio.Event()
    old.answers.append({"default/a": {"n": 1}})
    async with anyio.create_task_group() as group:
        asked = asking(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        asked.begin(lambda: remote.extract_event(NEWS))
        await old.asked.wait()
        new = bay.swap()
        new.answers.append({"default/a": {"n": 2}})
        retiring.generation.leave()
        await anyio.wait_all_tasks_blocked()
        assert (retiring.generation.leases, new.calls) == (1, [])
        old.hold.set()
    assert asked.ended == [{"default/a": {"n": 1}}, {"default/a": {"n": 2}}]
    assert (numbers_of(old), numbers_of(new), retiring.generation.leases) == ([1], [2], 0)


async def test_event_that_a_process_died_of_goes_to_its_successor_under_the_same_number(
    bay: Any, asking: Callable[..., Any]
) -> None:
    old, remote = bay.swap(), extractor_of(bay)
    old.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = asking(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        asked.begin(lambda: remote.extract_event(NEWS))
        await old.asked.wait()
        old.die()
        await anyio.wait_all_tasks_blocked()
        assert asked.ended == []
        new = bay.swap()
    assert (numbers_of(old), numbers_of(new)) == ([1], [1, 2])
    assert bay.watchers == []


async def test_event_that_ends_every_process_is_given_up_and_the_next_one_is_answered(
    bay: Any, asking: Callable[..., Any]
) -> None:
    remote = extractor_of(bay)
    async with anyio.create_task_group() as group:
        asked = asking(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        asked.begin(lambda: remote.extract_event(NEWS))
        for _ in range(MAX_DELIVERIES):
            client = bay.swap()
            client.hold = anyio.Event()
            await client.asked.wait()
            client.die()
            await anyio.wait_all_tasks_blocked()
        assert asked.ended == ["CRASHED"]
        last = bay.swap()
    assert (asked.ended, numbers_of(last)) == (["CRASHED", {}], [2])


@pytest.mark.parametrize("answer", [PluginFault("PLUGIN_ERROR", "no"), PluginFault("DEADLINE_EXCEEDED", "late")])
async def test_what_the_plugin_itself_raises_is_its_answer(bay: Any, answer: HostError) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.answers.append(answer)
    with pytest.raises(PluginFault):
        await remote.extract_event(NEWS)
    assert await remote.extract_event(NEWS) == {}
    assert numbers_of(client) == [1, 2]


async def test_answer_of_a_process_that_is_ending_counts_and_its_event_is_not_told_twice(
    bay: Any, soon: Callable[..., Any], asking: Callable[..., Any]
) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    live = bay.live
    client.answers.append(PluginFault("PLUGIN_ERROR", "no"))
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = asking(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        await client.asked.wait()
        successor = bay.swap()

        async def answer_and_die(*_: object, **__: object) -> object:
            client.fault = PluginFault("CRASHED", "it ended")
            raise PluginFault("PLUGIN_ERROR", "no")

        bay.live = live
        client.control_call = answer_and_die
        asked.begin(lambda: remote.extract_event(NEWS))
        client.hold.set()
        await soon(lambda: len(asked.ended) == 2)
    assert (asked.ended, successor.calls) == (["PLUGIN_ERROR", "PLUGIN_ERROR"], [])


async def test_events_that_wait_for_their_turn_are_bounded(
    bay: Any, soon: Callable[..., Any], asking: Callable[..., Any]
) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = asking(group)
        for _ in range(MAX_WAITING + 1):
            asked.begin(lambda: remote.extract_event(NEWS))
        await soon(lambda: asked.ended)
        await anyio.wait_all_tasks_blocked()
        assert asked.ended == ["RESOURCE_EXHAUSTED"]
        client.hold.set()
    assert (asked.ended.count({}), len(client.calls)) == (MAX_WAITING, MAX_WAITING)


@pytest.mark.parametrize("refusals", [MAX_REFUSALS, MAX_REFUSALS + 1])
async def test_event_that_a_process_has_no_room_for_is_offered_again_and_for_a_time_only(
    bay: Any, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr(deliveries_module, "REFUSED_PAUSE_S", 0.0)
    client, remote = bay.swap(), extractor_of(bay)
    client.answers.extend([CapacityError("RESOURCE_EXHAUSTED", "it does not read")] * refusals)
    if refusals > MAX_REFUSALS:
        with pytest.raises(CapacityError, match="it does not read"):
            await remote.extract_event(NEWS)
    else:
        assert await remote.extract_event(NEWS) == {}
    assert numbers_of(client) == [1] * (MAX_REFUSALS + 1)


async def test_no_room_that_the_author_speaks_of_is_an_answer(bay: Any) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.answers.append(PluginFault("RESOURCE_EXHAUSTED", "mine", details={"executed": "yes"}))
    with pytest.raises(PluginFault, match="mine"):
        await remote.extract_event(NEWS)
    assert numbers_of(client) == [1]


async def test_event_to_a_handle_that_was_made_anew_goes_to_the_new_one(bay: Any, asking: Callable[..., Any]) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.hold = anyio.Event()
    client.answers.append(PluginFault("STALE_HANDLE", "gone"))
    async with anyio.create_task_group() as group:
        asked = asking(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        await client.asked.wait()
        bay.live = type(bay.live)(bay.live.generation, (1, 2), bay.live.declaration)
        client.hold.set()
    assert [call[1:3] for call in client.calls] == [[[1, 1], 1], [[1, 2], 1]]


async def test_stale_handle_of_what_is_live_is_an_error_and_no_loop(bay: Any) -> None:
    bay.swap().answers.append(PluginFault("STALE_HANDLE", "gone"))
    with pytest.raises(PluginFault, match="gone"):
        await extractor_of(bay).extract_event(NEWS)


async def test_events_wait_for_a_process_however_long_there_is_none_and_none_of_them_is_lost(
    bay: Any, asking: Callable[..., Any]
) -> None:
    remote = extractor_of(bay)
    assert remote.step_s == float("inf")
    async with anyio.create_task_group() as group:
        asked = asking(group)
        for _ in range(2):
            asked.begin(lambda: remote.extract_event(NEWS))
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            # What changes may be no process that answers.
            bay.go_live(None)
            await anyio.wait_all_tasks_blocked()
        assert asked.ended == []
        client = bay.swap()
    assert (asked.ended, numbers_of(client)) == ([{}, {}], [1, 2])
    assert bay.watchers == []


async def test_server_whose_event_a_plugin_that_was_not_there_had_to_wait_for_is_told_when_it_is_and_others_at_once(
    bay: Any,
) -> None:
    """An extractor whose package is still being fetched hears of the servers that were there, once it runs."""
    remote, other, store = extractor_of(bay), Notes(), EndpointStore()
    store.upsert(A)
    collectors = SourceCollectors(store, (), tick_s=1.0, now=time.monotonic, counts=Metrics(), background=Background())
    watched = [WatchedSource(EndpointNotificationSource("life"), (remote, other))]
    lifecycle = Lifecycle(store, collectors, watched, now=time.monotonic, counts=Metrics())
    async with anyio.create_task_group() as group:
        await group.start(lifecycle.run)
        await anyio.wait_all_tasks_blocked()
        assert [event.endpoint for event in other.seen] == [A]
        client = bay.swap()
        client.answers.append({A.id: {"n": 1}})
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert numbers_of(client) == [1]
    endpoint = store.endpoint(A.id)
    assert endpoint is not None
    assert endpoint.attributes.get("n") == 1
