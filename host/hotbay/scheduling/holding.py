"""Requests that wait for a plugin to come: at most so many, each until its deadline.

Used while a plugin that sleeps is woken, and while one that owns something alone is exchanged. Invariants: every
request that was taken is given back exactly once, to `let_go` or by `cancel`; no request waits past its deadline;
`changed` is told the number that wait whenever it changed. What `let_go` raises is logged, and costs no other request.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from hotbay.scheduling.decision import Decision
from hotbay.scheduling.request import InferenceRequest

logger = logging.getLogger(__name__)

__all__ = ["MAX_HELD", "Done", "Held"]

Done = Callable[[Decision], None]

MAX_HELD: Final = 1024
"""Requests that may wait at once; each holds its body. One more goes on without the plugin."""


class Held:
    """See the module. Lives on the loop that made it."""

    def __init__(
        self, let_go: Callable[[InferenceRequest, Done], None], *, changed: Callable[[int], None], most: int = MAX_HELD
    ) -> None:
        self._let_go = let_go
        self._changed = changed
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, tuple[InferenceRequest, Done, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self, request: InferenceRequest, done: Done, within_s: float) -> bool:
        """Keep a request until `release`, or for `within_s` seconds; false when there are too many."""
        if len(self._waiting) >= self._most:
            return False
        timer = self._loop.call_later(within_s, self._expire, id(request))
        self._waiting[id(request)] = (request, done, timer)
        self._changed(len(self._waiting))
        return True

    def cancel(self, request: InferenceRequest) -> Done | None:
        """Forget a request; None when it is not held."""
        entry = self._waiting.pop(id(request), None)
        if entry is None:
            return None
        entry[2].cancel()
        self._changed(len(self._waiting))
        return entry[1]

    def release(self) -> None:
        """Let all go on, in the order in which they came."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        self._changed(0)
        for request, done, timer in waiting.values():
            timer.cancel()
            self._give_back(request, done)

    def shorten(self, within_s: float) -> None:
        """Let all wait for at most so many seconds from now on."""
        latest_s = self._loop.time() + within_s
        for key, (request, done, timer) in self._waiting.items():
            if timer.when() > latest_s:
                timer.cancel()
                self._waiting[key] = (request, done, self._loop.call_at(latest_s, self._expire, key))

    def _expire(self, key: int) -> None:
        request, done, _ = self._waiting.pop(key)
        self._changed(len(self._waiting))
        self._give_back(request, done)

    def _give_back(self, request: InferenceRequest, done: Done) -> None:
        try:
            self._let_go(request, done)
        except Exception:
            # Named boundary: nobody above is there to be told, and those that wait behind it must not pay.
            logger.exception("held_request_failed", extra={"request": request.id})
