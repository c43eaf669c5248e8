"""Decides when a plugin has failed so often that it is not asked for a while. Pure.

A breaker counts the last eight answers of one window. More than three failures open it; while open,
one probe call is let through every `PROBE_INTERVAL_S`, and one good answer closes it.
"""

from collections import deque
from typing import Final

HISTORY: Final = 8
"""Answers remembered (hot-path rule: three misses of the last eight)."""
OPENS_AT: Final = 3
PROBE_INTERVAL_S: Final = 1.0
"""Pause between probes of an open breaker: long against a call, short against a person's patience."""


class Breaker:
    """Breaker of one window of calls. Owned by the event loop; `now` is a monotonic time in seconds."""

    __slots__ = ("_failures", "_history", "_next_probe")

    def __init__(self) -> None:
        self._history: deque[bool] = deque(maxlen=HISTORY)
        self._failures = 0
        self._next_probe: float | None = None

    @property
    def open(self) -> bool:
        """True while calls are refused."""
        return self._next_probe is not None

    def allows(self, now: float) -> bool:
        """Whether a call may go out now. While open, a true answer books the probe."""
        if self._next_probe is None:
            return True
        if now < self._next_probe:
            return False
        self._next_probe = now + PROBE_INTERVAL_S
        return True

    def record(self, *, ok: bool, now: float) -> None:
        """Take the outcome of a call that went out."""
        if self._next_probe is not None:
            if ok:
                self._next_probe = None
                self._history.clear()
                self._failures = 0
            return
        if ok and not self._failures:
            return
        if len(self._history) == HISTORY and not self._history[0]:
            self._failures -= 1
        self._history.append(ok)
        self._failures += not ok
        if self._failures >= OPENS_AT:
            self._next_probe = now + PROBE_INTERVAL_S
