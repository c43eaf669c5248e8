"""The scraping process: `python -m hotbay.datalayer.scraping.worker PARENT`, orders on its input, batches on its output.

It does what a scraper in the host does, with the same collectors, source and reader, and tells only what changed. It
ends at the end of its input and with its parent, whichever comes first; nothing of it is to be kept. While the host does not
read, the newest outcome of each endpoint waits, and those before it are counted: values are about now. A page whose wanted
samples are more than a batch may carry is a failed poll of its endpoint.
"""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.datalayer.fetching.tls import ClientTls
from hotbay.datalayer.pages.engines import EngineSet
from hotbay.datalayer.scraping.collectors import ScrapeCollectors
from hotbay.datalayer.scraping.frames import Frames
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.scraping.outbox import ScrapeOutbox
from hotbay.datalayer.scraping.wire import (
    EndpointGone,
    EndpointSaid,
    Order,
    SamplesWanted,
    ScrapeSettings,
    order_of,
)
from hotbay.observe.background import Background

__all__ = ["BATCH_S", "HEARTBEAT_S", "main"]

BATCH_S: Final = 0.01
"""Half of the tick at which snapshots are published."""
HEARTBEAT_S: Final = 1.0
"""The host hears of a process that has nothing to tell at least so often."""

_READ_BYTES: Final = 256 * 1024
_PR_SET_PDEATHSIG: Final = 1


class _Book:
    """The endpoints that the host named: `Endpoints` for collectors."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._endpoints: dict[str, EndpointMetadata] = {}
        self._listeners: list[Callable[[EndpointEvent], None]] = []

    def endpoints(self) -> tuple[EndpointMetadata, ...]:
        return tuple(self._endpoints.values())

    def subscribe(self, listener: Callable[[EndpointEvent], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def obey(self, order: EndpointSaid | EndpointGone) -> None:
        """Take over an order about an endpoint."""
        if isinstance(order, EndpointGone):
            gone = self._endpoints.pop(order.endpoint_id, None)
            self.numbers.pop(order.endpoint_id, None)
            event: EndpointEvent | None = None if gone is None else Delete(gone)
        else:
            self.numbers[order.endpoint.id] = order.number
            self._endpoints[order.endpoint.id] = order.endpoint
            event = Upsert(order.endpoint)
        if event is not None:
            for listener in tuple(self._listeners):
                listener(event)


async def _serve(settings: ScrapeSettings, orders: "_Orders") -> None:
    tls = None if settings.tls is None else ClientTls(settings.tls, Path("/"))
    poller = MetricsPoller(
        EngineSet(settings.engines),
        path=settings.path,
        port=settings.port,
        tls=tls,
        interval_s=settings.interval_s,
        budget_s=settings.budget_s,
        at_node=settings.at_node,
    )
    poller.want(settings.wanted)
    book = _Book()
    outbox = ScrapeOutbox(book.numbers)
    logging.basicConfig(level=logging.INFO, handlers=[outbox], format="%(message)s", force=True)
    collectors = ScrapeCollectors(book, poller, outbox, background=Background())

    def obey(order: Order) -> None:
        assert not isinstance(order, ScrapeSettings), "settings come first, and once"
        if isinstance(order, SamplesWanted):
            poller.want(order.names)
        else:
            book.obey(order)

    async with anyio.create_task_group() as group:
        group.start_soon(collectors.run)
        group.start_soon(orders.follow, obey, group.cancel_scope.cancel)
        told_s = 0.0
        while True:
            await anyio.sleep(0 if outbox.has_outcomes else BATCH_S)
            if outbox.is_empty and time.monotonic() - told_s < HEARTBEAT_S:
                continue
            told_s = time.monotonic()
            await _write(outbox.batch(poller.connects, collectors.factor))


async def _write(frame: bytes) -> None:
    """Write it whole; wait while the host does not read."""
    view, loop = memoryview(frame), asyncio.get_running_loop()
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            ready = asyncio.Event()
            loop.add_writer(1, ready.set)
            try:
                await ready.wait()
            finally:
                loop.remove_writer(1)


class _Orders:
    """What the host writes."""

    def __init__(self) -> None:
        self._frames = Frames()
        self._orders: deque[Order] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._wrong: Exception | None = None

    def listen(self) -> None:
        asyncio.get_running_loop().add_reader(0, self._read)

    async def next(self) -> Order | None:
        """The next order; None at the end. Raises what made the next one unreadable: a host starts another process then."""
        while not self._orders and not self._ended:
            self._news.clear()
            await self._news.wait()
        if not self._orders and self._wrong is not None:
            raise self._wrong
        return self._orders.popleft() if self._orders else None

    async def follow(self, obey: Callable[[Order], None], ended: Callable[[], None]) -> None:
        """Obey orders until they end."""
        while (order := await self.next()) is not None:
            obey(order)
        ended()

    def _read(self) -> None:
        try:
            data = os.read(0, _READ_BYTES)
        except BlockingIOError:
            return
        try:
            self._orders.extend(order_of(value) for value in self._frames.feed(data))
        except Exception as error:  # noqa: BLE001 - the boundary around what the host says: raised where it is awaited
            self._wrong = error
        if not data or self._wrong is not None:
            asyncio.get_running_loop().remove_reader(0)
            self._ended = True
        self._news.set()


async def _run() -> None:
    orders = _Orders()
    orders.listen()
    settings = await orders.next()
    if isinstance(settings, ScrapeSettings):
        await _serve(settings, orders)


def main(parent: int) -> None:
    """Serve the process `parent` until it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # Who stops the host by a signal to its terminal's group or its cgroup is answered by the host, which drains first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for descriptor in (0, 1):
        os.set_blocking(descriptor, False)
    try:
        anyio.run(_run, backend_options={"use_uvloop": sys.platform != "win32"})
    except (BrokenPipeError, BaseExceptionGroup) as error:
        if not _host_is_gone(error):
            raise


def _host_is_gone(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_host_is_gone(one) for one in error.exceptions)
    return isinstance(error, BrokenPipeError)


if __name__ == "__main__":
    main(int(sys.argv[1]))
