"""Which endpoints are asked how often when pages of one are dear to read."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import anyio
import anyio.lowlevel
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.collectors import MOST_STARTED, ScrapeCollectors
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.source import SourceError
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Costly(MetricsPoller):
    """Answers at once; pages of the endpoint `dear` are said to take as long as `dear_s`."""

    dear_s = 0.04

    async def poll(self, endpoint: EndpointMetadata) -> MetricsPage:
        return MetricsPage("vllm", Metrics())

    def cost_s(self, endpoint_id: str) -> float:
        return self.dear_s if endpoint_id == "default/dear" else 0.000_2


class Seen:
    """A `Sink` that counts."""

    def __init__(self) -> None:
        self.pages: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._news = anyio.Event()

    def arrived(self, endpoint: EndpointMetadata, page: MetricsPage) -> None:
        self.pages[endpoint.name] += 1
        self._news.set()
        self._news = anyio.Event()

    def failed(self, endpoint: EndpointMetadata, reason: str, message: str) -> None:
        self.failures[endpoint.name] += 1
        self._news.set()
        self._news = anyio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(30):
            while not condition():
                await self._news.wait()


async def test_an_endpoint_whose_pages_are_dear_is_asked_less_often_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, seen, source = EndpointStore(), Seen(), Costly()
    for name in ("dear", "a", "b"):
        store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
    # A thread that never runs is under no pressure, whatever the machine does beside.
    collectors = ScrapeCollectors(store, source, seen, background=Background(), cpu_s=lambda: 0.0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(collectors.run)
        await seen.until(lambda: seen.pages["a"] >= 20)
        pages = dict(seen.pages)
        source.dear_s = 0.000_2
        await seen.until(lambda: seen.pages["dear"] >= pages["dear"] + 2)
        tasks.cancel_scope.cancel()
    assert not seen.failures
    assert pages["dear"] < pages["a"] / 3
    assert pages["b"] > pages["a"] / 2
    widened = [record.getMessage() for record in caplog.records if "scrape_endpoint" in record.getMessage()]
    assert widened == [
        "scrape_endpoint_widened endpoint=default/dear interval_s=0.8: what it answers takes 40 ms to read"
    ]


class Failing(MetricsPoller):
    """Answers at once; the endpoint `gone` does not while `is_gone`."""

    is_gone = True

    async def poll(self, endpoint: EndpointMetadata) -> MetricsPage:
        if self.is_gone and endpoint.name == "gone":
            raise SourceError("connect", "refused")
        return MetricsPage("vllm", Metrics())


async def test_an_endpoint_that_fails_is_asked_less_often_until_it_answers_and_then_as_before() -> None:
    store, seen, source = EndpointStore(), Seen(), Failing()
    for name in ("gone", "a"):
        store.upsert(EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000))
    collectors = ScrapeCollectors(store, source, seen, background=Background(), cpu_s=lambda: 0.0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(collectors.run)
        await seen.until(lambda: seen.failures["gone"] >= 3 and seen.pages["a"] >= 24)
        failures = seen.failures["gone"]
        source.is_gone = False
        await seen.until(lambda: seen.pages["gone"] >= 1)
        before = dict(seen.pages)
        await seen.until(lambda: seen.pages["gone"] >= 8)
        tasks.cancel_scope.cancel()
    assert failures < 24 / 2
    assert seen.pages["a"] - before["a"] < 16


async def test_collectors_of_a_pool_that_is_exchanged_start_in_slices_with_turns_of_the_loop_between() -> None:
    def named(prefix: str) -> list[EndpointMetadata]:
        names = [f"{prefix}{number}" for number in range(4 * MOST_STARTED + 1)]
        return [EndpointMetadata(f"default/{name}", name, "10.0.0.1", 8000) for name in names]

    store, seen, source = EndpointStore(), Seen(), Costly()
    before, after = named("a"), named("b")
    for endpoint in before:
        store.upsert(endpoint)
    collectors = ScrapeCollectors(store, source, seen, background=Background(), start_delay=lambda *_: 0.0)
    async with anyio.create_task_group() as tasks:
        await tasks.start(collectors.run)
        assert collectors.running == len(before)
        for endpoint in before:
            store.delete(endpoint.id)
        for endpoint in after:
            store.upsert(endpoint)
        gone, *after = after
        moved = EndpointMetadata(after[-1].id, after[-1].name, "10.0.0.2", 8000)
        store.upsert(moved)
        store.delete(gone.id)
        running = [collectors.running]
        with anyio.fail_after(30):
            while running[-1] < len(after):
                await anyio.lowlevel.checkpoint()
                running.append(collectors.running)
        await seen.until(lambda: all(seen.pages[endpoint.name] for endpoint in after))
        tasks.cancel_scope.cancel()
    assert running[0] == 0
    assert max(b - a for a, b in pairwise(running)) == MOST_STARTED
    assert not seen.pages[gone.name]
    assert collectors.running == 0
