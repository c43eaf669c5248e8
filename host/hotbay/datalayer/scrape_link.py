"""The two pipes between a host and its scraping process, on the host's loop. Neither side of it ever waits here."""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import anyio
from hotbay_sdk.protocol.values import ValueRefusedError

from hotbay.datalayer.scrape_wire import Batch, Frames, Order, WireEncoder, batch_of

__all__ = ["HelperProcess", "ScrapeLink"]

_READ_BYTES: Final = 256 * 1024


class HelperProcess(Protocol):
    """A process with two pipes, non-blocking here, that ends with this one. See `hotbay.process.helper`."""

    pid: int
    write_fd: int
    read_fd: int

    async def close(self, grace_s: float) -> str: ...


class ScrapeLink:
    """The two pipes of one process."""

    def __init__(self, process: HelperProcess, take: Callable[[Batch], None]) -> None:
        self._process = process
        self._take = take
        self._encoder = WireEncoder()
        self._frames = Frames()
        self._unsent: deque[memoryview] = deque()
        self._writing = False
        self._ended = asyncio.Event()
        self._why = ""
        self._news = 0

    def open(self) -> None:
        asyncio.get_running_loop().add_reader(self._process.read_fd, self._read)

    def close(self) -> None:
        """Leave the descriptors alone from now on."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._process.read_fd)
        if self._writing:
            loop.remove_writer(self._process.write_fd)
        self._end("closed")

    def send(self, order: Order) -> None:
        """Write an order, in its turn; without waiting."""
        if not self._ended.is_set():
            self._unsent.append(memoryview(self._encoder.order(order)))
            if not self._writing:
                self._write()

    async def ended(self, silent_s: float) -> str | None:
        """Return why there is nothing to hear any more; None if nothing was heard for so long."""
        silent_windows = 0
        # Two windows: when this process was stopped for a while, the first one is over before anything can be heard.
        while silent_windows < 2:
            news = self._news
            with anyio.move_on_after(silent_s / 2):
                await self._ended.wait()
            if self._ended.is_set():
                return self._why
            silent_windows = silent_windows + 1 if self._news == news else 0
        return None

    def _read(self) -> None:
        try:
            data = os.read(self._process.read_fd, _READ_BYTES)
            self._news += 1
            if not data:
                self._end("it closed its output")
            for value in self._frames.feed(data):
                self._take(batch_of(value))
        except BlockingIOError:
            return
        except (OSError, ValueRefusedError) as error:
            self._end(f"what it says cannot be read: {error}")

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent[0] = self._unsent[0][os.write(self._process.write_fd, self._unsent[0]) :]
                if not self._unsent[0]:
                    self._unsent.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._end(f"it does not listen: {error}")
            self._unsent.clear()
        loop = asyncio.get_running_loop()
        if self._unsent and not self._writing:
            loop.add_writer(self._process.write_fd, self._write)
        elif self._writing and not self._unsent:
            loop.remove_writer(self._process.write_fd)
        self._writing = bool(self._unsent)

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._ended.set()
