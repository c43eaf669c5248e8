"""A counter by labels and a histogram as plain integers: cheap to write, and readable without a metrics server.

Pure. Not thread-safe: one thread writes and reads. Invariants: a counter holds at most `MAX_SERIES` label sets besides
"other", so no client can make a page grow without end; bucket counts are per bucket, made cumulative only when read.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

__all__ = [
    "CALL_BUCKETS_S",
    "DECISION_BUCKETS_S",
    "MAX_SERIES",
    "REQUEST_BUCKETS_S",
    "Histogram",
    "LabelledCounter",
    "LabelledHistogram",
]

# The reference's cap; one more label set counts as "other".
MAX_SERIES = 1000

# Upper edges. A decision takes tens of microseconds to the 400 ms of the slowest deadline.
DECISION_BUCKETS_S = (
    2e-5, 3e-5, 4e-5, 5e-5, 6e-5, 8e-5, 1e-4, 1.25e-4, 1.5e-4, 2e-4, 2.5e-4, 3e-4, 4e-4, 5e-4, 7e-4, 1e-3, 1.5e-3, 2e-3, 3e-3,
    5e-3, 7.5e-3, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.4, 1.0,
)  # fmt: skip
# One call of a plugin; fewer, because there is a set of them for each plugin and point.
CALL_BUCKETS_S = (5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 1.0)
# First tokens and whole requests: a millisecond on a toy model to minutes behind a queue.
REQUEST_BUCKETS_S = (
    1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0,
    7.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip


class LabelledCounter:
    """Counts by label values, of which there are always `labels` many."""

    def __init__(self, labels: Sequence[str], max_series: int = MAX_SERIES) -> None:
        self.labels = tuple(labels)
        self._max_series = max_series
        self._counts: dict[tuple[str, ...], int] = {}
        self._other = ("other",) * len(self.labels)

    def add(self, values: tuple[str, ...], count: int = 1) -> None:
        """Count `count` more for these label values."""
        counts = self._counts
        if values not in counts and len(counts) >= self._max_series:
            values = self._other
        counts[values] = counts.get(values, 0) + count

    def get(self, *values: str) -> int:
        """The count for these label values, 0 when there was none."""
        return self._counts.get(values, 0)

    def total(self) -> int:
        """The sum over all label values."""
        return sum(self._counts.values())

    def items(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """All label values with their counts, sorted."""
        return iter(sorted(self._counts.items()))


class Histogram:
    """Counts of observations by bucket; `edges` are inclusive upper edges, ascending, without infinity."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = tuple(edges)
        self._counts = [0] * (len(self.edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self.edges, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[float, int]]:
        """(upper edge, observations up to it), the last one with infinity."""
        return list(zip((*self.edges, float("inf")), accumulate(self._counts), strict=True))

    def quantile(self, q: float) -> float | None:
        """Estimate by linear interpolation inside a bucket; the last edge for what lies beyond; None without data."""
        rank = q * self.count
        if self.count == 0:
            return None
        below, lower = 0, 0.0
        for edge, count in zip(self.edges, self._counts, strict=False):
            if count and below + count >= rank:
                return lower + (edge - lower) * max(0.0, rank - below) / count
            below, lower = below + count, edge
        return self.edges[-1]


class LabelledHistogram:
    """A histogram for each combination of label values, of which there are always `labels` many."""

    def __init__(self, labels: Sequence[str], edges: Sequence[float], max_series: int = MAX_SERIES) -> None:
        self.labels = tuple(labels)
        self._edges = tuple(edges)
        self._max_series = max_series
        self._histograms: dict[tuple[str, ...], Histogram] = {}
        self._other = ("other",) * len(self.labels)

    def of(self, values: tuple[str, ...]) -> Histogram:
        """The histogram for these label values; whoever observes often may keep it."""
        found = self._histograms.get(values)
        if found is None:
            if len(self._histograms) >= self._max_series:
                values = self._other
            found = self._histograms.setdefault(values, Histogram(self._edges))
        return found

    def items(self) -> Iterator[tuple[tuple[str, ...], Histogram]]:
        """All label values with their histograms, sorted."""
        return iter(sorted(self._histograms.items(), key=lambda item: item[0]))
