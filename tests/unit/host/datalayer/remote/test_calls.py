"""Calls to whichever process is live: leased, counted, and for events one at a time, in order, each answered once."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata, Metrics
from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.remote import calls as calls_module
from hotbay.datalayer.remote.budget import MAX_ENDPOINT_BYTES, reply_limit
from hotbay.datalayer.remote.calls import MAX_DELIVERIES, MAX_WAITING, PER_THREAD, RefCalls
from hotbay.datalayer.remote.extractors import (
    RemoteEndpointSource,
    RemoteEventExtractor,
    RemoteExtractor,
    RemoteSource,
)
from hotbay.datalayer.source import EndpointNews, EventType, ObjectEvent
from hotbay.errors import CapacityError, HostError, InputError, PluginFault
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


def taking(concurrency: int) -> TypeDeclaration:
    return TypeDeclaration("t", ("extract",), concurrency=concurrency, data=DataDeclaration("json", (), {"a": "f32"}))


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_polls_are_put_to_a_type_than_it_works_at_and_the_others_have_their_turn(
    bay: Any, concurrency: int
) -> None:
    bay.go_live(bay.process(taking(concurrency)))
    client, calls = bay.live.generation.client, calls_of(bay)
    remote, most = RemoteExtractor("t", "json", calls), PER_THREAD * concurrency
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        for _ in range(256):
            asked.begin(lambda: remote.extract({}, Endpoint(A)))
        await anyio.wait_all_tasks_blocked()
        assert len(client.calls) == bay.live.generation.leases == most
        client.hold.set()
    assert (len(client.calls), asked.ended, calls.skipped) == (256, [{}] * 256, 0)
    assert (bay.live.generation.leases, calls._in_flight) == (0, 0)


async def test_poll_whose_turn_does_not_come_is_skipped_and_no_failure_of_anybody(
    bay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "TURN_S", 0.01)
    bay.go_live(bay.process(taking(1)))
    client, calls = bay.live.generation.client, calls_of(bay)
    remote = RemoteExtractor("t", "json", calls)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        for _ in range(256):
            asked.begin(lambda: remote.extract({}, Endpoint(A)))
        await soon(lambda: len(asked.ended) == 256 - PER_THREAD)
        assert (asked.ended, calls.skipped) == ([{}] * (256 - PER_THREAD), 256 - PER_THREAD)
        client.hold.set()
    assert bay.outcomes == [(1, "extract", "")] * PER_THREAD
    assert await remote.extract({}, Endpoint(A)) == {}


async def test_poll_that_is_cancelled_while_it_waits_gives_its_turn_on(bay: Any) -> None:
    bay.go_live(bay.process(taking(1)))
    client, calls = bay.live.generation.client, calls_of(bay)
    remote = RemoteExtractor("t", "json", calls)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        for _ in range(PER_THREAD):
            asked.begin(lambda: remote.extract({}, Endpoint(A)))
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as waiting:
            Asked(waiting).begin(lambda: remote.extract({}, Endpoint(A)))
            await anyio.wait_all_tasks_blocked()
            waiting.cancel_scope.cancel()
        client.hold.set()
    assert (calls._in_flight, len(calls._turns), len(client.calls)) == (0, 0, PER_THREAD)


@pytest.mark.parametrize(("point", "payload"), [("score", "endpoint"), ("extract", "json")])
async def test_ref_that_never_was_what_is_asked_for_is_the_operators_and_counts_against_nobody(
    bay: Any, point: str, payload: str
) -> None:
    client = bay.swap()
    calls = RefCalls("ref", point, bay, bay, payload=payload)
    with pytest.raises(InputError, match="its type 't' answers extract, source of endpoint"):
        await calls.ask(Method.POLL_EXTRACT, lambda _: [], lambda found, _: found)
    assert (client.calls, bay.outcomes) == ([], [])


async def test_version_that_is_something_else_than_the_one_before_fails_before_it_is_asked(bay: Any) -> None:
    bay.swap()
    calls = RefCalls("ref", "extract", bay, bay, payload="endpoint")
    await calls.ask(Method.POLL_EXTRACT, lambda _: [], lambda found, _: found)
    bay.go_live(bay.process(taking(1)))
    with pytest.raises(PluginFault, match="answers extract of json"):
        await calls.ask(Method.POLL_EXTRACT, lambda _: [], lambda found, _: found)
    assert (bay.live.generation.client.calls, bay.outcomes[1:]) == ([], [(2, "extract", "INVALID_PACKAGE")])


async def test_attributes_of_one_endpoint_are_bounded_and_a_reply_by_what_is_declared(bay: Any) -> None:
    kinds = {f"v{number}": "value" for number in range(6)}
    declared = TypeDeclaration("t", ("extract",), data=DataDeclaration("json", (), kinds))
    bay.go_live(bay.process(declared))
    client, remote = bay.live.generation.client, RemoteExtractor("t", "json", calls_of(bay))
    large = "x" * (60 << 10)
    for number in range(4):
        client.answers.append({f"v{number}": large})
        await remote.extract({}, Endpoint(A))
    client.answers.extend([{"v4": large}, {"v0": None}, {"v4": large}])
    with pytest.raises(PluginFault, match=f"at most {MAX_ENDPOINT_BYTES} bytes"):
        await remote.extract({}, Endpoint(A))
    for _ in range(2):
        await remote.extract({}, Endpoint(A))
    assert [code for _, _, code in bay.outcomes] == ["", "", "", "", "BAD_RESULT", "", ""]
    assert set(client.reply_limits) == {reply_limit(kinds)}


async def test_attribute_that_is_anothers_is_left_out(bay: Any) -> None:
    client = bay.swap()
    client.answers.append({"a": 1.0, "n": 2})
    remote = RemoteExtractor("t", "json", calls_of(bay))
    remote.taken = {"a": "other"}
    assert await remote.extract({}, Endpoint(A)) == {"n": 2}
    assert remote.columns == {"n": "i64"}


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


async def test_answer_of_a_process_that_is_ending_counts_and_its_event_is_not_told_twice(bay: Any) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    live = bay.live
    client.answers.append(PluginFault("PLUGIN_ERROR", "no"))
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
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


async def test_events_that_wait_for_their_turn_are_bounded(bay: Any) -> None:
    client, remote = bay.swap(), extractor_of(bay)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        for _ in range(MAX_WAITING + 1):
            asked.begin(lambda: remote.extract_event(NEWS))
        await soon(lambda: asked.ended)
        await anyio.wait_all_tasks_blocked()
        assert (asked.ended, remote.deliveries.given_up) == (["RESOURCE_EXHAUSTED"], 1)
        client.hold.set()
    assert (asked.ended.count({}), len(client.calls)) == (MAX_WAITING, MAX_WAITING)


async def test_time_for_which_an_event_waits_is_one_whichever_processes_die_of_it(bay: Any) -> None:
    remote = extractor_of(bay)
    remote.deliveries._hold_s = 0.05
    client = bay.swap()
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = Asked(group)
        asked.begin(lambda: remote.extract_event(NEWS))
        await client.asked.wait()
        await anyio.sleep(0.06)  # the time that the event may wait is over while it is with a process
        remote.deliveries._hold_s = float("inf")
        client.die()
        await soon(lambda: asked.ended)
    assert asked.ended == ["UNAVAILABLE"]


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
