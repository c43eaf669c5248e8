"""What scraping gives, in the host's process and in one of its own: the same."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hotbay.config.engine_parameters import CustomMetric, EngineMapping, EngineParameters
from hotbay.config.metric_specs import MetricSpec
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.in_loop import Scraper, Scraping
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.process import ScrapeProcess
from hotbay.datalayer.store import EndpointStore
from hotbay.process.helper import Helper

pytestmark = [pytest.mark.anyio, pytest.mark.process]

PAGES = Path(__file__).parents[2] / "data" / "metrics"
VLLM = (PAGES / "vllm-0.32.0-metrics.txt").read_bytes()
WAIT_S = 15.0

Make = Callable[..., Scraping]


def in_process(store: EndpointStore, source: MetricsPoller, **options: Any) -> Scraping:
    return Scraper(store, source, **options)


def own_process(store: EndpointStore, source: MetricsPoller, **options: Any) -> ScrapeProcess:
    return ScrapeProcess(store, source, start=Helper.start, first_pause_s=0.05, **options)


class Told:
    """A store, and all that it was told, in order."""

    def __init__(self) -> None:
        self.store = _Store(self)
        self.metrics: list[tuple[str, Metrics]] = []
        self.times: list[float] = []
        self.failures: list[tuple[str, str]] = []
        self.pages: list[MetricsPage] = []
        self._news = anyio.Event()

    def page(self, endpoint: EndpointMetadata, page: MetricsPage) -> None:
        self.pages.append(page)
        self.tell()

    def tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def until(self, holds: Callable[[], object]) -> None:
        with anyio.fail_after(WAIT_S):
            while not holds():
                await self._news.wait()

    async def more(self, count: int = 2) -> None:
        """So many more pages or failures."""
        wanted = len(self.metrics) + len(self.failures) + count
        await self.until(lambda: len(self.metrics) + len(self.failures) >= wanted)

    def distinct(self) -> list[Metrics]:
        """What pages said, without repetitions."""
        said = [metrics for _, metrics in self.metrics]
        return [one for index, one in enumerate(said) if index == 0 or one != said[index - 1]]


class _Store(EndpointStore):
    def __init__(self, told: Told) -> None:
        super().__init__()
        self._told = told

    def update_metrics(self, endpoint_id: str, metrics: Metrics, now: float) -> bool:
        written = super().update_metrics(endpoint_id, metrics, now)
        assert written, "nothing is told of an endpoint that is gone"
        self._told.metrics.append((endpoint_id, metrics))
        self._told.times.append(now)
        self._told.tell()
        return written

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        self._told.failures.append((endpoint_id, reason))
        written = super().record_scrape_failure(endpoint_id, reason)
        self._told.tell()
        return written


@pytest.fixture(params=[in_process, own_process])
def make(request: pytest.FixtureRequest) -> Make:
    return request.param


@asynccontextmanager
async def scraping(make: Make, told: Told, source: MetricsPoller, **options: Any) -> AsyncIterator[Any]:
    one = make(told.store, source, on_page=told.page, **options)
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        yield one
        tasks.cancel_scope.cancel()


def vllm(running: int) -> bytes:
    old = b'vllm:num_requests_running{engine="0",model_name="tiny"} 0.0'
    return VLLM.replace(old, old.replace(b"0.0", b"%d" % running))


async def test_a_server_whose_answers_are_dear_is_asked_less_often_and_the_log_says_so(
    server, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.respond = server.raw(chunked + b"1\r\n#\r\n" * 690_000 + b"0\r\n\r\n", keep=False)
    async with scraping(make, told, MetricsPoller()) as one:
        await told.until(lambda: "scrape_endpoint_widened endpoint=default/a" in caplog.text)
        assert set(one.counts.errors) <= {"too_large"}
        server.respond = server.page(vllm(3))
        await told.until(lambda: told.metrics)
    assert told.metrics[-1][1].running == 3


async def test_pages_that_change_give_the_same_metrics_in_the_same_order(server, make: Make) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    server.respond = server.page(vllm(1))
    began_s = time.monotonic()
    async with scraping(make, told, MetricsPoller()) as one:
        await told.until(lambda: len(told.metrics) >= 2)
        for running in (2, 2, 3):
            server.respond = server.page(vllm(running))
            await told.until(lambda running=running: told.metrics[-1][1].running == running)
            await told.more()
        assert one.counts.errors == {}
        assert one.counts.scrapes == len(told.metrics)
        assert one.counts.connects == server.connections == 1
        assert one.factor >= 1.0
    said = Metrics(
        waiting=0.0, running=1.0, kv_usage=0.0, kv_capacity_tokens=2_097_152, block_size=32, num_blocks=65_536,
        model="tiny", engine="vllm",
    )  # fmt: skip
    assert told.distinct() == [said, replace(said, running=2.0), replace(said, running=3.0)]
    assert all(began_s <= at <= time.monotonic() for at in told.times)
    assert told.times == sorted(told.times)


async def test_failures_are_counted_by_reason_and_leave_what_is_known(server, make: Make) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    good = server.respond
    async with scraping(make, told, MetricsPoller()) as one:
        await told.until(lambda: told.metrics)
        for reason, respond in {
            "status": server.page(b"no", status="503 Busy"),
            "not_metrics": server.page(b"<html></html>"),
            "truncated": server.page(b"a 1\n", headers="Content-Type: application/openmetrics-text\r\n"),
        }.items():
            server.respond = respond
            await told.until(lambda reason=reason: one.counts.errors[reason] >= 2)
        assert told.store.publish(time.monotonic()).columns["endpoint.waiting"][0] == 2.0
        assert told.store.scrape_status("default/a").consecutive_errors >= 6
        written = len(told.metrics)
        server.respond = good
        await told.until(lambda: len(told.metrics) > written)
    assert any("503" in message for _, message in told.failures)


async def test_endpoints_come_move_and_go(start_server, make: Make) -> None:
    first, second = await start_server(), await start_server()
    second.respond = second.page(b"llamacpp:requests_processing 7\nllamacpp:requests_deferred 0\n")
    told = Told()
    async with scraping(make, told, MetricsPoller()):
        told.store.upsert(first.endpoint("a"))
        await told.until(lambda: len(told.metrics) >= 2)
        told.store.upsert(second.endpoint("a"))
        moved = len(told.metrics)
        await told.until(lambda: told.metrics[-1][1].running == 7.0)
        assert all(metrics.running == 7.0 for _, metrics in told.metrics[moved:]), "nothing is told from the old place"
        told.store.upsert(first.endpoint("b"))
        await told.until(lambda: told.metrics[-1][0] == "default/b")
        told.store.delete("default/a")
        gone = len(told.metrics)
        await told.more(4)
        assert {endpoint_id for endpoint_id, _ in told.metrics[gone:]} == {"default/b"}


async def test_configured_engines_custom_metrics_and_wanted_families_are_read(server, make: Make) -> None:
    engines = EngineParameters(
        default_engine="mine",
        engines=(
            EngineMapping(
                "mine",
                queued=MetricSpec("mine", (("state", "queued"),)),
                running=MetricSpec("mine_running"),
                kv_usage=MetricSpec("mine_kv"),
                custom=(CustomMetric("mine.depth", MetricSpec("depth")),),
            ),
        ),
    )
    source = MetricsPoller(EngineSet(engines), path="/m", port=server.port)
    source.want(["extra"])
    server.respond = server.page(b'mine{state="queued"} 3\nmine_kv 7\ndepth 1\ndepth{x="y"} 4\nextra{a="b"} 2 17\n')
    told = Told()
    told.store.upsert(replace(server.endpoint(), port=1))
    async with scraping(make, told, source) as one:
        await told.until(lambda: len(told.pages) >= 3)
        assert one.counts.incomplete >= 3
    page = told.pages[-1]
    assert (page.engine, page.metrics) == ("mine", Metrics(waiting=3.0, engine="mine"))
    assert (page.missing, page.invalid) == (("running",), ("kv_usage",))
    assert {name: [(dict(s.labels), s.value) for s in series] for name, series in page.samples.items()} == {
        "extra": [({"a": "b"}, 2.0)]
    }
    endpoint = told.store.endpoint("default/a")
    assert endpoint is not None
    assert endpoint.attributes.get("mine.depth") == 5.0
    assert server.requests[0].startswith(b"GET /m ")


async def test_samples_that_are_wanted_while_pages_come_are_read_from_then_on(server, make: Make) -> None:
    """What extractors of packages read is known once their processes run."""
    server.respond = server.page(b"vllm:num_requests_running 1\nextra 2\n")
    told = Told()
    told.store.upsert(server.endpoint())
    async with scraping(make, told, MetricsPoller()) as one:
        await told.until(lambda: told.pages)
        assert told.pages[0].samples == {}
        one.want(["extra"])
        await told.until(lambda: told.pages[-1].samples)
    assert [sample.value for sample in told.pages[-1].samples["extra"]] == [2.0]


async def test_changed_labels_change_the_engine_at_once(server, make: Make) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    async with scraping(make, told, MetricsPoller()):
        await told.until(lambda: told.metrics)
        told.store.upsert(replace(server.endpoint(), labels={"llm-d.ai/engine-type": "vllm"}))
        await told.until(lambda: told.metrics[-1][1].engine is None)


# What only a process of its own has.


async def test_a_process_that_is_killed_is_replaced_and_values_age_meanwhile(server) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    async with scraping(own_process, told, MetricsPoller()) as one:
        await told.until(lambda: len(told.metrics) >= 2)
        first = one.pid
        os.kill(first, signal.SIGKILL)
        await told.until(lambda: one.pid not in (first, None) and one.counts.errors["scraper_ended"] == 1)
        assert told.store.publish(time.monotonic()).columns["endpoint.waiting"][0] == 2.0
        told.store.upsert(server.endpoint("b"))
        written = len(told.metrics)
        await told.until(lambda: {name for name, _ in told.metrics[written:]} == {"default/a", "default/b"})
        assert one.starts == 2
        assert one.counts.connects >= 3


async def test_a_process_that_hangs_is_replaced(server) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    async with scraping(own_process, told, MetricsPoller(), silent_s=3.0) as one:
        await told.until(lambda: told.metrics)
        os.kill(one.pid, signal.SIGSTOP)
        await told.until(lambda: one.starts == 2 and told.metrics)


async def test_when_scraping_ends_the_process_is_gone(server) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    async with scraping(own_process, told, MetricsPoller()) as one:
        await told.until(lambda: told.metrics)
        pid = one.pid
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with anyio.fail_after(WAIT_S):
        while server.open:
            await anyio.lowlevel.checkpoint()


HOST = """
import anyio
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.process import ScrapeProcess
from hotbay.datalayer.store import EndpointStore
from hotbay.process.helper import Helper

