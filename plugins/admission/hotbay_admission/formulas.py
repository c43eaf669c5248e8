"""How full the pool is, and how likely a request is shed because of it. Pure.

Source: the reference's probabilistic-admitter.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]


def saturation(waiting: Floats, kv_usage: Floats, candidates: Bools, queue_depth: float, kv_limit: float) -> float:
    """Mean over the candidates of max(waiting / queue_depth, kv_usage / kv_limit); 0 without candidates.

    A figure that is not known (NaN or below 0) has no say; an endpoint of which neither is known counts 1.
    """
    if not candidates.any():
        return 0.0
    queue = np.where(_known(waiting), waiting / queue_depth, -1.0)
    cache = np.where(_known(kv_usage), kv_usage / kv_limit, -1.0)
    load = np.maximum(queue, cache)
    load[load < 0] = 1.0
    return float(load[candidates].mean())


def _known(figures: Floats) -> Bools:
    known: Bools = np.isfinite(figures) & (figures >= 0)
    return known


def shed_probability(saturated: float, power: float, k: float) -> float:
    """min(saturation^power x k, 1)."""
    # Above 1 the probability is 1 for every k from 1 up, and a power of a large number may not be a number any more.
    raised: float = min(saturated, 1e6) ** min(power, 50.0)
    return min(raised * k, 1.0)
