"""`latency-scorer`: rates endpoints by what their predicted latency leaves of the request's objectives."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Request, Scorer

from hotbay_latency.headroom import Blend, Composite, Headrooms, rate_composite, rate_headroom
from hotbay_latency.package import TPOT_HEADROOM, TTFT_HEADROOM, beyond, named, plugin
from hotbay_latency.parameters import ScorerParameters, stronger
from hotbay_latency.regression import Floats

MATCHED: Final = "PrefixCacheMatchInfo.matched_blocks"
TOTAL: Final = "PrefixCacheMatchInfo.total_blocks"
CONSUMED: Final = (TTFT_HEADROOM, TPOT_HEADROOM, MATCHED, TOTAL)


@plugin.type(
    "latency-scorer",
    reads=["endpoint.waiting", "endpoint.kv_usage", "endpoint.in_flight"],
    consumes=[*CONSUMED, "*"],
    parameters=ScorerParameters,
)
class LatencyScorer(Scorer):
    """By headroom where there are predictions, by engine figures where there are none."""

    def __init__(self, context: Context, parameters: ScorerParameters) -> None:
        latency, prefix = parameters.latencyPredictionInfoProducerName, parameters.prefixMatchInfoProducerName
        self._headrooms = named(TTFT_HEADROOM, latency), named(TPOT_HEADROOM, latency)
        self._matched, self._total = named(MATCHED, prefix), named(TOTAL, prefix)
        self.consumes = beyond((*self._headrooms, self._matched, self._total), CONSUMED)
        weights = stronger({"ttft": parameters.ttftWeight, "tpot": parameters.tpotWeight})
        self._blend = Blend(**weights, most=parameters.headroomSelectionStrategy == "most")
        self._composite = Composite(
            **stronger(
                {
                    "kv": parameters.compositeKVWeight,
                    "queue": parameters.compositeQueueWeight,
                    "prefix": parameters.compositePrefixWeight,
                }
            )
        )

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """One row of ratings per request."""
        in_flight = np.asarray(endpoints.column("endpoint.in_flight"), np.float64)
        rows = []
        for number, request in enumerate(requests):
            candidates = np.frombuffer(endpoints.mask(number), np.bool_)
            headrooms = Headrooms(*(np.asarray(endpoints.data_row(n, number), np.float64) for n in self._headrooms))
            if (headrooms.known & candidates).any():
                rows.append(rate_headroom(headrooms, in_flight, candidates, self._blend))
            else:
                rows.append(self._by_figures(request, endpoints, number))
        return rows

    def _by_figures(self, request: Request, endpoints: Endpoints, number: int) -> Floats:
        total = request.data(self._total)
        matched = np.asarray(endpoints.data_row(self._matched, number), np.float64)
        prefix = matched / total if total > 0 else np.zeros(len(endpoints))
        waiting = np.asarray(endpoints.column("endpoint.waiting"), np.float64)
        kv_usage = np.asarray(endpoints.column("endpoint.kv_usage"), np.float64)
        candidates = np.frombuffer(endpoints.mask(number), np.bool_)
        return rate_composite(waiting, kv_usage, prefix, candidates, self._composite)
