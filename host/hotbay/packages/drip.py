"""Decides whether a download is too slow: a source that drips a byte a second would never stall. Pure."""

from dataclasses import dataclass

__all__ = ["Drip"]


@dataclass(slots=True)
class Drip:
    """Every `needed_bytes` have to come within `window_s`; so has the end of the stream. Times are any monotonic clock's."""

    needed_bytes: int
    window_s: float
    deadline_s: float
    """When the download counts as stalled, unless more comes."""
    left_bytes: int

    @classmethod
    def start(cls, rate_bytes_per_s: float, window_s: float, now_s: float) -> "Drip":
        """At least one byte in each window, however low the rate."""
        needed = max(1, int(rate_bytes_per_s * window_s))
        return cls(needed, window_s, now_s + window_s, needed)

    def received(self, count_bytes: int, now_s: float) -> None:
        """Count what has come; a window that is full begins a new one."""
        self.left_bytes -= count_bytes
        if self.left_bytes <= 0:
            self.left_bytes = self.needed_bytes
            self.deadline_s = now_s + self.window_s

    def paused(self, elapsed_s: float) -> None:
        """Leave out a time that was not the source's: writing what it sent."""
        self.deadline_s += elapsed_s