async def main():
    one = ScrapeProcess(EndpointStore(), MetricsPoller(), start=Helper.start)
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        print(one.pid, flush=True)

anyio.run(main)
"""


def test_a_host_that_is_killed_leaves_no_process(is_alive: Callable[[int], bool]) -> None:
    with subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pid = int(host.stdout.readline())
        assert is_alive(pid)
        ended = os.pidfd_open(pid)
        host.kill()
    try:
        assert select.select([ended], [], [], WAIT_S)[0], "it runs without its host"
    finally:
        os.close(ended)


async def test_a_process_that_cannot_be_started_is_tried_again(server, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.store.upsert(server.endpoint())
    failures = iter([OSError("no process left")])

    def start(module: str) -> Helper:
        for error in failures:
            raise error
        return Helper.start(module)

    one = ScrapeProcess(told.store, MetricsPoller(), start=start, first_pause_s=0.05, on_page=told.page)
    async with anyio.create_task_group() as tasks:
        await tasks.start(one.run)
        await told.until(lambda: told.metrics)
        tasks.cancel_scope.cancel()
    assert "scraper_not_started: no process left" in caplog.text


async def test_settings_of_a_source_are_all_told() -> None:
    """A parameter that a source has and its process is not told would make the two differ."""
    source = MetricsPoller(path="/x", port=5, interval_s=0.3, budget_s=0.7)
    source.want(["a"])
    settings = ScrapeProcess(EndpointStore(), source, start=Helper.start)._settings()
    assert (settings.path, settings.port, settings.interval_s, settings.budget_s) == ("/x", 5, 0.3, 0.7)
    assert (settings.tls, settings.engines, settings.wanted) == (None, EngineParameters(), frozenset({"a"}))
