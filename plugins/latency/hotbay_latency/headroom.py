"""Ratings and tiers by headroom: the objective minus the prediction, in milliseconds. Pure; arrays of E rows.

NaN stands for no prediction. Source: the reference's latency-scorer and slo-headroom-tier-filter.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from hotbay_latency.regression import Floats

Bools: TypeAlias = npt.NDArray[np.bool_]

_STEPS: Final = 100
"""Ratings have two decimals, and the lowest one of an endpoint that is rated at all is 0.01."""
_EVEN: Final = 1e-9
"""Headrooms in milliseconds that differ by less are one."""
_MIDDLE: Final = 0.5


class Headrooms(NamedTuple):
    """What is left of both objectives, by row."""

    ttft: Floats
    tpot: Floats

    @property
    def known(self) -> Bools:
        """Rows with predictions."""
        known: Bools = np.isfinite(self.ttft) & np.isfinite(self.tpot)
        return known

    @property
    def met(self) -> Bools:
        """Rows with predictions that meet both objectives."""
        met: Bools = self.known & (self.ttft >= 0) & (self.tpot >= 0)
        return met


@dataclass(frozen=True, slots=True)
class Blend:
    """Shares of the two headrooms, which sum to 1, and whether most headroom is best."""

    ttft: float
    tpot: float
    most: bool


@dataclass(frozen=True, slots=True)
class Composite:
    """Shares of engine figures, which sum to 1."""

    kv: float
    queue: float
    prefix: float


def rate_headroom(headrooms: Headrooms, in_flight: Floats, candidates: Bools, blend: Blend) -> Floats:
    """Ratings in [0, 1], 0 for everything but the best group.

    The best group is: those that meet both objectives; else idle ones; else those that miss only the time per output token;
    else only the time to first token; else both. Within it, the headroom that is least, or with `blend.most` the most, rates
    best; of what is missed always the least.
    """
    ratings: Floats = np.zeros(len(in_flight))
    known = headrooms.known & candidates
    met = headrooms.met & candidates
    if met.any():
        _rate_group(ratings, headrooms, met, blend)
        return ratings
    misses_ttft, misses_tpot = known & (headrooms.ttft < 0), known & (headrooms.tpot < 0)
    idle = known & (in_flight == 0)
    for group in (idle, misses_tpot & ~misses_ttft, misses_ttft & ~misses_tpot, misses_ttft & misses_tpot):
        if group.any():
            _rate_group(ratings, headrooms, group, Blend(blend.ttft, blend.tpot, most=False))
            break
    return ratings


def _rate_group(ratings: Floats, headrooms: Headrooms, group: Bools, blend: Blend) -> None:
    ttft, ttft_differs = _share(np.abs(headrooms.ttft[group]))
    tpot, tpot_differs = _share(np.abs(headrooms.tpot[group]))
    alpha, beta = blend.ttft, blend.tpot
    # A headroom that is the same everywhere decides nothing, and would only draw ratings together.
    if tpot_differs and not ttft_differs:
        alpha, beta = 0.0, 1.0
    elif ttft_differs and not tpot_differs:
        alpha, beta = 1.0, 0.0
    blended = alpha * ttft + beta * tpot
    best = blended if blend.most else 1 - blended
    ratings[group] = np.minimum((np.floor(best * _STEPS) + 1) / _STEPS, 1.0)


def _share(values: Floats) -> tuple[Floats, bool]:
    """(value - min) / (max - min), and whether they differ; all in the middle where they do not."""
    lowest, spread = values.min(), values.max() - values.min()
    if not spread > _EVEN:
        return np.full(values.shape, _MIDDLE), False
    return (values - lowest) / spread, True


def rate_composite(waiting: Floats, kv_usage: Floats, prefix: Floats, candidates: Bools, shares: Composite) -> Floats:
    """For when there is no prediction: free KV cache, a short queue and a cached prefix, each by its share, in steps of 0.01.

    An unknown KV usage or queue counts as the middle.
    """
    ratings: Floats = np.zeros(len(waiting))
    known = candidates & np.isfinite(waiting) & (waiting >= 0)
    highest = waiting[known].max() if known.any() else 0.0
    with np.errstate(invalid="ignore"):
        queue = np.where(known, (highest - waiting) / highest if highest > 0 else 1.0, _MIDDLE)
    usable = np.isfinite(kv_usage) & (kv_usage >= 0)
    free = np.where(usable, 1 - kv_usage, _MIDDLE)
    held = np.where(np.isfinite(prefix), prefix, 0.0)
    total = shares.kv * free + shares.queue * queue + shares.prefix * held
    ratings[candidates] = np.clip(np.round(total[candidates] * _STEPS) / _STEPS, 0.0, 1.0)
    return ratings


def tier(headrooms: Headrooms, candidates: Bools, *, explore: bool) -> Bools:
    """The candidates that meet both objectives, or with `explore` those that do not; whichever there is, if only one.

    One without a prediction stays beside both.
    """
    positive = candidates & headrooms.met
    negative = candidates & headrooms.known & ~headrooms.met
    if not positive.any() or not negative.any():
        return candidates
    left_out = positive if explore else negative
    kept: Bools = candidates & ~left_out
    return kept
