"""What happens to plugins, told to whoever listens at the moment: a listener that does not keep up loses the oldest."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import anyio

from hotbay.rollout.services import Occurrence

__all__ = ["EventLog"]

KEPT: Final = 256
"""Events that wait for one listener."""


class EventLog:
    """See the module. `wall` is seconds since the epoch. For the loop's thread."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._listeners: set[_Listener] = set()

    def happened(self, occurrence: Occurrence) -> None:
        """Tell all who listen."""
        if self._listeners:
            page = {
                "at_s": self._wall(), "event": occurrence.event, "plugin": occurrence.plugin, **occurrence.fields
            }  # fmt: skip
            for listener in self._listeners:
                listener.take(page)

    async def listen(self) -> AsyncIterator[Mapping[str, object]]:
        """Events from here on, without end; `lost` says how many of them this listener missed."""
        listener = _Listener()
        self._listeners.add(listener)
        try:
            while True:
                yield await listener.next()
        finally:
            self._listeners.discard(listener)


class _Listener:
    def __init__(self) -> None:
        self._waiting: deque[Mapping[str, object]] = deque()
        self._lost = 0
        self._rung = anyio.Event()

    def take(self, page: Mapping[str, object]) -> None:
        if len(self._waiting) == KEPT:
            self._waiting.popleft()
            self._lost += 1
        self._waiting.append(page)
        self._rung.set()

    async def next(self) -> Mapping[str, object]:
        while not self._waiting:
            self._rung = anyio.Event()
            await self._rung.wait()
        page = self._waiting.popleft()
        if self._lost:
            page, self._lost = {**page, "lost": self._lost}, 0
        return page
