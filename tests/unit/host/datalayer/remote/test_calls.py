"""Calls to whichever process is live: leased, bounded, counted; and sources that such calls answer for."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from hotbay.config.data_types import ObjectKind
from hotbay.datalayer.endpoint import Endpoint, EndpointMetadata
from hotbay.datalayer.endpoint import Metrics as EndpointMetrics
from hotbay.datalayer.pages.exposition import Sample
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.remote import calls as calls_module
from hotbay.datalayer.remote.budget import MAX_ENDPOINT_BYTES, reply_limit
from hotbay.datalayer.remote.calls import PER_THREAD, RefCalls
from hotbay.datalayer.remote.extractors import RemoteEndpointSource, RemoteExtractor, RemoteSource
from hotbay.datalayer.source import EndpointNews, EventType, ObjectEvent
from hotbay.datalayer.sources.extracting import Extraction
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import CapacityError, InputError, PluginFault
from hotbay.observe.metrics import Metrics
from hotbay.rpc.faults import UnsendableError
from hotbay_sdk.protocol import DataDeclaration, Method, TypeDeclaration

pytestmark = pytest.mark.anyio

WAIT_S = 10.0
A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000)
NEWS = EndpointNews(EventType.ADD_OR_UPDATE, A)


def calls_of(bay: Any, point: str = "extract") -> RefCalls:
    return RefCalls("ref", point, bay, bay)


# -- polls ---------------------------------------------------------------------------------------


async def test_poll_gives_the_declared_samples_and_reads_the_answer(bay: Any) -> None:
    kinds = DataDeclaration("metrics", ("depth",), {"a": "f32"})
    live = bay.process(TypeDeclaration("t", ("extract",), data=kinds))
    bay.go_live(live)
    live.generation.client.answers.append({"a": 2})
    remote = RemoteExtractor("t", "metrics", calls_of(bay))
    page = MetricsPage("vllm", EndpointMetrics(), samples={"depth": (Sample({}, 2.0),), "other": (Sample({}, 1.0),)})
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
    bay: Any, asking: Callable[..., Any], concurrency: int
) -> None:
    bay.go_live(bay.process(taking(concurrency)))
    client, calls = bay.live.generation.client, calls_of(bay)
    remote, most = RemoteExtractor("t", "json", calls), PER_THREAD * concurrency
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = asking(group)
        for _ in range(256):
            asked.begin(lambda: remote.extract({}, Endpoint(A)))
        await anyio.wait_all_tasks_blocked()
        assert len(client.calls) == bay.live.generation.leases == most
        client.hold.set()
    assert (len(client.calls), asked.ended, calls.skipped) == (256, [{}] * 256, 0)
    assert (bay.live.generation.leases, calls._in_flight) == (0, 0)


async def test_poll_whose_turn_does_not_come_is_skipped_and_no_failure_of_anybody(
    bay: Any, soon: Callable[..., Any], asking: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "TURN_S", 0.01)
    bay.go_live(bay.process(taking(1)))
    client, calls = bay.live.generation.client, calls_of(bay)
    remote = RemoteExtractor("t", "json", calls)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = asking(group)
        for _ in range(256):
            asked.begin(lambda: remote.extract({}, Endpoint(A)))
        await soon(lambda: len(asked.ended) == 256 - PER_THREAD)
        assert (asked.ended, calls.skipped) == (["RESOURCE_EXHAUSTED"] * (256 - PER_THREAD), 256 - PER_THREAD)
        client.hold.set()
    assert bay.outcomes == [(1, "extract", "")] * PER_THREAD
    assert await remote.extract({}, Endpoint(A)) == {}


async def test_poll_that_is_skipped_is_counted_by_source_and_extractor_and_no_failure(
    bay: Any, soon: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "TURN_S", 0.01)
    bay.go_live(bay.process(taking(1)))
    client, store, metrics = bay.live.generation.client, EndpointStore(), Metrics()
    store.upsert(A)
    remote = RemoteExtractor("t", "json", calls_of(bay))
    extraction = Extraction("pages", [remote], store=store, now=lambda: 0.0, counts=metrics)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        for _ in range(PER_THREAD + 1):
            group.start_soon(extraction.run, {}, A.id, lambda: True)
        await soon(lambda: list(metrics.extract_skips.items()))
        client.hold.set()
    assert list(metrics.extract_skips.items()) == [(("pages", "ref", "busy"), 1)]
    assert list(metrics.extract_errors.items()) == []
    assert (
        b'hotbay_datalayer_extract_skipped_total{extractor="ref",reason="busy",source="pages"} 1.0' in metrics.render()
    )


async def test_poll_that_is_cancelled_while_it_waits_gives_its_turn_on(bay: Any, asking: Callable[..., Any]) -> None:
    bay.go_live(bay.process(taking(1)))
    client, calls = bay.live.generation.client, calls_of(bay)
    remote = RemoteExtractor("t", "json", calls)
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = asking(group)
        for _ in range(PER_THREAD):
            asked.begin(lambda: remote.extract({}, Endpoint(A)))
        await anyio.wait_all_tasks_blocked()
        async with anyio.create_task_group() as waiting:
            asking(waiting).begin(lambda: remote.extract({}, Endpoint(A)))
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
