"""A metrics server on a real socket whose behaviour a test can change while it runs."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata

Respond = Callable[[asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request; True keeps the connection."""

WAIT_S = 10.0
GOOD_PAGE = b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"


class MetricsServer:
    """Counts connections and answered requests; `respond` answers them."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []
        self.open: set[asyncio.StreamWriter] = set()
        self.respond: Respond = self.page(GOOD_PAGE)
        self._news = anyio.Event()
        self._listener: asyncio.Server | None = None

    async def listen(self, port: int = 0) -> None:
        """Listen on the port, 0 for a free one; again after `stop`."""
        self._listener = await asyncio.start_server(self.serve, "127.0.0.1", port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop all connections."""
        if self._listener is not None:
            self._listener.close()
            for writer in tuple(self.open):
                writer.transport.abort()
            await self._listener.wait_closed()
            self._listener = None

    def endpoint(self, name: str = "a") -> EndpointMetadata:
        return EndpointMetadata(f"default/{name}", name, "127.0.0.1", self.port)

    async def answered(self, more: int) -> None:
        """Return when so many more requests have been answered.

        A collector asks again only when it is done with the answer before, so that after two more requests
        the first of them has been dealt with.
        """
        count = len(self.requests) + more
        with anyio.fail_after(WAIT_S):
            while len(self.requests) < count:
                await self._news.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.add(writer)
        try:
            keep = True
            while keep:
                request = await reader.readuntil(b"\r\n\r\n")
                keep = await self.respond(writer)
                await writer.drain()
                self.requests.append(request)
                self._news.set()
                self._news = anyio.Event()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    @staticmethod
    def raw(answer: bytes, *, keep: bool = True) -> Respond:
        """Answer with exactly these bytes."""

        async def respond(writer: asyncio.StreamWriter) -> bool:
            writer.write(answer)
            return keep

        return respond

    @classmethod
    def page(cls, body: bytes, *, status: str = "200 OK", headers: str = "", keep: bool = True) -> Respond:
        """Answer with a body of stated length; `headers` are whole lines."""
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        return cls.raw(head.encode() + body, keep=keep)


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    """Every test here runs on both loops."""
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def start_server(anyio_backend: object) -> AsyncIterator[Callable[[], Awaitable[MetricsServer]]]:
    """Start servers; all end with the test."""
    started: list[MetricsServer] = []

    async def start() -> MetricsServer:
        started.append(MetricsServer())
        await started[-1].listen()
        return started[-1]

    yield start
    for server in started:
        await server.stop()


@pytest.fixture
async def server(start_server: Callable[[], Awaitable[MetricsServer]]) -> MetricsServer:
    return await start_server()


class Told(logging.Handler):
    """Waits for lines of the log: a problem is logged when it is told."""

    def __init__(self) -> None:
        super().__init__()
        self._news = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self._news.set()

    async def next(self) -> None:
        """Return after the next line."""
        self._news = anyio.Event()
        logger = logging.getLogger("hotbay.datalayer.discovery.feed")
        logger.addHandler(self)
        try:
            await self._news.wait()
        finally:
            logger.removeHandler(self)
