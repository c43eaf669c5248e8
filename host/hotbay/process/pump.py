"""Drains one output pipe of a child into its log, for as long as the pipe lives.

Reader callbacks on the running loop. A child that floods is drained at up to `DRAIN_BYTES` per
`DRAIN_WINDOW_S`, then the pipe itself holds it back until the window ends: the host's loop stays free.
"""

import asyncio
import os
from typing import Final

from hotbay.process.log import LogStream

READ_BYTES: Final = 64 * 1024
DRAIN_WINDOW_S: Final = 0.02
DRAIN_BYTES: Final = 1024 * 1024
"""50 MiB a second: far above any log, and about 2 % of one core."""
LAST_READS: Final = 16
"""Reads of the final drain: a pipe's whole usual content, and a bound against a grandchild that still writes."""


class Pump:
    """Owns the descriptor `fd`, which is non-blocking, and closes it at end of file or at `close`.

    `ended` says whether the end of file was seen: nobody holds the other end any more.
    """

    def __init__(self, fd: int, stream: LogStream) -> None:
        self.ended = False
        self._fd = fd
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._window_ends_s = 0.0
        self._window_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._loop.add_reader(fd, self._on_readable)

    def close(self) -> None:
        """Take what is readable now and close, whoever still holds the other end. Idempotent."""
        if self._fd < 0:
            return
        for _ in range(LAST_READS):
            data = self._read()
            if not data:
                self.ended = data is not None
                break
            while self._rest:
                self._rest = self._stream.feed(self._rest)
            self._rest = data
        self._finish()

    def _on_readable(self) -> None:
        if not self._rest:
            data = self._read()
            if data is None:
                return
            if not data:
                self.ended = True
                self._finish()
                return
            self._rest = data
            self._account(len(data))
        self._rest = self._stream.feed(self._rest)
        if self._rest and self._timer is None:
            self._loop.remove_reader(self._fd)
            self._timer = self._loop.call_soon(self._resume)

    def _account(self, count: int) -> None:
        now_s = self._loop.time()
        if now_s >= self._window_ends_s:
            self._window_ends_s = now_s + DRAIN_WINDOW_S
            self._window_bytes = 0
        self._window_bytes += count
        if self._window_bytes >= DRAIN_BYTES:
            self._loop.remove_reader(self._fd)
            self._timer = self._loop.call_at(self._window_ends_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._fd, self._on_readable)
        if self._rest:
            self._on_readable()

    def _read(self) -> bytes | None:
        """Return bytes, nothing at end of file, or None where there is nothing now."""
        try:
            return os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return None

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        rest, self._rest = self._rest, b""
        self._stream.close(rest)
