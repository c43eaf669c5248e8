"""The time that a simulated server lives in: the event loop's, faster or slower, or one that a test turns by hand."""

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

__all__ = ["Clock", "LoopClock", "ManualClock", "Timer"]


class Timer(Protocol):
    """A call that is due."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Seconds since it began, what they are in Unix time, and calls when they are due."""

    @property
    def unix_of(self) -> float:
        """What to add to its time to have Unix time."""
        ...

    def now(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer: ...


class LoopClock:
    """The machine's time, `speed` times as fast, and the running loop's timers. Unix time goes as fast from its beginning.

    Some loops know their time to the millisecond and wake up as much too early: what is due is looked up in a finer clock.
    """

    def __init__(self, speed: float = 1.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._speed = speed
        self.unix_of = time.time_ns() / 1e9

    def now(self) -> float:
        return (time.monotonic() - self._began) * self._speed

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        return self._loop.call_later(max(0.0, (when - self.now()) / self._speed), callback)


class ManualClock:
    """Stands still until `advance`; what is due meanwhile is called in its order, each at its time."""

    def __init__(self, unix_of: float = 0.0) -> None:
        self.unix_of = unix_of
        self._now = 0.0
        self._due: list[tuple[float, int, _Due]] = []
        self._numbers = count()

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        due = _Due(callback)
        heapq.heappush(self._due, (when, next(self._numbers), due))
        return due

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self._now + seconds
        while self._due and self._due[0][0] <= until:
            when, _, due = heapq.heappop(self._due)
            self._now = max(self._now, when)
            if due.callback is not None:
                due.callback()
        self._now = until


class _Due:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None
