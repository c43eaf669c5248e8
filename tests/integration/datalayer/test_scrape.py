"""Scraping real servers into a store."""

import asyncio
import contextlib
import dataclasses
import gzip
import logging
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hotbay.datalayer.endpoint import Metrics
from hotbay.datalayer.scraping.collectors import ScrapeCollectors
from hotbay.datalayer.scraping.in_loop import Scraper
from hotbay.datalayer.scraping.metrics_source import MIN_INTERVAL_S, MetricsPoller
from hotbay.datalayer.scraping.records import ScrapeRecords, log_widened
from hotbay.datalayer.scraping.schedule import MOST_SHARE
from hotbay.datalayer.source import SourceError
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background

pytestmark = pytest.mark.anyio

PAGES = Path(__file__).parents[2] / "data" / "metrics"


class RecordingStore(EndpointStore):
    """A store that tells when metrics arrive, and keeps what was written after an endpoint's removal."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[tuple[str, Metrics]] = []
        self.failures: list[tuple[str, str]] = []
        self.late_writes = 0
        self._news = anyio.Event()

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        self.writes.append((endpoint_id, metrics))
        written = super().update_metrics(endpoint_id, metrics, now)
        self.late_writes += not written
        self.tell()
        return written

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        self.failures.append((endpoint_id, reason))
        written = super().record_scrape_failure(endpoint_id, reason)
        self.tell()
        return written

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds after a write or a failure, at the latest after ten seconds."""
        with anyio.fail_after(10):
            while not condition():
                await self._news.wait()

    def tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()


@asynccontextmanager
async def scraping(store: EndpointStore, **options: float) -> AsyncIterator[Scraper]:
    scraper = Scraper(store, MetricsPoller(**options))
    async with anyio.create_task_group() as tasks:
        await tasks.start(scraper.run)
        yield scraper
        tasks.cancel_scope.cancel()


async def test_the_page_of_a_real_vllm_reaches_the_snapshot(server) -> None:
    server.respond = server.page((PAGES / "vllm-0.32.0-metrics.txt").read_bytes())
    store = RecordingStore()
    store.upsert(server.endpoint())
    async with scraping(store) as scraper:
        await store.until(lambda: len(store.writes) >= 5)
    snapshot = store.publish(time.monotonic())
    columns = {name.removeprefix("endpoint."): column[0].item() for name, column in snapshot.columns.items()}
    assert (columns["waiting"], columns["running"], columns["kv_usage"]) == (0.0, 0.0, 0.0)
    assert (columns["block_size"], columns["num_blocks"], columns["kv_capacity_tokens"]) == (32, 65536, 2097152)
    assert 0.0 <= columns["age_waiting"] < 10.0
    assert math.isnan(columns["age_lora"])
    facts = snapshot.facts[0]
    assert facts is not None
    assert (facts.engine, facts.model) == ("vllm", "tiny")
    assert scraper.counts.connects == server.connections == 1
    assert not scraper.counts.errors


async def test_the_first_scrape_comes_at_once_whatever_the_interval(server) -> None:
    store = RecordingStore()
    store.upsert(server.endpoint("a"))
    async with scraping(store, interval_s=3600.0):
        await store.until(lambda: len(store.writes) == 1)
        store.upsert(dataclasses.replace(server.endpoint("b"), labels={"late": "yes"}))
        await store.until(lambda: len(store.writes) == 2)
    assert [endpoint_id for endpoint_id, _ in store.writes] == ["default/a", "default/b"]


async def test_scrapes_keep_to_their_interval(server) -> None:
    store = RecordingStore()
    store.upsert(server.endpoint())
    began = time.monotonic()
    async with scraping(store, interval_s=0.05):
        await store.until(lambda: len(store.writes) == 6)
    assert time.monotonic() - began >= 5 * 0.05


@pytest.mark.parametrize("kind", ["status", "closed", "not_metrics", "truncated"])
async def test_an_error_never_stops_the_loop_and_leaves_the_last_values_ageing(server, kind: str) -> None:
    store = RecordingStore()
    store.upsert(server.endpoint())
    good = server.respond
    async with scraping(store) as scraper:
        await store.until(lambda: len(store.writes) == 1)
        server.respond = {
            "status": server.page(b"oops", status="500 Internal Server Error"),
            "closed": server.raw(b"", keep=False),
            "not_metrics": server.page(b"<html><body>hello</body></html>"),
            "truncated": server.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na 1\n", keep=False),
        }[kind]
        await store.until(lambda: len(store.failures) == 3)
        now = time.monotonic()
        written_at = store.scrape_status("default/a").last_success_at
        columns = store.publish(now).columns
        assert columns["endpoint.waiting"][0] == 2.0
        assert columns["endpoint.age_waiting"][0] == pytest.approx(now - written_at)
        assert scraper.counts.errors[kind] >= 3
        assert store.scrape_status("default/a").consecutive_errors == 3
        writes = len(store.writes)
        server.respond = good
        await store.until(lambda: len(store.writes) == writes + 2)
        assert store.scrape_status("default/a").consecutive_errors == 0


