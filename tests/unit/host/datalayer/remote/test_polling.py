"""A source of a package that is polled: what is asked, what a payload may be, and what its failures come to."""

from typing import Any

import anyio
import pytest
from hotbay.config.engine_parameters import EngineParameters
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.endpoint_rows import wire_row
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.remote.calls import PER_THREAD, POLL_STEP_S, RefCalls
from hotbay.datalayer.remote.payloads import payload_limit, read_payload
from hotbay.datalayer.remote.polling import INTERVAL_S, RemotePollingSource
from hotbay.datalayer.source import NotAskedError, PollingSource, ReadsForExtractors, SourceError
from hotbay.datalayer.sources.core import CoreMetricsExtractor
from hotbay.datalayer.sources.models import ModelsPage, ServedModel
from hotbay.errors import PluginFault
from hotbay_sdk.protocol import DataDeclaration, Method, TypeDeclaration

pytestmark = pytest.mark.anyio

A = EndpointMetadata("default/a", "a", "10.0.0.1", 8000, labels={"zone": "x"})
B = EndpointMetadata("default/b", "b", "10.0.0.2", 8000)


def declared(payload: str, interval_ms: int = 0, concurrency: int = 1) -> TypeDeclaration:
    data = DataDeclaration(payload, interval_ms=interval_ms)
    return TypeDeclaration("t", ("poll",), concurrency=concurrency, data=data)


def source_of(bay: Any, payload: str, **options: int) -> tuple[RemotePollingSource, Any]:
    """A source whose process is live, and its client."""
    bay.go_live(bay.process(declared(payload, **options)))
    calls = RefCalls("ref", "poll", bay, bay, payload=payload)
    return RemotePollingSource("t", payload, calls), bay.live.generation.client


async def test_poll_asks_the_process_that_is_live_for_its_endpoint(bay: Any) -> None:
    source, client = source_of(bay, "json")
    assert isinstance(source, PollingSource)
    assert isinstance(source, ReadsForExtractors)
    assert (source.name, source.type, source.payload, source.step_s) == ("ref", "t", object, POLL_STEP_S)
    client.answers.append({"depth": [1, None]})
    assert await source.poll(A) == {"depth": [1, None]}
    assert client.calls == [[Method.SOURCE_POLL, [1, 1], wire_row(A)]]
    assert bay.outcomes == [(1, "poll", "")]
    bay.go_live(bay.process(declared("json")))
    bay.live.generation.client.answers.append(7)
    assert await source.poll(A) == 7


async def test_interval_is_that_of_the_version_that_was_ready_last(bay: Any) -> None:
    source, _ = source_of(bay, "json")
    assert source.interval_s == INTERVAL_S
    bay.go_live(bay.process(declared("json", 2500)))
    assert source.interval_s == 2.5
    bay.remembered = None
    assert source.interval_s == 2.5
    bay.go_live(bay.process(declared("json")))
    assert source.interval_s == INTERVAL_S


@pytest.mark.parametrize(
    ("payload", "found", "read"),
    [
        ("text", "a", "a"),
        ("bytes", b"a", b"a"),
        ("metrics", b"a 1\n", b"a 1\n"),
        ("metrics", "ä 1\n", "ä 1\n".encode()),
        ("json", None, None),
        ("json", [b"x"], [b"x"]),
        ("models", [], ModelsPage(())),
        ("models", [{"id": "m"}, {"id": "l", "parent": "m"}], ModelsPage((ServedModel("m"), ServedModel("l", "m")))),
    ],
)
def test_a_payload_of_the_declared_type_is_read(payload: str, found: Any, read: object) -> None:
    assert read_payload(found, payload) == read


@pytest.mark.parametrize(
    ("payload", "found", "text"),
    [
        ("text", b"a", "expected a text as payload, found bytes"),
        ("bytes", "a", "expected bytes as payload, found str"),
        ("metrics", None, "expected a text or bytes as payload, found NoneType"),
        ("models", {"data": []}, "expected a list of models as payload, found dict"),
        ("models", [{"id": "m"}, {"id": ""}], r"models\[1\]: expected an id of 1 to 253 characters"),
        ("models", [7], r"models\[0\]: expected an id"),
        ("models", [{"id": "m"}] * 1025, "expected at most 1024 models, found 1025"),
    ],
)
async def test_a_payload_of_another_type_is_refused_with_its_place_and_is_a_failed_call(
    bay: Any, payload: str, found: Any, text: str
) -> None:
    with pytest.raises(PluginFault, match=text):
        read_payload(found, payload)
    source, client = source_of(bay, payload)
    client.answers.append(found)
    with pytest.raises(SourceError, match=text) as failed:
        await source.poll(A)
    assert (failed.value.reason, bay.outcomes) == ("bad_result", [(1, "poll", "BAD_RESULT")])


