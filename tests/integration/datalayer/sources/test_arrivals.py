"""When a hundred servers are asked, by the clock of who is asked: spread over the interval, each at a pace of its own.

What is asserted are shares, with bounds that a busy machine keeps: unspread, nearly all arrive in a quarter of the interval, which
is more than twice as many as are allowed.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from hotbay.collection import Collection
from hotbay.config.data_sources import read_data_layer
from hotbay.config.picker_config import load_picker_config
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.scraping.collectors import ScrapeCollectors
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.records import ScrapeRecords
from hotbay.datalayer.sources.http import Where
from hotbay.datalayer.sources.models import ModelsSource
from hotbay.datalayer.sources.polling import PolledSource, SourceCollectors
from hotbay.datalayer.store import EndpointStore
from hotbay.observe.background import Background
from hotbay.observe.metrics import Metrics

pytestmark = pytest.mark.anyio

SERVERS = 100
SILENT = 5
INTERVAL_S = 1.0
ROUNDS = 3
METRICS, MODELS = "/metrics", "/v1/models"
PAGES = {METRICS: b"vllm:num_requests_waiting 3\n", MODELS: b'{"data": [{"id": "base"}]}'}
WAIT_S = 15.0
PICKER = f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {{type: metrics-data-source, parameters: {{interval: {INTERVAL_S}s}}}}
- {{type: models-data-source, parameters: {{interval: {INTERVAL_S}s}}}}
- {{type: models-data-extractor}}
dataLayer: {{sources: [{{pluginRef: models-data-source, extractors: [{{pluginRef: models-data-extractor}}]}}]}}
"""


@pytest.fixture
def anyio_backend() -> str:
    """One loop will do: what decides when somebody is asked is the same on both."""
    return "asyncio"


class Fleet:
    """Servers that note when they were asked for which path, and some that accept and never answer."""

    def __init__(self, stack: AsyncExitStack, silent: int = 0) -> None:
        self.arrivals: dict[tuple[int, str], list[float]] = {}
        self.kept_waiting: set[int] = set()
        self.store = EndpointStore()
        self._stack = stack
        self._silent = silent
        self._come = anyio.Event()

    async def listen(self) -> None:
        for number in range(SERVERS + self._silent):
            is_silent = number >= SERVERS
            listener = await asyncio.start_server(self._ignore if is_silent else self._serve, "127.0.0.1", 0)
            self._stack.callback(listener.close)
            port = listener.sockets[0].getsockname()[1]
            self.store.upsert(EndpointMetadata(f"default/e{number:03}", f"e{number:03}", "127.0.0.1", port))
            if not is_silent:
                self.arrivals |= {(port, path): [] for path in PAGES}

    async def asked(self, path: str) -> None:
        """Return when everybody who answers was asked so many times."""
        with anyio.fail_after(WAIT_S):
            while any(len(times) < ROUNDS for (_, asked), times in self.arrivals.items() if asked == path):
                await self._come.wait()
                self._come = anyio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("sockname")[1]
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                self.arrivals[port, path].append(time.monotonic())
                self._come.set()
                body = PAGES[path]
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async def _ignore(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.kept_waiting.add(writer.get_extra_info("sockname")[1])
        try:
            # Questions, and then the end of the connection of who asked them.
            await reader.read()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    def rounds(self, path: str) -> Iterator[list[float]]:
        """When each server was asked first, when for the second time, and so on."""
        for number in range(ROUNDS):
            yield [times[number] for (_, asked), times in self.arrivals.items() if asked == path]


def busiest_quarter(times: Sequence[float]) -> float:
    """The largest share of all that arrives within a quarter of the interval, wherever that begins."""
    phases = [at % INTERVAL_S for at in times]
    return max(sum((phase - begin) % INTERVAL_S < INTERVAL_S / 4 for phase in phases) for begin in phases) / len(phases)


async def test_m04_a_hundred_servers_are_asked_all_over_the_interval_and_each_in_time_beside_silent_ones() -> None:
    async with AsyncExitStack() as stack:
        fleet = Fleet(stack, silent=SILENT)
        await fleet.listen()
        collection = Collection(fleet.store, counts=Metrics(), background=Background())
        parameters = read_data_layer(load_picker_config(PICKER, file="picker.yaml"))
        await collection.load(parameters, directory=Path(), interval_s=INTERVAL_S)
        async with anyio.create_task_group() as group:
            await collection.run(group)
            await fleet.asked(METRICS)
            await fleet.asked(MODELS)
            group.cancel_scope.cancel()
    for path in PAGES:
        # The calmest of them: a machine that stood still for a moment made a herd of one round.
        assert min(map(busiest_quarter, fleet.rounds(path))) <= 0.45, path
        between = [
            after - before
            for (_, asked), times in fleet.arrivals.items()
            for before, after in pairwise(times)
            if asked == path
        ]
        in_time = sum(abs(gap_s - INTERVAL_S) < 0.2 * INTERVAL_S for gap_s in between)
        assert in_time >= 0.9 * len(between), path
    assert len(fleet.kept_waiting) == SILENT


async def test_m04_without_spreading_they_would_arrive_together() -> None:
    async with AsyncExitStack() as stack:
        scraped, polled = Fleet(stack), Fleet(stack)
        await scraped.listen()
        await polled.listen()
        poller = MetricsPoller(interval_s=INTERVAL_S)
        records = ScrapeRecords(
            scraped.store, poller.engines, poller.authority, clock=time.monotonic, on_page=lambda endpoint, page: None
        )
        together = ScrapeCollectors(
            scraped.store,
            poller,
            records,
            background=Background(),
            start_delay=lambda endpoint_id, interval_s, count: 0.0,
        )
        source = ModelsSource("models", Where(MODELS), interval_s=INTERVAL_S)
        collectors = SourceCollectors(
            polled.store,
            [PolledSource(source)],
            tick_s=INTERVAL_S,
            now=time.monotonic,
            counts=Metrics(),
            background=Background(),
        )
        async with anyio.create_task_group() as group:
            await group.start(together.run)
            for endpoint in polled.store.endpoints():
                collectors.start(group, endpoint)
            await scraped.asked(METRICS)
            await polled.asked(MODELS)
            group.cancel_scope.cancel()
    assert max(map(busiest_quarter, scraped.rounds(METRICS))) >= 0.75
    assert max(map(busiest_quarter, polled.rounds(MODELS))) >= 0.75
