"""What a generation's calls and an arm's requests came to: counters that are written per batch and copied when read.

Pure. Counters only grow. `calls` counts requests, each once per call that it took part in; `batches` counts messages
to the process. A request that was refused without asking the process (its breaker is open, its window late, its
process gone) counts as a failed call of no batch. What is the host's or the request's own fault is no failure here.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate
from math import ceil
from typing import Final, TypeVar

from hotbay_sdk.protocol import ErrorCode

from hotbay.scheduling.batch import Tally

__all__ = ["LATENCY_EDGES_S", "ArmCounters", "ArmStatistics", "CallCounters", "CallStatistics", "Latencies"]

LATENCY_EDGES_S: Final = tuple(2e-5 * 1.2**step for step in range(96))
"""Upper edges of the latency buckets: a fifth apart, from 20 µs to 665 s."""

BREAKER_OPEN: Final = "BREAKER_OPEN"
HOST_ERROR: Final = "HOST_ERROR"
"""Reason of a degradation that is a defect of this host: the log has the traceback."""

REFUSALS_APART_S: Final = 0.25
"""Refusals closer together have one cause: a plugin that hangs for a moment fails once, one that hangs on goes on failing."""

_MISSES: Final = frozenset({str(ErrorCode.DEADLINE_EXCEEDED), str(ErrorCode.RESOURCE_EXHAUSTED)})
_NOT_ITS_FAULT: Final = frozenset({HOST_ERROR, str(ErrorCode.UNAVAILABLE)})


@dataclass(frozen=True, slots=True)
class Latencies:
    """Observations by bucket; bucket n lies above edge n-1 and goes up to edge n, the last one has no upper edge."""

    counts: tuple[int, ...] = (0,) * (len(LATENCY_EDGES_S) + 1)

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def quantile_s(self, q: float) -> float | None:
        """Upper edge of the bucket that holds the `q` quantile (0 to 1): at most a fifth too long. None without data."""
        count = self.count
        if not count:
            return None
        index = bisect_left(tuple(accumulate(self.counts)), max(1, ceil(q * count)))
        return LATENCY_EDGES_S[min(index, len(LATENCY_EDGES_S) - 1)]

    def above(self, limit_s: float) -> int:
        """Observations that were certainly longer than `limit_s`."""
        return sum(self.counts[bisect_left(LATENCY_EDGES_S, limit_s) + 1 :])

    def __sub__(self, earlier: "Latencies") -> "Latencies":
        """What came after `earlier` was read."""
        return Latencies(tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True)))


@dataclass(frozen=True, slots=True)
class CallStatistics:
    """Calls of one generation.

    Args:
        calls: requests whose call ended, well or not. `errors`, `bad_results`, `deadline_misses` and `refused` are
            those of them that failed, each counted once.
        batches: messages that the process was asked with; `failed_batches` are those with a failed request. Requests
            that were refused without a message count as one failed batch for every `REFUSALS_APART_S`.
        late_answers: batches that were answered after their deadline: nothing was done with the answer.
        latencies: from sending a batch to its answer, its deadline or the end of its process.
    """

    calls: int = 0
    errors: int = 0
    bad_results: int = 0
    deadline_misses: int = 0
    refused: int = 0
    batches: int = 0
    failed_batches: int = 0
    late_answers: int = 0
    latencies: Latencies = Latencies()

    @property
    def failures(self) -> int:
        """Calls that a failure policy answered."""
        return self.errors + self.bad_results + self.deadline_misses + self.refused

    @property
    def failure_rate(self) -> float:
        """Share of the calls that failed, 0 to 1; 0 without calls."""
        return self.failures / self.calls if self.calls else 0.0

    @property
    def p99_s(self) -> float | None:
        """99th percentile of the latency; None without calls."""
        return self.latencies.quantile_s(0.99)

    def since(self, earlier: "CallStatistics") -> "CallStatistics":
        """What was counted after `earlier` was read."""
        return _difference(self, earlier)


@dataclass(frozen=True, slots=True)
class ArmStatistics:
    """Requests of one arm of a canary.

    Args:
        requests: decisions made; `refused` are those that named no endpoint, `degraded` those made without an answer.
        ended: picked requests whose end was reported; `upstream_errors` are those that failed at their endpoint.
        decisions: time that a decision took.
        ttft: time to the first byte of an answer.
    """

    requests: int = 0
    refused: int = 0
    degraded: int = 0
    ended: int = 0
    upstream_errors: int = 0
    decisions: Latencies = Latencies()
    ttft: Latencies = Latencies()

    def since(self, earlier: "ArmStatistics") -> "ArmStatistics":
        """What was counted after `earlier` was read."""
        return _difference(self, earlier)


_Statistics = TypeVar("_Statistics", CallStatistics, ArmStatistics)


def _difference(now: _Statistics, earlier: _Statistics) -> _Statistics:
    return type(now)(*(getattr(now, field.name) - getattr(earlier, field.name) for field in fields(now)))


class CallCounters:
    """The writing side of `CallStatistics`: owned by the router, one per generation. Also the `Tally` of its calls.

    `quiet` while what the generation answers is only compared: then nothing is told to the host's own tally. `complaint` is
    code and text of the last failure that is the plugin's, empty before the first.
    """

    __slots__ = (
        "_bad",
        "_blamed",
        "_errors",
        "_misses",
        "_refusal_s",
        "_refused",
        "_tally",
        "bad_results",
        "batches",
        "calls",
        "complaint",
        "deadline_misses",
        "errors",
        "failed_batches",
        "late_answers",
        "latencies",
        "quiet",
        "refused",
    )

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self.quiet = False
        self.complaint = ""
        self.calls = self.errors = self.bad_results = self.deadline_misses = self.refused = 0
        self.batches = self.failed_batches = self.late_answers = 0
        self.latencies = [0] * (len(LATENCY_EDGES_S) + 1)
        self._errors = self._bad = self._misses = self._refused = 0
        self._blamed = False
        self._refusal_s = -REFUSALS_APART_S

    def read(self) -> CallStatistics:
        """A copy."""
        return CallStatistics(
            self.calls,
            self.errors,
            self.bad_results,
            self.deadline_misses,
            self.refused,
            self.batches,
            self.failed_batches,
            self.late_answers,
            Latencies(tuple(self.latencies)),
        )

    # -- tally of what calls find in answers -----------------------------------------------------

    def invalid_scores(self, ref: str, count: int) -> None:
        if not self.quiet:
            self._tally.invalid_scores(ref, count)

    def call_timer(self, plugin: str, point: str) -> Callable[[float], None]:
        return self._tally.call_timer(plugin, point)

    def plugin_error(self, point: str, ref: str, code: str) -> None:
        if not self.quiet:
            self._tally.plugin_error(point, ref, code)
        if code in _NOT_ITS_FAULT:
            return
        self._blamed = True
        if code != BREAKER_OPEN and not self.complaint.startswith(code):
            self.complaint = code
        if code in _MISSES:
            self._misses += 1
        elif code == ErrorCode.BAD_RESULT:
            self._bad += 1
        elif code == BREAKER_OPEN:
            self._refused += 1
        else:
            self._errors += 1

    # -- windows ---------------------------------------------------------------------------------

    def answered(self, requests: int, duration_s: float) -> None:
        """A batch of `requests` was answered, and whatever is wrong with the answer was told."""
        self.calls += requests
        self.batches += 1
        self.latencies[bisect_left(LATENCY_EDGES_S, duration_s)] += 1
        if self._blamed:
            self.failed_batches += 1
            self._blame(requests)

    def failed(self, duration_s: float) -> None:
        """A whole batch failed; its requests follow as `unanswered`."""
        self.batches += 1
        self.failed_batches += 1
        self.latencies[bisect_left(LATENCY_EDGES_S, duration_s)] += 1

    def unanswered(self) -> None:
        """One request got no answer, which was told for each of its bindings."""
        self.calls += 1
        self._blame(1)

    def refused_at(self, now_s: float) -> None:
        """One request was not even sent, which was told for each of its bindings; `now_s` is a monotonic time."""
        if self._blamed and now_s - self._refusal_s >= REFUSALS_APART_S:
            self._refusal_s = now_s
            self.batches += 1
            self.failed_batches += 1
        self.unanswered()

    def called(self, point: str, ref: str, duration_s: float, code: str, complaint: str) -> None:
        """One call that is no part of a decision has ended; with `code` it failed, and `complaint` says how."""
        if code:
            self.plugin_error(point, ref, code)
            if self._blamed:
                self.complaint = complaint
        self.answered(1, duration_s)

    def forgive(self) -> None:
        """What was told since the last request is not the plugin's doing."""
        self._errors = self._bad = self._misses = self._refused = 0
        self._blamed = False

    def _blame(self, requests: int) -> None:
        """Count what was told, at most once per request: a call has several bindings."""
        misses = min(self._misses, requests)
        bad = min(self._bad, requests - misses)
        refused = min(self._refused, requests - misses - bad)
        self.deadline_misses += misses
        self.bad_results += bad
        self.refused += refused
        self.errors += min(self._errors, requests - misses - bad - refused)
        self.forgive()


