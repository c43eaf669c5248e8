"""Scorers of what engines report. State-only: nothing of a request is read but how many there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Request, Scorer

from hotbay_standard.by_candidates import rated_by_candidates
from hotbay_standard.formulas import Floats, rate_free_share, rate_lowest_best, rate_short_queue
from hotbay_standard.package import plugin

DEFAULT_THRESHOLD: Final = 128


class _LowestBest(Scorer):
    """Rates the lowest figure of one column best, over the candidates of each request."""

    column: str

    def __init__(self, context: Context) -> None:
        self._name = context.name

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """One row of ratings per request; requests that share their candidates share the array."""
        figures = np.frombuffer(endpoints.column(self.column), dtype=np.float32)
        return rated_by_candidates(lambda mask: rate_lowest_best(figures, mask), endpoints, len(requests))


@plugin.type("queue-scorer", reads=["endpoint.waiting"])
class QueueScorer(_LowestBest):
    """Fewest requests waiting in the engine rates 1, most rates 0."""

    column = "endpoint.waiting"


@plugin.type("running-requests-size-scorer", reads=["endpoint.running"])
class RunningRequestsSizeScorer(_LowestBest):
    """Fewest requests running in the engine rates 1, most rates 0."""

    column = "endpoint.running"


@plugin.type("kv-cache-utilization-scorer", reads=["endpoint.kv_usage"], rowwise=True)
class KvCacheUtilizationScorer(Scorer):
    """The share of the KV cache that is free."""

    def __init__(self, context: Context) -> None:
        self._name = context.name

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """The same row of ratings for every request."""
        used = np.frombuffer(endpoints.column("endpoint.kv_usage"), dtype=np.float32)
        return [rate_free_share(used)] * len(requests)


@dataclass(frozen=True, slots=True)
class LoadAwareParameters:
    """`threshold`: waiting requests at which the rating reaches 0."""

    threshold: int = DEFAULT_THRESHOLD


@plugin.type("load-aware-scorer", reads=["endpoint.waiting"], parameters=LoadAwareParameters, rowwise=True)
class LoadAwareScorer(Scorer):
    """0.5 for an empty queue, down to 0 at a fixed length of it."""

    def __init__(self, context: Context, parameters: LoadAwareParameters) -> None:
        self._threshold = parameters.threshold
        if parameters.threshold <= 0:
            # The reference takes such a configuration, and files that work there work here.
            context.logger.warning("threshold %d is not above 0: %d is used", parameters.threshold, DEFAULT_THRESHOLD)
            self._threshold = DEFAULT_THRESHOLD

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """The same row of ratings for every request."""
        waiting = np.frombuffer(endpoints.column("endpoint.waiting"), dtype=np.float32)
        return [rate_short_queue(waiting, self._threshold)] * len(requests)
