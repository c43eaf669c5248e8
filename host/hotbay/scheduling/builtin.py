"""Pickers that run in the host. Pure: the random generator is an argument's state.

A picker gets the totals of all rows, the rows that may be chosen, how many to name, and by how much equal totals may differ;
it returns row numbers, best first, never a row that may not be chosen, never none while one may be.
"""

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

SPREAD: Final = 0.05
"""Share of the summed weights that each earlier pick of the same batch costs an endpoint (hot-path, Pick)."""

TIE: Final = 4 * 2.0**-23
"""Share of the summed weights by which totals of equals may differ: sums of a few float32 are off by some of their last digits,
of 1.2e-7 each, so that the reference's 1e-9 would tell apart what is equal. Scores that differ on purpose differ by more."""

_NEVER: Final = np.float32(-np.inf)
"""Below every total: scores and weights are finite."""


class PickRows(Protocol):
    """A built-in picker's function."""

    def __call__(self, totals: Floats, mask: Mask, count: int, rng: np.random.Generator, tie: float = 0.0) -> list[int]:
        """Choose at most `count` rows of those where `mask` is true; `totals` is float32 of the same length.

        Totals that differ by at most `tie` are equal.
        """


def max_score(totals: Floats, mask: Mask, count: int, rng: np.random.Generator, tie: float = 0.0) -> list[int]:
    """Highest totals first; equals in random order, so that ties spread evenly."""
    if count == 1:
        scores = np.where(mask, totals, _NEVER)
        best = (scores >= scores.max() - tie).nonzero()[0]
        row = int(best[0] if len(best) == 1 else best[int(rng.random() * len(best))])
        return [row] if mask[row] else []
    rows = np.flatnonzero(mask)
    rows = rows[np.argsort(-totals[rows], kind="stable")]
    ranks = np.cumsum(np.diff(totals[rows], prepend=totals[rows[:1]]) < -tie)
    order = np.lexsort((rng.random(len(rows)), ranks))
    return [int(row) for row in rows[order[:count]]]


def uniform(totals: Floats, mask: Mask, count: int, rng: np.random.Generator, tie: float = 0.0) -> list[int]:
    """Random rows; totals are not looked at."""
    rows = np.flatnonzero(mask)
    if not len(rows):
        return []
    if count == 1:
        return [int(rows[int(rng.random() * len(rows))])]
    return [int(row) for row in rng.permutation(rows)[:count]]


def weighted_random(totals: Floats, mask: Mask, count: int, rng: np.random.Generator, tie: float = 0.0) -> list[int]:
    """A-Res sampling (Efraimidis and Spirakis 2006): the largest keys U^(1/score); a score of 0 or less has key 0.

    All scores 0: uniform. Keys are compared as log(U)/score, which has the same order and cannot underflow.
    """
    rows = np.flatnonzero(mask)
    scores = totals[rows].astype(np.float64)
    positive = scores > 0
    if not positive.any():
        return uniform(totals, mask, count, rng)
    keys = np.full(len(rows), -np.inf)
    keys[positive] = np.log(1.0 - rng.random(int(positive.sum()))) / scores[positive]
    order = np.lexsort((rng.random(len(rows)), -keys))
    return [int(row) for row in rows[order[:count]]]


PICKERS: Final[Mapping[str, PickRows]] = {
    "max-score-picker": max_score,
    "random-picker": uniform,
    "weighted-random-picker": weighted_random,
}
