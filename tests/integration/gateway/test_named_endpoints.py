"""Endpoints that are named: what it costs the others when nobody answers for a name."""

import threading
from collections import Counter
from collections.abc import AsyncIterator

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.scraping.in_loop import Scraper
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.store import EndpointStore
from hotbay.gateway.limits import GatewayLimits
from hotbay.resolving.resolver import Resolver

pytestmark = pytest.mark.anyio

STUCK = 12
"""Three times the threads that a loop has for names and files."""
WAIT_S = 10.0


class System:
    """A system's resolver: of `*.stuck` it hears nothing until it is told to, `*.here` is this machine."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.let_go = threading.Event()

    def look_up(self, host: str) -> tuple[str, ...]:
        self.asked[host] += 1
        if host.endswith(".stuck"):
            assert self.let_go.wait(WAIT_S)
            raise OSError(f"no servers could be reached for {host}")
        return ("127.0.0.1",)


class FailingStore(EndpointStore):
    """A store that tells of failed polls."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 0
        self._news = anyio.Event()

    def record_scrape_failure(self, endpoint_id: str, reason: str) -> bool:
        self.failures += 1
        self._news.set()
        self._news = anyio.Event()
        return super().record_scrape_failure(endpoint_id, reason)

    async def failed_times(self, count: int) -> None:
        while self.failures < count:
            await self._news.wait()


@pytest.fixture
async def system(anyio_backend: object) -> AsyncIterator[System]:
    system = System()
    yield system
    system.let_go.set()


async def test_names_that_nobody_answers_for_take_no_other_named_endpoint_down(start, system: System) -> None:
    resolver = Resolver(system.look_up)
    bay = await start(resolver=resolver)
    named = EndpointMetadata("default/named", "named", "a.here", bay.servers[0].port)
    bay.router.endpoints[:] = [named]
    store = FailingStore()
    stuck = [f"n{number}.stuck" for number in range(STUCK)]
    for name in stuck:
        store.upsert(EndpointMetadata(f"default/{name}", name, name, 8000))
    scraper = Scraper(store, MetricsPoller(resolver=resolver, budget_s=0.02))
    async with anyio.create_task_group() as tasks:
        await tasks.start(scraper.run)
        with anyio.fail_after(WAIT_S):
            # Each name was asked for several times, and given up on.
            await store.failed_times(3 * STUCK)
            client = await bay.client()
            await client.chat()
            assert (await client.answer()).status == 200
        tasks.cancel_scope.cancel()
    assert system.asked == {"a.here": 1} | dict.fromkeys(stuck, 1)
    status = store.scrape_status("default/n0.stuck")
    assert status is not None
    assert status.last_error == "no connection within 0.02 s: its name is still looked up"


async def test_an_endpoint_whose_name_is_stuck_fails_by_itself_and_says_so(start, system: System) -> None:
    bay = await start(resolver=Resolver(system.look_up), limits=GatewayLimits(tick_s=0.02, connect_s=0.02))
    bay.router.endpoints[:] = [EndpointMetadata("default/a", "a", "a.stuck", 80)]
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (504, "upstream-connect-timeout")
    assert system.asked == {"a.stuck": 1}
