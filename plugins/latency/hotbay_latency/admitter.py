"""`latency-slo-admitter`: denies requests that may be shed and whose objectives no endpoint would meet."""

from typing import Final

import numpy as np
from hotbay_sdk import Admitter, Context, Denial, Endpoints, Request

from hotbay_latency.headroom import Bools, Headrooms
from hotbay_latency.package import (
    HEADER_READS,
    TPOT_HEADER,
    TPOT_HEADROOM,
    TTFT_HEADER,
    TTFT_HEADROOM,
    beyond,
    named,
    plugin,
)
from hotbay_latency.parameters import AdmitterParameters, objective_ms
from hotbay_latency.regression import Floats

CONSUMED: Final = (TTFT_HEADROOM, TPOT_HEADROOM)
COLD_KV_USAGE: Final = 0.02
"""Below this an endpoint has hardly been used, and predictions for it are guesses."""
_SOME_MS: Final = 1.0
"""Any headroom that is one."""
DENIED: Final = Denial(message="no endpoint can serve the request within its latency objectives")


@plugin.type(
    "latency-slo-admitter",
    reads=["request.priority", *HEADER_READS, "endpoint.kv_usage", "endpoint.running"],
    consumes=[*CONSUMED, "*"],
    parameters=AdmitterParameters,
)
class LatencySloAdmitter(Admitter):
    """Requests of a priority from 0 up, and those without objectives, are always admitted."""

    def __init__(self, context: Context, parameters: AdmitterParameters) -> None:
        producer = parameters.latencyPredictionInfoProducerName
        self._headrooms = named(TTFT_HEADROOM, producer), named(TPOT_HEADROOM, producer)
        self.consumes = beyond(self._headrooms, CONSUMED)

    def admit(self, request: Request, endpoints: Endpoints) -> Denial | None:
        """Deny what may be shed where every endpoint is warm, busy and predicted to be late."""
        if request.priority >= 0:
            return None
        given = [objective_ms(request.header(header)) > 0 for header in (TTFT_HEADER, TPOT_HEADER)]
        if not any(given):
            return None
        rows = [np.asarray(endpoints.data_row(name), np.float64) for name in self._headrooms]
        headrooms = Headrooms(*(row if asked else _met(row) for row, asked in zip(rows, given, strict=True)))
        kv_usage = np.asarray(endpoints.column("endpoint.kv_usage"), np.float64)
        running = np.asarray(endpoints.column("endpoint.running"), np.float64)
        candidates = np.frombuffer(endpoints.mask(), np.bool_)
        return None if may_serve(headrooms, kv_usage, running, candidates) else DENIED


def _met(row: Floats) -> Floats:
    """Headrooms of an objective that was not given: the producer takes it for 0, which nothing meets."""
    return np.where(np.isfinite(row), _SOME_MS, np.nan)


def may_serve(headrooms: Headrooms, kv_usage: Floats, running: Floats, candidates: Bools) -> bool:
    """Whether a candidate meets both objectives, is idle or cold, or nothing is predicted. What is not known is in favour."""
    if not (headrooms.known & candidates).any():
        return True
    # An unknown figure compares as false: it counts as idle or cold. Figures are float32, and so has to be their limit.
    busy = (running > 0) & (kv_usage >= float(np.float32(COLD_KV_USAGE)))
    in_time = headrooms.met & (headrooms.ttft > 0)
    return bool((candidates & (in_time | ~busy)).any())
