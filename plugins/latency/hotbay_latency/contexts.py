"""What is remembered of requests between their prediction and their end. Pure; `now` in monotonic seconds.

Bounded in number, time and rows, because requests may end without a word, and those that are denied are never sent. Invariants: an
endpoint's objectives are those of contexts that are sent and remembered; `_rows` are those of contexts that are not sent.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotbay_latency.regression import Floats

MAX_CONTEXTS: Final = 16_384
MAX_ROWS: Final = 1_000_000
"""Endpoints' rows of all requests that are not sent: at 40 bytes a row, 40 MB."""


@dataclass(slots=True)
class Context:
    """One request.

    `load` may be shared by requests of one snapshot, `uncached` is its own: a row for each of `ids`. `target` and `features` are
    set when it is sent; `tpot_slo_ms` is 0 for a request without one.
    """

    ids: Sequence[str]
    load: Floats
    uncached: Floats
    prompt_tokens: float
    tpot_slo_ms: float
    noted_s: float
    target: str = ""
    features: Floats | None = None


_NOTHING: Final = np.zeros(0)


class Contexts:
    """Requests by id, the oldest first."""

    def __init__(self, ttl_s: float, *, most: int = MAX_CONTEXTS, most_rows: int = MAX_ROWS) -> None:
        self._ttl_s = ttl_s
        self._most = most
        self._most_rows = most_rows
        self._rows = 0
        self._requests: OrderedDict[str, Context] = OrderedDict()
        self._unsent: OrderedDict[str, Context] = OrderedDict()
        self._objectives: dict[str, Counter[float]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def note(self, request_id: str, context: Context) -> None:
        """A request was looked at; one of the same id is replaced. What is too old or too much is forgotten."""
        self.end(request_id)
        self._requests[request_id] = self._unsent[request_id] = context
        self._rows += len(context.ids)
        while len(self._requests) > self._most or self._is_old(context.noted_s):
            self.end(next(iter(self._requests)))
        # The one that has just come stays, however many rows it has.
        while self._rows > self._most_rows and len(self._unsent) > 1:
            self.end(next(iter(self._unsent)))

    def find(self, request_id: str) -> Context | None:
        """The request, if it is remembered."""
        return self._requests.get(request_id)

    def sent(self, request_id: str, target: str, features: Floats) -> None:
        """A request that is remembered goes to an endpoint. What was kept for choosing it is let go."""
        context = self._unsent.pop(request_id, None)
        if context is None:
            return
        self._rows -= len(context.ids)
        context.target, context.features = target, features
        context.ids, context.load, context.uncached = (), _NOTHING, _NOTHING
        if context.tpot_slo_ms > 0:
            self._objectives.setdefault(target, Counter())[context.tpot_slo_ms] += 1

    def end(self, request_id: str) -> Context | None:
        """Forget the request, and return it if it was remembered."""
        context = self._requests.pop(request_id, None)
        if context is None:
            return None
        if self._unsent.pop(request_id, None) is not None:
            self._rows -= len(context.ids)
        elif context.tpot_slo_ms > 0:
            objectives = self._objectives[context.target]
            objectives[context.tpot_slo_ms] -= 1
            if not objectives[context.tpot_slo_ms]:
                del objectives[context.tpot_slo_ms]
            if not objectives:
                del self._objectives[context.target]
        return context

    def strictest(self, ids: Sequence[str]) -> Floats:
        """The strictest objective per output token among the requests that each endpoint works on, infinite for none."""
        found = np.full(len(ids), np.inf)
        if self._objectives:
            for row, endpoint_id in enumerate(ids):
                objectives = self._objectives.get(endpoint_id)
                if objectives:
                    found[row] = min(objectives)
        return found

    def _is_old(self, now: float) -> bool:
        return now - next(iter(self._requests.values())).noted_s > self._ttl_s