async def test_a_server_that_is_not_there_yet_is_found_when_it_comes(server) -> None:
    await server.stop()
    store = RecordingStore()
    store.upsert(server.endpoint())
    async with scraping(store) as scraper:
        await store.until(lambda: len(store.failures) == 2)
        assert scraper.counts.errors["connect"] >= 2
        await server.listen(server.port)
        await store.until(lambda: len(store.writes) == 1)


async def test_m04_a_silent_server_delays_nobody_else_and_is_asked_once_at_a_time(start_server) -> None:
    slow, quick = await start_server(), await start_server()

    async def silent(_: asyncio.StreamWriter) -> bool:
        await anyio.sleep_forever()
        return False

    slow.respond = silent
    store = RecordingStore()
    store.upsert(slow.endpoint("slow"))
    store.upsert(quick.endpoint("quick"))
    async with scraping(store, budget_s=0.5):
        await store.until(lambda: len(store.failures) == 2)
    assert {endpoint_id for endpoint_id, _ in store.failures} == {"default/slow"}
    # One second for two failures is twenty intervals; a loop stalled by the slow one would see two or three.
    assert len(store.writes) >= 10
    # The connection of a failed scrape is left, so that one more stands for the scrape that the end cut off.
    assert slow.connections <= 3


async def test_a_removed_endpoint_gets_no_write_and_its_connection_is_closed(server) -> None:
    store = RecordingStore()
    store.upsert(server.endpoint())
    async with scraping(store):
        await store.until(lambda: len(store.writes) == 2)
        store.delete("default/a")
        with anyio.fail_after(10):
            while server.open:
                await anyio.lowlevel.checkpoint()
        writes = len(store.writes)
        store.upsert(server.endpoint("b"))
        await store.until(lambda: len(store.writes) == writes + 2)
    assert {endpoint_id for endpoint_id, _ in store.writes[writes:]} == {"default/b"}
    assert store.late_writes == 0


async def test_removal_at_any_moment_of_a_scrape_is_followed_by_no_write(server) -> None:
    store = RecordingStore()
    async with scraping(store, interval_s=0.05):
        for step in range(80):
            answered = len(server.requests)
            store.upsert(server.endpoint())
            with anyio.fail_after(10):
                while len(server.requests) == answered:
                    await anyio.lowlevel.checkpoint()
            # The answer is under way: the turns of the loop from here cover its arrival and its use.
            for _ in range(step % 8):
                await anyio.lowlevel.checkpoint()
            store.delete("default/a")
            await anyio.wait_all_tasks_blocked()
    assert store.late_writes == 0
    assert store.failures == []
    assert store.writes


async def test_s26_an_endpoint_that_moved_is_scraped_at_its_new_port_only(start_server) -> None:
    old, new = await start_server(), await start_server()
    new.respond = new.page(b"llamacpp:requests_processing 7\nllamacpp:requests_deferred 0\n")
    store = RecordingStore()
    store.upsert(old.endpoint())
    async with scraping(store):
        await store.until(lambda: len(store.writes) == 2)
        store.upsert(new.endpoint())
        asked = len(old.requests)
        await store.until(lambda: store.writes[-1][1].running == 7.0)
        await new.answered(3)
        assert len(old.requests) <= asked + 1
        assert not old.open
    assert store.publish(1.0).columns["endpoint.running"][0] == 7.0


async def test_changed_labels_keep_the_connection(server) -> None:
    store = RecordingStore()
    store.upsert(server.endpoint())
    async with scraping(store) as scraper:
        await store.until(lambda: len(store.writes) == 2)
        store.upsert(dataclasses.replace(server.endpoint(), labels={"llm-d.ai/engine-type": "vllm"}))
        await store.until(lambda: store.writes[-1][1].engine is None)
        assert scraper.counts.connects == 1


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        ("401 Unauthorized", b"no", "answered 401"),
        ("404 Not Found", b"no", "answered 404"),
        ("200 OK", b"<html></html>", "not a Prometheus text page"),
        ("", b"", "cannot connect"),
    ],
)
async def test_m12_a_failing_endpoint_writes_one_line_for_many_failures(
    server, caplog: pytest.LogCaptureFixture, status: str, body: bytes, said: str
) -> None:
    server.respond = server.page(body, status=status)
    if not status:
        await server.stop()
    store = RecordingStore()
    store.upsert(server.endpoint())
    with caplog.at_level(logging.INFO):
        async with scraping(store):
            await store.until(lambda: len(store.failures) == 10)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("hotbay.datalayer")]
    assert len(lines) == 1
    assert "endpoint=default/a" in lines[0]
    assert said in lines[0]