class ArmCounters:
    """The writing side of `ArmStatistics`."""

    __slots__ = ("_decisions", "_degraded", "_ended", "_refused", "_requests", "_ttft", "_upstream_errors")

    def __init__(self) -> None:
        self._requests = self._refused = self._degraded = self._ended = self._upstream_errors = 0
        self._decisions = [0] * (len(LATENCY_EDGES_S) + 1)
        self._ttft = [0] * (len(LATENCY_EDGES_S) + 1)

    def decided(self, duration_s: float, *, refused: bool, degraded: Sequence[object]) -> None:
        """A cycle of this arm has ended."""
        self._requests += 1
        self._refused += refused
        self._degraded += bool(degraded)
        self._decisions[bisect_left(LATENCY_EDGES_S, duration_s)] += 1

    def ended(self, *, failed: bool, ttft_s: float | None) -> None:
        """A request that this arm picked for is over."""
        self._ended += 1
        self._upstream_errors += failed
        if ttft_s is not None:
            self._ttft[bisect_left(LATENCY_EDGES_S, ttft_s)] += 1

    def read(self) -> ArmStatistics:
        """A copy."""
        return ArmStatistics(
            self._requests,
            self._refused,
            self._degraded,
            self._ended,
            self._upstream_errors,
            Latencies(tuple(self._decisions)),
            Latencies(tuple(self._ttft)),
        )
