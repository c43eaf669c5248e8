"""How full endpoints and the pool are. Pure; arrays of E rows in, numbers and masks out.

NaN, and -1 in whole numbers, stand for what the host does not know. Ages are in seconds, NaN for a figure that never came.
Source of the formulas: the reference router's utilization and concurrency detectors.
"""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

EMPTY_POOL: Final = 1.0
"""Saturation of no endpoints: nothing can be served. It is the host that says that there are none."""


class EngineFigures(NamedTuple):
    """What engines report, by row."""

    waiting: Floats
    kv_usage: Floats
    age_waiting: Floats
    age_kv_usage: Floats


class Limits(NamedTuple):
    """What counts as full; `stale_s`: age above which a figure means nothing."""

    queue_depth: float
    kv_usage: float
    stale_s: float


def fresh_rows(figures: EngineFigures, stale_s: float) -> Bools:
    """Rows that can be judged: one figure at least is known, and none that ever came is stale."""
    told = ((figures.waiting, figures.age_waiting), (figures.kv_usage, figures.age_kv_usage))
    # Ages are float32: compared with the threshold as it is, one of exactly so long would be above it.
    stale_s = float(np.float32(stale_s))
    known = np.zeros(figures.waiting.shape, np.bool_)
    outdated = np.zeros(figures.waiting.shape, np.bool_)
    for values, ages in told:
        usable = np.isfinite(values) & (values >= 0)
        recent = ages <= stale_s
        known |= usable & recent
        # A comparison with NaN is false: a figure without an age never came, and the other one judges alone.
        outdated |= (ages > stale_s) | (usable & ~recent)
    return known & ~outdated


def row_saturation(figures: EngineFigures, limits: Limits, fresh: Bools) -> Floats:
    """max(waiting / its limit, KV usage / its limit) of each row, of what is known; 1 for a row that cannot be judged."""
    load = np.maximum(_known(figures.waiting) / limits.queue_depth, _known(figures.kv_usage) / limits.kv_usage)
    rows: Floats = np.where(fresh, load, 1.0)
    return rows


def pool_saturation(rows: Floats, members: Bools, fresh: Bools, *, ignore_stale: bool) -> float:
    """Mean over the members; those that cannot be judged count 1, or with `ignore_stale` not at all (0 if there is no other)."""
    if not members.any():
        return EMPTY_POOL
    if ignore_stale:
        members = members & fresh
        return float(rows[members].mean()) if members.any() else 0.0
    return float(rows[members].mean())


def below_limits(figures: EngineFigures, limits: Limits, headroom: float, fresh: Bools) -> Bools:
    """Rows that can be judged and are under both limits x (1 + headroom)."""
    burst = 1.0 + headroom
    below: Bools = (
        fresh
        & (_known(figures.waiting) < limits.queue_depth * burst)
        & (_known(figures.kv_usage) < limits.kv_usage * burst)
    )
    return below


def share_in_flight(in_flight: Floats, members: Bools, capacity: float) -> float:
    """What is in flight at all members, of the capacity of all."""
    count = int(members.sum())
    if not count:
        return EMPTY_POOL
    return float(_known(in_flight[members]).sum() / (capacity * count))


def burst_limit(capacity: int, headroom: float) -> int:
    """The most that one endpoint may have in flight, exclusive."""
    return int(capacity * (1.0 + headroom))


def below_limit(in_flight: Floats, limit: int) -> Bools:
    """Rows with less in flight than the limit."""
    below: Bools = _known(in_flight) < limit
    return below


def _known(figures: Floats) -> Floats:
    """The figures, 0 for what is not known."""
    known: Floats = np.where(np.isfinite(figures) & (figures > 0), figures, 0.0)
    return known
