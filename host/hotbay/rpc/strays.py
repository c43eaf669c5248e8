"""Counts answers to calls that were never made: some are a plugin's clumsiness, a stream of them is a broken peer. Pure."""

from typing import Final

AT_ONCE: Final = 100
PER_S: Final = 5.0
"""A hundred at once, and three hundred a minute for ever: ten are survived, a thousand a minute are not."""


class Strays:
    """The stray answers of one process; `now` is monotonic seconds."""

    __slots__ = ("_at_s", "_level", "count")

    def __init__(self) -> None:
        self.count = 0
        self._level = 0.0
        self._at_s = 0.0

    def too_many(self, now: float) -> bool:
        """Take one more; whether the link must end."""
        self.count += 1
        self._level = max(0.0, self._level - (now - self._at_s) * PER_S) + 1
        self._at_s = now
        return self._level > AT_ONCE
