"""`burst-prefix-cache-producer`: requests that come together are placed together, while every cache is cold still.

A window opens with the first request that finds none, and closes after its time or when it is full; whoever is in it is
answered then. A full match on the endpoint where a request is placed, none elsewhere, is what the scorer of prefixes rates.
Calls overlap: each waits in a thread of its own for its window. What they share is guarded by one lock, which nobody holds
while waiting.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Lock
from typing import Final, Literal

from hotbay_sdk import Context, DataProducer, Endpoints, ParameterError, Request

from hotbay_prefix_cache.index import PROMPT_BOUNDARY
from hotbay_prefix_cache.match_info import BLOCK_TOKENS, MATCHED, PRODUCED, TOTAL, row_of_counts
from hotbay_prefix_cache.package import plugin
from hotbay_prefix_cache.placement import Waiting, place

_UNLIMITED: Final = -1
_DEFAULT_MAX_BLOCKS: Final = 2048
"""Blocks of a prompt that are compared where `maxPrefixTokensToMatch` is 0; the reference's own cap."""
_CONCURRENCY: Final = 64
"""Calls that may wait at once, which is the most that a type may have. Each brings as many requests as the host has."""
_LATEST: Final = 4.0
"""Windows after which a call that waits for somebody else's gives up: whoever opened it has died."""


@dataclass(frozen=True, slots=True)
class BurstParameters:
    """`minColocateBlocks` 0: only equal prompts are placed."""

    windowDurationMs: int = 100
    maxPerReplica: int = _UNLIMITED
    blockSizeTokens: int = 64
    maxPrefixTokensToMatch: int = 0
    minColocateBlocks: int = 0
    maxBatchSize: int = 1000
    balanceBy: Literal["requests", "tokens"] = "requests"

    def __post_init__(self) -> None:
        least = {"windowDurationMs": 1, "blockSizeTokens": 1, "maxPrefixTokensToMatch": 0, "minColocateBlocks": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ParameterError(name, f"expected a whole number from {bound} up, found {getattr(self, name)}")
        for name in ("maxPerReplica", "maxBatchSize"):
            value = getattr(self, name)
            if value != _UNLIMITED and value < 1:
                raise ParameterError(name, f"expected -1 for any, or a whole number from 1 up, found {value}")

    @property
    def max_blocks(self) -> int:
        """Blocks of a prompt that are compared."""
        if self.maxPrefixTokensToMatch:
            return max(1, self.maxPrefixTokensToMatch // self.blockSizeTokens)
        return _DEFAULT_MAX_BLOCKS


class _Window:
    """Requests that are placed together; `placed` is set before `closed` is."""

    __slots__ = ("closed", "placed", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.placed: list[str | None] = []
        self.closed = Event()


@plugin.type(
    "burst-prefix-cache-producer",
    reads=["request.prompt_hashes", "request.tokens_estimate", "endpoint.running"],
    produces=PRODUCED,
    parameters=BurstParameters,
    concurrency=_CONCURRENCY,
)
class BurstPrefixCacheProducer(DataProducer):
    """Tells of each request of a burst that the endpoint where it is placed holds all of it."""

    def __init__(self, context: Context, parameters: BurstParameters) -> None:
        self.block_tokens = parameters.blockSizeTokens
        self._parameters = parameters
        self._lock = Lock()
        self._open: _Window | None = None

    def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Mapping[str, object]:
        """The three columns of `PrefixCacheMatchInfo`, when the window of the requests has closed."""
        waiting = [self._waiting(number, request, endpoints) for number, request in enumerate(requests)]
        placed = self._place(waiting)
        rows = {name: row for row, name in enumerate(endpoints.ids) if name}
        matched, totals = [], array("f")
        for item, name in zip(waiting, placed, strict=True):
            total = len(item.hashes) - item.hashes.count(PROMPT_BOUNDARY)
            # An endpoint may have gone while the window was open.
            counts = {rows[name]: float(total)} if name in rows else {}
            matched.append(row_of_counts(counts, len(endpoints)))
            totals.append(total)
        return {MATCHED: matched, TOTAL: totals, BLOCK_TOKENS: array("f", [self.block_tokens]) * len(requests)}

    def _waiting(self, number: int, request: Request, endpoints: Endpoints) -> Waiting:
        hashes = tuple(request.prompt_hashes.tolist()[: self._parameters.max_blocks])
        rows = endpoints.rows(number)
        running = endpoints.column("endpoint.running")
        known = {endpoints.ids[row]: running[row] for row in rows if running[row] >= 0}
        weight = 1.0 if self._parameters.balanceBy == "requests" else float(max(1, request.tokens_estimate))
        return Waiting(hashes, weight, frozenset(endpoints.ids[row] for row in rows), known)

    def _place(self, waiting: Sequence[Waiting]) -> list[str | None]:
        """Wait for the window that has room for these, and return where they were placed."""
        window_s = self._parameters.windowDurationMs / 1000
        most = self._parameters.maxBatchSize
        with self._lock:
            window, opened = self._open, False
            if window is None or (most != _UNLIMITED and len(window.waiting) + len(waiting) > most):
                full, window, opened = window, _Window(), True
                self._open = window
            else:
                full = None
            first = len(window.waiting)
            window.waiting.extend(waiting)
        if full is not None:
            self._close(full)
        if most != _UNLIMITED and first + len(waiting) >= most:
            self._close(window)
        if opened:
            window.closed.wait(window_s)
            self._close(window)
        elif not window.closed.wait(_LATEST * window_s):
            return [None] * len(waiting)
        return window.placed[first : first + len(waiting)]

    def _close(self, window: _Window) -> None:
        with self._lock:
            if self._open is window:
                self._open = None
            if window.closed.is_set():
                return
            most = self._parameters.maxPerReplica
            window.placed = place(
                window.waiting,
                max_per_endpoint=None if most == _UNLIMITED else most,
                min_blocks=self._parameters.minColocateBlocks,
            )
            window.closed.set()