async def test_m14_a_loop_without_time_asks_less_often_and_says_so_once(
    server, caplog: pytest.LogCaptureFixture
) -> None:
    store, source = RecordingStore(), MetricsPoller()
    # So many that polling is what takes the time, and not what else there is.
    for number in range(20):
        store.upsert(server.endpoint(f"e{number}"))
    factors: list[float] = []

    def widened(factor: float) -> None:
        factors.append(factor)
        log_widened(source.interval_s, factor)
        store.tell()

    records = ScrapeRecords(store, source.engines, source.authority)
    collectors = ScrapeCollectors(
        store, source, records, background=Background(), cpu_s=time.monotonic, widened=widened
    )  # fmt: skip
    async with anyio.create_task_group() as tasks:
        await tasks.start(collectors.run)
        await store.until(lambda: bool(factors))
        tasks.cancel_scope.cancel()
    assert factors == [collectors.factor]
    assert collectors.factor > 1.5
    assert [record.getMessage().split()[0] for record in caplog.records] == ["scrape_interval_widened"]


async def test_m13_a_missing_family_is_reported_once(server, caplog: pytest.LogCaptureFixture) -> None:
    server.respond = server.page(b"llamacpp:requests_processing 1\n")
    store = RecordingStore()
    store.upsert(server.endpoint())
    async with scraping(store):
        await store.until(lambda: len(store.writes) == 5)
    lines = [record.getMessage() for record in caplog.records if "scrape_incomplete" in record.getMessage()]
    assert len(lines) == 1
    assert "missing waiting (llamacpp:requests_deferred)" in lines[0]


async def test_m14_an_interval_below_the_floor_is_raised_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert Scraper(EndpointStore(), MetricsPoller(interval_s=0.01)).interval_s == MIN_INTERVAL_S
    assert "scrape_interval_raised" in caplog.text
    caplog.clear()
    assert Scraper(EndpointStore(), MetricsPoller(interval_s=MIN_INTERVAL_S)).interval_s == MIN_INTERVAL_S
    assert caplog.text == ""


async def test_stopping_leaves_no_connection_and_no_task(server) -> None:
    store = RecordingStore()
    store.upsert(server.endpoint())
    before = len(asyncio.all_tasks())
    async with scraping(store):
        await store.until(lambda: len(store.writes) == 2)
    writes = len(store.writes)
    with anyio.fail_after(10):
        while server.open:
            await anyio.lowlevel.checkpoint()
        while len(asyncio.all_tasks()) > before:
            await anyio.lowlevel.checkpoint()
    assert len(store.writes) == writes
    store.upsert(server.endpoint("b"))
    assert len(asyncio.all_tasks()) == before


async def test_page_is_fetched_from_the_path_and_port_that_are_given(server):
    store = RecordingStore()
    store.upsert(dataclasses.replace(server.endpoint(), port=1))
    async with scraping(store, path="/other", port=server.port):
        await store.until(lambda: bool(store.writes))
    assert server.requests[0].startswith(b"GET /other HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % server.port)


GOOD = b"vllm:num_requests_waiting 1\nvllm:num_requests_running 2\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DEAR = {
    "chunks": CHUNKED + (b"40\r\n" + b"#" * 64 + b"\r\n") * 4000 + b"0\r\n\r\n",
    "large": GOOD + b"# " + bytes(range(32, 127)) * 40_000 + b"\n",
    "bomb": b"#" * (64 << 20),
    "series": GOOD + b"".join(b'vllm:num_requests_waiting{a="%d"} 1\n' % number for number in range(4000)),
}


@pytest.mark.parametrize("kind", DEAR)
async def test_all_that_an_answer_takes_counts_whether_a_page_comes_of_it_or_not(server, kind: str) -> None:
    answer = server.raw(DEAR[kind])
    if kind != "chunks":
        answer = server.page(gzip.compress(DEAR[kind], 1), headers="Content-Encoding: gzip\r\n")
    server.respond = answer
    source, endpoint = MetricsPoller(), server.endpoint()
    with anyio.fail_after(30):
        for _ in range(2):
            with contextlib.suppress(SourceError):
                await source.poll(endpoint)
    # More than one endpoint may take at the shortest interval: it is asked less often.
    assert source.cost_s(endpoint.id) > MOST_SHARE * source.interval_s
    source.close()
