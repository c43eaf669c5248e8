"""The two pipes between a host and its scraping process, on the host's loop. Neither side of it ever waits here.

One batch is taken over in a turn of the loop, and nothing is read while others are there: a process that has much to tell
waits, and requests do not. The named boundary around what the process says: whatever cannot be read or taken over ends the
link, and with it the process.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import anyio

from hotbay.datalayer.scraping.frames import Frames
from hotbay.datalayer.scraping.wire import Batch, Order, WireEncoder, batch_of

__all__ = ["HelperProcess", "ScrapeLink"]

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024
_MESSAGE_CHARACTERS: Final = 300


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
        self._reading = self._writing = False
        self._ended = asyncio.Event()
        self._why = ""
        self._news = 0

    def open(self) -> None:
        self._reading = True
        asyncio.get_running_loop().add_reader(self._process.read_fd, self._read)

    def close(self) -> None:
        """Leave the descriptors alone from now on."""
        if self._writing:
            asyncio.get_running_loop().remove_writer(self._process.write_fd)
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
        except BlockingIOError:
            return
        except OSError as error:
            self._end(f"what it says cannot be read: {error}")
            return
        if not data:
            self._end("it closed its output")
            return
        self._frames.add(data)
        self._take_one()

    def _take_one(self) -> None:
        """Take over one batch; further ones that are there have their turns before anything is read."""
        if self._ended.is_set():
            return
        self._news += 1
        try:
            value = self._frames.next()
            if value is not None:
                self._take(batch_of(value))
        except Exception as error:
            # The boundary around what the process says: see the module.
            logger.exception("scraper_not_understood pid=%s", self._process.pid)
            self._end(f"what it says cannot be taken over: {type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS])
            return
        loop = asyncio.get_running_loop()
        if self._frames.has_next:
            loop.remove_reader(self._process.read_fd)
            self._reading = False
            loop.call_soon(self._take_one)
        elif not self._reading:
            self._reading = True
            loop.add_reader(self._process.read_fd, self._read)

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
        if self._reading:
            # The end of what it says, or what cannot be read, would wake this again and again.
            asyncio.get_running_loop().remove_reader(self._process.read_fd)
            self._reading = False
        self._why = self._why or why
        self._ended.set()
