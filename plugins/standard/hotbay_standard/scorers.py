"""The plugin and its three types. State-only: nothing of a request is read but how many there are."""

from collections.abc import Sequence

import numpy as np
from hotbay_sdk import Context, Endpoints, Plugin, Request, Scorer

from hotbay_standard.formulas import Bools, Floats, rate_free_share, rate_lowest_best

plugin = Plugin("standard")


class _LowestBest(Scorer):
    """Rates the lowest figure of one column best, over the candidates of each request."""

    column: str

    def __init__(self, context: Context) -> None:
        self._name = context.name

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """One row of ratings per request; requests that share their candidates share the array."""
        figures = np.frombuffer(endpoints.column(self.column), dtype=np.float32)
        rated: dict[bytes, Floats] = {}
        rows = []
        for number in range(len(requests)):
            mask = bytes(endpoints.mask(number))
            ratings = rated.get(mask)
            if ratings is None:
                candidates: Bools = np.frombuffer(mask, dtype=np.bool_)
                ratings = rated[mask] = rate_lowest_best(figures, candidates)
            rows.append(ratings)
        return rows


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
