"""Endpoints that are to get less than a full share: a weight below 1, or a slow start. Pure.

Before a pick the rows are left out that had their share. A row's ratio is its weight times its slow start, over the largest
of the candidates; it may be picked while its picks are at most that ratio of the mean of those with the whole ratio, as in
stride scheduling (Waldspurger and Weihl 1995), with what is long past counting less and less. So an endpoint of weight 0.5 gets
at most half of an equal one's requests, whatever scores and picker prefer, and just that when they prefer nobody. A row of 0
is picked when nothing else is left. Where all candidates have one ratio nothing is counted, and nothing costs.

Invariant: of candidates that there are, some remain.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from hotbay.datalayer.tables.snapshot import Column, Snapshot

__all__ = ["Shares"]

Mask = npt.NDArray[np.bool_]

_MEMORY: Final = 64
"""Picks per row that are remembered, about: fine enough for a weight of 0.02, and few for an endpoint that was just let in."""

_LARGEST: Final = 1e12
"""Counts are scaled down when the newest pick counts so much."""


class Shares:
    """See the module. One for all decisions of a scheduler; one thread."""

    __slots__ = ("_counts", "_growth", "_ids", "_membership", "_newest", "_ratios", "_seen")

    def __init__(self) -> None:
        self._seen: tuple[Column | None, Column | None, npt.NDArray[np.bool_] | None] = (None, None, None)
        self._ratios: npt.NDArray[np.float64] | None = None
        self._counts: npt.NDArray[np.float64] = np.zeros(0)
        self._ids: tuple[str, ...] = ()
        self._membership = -1
        self._newest = 1.0
        self._growth = 1.0

    def narrowed(self, mask: Mask, snapshot: Snapshot) -> Mask:
        """The candidates that may be picked now: `mask` itself, or fewer of its rows, but never none of several."""
        ratios = self._of(snapshot)
        if ratios is None:
            return mask
        top = float(np.max(ratios, where=mask, initial=0.0))
        if top <= 0.0:
            return mask
        whole = mask & (ratios >= top)
        if whole.sum() == mask.sum():
            return mask
        allowed = ratios / top * self._counts[whole].mean()
        narrowed: Mask = whole | (mask & (ratios > 0.0) & (self._counts <= allowed))
        return narrowed

    def picked(self, row: int, snapshot: Snapshot) -> None:
        """A request goes to this row."""
        if self._of(snapshot) is None:
            return
        self._counts[row] += self._newest
        self._newest *= self._growth
        if self._newest > _LARGEST:
            self._counts /= self._newest
            self._newest = 1.0

    def _of(self, snapshot: Snapshot) -> npt.NDArray[np.float64] | None:
        """Ratios by row, None while all live rows have the same."""
        columns = snapshot.columns
        weight, slow_start = columns["endpoint.weight"], columns["endpoint.slow_start"]
        seen = self._seen
        if weight is seen[0] and slow_start is seen[1] and snapshot.live is seen[2]:
            return self._ratios
        self._seen = (weight, slow_start, snapshot.live)
        ratios = np.nan_to_num(weight.astype(np.float64) * slow_start, nan=1.0)
        # Not of live rows alone: one that is tried though it is not live counts as any other.
        has_one = not snapshot.rows or bool((ratios == ratios[0]).all())
        self._ratios = None if has_one else ratios
        if has_one:
            self._membership = -1
        elif self._membership != snapshot.membership:
            self._keep_counts(snapshot, ratios)
        return self._ratios

    def _keep_counts(self, snapshot: Snapshot, ratios: npt.NDArray[np.float64]) -> None:
        """Rows may be others': counts go with the ids. A newcomer begins as if it had had its share: nothing is due to it."""
        before = dict(zip(self._ids, self._counts, strict=True)) if self._membership >= 0 else {}
        mean = sum(before.values()) / len(before) if before else 0.0
        shares = ratios * mean
        self._counts = np.array([before.get(name, share) for name, share in zip(snapshot.ids, shares, strict=True)])
        self._ids = snapshot.ids
        self._membership = snapshot.membership
        self._growth = 1.0 + 1.0 / (_MEMORY * max(1, snapshot.rows))
