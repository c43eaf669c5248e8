"""Which endpoints are asked how often when pages of one are dear to read."""

from collections import Counter

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata, Metrics
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.collectors import ScrapeCollectors
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
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
        self._news = anyio.Event()

    def arrived(self, endpoint: EndpointMetadata, page: MetricsPage) -> None:
        self.pages[endpoint.name] += 1
        self._news.set()
        self._news = anyio.Event()

    def failed(self, endpoint: EndpointMetadata, reason: str, message: str) -> None:
        raise AssertionError(message)

    async def until(self, name: str, count: int) -> None:
        with anyio.fail_after(30):
            while self.pages[name] < count:
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
        await seen.until("a", 20)
        pages = dict(seen.pages)
        source.dear_s = 0.000_2
        await seen.until("dear", pages["dear"] + 2)
        tasks.cancel_scope.cancel()
    assert pages["dear"] < pages["a"] / 3
    assert pages["b"] > pages["a"] / 2
    widened = [record.getMessage() for record in caplog.records if "scrape_endpoint" in record.getMessage()]
    assert widened == ["scrape_endpoint_widened endpoint=default/dear interval_s=0.8: reading its page takes 40 ms"]
