"""Decides when a plugin has failed so often that it is not asked for a while. Pure.

A breaker looks at the last eight answers of one window. Three misses open it, and so do more than three
misses and unusable replies together; while open, one probe call is let through every
`PROBE_INTERVAL_S`, and one good answer closes it.
"""

import enum
from collections import deque
from typing import Final

HISTORY: Final = 8
"""Answers remembered."""
OPENS_AT_MISSES: Final = 3
OPENS_ABOVE_FAILURES: Final = 3
PROBE_INTERVAL_S: Final = 1.0
"""Pause between probes of an open breaker: long against a call, short against a person's patience."""


class Answer(enum.Enum):
    """What came of a call. A MISS cost the request its whole deadline or its process; a BAD reply came in time."""

    GOOD = enum.auto()
    BAD = enum.auto()
    MISS = enum.auto()


_GOOD: Final = Answer.GOOD


class Breaker:
    """Breaker of one window of calls. Owned by the event loop; `now` is a monotonic time in seconds."""

    __slots__ = ("_history", "_next_probe")

    def __init__(self) -> None:
        self._history: deque[Answer] = deque(maxlen=HISTORY)
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

    def revived(self, now: float) -> None:
        """The plugin gave a sign of life, a late answer: an open breaker need not wait to probe it."""
        if self._next_probe is not None:
            self._next_probe = now

    def record(self, answer: Answer, *, now: float) -> None:
        """Take the outcome of a call that went out, or a miss of one that could not."""
        if self._next_probe is not None:
            if answer is _GOOD:
                self._next_probe = None
                self._history.clear()
            return
        if answer is _GOOD and not self._history:
            return
        self._history.append(answer)
        if answer is not _GOOD:
            good, misses = self._history.count(Answer.GOOD), self._history.count(Answer.MISS)
            if misses >= OPENS_AT_MISSES or len(self._history) - good > OPENS_ABOVE_FAILURES:
                self._next_probe = now + PROBE_INTERVAL_S
