"""How strongly counts speak against a candidate: likelihood ratios that may be looked at after every call. Pure.

Both functions return a mixture likelihood ratio: under the hypothesis that the candidate is no worse, its expectation
never exceeds 1, so that it ever reaches 1/a has a probability of at most a, however often it is looked at (Ville's
inequality; the mixtures are those of Robbins 1970, "Statistical methods related to the law of the iterated logarithm").
Every alternative of a mixture lies on the bad side, so a candidate that is better than the hypothesis gives less.
"""

from collections.abc import Sequence
from math import exp, log
from typing import Final

__all__ = ["above_limit", "above_other"]

_WAYS: Final = (0.01, 0.03, 0.1, 0.3, 0.6, 0.95)
_FACTORS: Final = (1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
_CEILING: Final = 1e12
"""Beyond this nobody asks how much."""


def above_limit(failed: int, of: int, limit: float) -> float:
    """Evidence that more than `limit` (0 to 1, exclusive) of all trials fail, after `failed` of `of` did."""
    logs = [
        failed * log(rate / limit) + (of - failed) * log((1.0 - rate) / (1.0 - limit))
        for rate in (limit + (1.0 - limit) * way for way in _WAYS)
    ]
    return _mean_exp(logs)


def above_other(failed: int, of: int, other_failed: int, other_of: int) -> float:
    """Evidence that trials fail more often here than on the other side; 1 when either side has none.

    Given that a trial failed, it is one of this side's with the probability of the share of trials here, if both sides
    fail equally often; and of k·share / (k·share + 1 - share) if this side fails k times as often. The ratio of the two,
    over all failures, is mixed over k. This is the binomial sequential test with matched controls (Kulldorff et al.
    2011, "A maximized sequential probability ratio test for drug and vaccine adverse event safety surveillance"), with
    a mixture in place of the maximum. It is conservative where failures are no rare events.
    """
    if not of or not other_of:
        return 1.0
    share = of / (of + other_of)
    logs = []
    for factor in _FACTORS:
        here = factor * share / (factor * share + 1.0 - share)
        logs.append(failed * log(here / share) + other_failed * log((1.0 - here) / (1.0 - share)))
    return _mean_exp(logs)


def _mean_exp(logs: Sequence[float]) -> float:
    largest = max(logs)
    if largest > log(_CEILING):
        return _CEILING
    return exp(largest) * sum(exp(value - largest) for value in logs) / len(logs)
