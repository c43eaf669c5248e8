"""Scorers of what the host has sent and not got back, as its own ledger counts it.

So they need no engine's report, and see a burst at once that falls between two reports.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from hotbay_sdk import Context, Endpoints, Request, Scorer

from hotbay_standard.by_candidates import rated_by_candidates
from hotbay_standard.formulas import Doubles, Floats, rate_fewest_requests, rate_token_load, uncached_tokens
from hotbay_standard.package import plugin

MATCHED: Final = "PrefixCacheMatchInfo.matched_blocks"
BLOCK_TOKENS: Final = "PrefixCacheMatchInfo.block_size_tokens"

DEFAULT_THRESHOLD_TOKENS: Final = 4_194_304
"""128 requests of 32 Ki tokens."""


@dataclass(frozen=True, slots=True)
class ActiveRequestParameters:
    """`idleThreshold`: requests up to which an endpoint counts as idle. `maxBusyScore`: most that a busy one rates.

    The others are taken for the reference's files and mean nothing: the host has one ledger, and requests leave it when
    they end.
    """

    idleThreshold: int = 0
    maxBusyScore: float = 1.0
    requestTimeout: str = ""
    inFlightLoadProducerName: str = ""


@plugin.type("active-request-scorer", reads=["endpoint.in_flight"], parameters=ActiveRequestParameters)
class ActiveRequestScorer(Scorer):
    """Idle endpoints rate 1; busy ones the less, the more requests are in flight."""

    def __init__(self, context: Context, parameters: ActiveRequestParameters) -> None:
        self._idle_threshold = parameters.idleThreshold
        self._max_busy_rating = parameters.maxBusyScore
        warn = context.logger.warning
        if parameters.requestTimeout:
            warn("requestTimeout is deprecated and ignored: a request counts until it ends")
        # The reference takes both of these, and files that work there work here.
        if parameters.idleThreshold < 0:
            warn("idleThreshold %d is below 0: 0 is used", parameters.idleThreshold)
            self._idle_threshold = 0
        if not 0 <= parameters.maxBusyScore <= 1:
            warn("maxBusyScore %g is not within 0 and 1: 1 is used", parameters.maxBusyScore)
            self._max_busy_rating = 1.0

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Floats]:
        """One row of ratings per request; requests that share their candidates share the array."""
        counts = np.frombuffer(endpoints.column("endpoint.in_flight"), dtype=np.float32)
        idle, busy = self._idle_threshold, self._max_busy_rating
        return rated_by_candidates(
            lambda mask: rate_fewest_requests(counts, mask, idle, busy), endpoints, len(requests)
        )


@dataclass(frozen=True, slots=True)
class TokenLoadParameters:
    """`queueThresholdTokens`: tokens at which the rating reaches 0. The other one: as with `ActiveRequestParameters`."""

    queueThresholdTokens: int = DEFAULT_THRESHOLD_TOKENS
    inFlightLoadProducerName: str = ""


@plugin.type(
    "token-load-scorer",
    reads=["endpoint.in_flight_tokens", "request.tokens_estimate"],
    optional=[MATCHED, BLOCK_TOKENS],
    parameters=TokenLoadParameters,
)
class TokenLoadScorer(Scorer):
    """The fewer tokens an endpoint would have to work through with this request, the better."""

    def __init__(self, context: Context, parameters: TokenLoadParameters) -> None:
        self._threshold = parameters.queueThresholdTokens
        if parameters.queueThresholdTokens <= 0:
            # The reference takes such a configuration, and files that work there work here.
            given = parameters.queueThresholdTokens
            context.logger.warning(
                "queueThresholdTokens %d is not above 0: %d is used", given, DEFAULT_THRESHOLD_TOKENS
            )
            self._threshold = DEFAULT_THRESHOLD_TOKENS

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Floats:
        """B rows of E ratings."""
        in_flight = np.frombuffer(endpoints.column("endpoint.in_flight_tokens"), dtype=np.int64)
        own = np.array([request.tokens_estimate for request in requests], dtype=np.float64)
        block_tokens: Doubles = np.array([request.data(BLOCK_TOKENS) for request in requests], dtype=np.float64)
        matched = np.asarray(endpoints.data(MATCHED), dtype=np.float32).reshape(len(requests), -1)
        cached = matched * block_tokens[:, np.newaxis]
        return rate_token_load(in_flight, uncached_tokens(own, cached), self._threshold)
