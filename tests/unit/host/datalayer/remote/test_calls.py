"""Calls to whichever process is live: leased, counted, and for events one at a time, in order, each answered once."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata, Metrics
from hotbay.datalayer.exposition import Sample
from hotbay.datalayer.extraction import MetricsPage
from hotbay.datalayer.remote.calls import MAX_DELIVERIES, MAX_IN_FLIGHT, RefCalls
from hotbay.datalayer.remote.extractors import (
    RemoteEndpointSource,
    RemoteEventExtractor,
    RemoteExtractor,
    RemoteSource,
)
from hotbay.datalayer.sources.source import EndpointNews, EventType, ObjectEvent
from hotbay.errors import CapacityError, HostError, PluginFault
from hotbay.rpc.faults import UnsendableError
from hotbay_sdk.protocol import DataDeclaration, Method, TypeDeclaration

pytestmark = pytest.mark.anyio

WAIT_S = 10.0
A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
NEWS = EndpointNews(EventType.ADD_OR_UPDATE, A)


def calls_of(bay: Any, point: str = "extract") -> RefCalls:
    return RefCalls("ref", point, bay, bay)


def extractor_of(bay: Any) -> RemoteEventExtractor:
    return RemoteEventExtractor("t", "endpoint", calls_of(bay))


def numbers_of(client: Any) -> list[int]:
    return [call[2] for call in client.calls]


async def soon(holds: Callable[[], object]) -> None:
    with anyio.fail_after(WAIT_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


class Asked:
    """Calls under way and what came of them, in the order in which they ended."""

    def __init__(self, group: anyio.abc.TaskGroup) -> None:
        self._group = group
        self.ended: list[object] = []

    def begin(self, ask: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            try:
                self.ended.append(await ask())
            except HostError as error:
                self.ended.append(error.code)

        self._group.start_soon(run)


# -- polls ---------------------------------------------------------------------------------------


async def test_poll_gives_the_declared_samples_and_reads_the_answer(bay: Any) -> None:
    kinds = DataDeclaration("metrics", ("depth",), {"a": "f32"})
    live = bay.process(TypeDeclaration("t", ("extract",), data=kinds))
    bay.go_live(live)
    live.generation.client.answers.append({"a": 2})
    remote = RemoteExtractor("t", "metrics", calls_of(bay))
    page = MetricsPage("vllm", Metrics(), samples={"depth": (Sample({}, 2.0),), "other": (Sample({}, 1.0),)})
    assert await remote.extract(page, Endpoint(A)) == {"a": 2.0}
    assert (remote.payload, remote.families) == (MetricsPage, ("depth",))
    ((method, handle, row, payload),) = live.generation.client.calls
    assert (method, handle, row["id"], payload) == (Method.POLL_EXTRACT, [1, 1], "default/a", {"depth": [[{}, 2.0]]})
    assert (live.generation.leases, bay.outcomes) == (0, [(1, "extract", "")])


async def test_poll_without_a_process_is_told_and_counts_against_nobody(bay: Any) -> None:
    with pytest.raises(CapacityError, match="no process answers the plugin ref 'ref'"):
        await RemoteExtractor("t", "json", calls_of(bay)).extract({}, Endpoint(A))
    assert bay.outcomes == []


@pytest.mark.parametrize(
    ("answer", "code"), [({"x": 1}, "BAD_RESULT"), (PluginFault("DEADLINE_EXCEEDED", "late"), "DEADLINE_EXCEEDED")]
)
async def test_failed_poll_counts_against_the_process_that_was_asked(bay: Any, answer: object, code: str) -> None:
    client = bay.swap()
    client.answers.append(answer)
    with pytest.raises(PluginFault):
        await RemoteExtractor("t", "json", calls_of(bay)).extract({}, Endpoint(A))
    assert bay.outcomes == [(1, "extract", code)]


async def test_payload_that_fits_into_no_frame_is_no_fault_of_the_plugin(bay: Any) -> None:
    bay.swap().answers.append(UnsendableError("FRAME_TOO_LARGE", "no"))
    with pytest.raises(UnsendableError):
        await RemoteExtractor("t", "json", calls_of(bay)).extract({}, Endpoint(A))
    assert bay.outcomes == []


async def test_polls_of_one_ref_under_way_are_bounded(bay: Any) -> None:
    client, remote = bay.swap(), RemoteExtractor("t", "json", calls_of(bay))
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        for _ in range(MAX_IN_FLIGHT + 1):
            asked.begin(lambda: remote.extract({}, Endpoint(A)))
        await soon(lambda: asked.ended)
        assert asked.ended == ["RESOURCE_EXHAUSTED"]
        assert len(client.calls) == bay.live.generation.leases == MAX_IN_FLIGHT
        client.hold.set()
    assert bay.live.generation.leases == 0
    assert asked.ended.count({}) == MAX_IN_FLIGHT


@pytest.mark.parametrize(("point", "payload"), [("score", "endpoint"), ("extract", "json")])
async def test_type_that_is_something_else_fails_before_it_is_asked(bay: Any, point: str, payload: str) -> None:
    client = bay.swap()
    calls = RefCalls("ref", point, bay, bay, payload=payload)
    with pytest.raises(PluginFault, match="its type 't' answers extract, source of endpoint"):
        await calls.ask(Method.POLL_EXTRACT, lambda _: [], lambda found, _: found)
    assert (client.calls, bay.outcomes) == ([], [(1, point, "INVALID_PACKAGE")])


# -- events --------------------------------------------------------------------------------------


async def test_events_are_numbered_and_go_one_at_a_time(bay: Any) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
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


async def test_event_at_a_process_that_retires_is_answered_by_it_and_the_next_goes_on(bay: Any) -> None:
    old, remote = bay.swap(), extractor_of(bay)
    retiring = bay.live
    old.hold = anyio.Event()
    old.answers.append({"default/a": {"n": 1}})
    async with anyio.create_task_group() as group:
        asked = Asked(group)
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


async def test_event_that_a_process_died_of_goes_to_its_successor_under_the_same_number(bay: Any) -> None:
    old, remote = bay.swap(), extractor_of(bay)
    old.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        asked.begin(lambda: remote.extract_event(NEWS))
        await old.asked.wait()
        old.die()
        await anyio.wait_all_tasks_blocked()
        assert asked.ended == []
        new = bay.swap()
    assert (numbers_of(old), numbers_of(new)) == ([1], [1, 2])
    assert remote.deliveries.given_up == 0
    assert bay.watchers == []


async def test_event_that_ends_every_process_is_given_up_and_the_next_one_is_answered(bay: Any) -> None:
    remote = extractor_of(bay)
    async with anyio.create_task_group() as group:
        asked = Asked(group)
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
    assert (asked.ended, numbers_of(last), remote.deliveries.given_up) == (["CRASHED", {}], [2], 1)


@pytest.mark.parametrize("answer", [PluginFault("PLUGIN_ERROR", "no"), PluginFault("DEADLINE_EXCEEDED", "late")])
async def test_what_the_plugin_itself_raises_is_its_answer(bay: Any, answer: HostError) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.answers.append(answer)
    with pytest.raises(PluginFault):
        await remote.extract_event(NEWS)
    assert await remote.extract_event(NEWS) == {}
    assert numbers_of(client) == [1, 2]


async def test_event_to_a_handle_that_was_made_anew_goes_to_the_new_one(bay: Any) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.hold = anyio.Event()
    client.answers.append(PluginFault("STALE_HANDLE", "gone"))
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        await client.asked.wait()
        bay.live = type(bay.live)(bay.live.generation, (1, 2), bay.live.declaration)
        client.hold.set()
    assert [call[1:3] for call in client.calls] == [[[1, 1], 1], [[1, 2], 1]]


async def test_stale_handle_of_what_is_live_is_an_error_and_no_loop(bay: Any) -> None:
    bay.swap().answers.append(PluginFault("STALE_HANDLE", "gone"))
    with pytest.raises(PluginFault, match="gone"):
        await extractor_of(bay).extract_event(NEWS)


async def test_events_wait_for_a_process_for_a_time_and_then_fail_at_once_until_there_is_one(bay: Any) -> None:
    remote = extractor_of(bay)
    remote.deliveries._hold_s = 0.01
    for _ in range(2):
        with pytest.raises(CapacityError, match="no process answers"):
            await remote.extract_event(NEWS)
        remote.deliveries._hold_s = float("inf")
    assert (remote.deliveries.number, remote.deliveries.given_up) == (2, 2)
    assert numbers_of(bay.swap()) == []
    assert await remote.extract_event(NEWS) == {}


# -- sources -------------------------------------------------------------------------------------

POD = ObjectEvent(EventType.ADD_OR_UPDATE, ObjectKind("", "v1", "Pod"), "default/p", {"a": 1})


class Feed:
    """A source of the host's own."""

    name, type, kind = "feed", "feed", POD.kind

    async def run(self, emit: Callable[[ObjectEvent], Awaitable[None]]) -> None:
        await emit(POD)

    async def notify(self, event: ObjectEvent) -> ObjectEvent | None:
        return None if "hidden" in event.object else event


async def test_source_sees_what_its_feed_finds_and_may_change_it(bay: Any) -> None:
    client = bay.swap()
    client.answers.append({"type": "delete", "object": {"b": 2}})
    remote = RemoteSource("t", "object:/v1/Pod", calls_of(bay, "source"), Feed())
    found: list[ObjectEvent | None] = []

    async def emit(event: ObjectEvent) -> None:
        found.append(await remote.notify(event))

    await remote.run(emit)
    assert found == [ObjectEvent(EventType.DELETE, POD.kind, POD.key, {"b": 2})]
    hidden = ObjectEvent(POD.type, POD.kind, POD.key, {"hidden": True})
    assert await remote.notify(hidden) is None
    assert len(client.calls) == 1


async def test_endpoint_source_may_drop_an_event(bay: Any) -> None:
    client = bay.swap()
    client.answers.extend([None, {"type": "delete", "endpoint": {"id": "default/a", "labels": {"x": "y"}}}])
    remote = RemoteEndpointSource("t", calls_of(bay, "source"))
    assert await remote.notify_endpoint(NEWS) is None
    changed = await remote.notify_endpoint(NEWS)
    assert changed is not None
    assert (changed.type, changed.endpoint.labels) == (EventType.DELETE, {"x": "y"})
