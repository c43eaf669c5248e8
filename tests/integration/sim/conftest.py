"""Simulated servers on real sockets, and clients for them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import httpx
import pytest
from hotbay.sim.clock import Clock
from hotbay.sim.config import SimConfig
from hotbay.sim.server import SimServer

Start = Callable[..., Awaitable[SimServer]]
DEADLINE_S = 30.0


@pytest.fixture(params=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def begin(config: SimConfig | None = None, *, clock: Clock | None = None) -> SimServer:
            server = SimServer(config or SimConfig(model="tiny"), clock=clock)
            await server.start()
            stack.push_async_callback(server.close)
            return server

        yield begin


@pytest.fixture
async def client() -> AsyncIterator[Callable[[SimServer], httpx.AsyncClient]]:
    """A client of one server; the machine's proxy settings are not for it."""
    async with AsyncExitStack() as stack:

        def make(server: SimServer) -> httpx.AsyncClient:
            made = httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=DEADLINE_S)
            stack.push_async_callback(made.aclose)
            return made

        yield make
