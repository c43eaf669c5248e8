"""`slo-headroom-tier-filter`: keeps the endpoints that are predicted to meet the request's objectives."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Filter, Request

from hotbay_latency.headroom import Bools, Headrooms, tier
from hotbay_latency.package import TPOT_HEADROOM, TTFT_HEADROOM, beyond, named, plugin
from hotbay_latency.parameters import FilterParameters

CONSUMED: Final = (TTFT_HEADROOM, TPOT_HEADROOM)


@plugin.type("slo-headroom-tier-filter", consumes=[*CONSUMED, "*"], parameters=FilterParameters)
class SloHeadroomTierFilter(Filter):
    """The positive tier; now and then the negative one, so that endpoints that recover are noticed."""

    def __init__(self, context: Context, parameters: FilterParameters) -> None:
        self._context = context
        self._explore = parameters.epsilonExploreNeg
        producer = parameters.latencyPredictionInfoProducerName
        self._headrooms = named(TTFT_HEADROOM, producer), named(TPOT_HEADROOM, producer)
        self.consumes = beyond(self._headrooms, CONSUMED)

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """One tier for each request; never none."""
        rows = []
        for number in range(len(requests)):
            candidates = np.frombuffer(endpoints.mask(number), np.bool_)
            headrooms = Headrooms(
                *(np.asarray(endpoints.data_row(name, number), np.float64) for name in self._headrooms)
            )
            rows.append(tier(headrooms, candidates, explore=self._context.random.random() < self._explore))
        return rows
