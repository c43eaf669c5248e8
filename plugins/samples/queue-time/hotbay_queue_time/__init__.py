"""An extractor: the median time that requests waited in the engine lately. Imports hotbay_sdk and the standard library only."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from hotbay_sdk import Context, Extractor, ParameterError, Plugin

plugin = Plugin("queue-time")

BUCKETS = "vllm:request_queue_time_seconds_bucket"
ATTRIBUTE = "queue_time_p50"
STEPS = 60
"""Pages that are kept of a window: the edge of the window is that sharp."""
MAX_ENDPOINTS = 10_000

Counts = Mapping[float, float]
"""Upper edge of a bucket in seconds → requests that waited at most so long, since the engine started."""


@dataclass(frozen=True)
class Parameters:
    """What an operator may set: of how many seconds the median is."""

    window_s: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.window_s <= 3600:
            raise ParameterError("window_s", f"expected 1 to 3600 seconds, found {self.window_s:g}")


@plugin.type(
    "queue-time-extractor",
    payload="metrics",
    families=[BUCKETS],
    attributes={ATTRIBUTE: "f32"},
    default_source="metrics-data-source",
    parameters=Parameters,
)
class QueueTimeExtractor(Extractor):
    """Keeps what each endpoint's pages said during the window, and takes the difference."""

    def __init__(self, context: Context, parameters: Parameters) -> None:
        self._window_s = parameters.window_s
        self._pages: dict[str, deque[tuple[float, Counts]]] = {}

    def extract(self, payload: Any, endpoint: Mapping[str, Any]) -> Mapping[str, object]:
        """The median in seconds; nothing while no request is known to have begun in the window."""
        return {ATTRIBUTE: self.median(endpoint["id"], counts(payload.get(BUCKETS, ())), monotonic())}

    def median(self, endpoint_id: str, now: Counts, at_s: float) -> float | None:
        """The median of the window that ends with this page; None without a request in it."""
        pages = self._pages.pop(endpoint_id, deque())
        if pages and restarted(pages[-1][1], now):
            pages.clear()
        while len(pages) > 1 and at_s - pages[1][0] >= self._window_s:
            pages.popleft()
        if not pages or at_s - pages[-1][0] >= self._window_s / STEPS:
            pages.append((at_s, now))
        # The endpoint that was asked for least lately comes first, and goes first.
        self._pages[endpoint_id] = pages
        if len(self._pages) > MAX_ENDPOINTS:
            del self._pages[next(iter(self._pages))]
        before = pages[0][1]
        return quantile(0.5, {edge: count - before.get(edge, 0.0) for edge, count in now.items()})


def counts(samples: Sequence[Sequence[Any]]) -> Counts:
    """The buckets of all series together: an engine has one for each of its models."""
    found: dict[float, float] = {}
    for labels, value in samples:
        try:
            edge = float(labels["le"])
        except (KeyError, ValueError):
            continue
        found[edge] = found.get(edge, 0.0) + value
    return dict(sorted(found.items()))


def restarted(before: Counts, now: Counts) -> bool:
    """Whether the engine began to count anew."""
    return any(now.get(edge, 0.0) < count for edge, count in before.items())


def quantile(q: float, cumulative: Counts) -> float | None:
    """As Prometheus' `histogram_quantile`: linear within the bucket, its lower edge where it has no upper one."""
    total = max(cumulative.values(), default=0.0)
    if not total > 0:
        return None
    rank, below, count_below = q * total, 0.0, 0.0
    for edge, count in cumulative.items():
        if count >= rank:
            if math.isinf(edge):
                return below
            return below + (edge - below) * (rank - count_below) / (count - count_below)
        below, count_below = edge, count
    return below
