"""How figures of endpoints become ratings. Pure; arrays in, arrays out.

A row is unknown when its figure is not finite or below 0 (the host writes NaN or -1 for what it does not
know). An unknown row rates `UNKNOWN_RATING` and has no say in the minimum and maximum, where a formula does not say
otherwise. Every rating is within [0, 1]; what stands in rows that are no candidates means nothing.

The formulas and their constants are those of the reference scheduler's scorers of the same names.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Numbers: TypeAlias = npt.NDArray[np.float32] | npt.NDArray[np.float64] | npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

UNKNOWN_RATING: Final = np.float32(0.5)
EQUAL_RATING: Final = np.float32(1.0)
IDLE_RATING: Final = np.float32(1.0)
EMPTY_QUEUE_RATING: Final = 0.5
"""What an empty queue rates by `rate_short_queue`: above it there would be room for engines that say how much they could take."""


def known_rows(figures: Numbers) -> Bools:
    """Rows whose figure the host knows."""
    known: Bools = np.isfinite(figures) & (figures >= 0)
    return known


def rate_lowest_best(figures: Floats, candidates: Bools) -> Floats:
    """(max - figure) / (max - min) over the known candidates; 1 for each of them when all are equal."""
    known = known_rows(figures)
    ratings: Floats = np.full(figures.shape, UNKNOWN_RATING, dtype=np.float32)
    known &= candidates
    values = figures[known]
    if values.size == 0:
        return ratings
    highest = values.max()
    spread = highest - values.min()
    ratings[known] = (highest - values) / spread if spread > 0 else EQUAL_RATING
    return ratings


def rate_free_share(used: Floats) -> Floats:
    """1 - used share, clamped to [0, 1]. Each row's rating depends on that row alone."""
    ratings: Floats = np.clip(np.float32(1) - used, 0, 1)
    ratings[~known_rows(used)] = UNKNOWN_RATING
    return ratings


def rate_short_queue(waiting: Floats, threshold: float) -> Floats:
    """0.5 x (1 - min(waiting, threshold) / threshold), which is 0.5 for an empty queue. By row alone.

    `threshold` is above 0. An unknown row rates 0.5, too.
    """
    known = known_rows(waiting)
    share = np.minimum(np.where(known, waiting, 0), threshold) / threshold
    ratings: Floats = (EMPTY_QUEUE_RATING * (1 - share)).astype(np.float32)
    ratings[~known] = UNKNOWN_RATING
    return ratings


def rate_fewest_requests(counts: Floats, candidates: Bools, idle_threshold: float, max_busy_rating: float) -> Floats:
    """1 up to `idle_threshold` requests; above it (max - count) / max x `max_busy_rating`.

    The maximum is that of the known candidates, idle ones included; the minimum does not count. `idle_threshold` is 0 or
    more, so that a busy row's maximum is never 0.
    """
    known = known_rows(counts)
    ratings: Floats = np.full(counts.shape, UNKNOWN_RATING, dtype=np.float32)
    known &= candidates
    values = counts[known].astype(np.float64)
    if values.size == 0:
        return ratings
    highest = values.max()
    busy = values > idle_threshold
    rated = np.full(values.shape, IDLE_RATING, dtype=np.float32)
    rated[busy] = (highest - values[busy]) / highest * max_busy_rating
    ratings[known] = rated
    return ratings


def uncached_tokens(own: Doubles, cached: Floats | Doubles) -> Doubles:
    """Tokens of each request (B) that an endpoint would have to compute: (B, E), 0 or more.

    `cached` has the tokens of its prompt that each endpoint holds; NaN where that is not known counts as none.
    """
    held = np.where(np.isnan(cached), 0, cached)
    rest: Doubles = np.maximum(own[:, np.newaxis] - held, 0)
    return rest


def rate_token_load(in_flight: Numbers, uncached: Doubles, threshold: float) -> Floats:
    """1 - min(in flight + uncached, threshold) / threshold: (B, E). 1 for a row whose tokens in flight are unknown.

    `in_flight` has E figures, `uncached` (B, E); `threshold` is above 0.
    """
    known = known_rows(in_flight)
    load = np.where(known, in_flight, 0).astype(np.float64) + uncached
    ratings: Floats = (1 - np.minimum(load, threshold) / threshold).astype(np.float32)
    ratings[:, ~known] = IDLE_RATING
    return ratings
