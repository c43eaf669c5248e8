"""Every request of a run: when it began, its first token, how it ended; and the figures that follow from them. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Record", "Sample", "quantile"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request that ended; times in seconds from the beginning of the load. `error` is empty for a whole answer.

    `ttft_s` is the time from sending to the first chunk with text in it.
    """

    began_s: float
    ended_s: float
    ttft_s: float | None
    error: str = ""


class Record:
    """Collects samples as they come in."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._samples: list[Sample] = []
        self._failed: list[Sample] = []

    @property
    def samples(self) -> tuple[Sample, ...]:
        """In the order in which they ended."""
        return tuple(self._samples)

    @property
    def failures(self) -> tuple[Sample, ...]:
        return tuple(self._failed)

    @property
    def count(self) -> int:
        return len(self._samples)

    def add(self, sample: Sample) -> None:
        self._samples.append(sample)
        if sample.error:
            self._failed.append(sample)

    def rate(self, now_s: float, window_s: float) -> float:
        """Requests per second that ended within the window before `now_s`."""
        return len(self._recent(now_s, window_s)) / min(window_s, max(now_s, 1e-3))

    def ttft_ms(self, q: float, *, now_s: float | None = None, window_s: float = math.inf) -> float | None:
        """Quantile of the time to the first token, in milliseconds, of all or of the last requests."""
        samples = self._samples if now_s is None else self._recent(now_s, window_s)
        value = quantile((sample.ttft_s for sample in samples if sample.ttft_s is not None), q)
        return None if value is None else value * 1000

    def _recent(self, now_s: float, window_s: float) -> list[Sample]:
        recent: list[Sample] = []
        for sample in reversed(self._samples):
            if sample.ended_s < now_s - window_s:
                break
            recent.append(sample)
        return recent


def quantile(values: Iterable[float], q: float) -> float | None:
    """The smallest value that at least the share `q` of all values does not exceed (nearest rank); None of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else None
