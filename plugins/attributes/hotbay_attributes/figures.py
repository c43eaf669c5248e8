"""Columns of figures: which rows are known, what passes a threshold, and how figures lie in a range. Pure.

Formulas as the reference's `endpoint-attribute-filter`, `endpoint-attribute-scorer` and `utilization-filter` have them;
but a row that nothing is known of rates 0.5, as with all scorers here.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.float32]
Numbers: TypeAlias = Doubles | Floats
Bools: TypeAlias = npt.NDArray[np.bool_]

UNKNOWN_RATING: Final = np.float32(0.5)
UNKNOWN_WHOLE: Final = -1

OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "Equal": operator.eq,
    "NotEqual": operator.ne,
}


def known_figures(column: "memoryview[Any]") -> Numbers:
    """A column as floats, NaN in rows that are not known: not finite, or -1 in a column of whole numbers.

    Other figures below 0 are figures: an attribute may be one. A column of float32 stays one, so that a figure equals the
    number that somebody wrote for it.
    """
    values = np.asarray(column)
    if values.dtype.kind == "i":
        return np.where(values == UNKNOWN_WHOLE, np.nan, values.astype(np.float64))
    figures: Floats = np.where(np.isfinite(values), values, np.float32(np.nan))
    return figures


def passes(figures: Numbers, comparison: str, threshold: float, *, unknown_passes: bool) -> Bools:
    """Rows of which `figure OPERATOR threshold` is true. `comparison` is one of OPERATORS."""
    with np.errstate(over="ignore"):
        bound = figures.dtype.type(threshold)
    passed: Bools = OPERATORS[comparison](figures, bound)
    return np.where(np.isnan(figures), unknown_passes, passed)


def or_everybody(kept: Bools, candidates: Bools) -> Bools:
    """`kept`, or all rows where it has none of the candidates."""
    return kept if (kept & candidates).any() else np.ones_like(kept)


def rate_within(figures: Numbers, lowest: float, highest: float, *, lower_is_better: bool) -> Floats:
    """(figure - lowest) / (highest - lowest), clamped to [0, 1]; 1 minus that if lower is better. By row alone.

    `lowest` is below `highest`. An unknown row rates 0.5.
    """
    # Halves first: the difference of two numbers may be more than there are numbers.
    share = np.clip((figures.astype(np.float64) / 2 - lowest / 2) / (highest / 2 - lowest / 2), 0, 1)
    ratings: Floats = (1 - share if lower_is_better else share).astype(np.float32)
    ratings[np.isnan(figures)] = UNKNOWN_RATING
    return ratings


def rate_among(figures: Numbers, candidates: Bools, *, lower_is_better: bool) -> Floats:
    """As `rate_within` between the least and the greatest figure of the known candidates; 1 for each if all are equal."""
    known = ~np.isnan(figures) & candidates
    values = figures[known]
    if values.size == 0:
        return np.full(figures.shape, UNKNOWN_RATING, dtype=np.float32)
    lowest, highest = float(values.min()), float(values.max())
    if lowest == highest:
        ratings = np.full(figures.shape, UNKNOWN_RATING, dtype=np.float32)
        ratings[known] = 1
        return ratings
    return rate_within(figures, lowest, highest, lower_is_better=lower_is_better)
