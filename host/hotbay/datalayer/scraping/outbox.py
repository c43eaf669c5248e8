"""What a scraping process has to tell, until the host reads it: of each endpoint the newest outcome, and counts of older ones.

Its memory is bounded by the endpoints, and so is the time for which a host that comes back is told of the past. Endpoints are
told in turn, and one that has ever more to say loses its turn to none. Not thread-safe but for logging.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, TypeAlias

from hotbay_sdk.protocol.values import ValueRefusedError

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.pages.extraction import MetricsPage
from hotbay.datalayer.scraping.wire import (
    BATCH_BYTES,
    BATCH_OUTCOMES,
    MAX_OUTCOME_BYTES,
    Arrived,
    Batch,
    Failed,
    WireEncoder,
)

__all__ = ["ScrapeOutbox"]

_MOST_LOGS: Final = 100
_MESSAGE_CHARACTERS: Final = 1000
"""Of a log line; what an endpoint answers may be in it."""

_Waiting: TypeAlias = tuple[int, float, MetricsPage] | Failed
"""A page with its endpoint's number and when it came, or a failure."""


class ScrapeOutbox(logging.Handler):
    """See the module: a `Sink`, and where the process logs to. `numbers`: those of endpoints as the host last named them."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        super().__init__(logging.INFO)
        self._numbers = numbers
        self._encoder = WireEncoder()
        self._waiting: dict[str, _Waiting] = {}
        self._superseded: Counter[str] = Counter()
        self._logs: deque[tuple[int, str]] = deque(maxlen=_MOST_LOGS)
        self._told: dict[str, tuple[int, MetricsPage]] = {}
        self._too_large: dict[str, MetricsPage] = {}

    @property
    def has_outcomes(self) -> bool:
        return bool(self._waiting)

    @property
    def is_empty(self) -> bool:
        return not self._waiting and not self._logs

    def arrived(self, endpoint: EndpointMetadata, page: MetricsPage) -> None:
        self._wait(endpoint.id, (self._numbers[endpoint.id], time.monotonic(), page))

    def failed(self, endpoint: EndpointMetadata, reason: str, message: str) -> None:
        number = self._numbers[endpoint.id]
        self._wait(endpoint.id, Failed(endpoint.id, number, reason, message[:_MESSAGE_CHARACTERS]))

    def emit(self, record: logging.LogRecord) -> None:
        self._logs.append((record.levelno, self.format(record)[:_MESSAGE_CHARACTERS]))

    def batch(self, connects: int, factor: float) -> bytes:
        """A frame of outcomes that wait, of those that came first, and of all logs; they are forgotten."""
        packed: list[bytes] = []
        size = 0
        while self._waiting and len(packed) < BATCH_OUTCOMES and size < BATCH_BYTES:
            endpoint_id = next(iter(self._waiting))
            packed.append(self._packed(endpoint_id, self._waiting.pop(endpoint_id)))
            size += len(packed[-1])
        rest = Batch((), tuple(self._logs), connects, factor, dict(self._superseded))
        self._logs.clear()
        self._superseded.clear()
        for kept in (self._told, self._too_large):
            for endpoint_id in kept.keys() - self._numbers.keys():
                del kept[endpoint_id]
        return self._encoder.batch_of_packed(packed, rest)

    def _wait(self, endpoint_id: str, outcome: _Waiting) -> None:
        before = self._waiting.get(endpoint_id)
        if before is not None:
            self._superseded[before.reason if isinstance(before, Failed) else ""] += 1
        self._waiting[endpoint_id] = outcome

    def _packed(self, endpoint_id: str, outcome: _Waiting) -> bytes:
        if isinstance(outcome, Failed):
            return self._encoder.outcome(outcome)
        number, at, page = outcome
        told = self._told.get(endpoint_id)
        if told is not None and told[0] == number and told[1] is page:
            return self._encoder.outcome(Arrived(endpoint_id, number, at, None))
        found = "more"
        # Not packed again and again while the page says the same.
        if self._too_large.get(endpoint_id) is not page:
            try:
                packed = self._encoder.outcome(Arrived(endpoint_id, number, at, page))
            except ValueRefusedError as error:
                found = str(error)
            else:
                if len(packed) <= MAX_OUTCOME_BYTES:
                    self._too_large.pop(endpoint_id, None)
                    self._told[endpoint_id] = number, page
                    return packed
                found = str(len(packed))
            self._too_large[endpoint_id] = page
        message = f"expected wanted samples of at most {MAX_OUTCOME_BYTES} bytes, found {found}"
        return self._encoder.outcome(Failed(endpoint_id, number, "too_large", message))