async def test_replies_are_bounded_by_what_they_take_once_they_are_read(bay: Any) -> None:
    for payload in ("json", "text"):
        source, client = source_of(bay, payload)
        client.answers.append("a")
        await source.poll(A)
        assert client.reply_limits == [payload_limit(payload)]
    assert payload_limit("json") == payload_limit("models") == 256 * 1024
    assert payload_limit("text") == payload_limit("metrics") == payload_limit("bytes") == (1024 + 16) * 1024


async def test_failures_are_those_of_a_source(bay: Any, died: PluginFault) -> None:
    source, client = source_of(bay, "json")
    client.answers.extend([PluginFault("PLUGIN_ERROR", "KeyError: 'x'"), PluginFault("DEADLINE_EXCEEDED", "late")])
    for reason in ("plugin_error", "deadline_exceeded"):
        with pytest.raises(SourceError) as failed:
            await source.poll(A)
        assert failed.value.reason == reason
    bay.go_live(None)
    with pytest.raises(SourceError, match="no process answers") as failed:
        await source.poll(A)
    assert failed.value.reason == "unavailable"
    assert [code for _, _, code in bay.outcomes] == ["PLUGIN_ERROR", "DEADLINE_EXCEEDED"]


async def test_version_that_brings_something_else_fails_each_poll(bay: Any) -> None:
    source, _ = source_of(bay, "json")
    await source.poll(A)
    bay.go_live(bay.process(declared("text")))
    with pytest.raises(SourceError, match="'ref' stands where poll of json is asked for") as failed:
        await source.poll(A)
    assert failed.value.reason == "invalid_package"
    assert (bay.live.generation.client.calls, bay.outcomes[-1]) == ([], (2, "poll", "INVALID_PACKAGE"))


async def test_polls_beyond_what_a_process_works_at_are_skipped_and_are_no_failure(
    bay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotbay.datalayer.remote.calls.TURN_S", 0.01)
    source, client = source_of(bay, "json")
    client.hold = anyio.Event()
    async with anyio.create_task_group() as group:
        for _ in range(PER_THREAD):
            group.start_soon(source.poll, A)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(NotAskedError):
            await source.poll(B)
        client.hold.set()
    assert len(client.calls) == PER_THREAD
    assert [code for _, _, code in bay.outcomes] == ["", ""]


# -- pages ---------------------------------------------------------------------------------------

PAGE = b"vllm:num_requests_waiting 3\nvllm:num_requests_running 1\ndepth 4\nother 5\n"


class Reads:
    """An extractor that wants samples of a page."""

    payload = MetricsPage
    name = type = "reads"

    def __init__(self, *families: str) -> None:
        self.families = families

    async def extract(self, payload: object, endpoint: object) -> dict[str, Any]:
        return {}


async def page_of(source: RemotePollingSource, client: Any, body: object) -> MetricsPage:
    client.answers.append(body)
    found = await source.poll(A)
    assert isinstance(found, MetricsPage)
    return found


async def test_page_is_read_for_who_stands_behind_it(bay: Any) -> None:
    source, client = source_of(bay, "metrics")
    assert dict((await page_of(source, client, PAGE)).samples) == {}
    reads = Reads("depth")
    source.read_for([CoreMetricsExtractor("core", EngineParameters()), reads])
    page = await page_of(source, client, PAGE.decode())
    assert (page.metrics.waiting, page.metrics.running, page.samples.keys()) == (3.0, 1.0, {"depth"})
    assert await page_of(source, client, PAGE) is page, "what says the same is not read again"
    reads.families = ("depth", "other")
    assert (await page_of(source, client, PAGE)).samples.keys() == {"depth", "other"}
    source.forget(A.id)
    assert (await page_of(source, client, PAGE)).metrics.waiting == 3.0


@pytest.mark.parametrize("body", [b"depth 4\n# EOF\n", b"depth 4\n# EOF"])
async def test_page_in_the_form_of_openmetrics_is_one_by_its_end(bay: Any, body: bytes) -> None:
    source, client = source_of(bay, "metrics")
    source.read_for([Reads("depth")])
    assert [sample.value for sample in (await page_of(source, client, body)).samples["depth"]] == [4.0]


async def test_what_is_no_page_is_a_bad_result(bay: Any) -> None:
    source, client = source_of(bay, "metrics")
    client.answers.append("<html>")
    with pytest.raises(SourceError, match="the payload is no metrics page") as failed:
        await source.poll(A)
    assert (failed.value.reason, bay.outcomes) == ("bad_result", [(1, "poll", "BAD_RESULT")])
