"""`prefix-cache-affinity-filter`: keeps the endpoints that hold most of the prompt, as long as they are not too busy.

Outcomes, of which only the last one narrows: one candidate or a threshold of 0; an exploration draw; nobody above the
threshold; a time to first token that nobody knows, of either side; sticky endpoints slower than the rest by more than the cap.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from hotbay_sdk import Context, Endpoints, Filter, ParameterError, Request

from hotbay_prefix_cache.match_info import columns_of
from hotbay_prefix_cache.package import plugin

_LATENCY_KEY: Final = "LatencyPredictionInfo"
_IN_FLIGHT_TOKENS: Final = "endpoint.in_flight_tokens"


@dataclass(frozen=True, slots=True)
class AffinityParameters:
    """Ranges are the reference's. `inFlightLoadProducerName` is accepted: here that load is the host's own ledger."""

    affinityThreshold: float = 0.80
    explorationProbability: float = 0.0
    maxTTFTPenaltyMs: float = 18_000.0
    ttftSource: Literal["prefillThroughput", "latencyPredictor"] = "prefillThroughput"
    # Tokens a second. Of Qwen 32B on two H100 with vLLM 0.19, says the reference.
    peakPrefillThroughput: float = 15_928.0
    prefixMatchInfoProducerName: str = ""
    latencyPredictionInfoProducerName: str = ""
    inFlightLoadProducerName: str = ""

    def __post_init__(self) -> None:
        for name in ("affinityThreshold", "explorationProbability"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise ParameterError(name, f"expected 0 to 1, found {value}")
        for name in ("maxTTFTPenaltyMs", "peakPrefillThroughput"):
            value = getattr(self, name)
            if value < 0:
                raise ParameterError(name, f"expected a number from 0 up, found {value}")
        if self.estimates and self.maxTTFTPenaltyMs > 0 and self.peakPrefillThroughput == 0:
            raise ParameterError("peakPrefillThroughput", "expected more than 0 where ttftSource is prefillThroughput")

    @property
    def estimates(self) -> bool:
        """Whether times are estimated from tokens in flight, and not predicted."""
        return self.ttftSource == "prefillThroughput"


def kept_rows(
    shares: Mapping[int, float], ttft_ms: Mapping[int, float], *, threshold: float, cap_ms: float
) -> tuple[int, ...]:
    """Rows to keep of the candidates, which are the keys of `shares`.

    Args:
        shares: row → matched share of the prompt, 0 to 1.
        ttft_ms: row → time to first token; rows of which it is not known are missing.
        threshold: share from which a row is sticky.
        cap_ms: most by which the best sticky row may be slower than the best other one; 0 for any.
    """
    everyone = tuple(shares)
    sticky = [row for row, share in shares.items() if share >= threshold]
    if not sticky or len(sticky) == len(everyone):
        return everyone
    if cap_ms > 0:
        here = [ttft_ms[row] for row in sticky if row in ttft_ms]
        elsewhere = [value for row, value in ttft_ms.items() if shares.get(row, threshold) < threshold]
        if not here or not elsewhere or min(here) - min(elsewhere) > cap_ms:
            return everyone
    return tuple(sticky)


@plugin.type("prefix-cache-affinity-filter", reads=[_IN_FLIGHT_TOKENS], consumes=["*"], parameters=AffinityParameters)
class PrefixCacheAffinityFilter(Filter):
    """Keeps the sticky endpoints of a request, or all of them."""

    def __init__(self, context: Context, parameters: AffinityParameters) -> None:
        self._context = context
        self._parameters = parameters
        self._columns = columns_of(parameters.prefixMatchInfoProducerName)
        self.consumes = (self._columns.matched, self._columns.total)
        named = parameters.latencyPredictionInfoProducerName
        self._ttft = f"{_LATENCY_KEY}/{named}.ttft_ms" if named else f"{_LATENCY_KEY}.ttft_ms"
        self.optional = () if parameters.estimates or not parameters.maxTTFTPenaltyMs else (self._ttft,)

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[bytes]:
        """One row of flags per request."""
        return [self._flags(number, request, endpoints) for number, request in enumerate(requests)]

    def _flags(self, number: int, request: Request, endpoints: Endpoints) -> bytes:
        parameters, everyone = self._parameters, bytes(endpoints.mask(number))
        rows = endpoints.rows(number)
        if len(rows) <= 1 or parameters.affinityThreshold <= 0 or self._explores():
            return everyone
        total = request.data(self._columns.total)
        matched = endpoints.data_row(self._columns.matched, number)
        if not total > 0:
            return everyone
        shares = {row: matched[row] / total for row in rows}
        if not any(share >= parameters.affinityThreshold for share in shares.values()):
            return everyone
        ttft_ms = self._times(number, rows, endpoints) if parameters.maxTTFTPenaltyMs > 0 else {}
        kept = kept_rows(shares, ttft_ms, threshold=parameters.affinityThreshold, cap_ms=parameters.maxTTFTPenaltyMs)
        flags = bytearray(len(endpoints))
        for row in kept:
            flags[row] = 1
        return bytes(flags)

    def _explores(self) -> bool:
        probability = self._parameters.explorationProbability
        return probability > 0 and self._context.random.random() < probability

    def _times(self, number: int, rows: Sequence[int], endpoints: Endpoints) -> dict[int, float]:
        """Milliseconds to the first token, of the rows of which they are known."""
        if self._parameters.estimates:
            tokens = endpoints.column(_IN_FLIGHT_TOKENS)
            per_ms = self._parameters.peakPrefillThroughput / 1000
            return {row: tokens[row] / per_ms for row in rows if tokens[row] >= 0}
        predicted = endpoints.data_row(self._ttft, number)
        return {row: predicted[row] for row in rows if math.isfinite(predicted[row])}
