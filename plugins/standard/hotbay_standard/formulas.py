"""How a column of endpoint figures becomes ratings. Pure; arrays in, arrays out.

A row is unknown when its figure is not finite or below 0 (the host writes NaN or -1 for what it does not
know). An unknown row rates `UNKNOWN_RATING` and has no say in the minimum and maximum. Every rating is
within [0, 1]; what stands in rows that are no candidates means nothing.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]

UNKNOWN_RATING: Final = np.float32(0.5)
EQUAL_RATING: Final = np.float32(1.0)


def known_rows(figures: Floats) -> Bools:
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
