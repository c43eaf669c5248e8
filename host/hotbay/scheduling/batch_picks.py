"""Rows picked lately, of which what scores were made of does not know yet: without it all would go to the same. Pure.

Two kinds of picks count against a row. Those of the same batch: decisions that fall together are made of the same scores. And
those since the row's figures were scraped which are still in flight, against the scorers that read such figures: what was sent
since is in no queue that they saw (field failure S13). A row that nobody scrapes has picks of the first kind only.
"""

from math import isnan
from typing import Final

import numpy as np
import numpy.typing as npt

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.scheduling.builtin import SPREAD

__all__ = ["SCRAPED", "BatchPicks"]

Floats = npt.NDArray[np.float32]

SCRAPED: Final = frozenset({"endpoint.waiting", "endpoint.running", "endpoint.kv_usage"})
"""Columns that say how busy an endpoint was when it was scraped last."""
UNSEEN: Final = 0.25
"""Share of the weights of scorers of scraped figures that a pick since the last scrape costs where queues are equally long; where
they differ by n requests, one pick says so much less: it costs 1/(1 + n) of that. With the default profile, an endpoint whose
queue is one request shorter gets 6 of 8 requests between two scrapes, and not all; one whose queue is 50 shorter all of 100."""
_WAITING: Final = "endpoint.waiting"
_IN_FLIGHT: Final = "endpoint.in_flight"
_AGE: Final = "endpoint.age_waiting"
_SAME_S: Final = 0.001
"""Ages are float32: times of one scrape, worked out at two publications, differ by less."""


class BatchPicks:
    """Rows picked since the last reset, and since their last scrape: all decisions share it."""

    __slots__ = ("_batch", "_cost", "_membership", "_snapshot", "_unseen")

    def __init__(self) -> None:
        self._batch: dict[int, int] = {}
        self._unseen: dict[int, tuple[float, int]] = {}
        """Row -> when it was scraped last, by the snapshot's clock, and the picks since."""
        self._membership = -1
        self._cost = UNSEEN
        self._snapshot: Snapshot | None = None

    def corrected(self, totals: Floats, snapshot: Snapshot, weight_sum: float, scraped_weight: float = 0.0) -> Floats:
        """Totals less what earlier picks cost; the array itself when there is nothing to take off.

        `weight_sum` is that of all scorers, `scraped_weight` of those that read `SCRAPED`. Of a pick that is of both kinds
        the dearer one counts.
        """
        self._look(snapshot)
        if not self._batch and not (scraped_weight and self._unseen):
            return totals
        corrected = totals.copy()
        same, unseen = SPREAD * (weight_sum or 1.0), self._cost * scraped_weight
        for row in self._batch.keys() | self._unseen.keys() if unseen else self._batch:
            corrected[row] -= max(same * self._batch.get(row, 0), unseen * self._sent(row, snapshot))
        return corrected

    def _sent(self, row: int, snapshot: Snapshot) -> float:
        """Requests that were sent since the scrape and are still there: what was answered burdens nobody."""
        picked = self._unseen.get(row)
        if picked is None:
            return 0.0
        in_flight = snapshot.columns.get(_IN_FLIGHT)
        there = picked[1] if in_flight is None else float(in_flight[row])
        return min(picked[1], there)

    def add(self, row: int, snapshot: Snapshot) -> None:
        """Note a pick."""
        self._look(snapshot)
        self._batch[row] = self._batch.get(row, 0) + 1
        scraped_at = _scraped_at(snapshot, row)
        if scraped_at is not None:
            self._unseen[row] = scraped_at, self._unseen.get(row, (0.0, 0))[1] + 1

    def reset(self) -> None:
        """Begin a new batch."""
        self._batch.clear()

    def _look(self, snapshot: Snapshot) -> None:
        """Forget the picks of rows that were scraped again, and all of them when rows mean other endpoints."""
        if snapshot is self._snapshot:
            return
        self._snapshot = snapshot
        if self._membership != snapshot.membership:
            self._membership = snapshot.membership
            self._batch.clear()
            self._unseen.clear()
        self._cost = UNSEEN / (1.0 + _difference(snapshot))
        for row, (before, _) in tuple(self._unseen.items()):
            scraped_at = _scraped_at(snapshot, row)
            if scraped_at is None or scraped_at > before + _SAME_S:
                del self._unseen[row]


def _scraped_at(snapshot: Snapshot, row: int) -> float | None:
    """When the row's figures were scraped last, by the snapshot's clock; None where that is not known."""
    ages = snapshot.columns.get(_AGE)
    age_s = float("nan") if ages is None else float(ages[row])
    return None if isnan(age_s) else snapshot.at - age_s


def _difference(snapshot: Snapshot) -> float:
    """Requests by which the longest known queue of those that may be picked is longer than the shortest."""
    waiting = snapshot.columns.get(_WAITING)
    if waiting is None:
        return 0.0
    known = waiting[snapshot.live & ~np.isnan(waiting)]
    return float(known.max() - known.min()) if known.size else 0.0
