"""How far two generations' answers lie apart: one pair, and all pairs of a shadow. Pure.

Every pair gives an agreement (1: the same) and a difference (0: the same). A difference is of what a request would
see of it: the share of survivors that changed, a score, the regret of another pick.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from hotbay.scheduling.arms import AnswerPair
from hotbay.scheduling.binding import Point

__all__ = ["Comparison", "Comparisons", "compare", "jaccard", "kendall_tau_b", "regret"]

MAX_ROWS: Final = 256
"""Rows of a rank comparison, evenly spaced: its time grows with their square, and it runs on the loop (0.2 ms)."""

_OWN_SCALES: Final = frozenset({Point.PRODUCE, Point.SATURATION})

Floats = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One pair of answers.

    Args:
        agreement: FILTER and SCREEN the Jaccard index of the survivors; SCORE and PRODUCE Kendall's tau-b, -1 to 1; PICK
            1 or 0, whether the first choice is the same; the others 1 or 0, whether all that was said is.
        difference: FILTER and SCREEN 1 - Jaccard; SCORE and PRODUCE the largest absolute difference of a row; PICK the
            regret, 0 to 1; the others 1 - agreement.
    """

    point: Point
    ref: str
    agreement: float
    difference: float


def compare(pair: AnswerPair) -> Comparison:
    """Compare what both sides answered, over the candidates that they were asked about."""
    live, candidate = pair.live, pair.candidate
    if isinstance(live, np.ndarray) and isinstance(candidate, np.ndarray):
        if pair.point in (Point.FILTER, Point.SCREEN):
            agreement = jaccard(live.astype(np.bool_) & pair.asked, candidate.astype(np.bool_) & pair.asked)
            return Comparison(pair.point, pair.ref, agreement, 1.0 - agreement)
        ours = np.nan_to_num(live[pair.asked].astype(np.float64))
        theirs = np.nan_to_num(candidate[pair.asked].astype(np.float64))
        difference = float(np.abs(ours - theirs).max(initial=0.0))
        return Comparison(pair.point, pair.ref, kendall_tau_b(ours, theirs), difference)
    if pair.point is Point.PICK and isinstance(live, tuple) and isinstance(candidate, tuple):
        same, totals = live[:1] == candidate[:1], pair.totals
        lost = 0.0
        if not same and totals is not None and live and candidate:
            lost = regret(totals, pair.asked, int(live[0]), int(candidate[0]))
        return Comparison(pair.point, pair.ref, float(same), lost)
    if isinstance(live, float) and isinstance(candidate, float):
        difference = float(np.nan_to_num(abs(live - candidate)))
        return Comparison(pair.point, pair.ref, float(difference == 0.0), difference)
    same = type(live) is type(candidate) and live == candidate
    return Comparison(pair.point, pair.ref, float(same), float(not same))


def jaccard(ours: Mask, theirs: Mask) -> float:
    """Size of the intersection by that of the union; 1 when both are empty."""
    union = int((ours | theirs).sum())
    return int((ours & theirs).sum()) / union if union else 1.0


def kendall_tau_b(ours: Floats, theirs: Floats) -> float:
    """Rank correlation with ties (Kendall 1945, "The treatment of ties in ranking problems"), -1 to 1.

    Two constant rankings agree, 1; a constant one says nothing about another, 0. Of more than `MAX_ROWS` rows as many
    are compared, evenly spaced.
    """
    if len(ours) > MAX_ROWS:
        rows = np.linspace(0, len(ours) - 1, MAX_ROWS).astype(np.intp)
        ours, theirs = ours[rows], theirs[rows]
    a = np.sign(ours[:, None] - ours[None, :])
    b = np.sign(theirs[:, None] - theirs[None, :])
    untied = float(np.abs(a).sum()), float(np.abs(b).sum())
    if not untied[0] or not untied[1]:
        return float(untied[0] == untied[1])
    return float((a * b).sum() / np.sqrt(untied[0] * untied[1]))


def regret(totals: Floats, asked: Mask, ours: int, theirs: int) -> float:
    """What the other pick costs by the totals that both chose by: 0 nothing, 1 the whole span of the candidates."""
    span = float(np.ptp(totals[asked])) if asked.any() else 0.0
    return min(1.0, max(0.0, float(totals[ours] - totals[theirs]) / span)) if span else 0.0


@dataclass(slots=True)
class _Sum:
    point: Point
    count: int = 0
    agreement: float = 0.0
    lowest: float = 1.0
    largest: float = 0.0


@dataclass(slots=True)
class Comparisons:
    """All pairs of one shadow; `add` is what a `Shadow` is to tell. Owned by the event loop."""

    pairs: int = 0
    _sums: dict[str, _Sum] = field(default_factory=dict)

    def add(self, pair: AnswerPair) -> None:
        """Take one more pair."""
        found = compare(pair)
        self.pairs += 1
        total = self._sums.setdefault(f"{found.point}:{found.ref}", _Sum(found.point))
        total.count += 1
        total.agreement += found.agreement
        total.lowest = min(total.lowest, found.agreement)
        total.largest = max(total.largest, found.difference)

    @property
    def largest(self) -> float:
        """The largest difference of what decides about requests: what an operator's bound is held to.

        A produced column and saturation have scales of their own and are left out.
        """
        return max((s.largest for s in self._sums.values() if s.point not in _OWN_SCALES), default=0.0)

    def rows(self) -> dict[str, dict[str, float]]:
        """By `point:ref`: number of pairs, mean and lowest agreement, largest difference. For the status."""
        return {
            name: {
                "pairs": float(s.count),
                "agreement": s.agreement / s.count,
                "lowest_agreement": s.lowest,
                "largest_difference": s.largest,
            }
            for name, s in sorted(self._sums.items())
        }
