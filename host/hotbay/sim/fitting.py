"""Fits the simulator's timing to what was measured of a real server. Pure.

Least squares of the relative error: each row of `base_s + prefill_token_s × tokens + running_s × sequences +
prefill_overhead_s × prompts begun = seconds` is divided by its seconds, so that a step of a millisecond counts as much as a
prompt of a second. A constant that would come out negative is 0, and the others are fitted without it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotbay.errors import CapacityError
from hotbay.sim.timing import Timing

__all__ = ["FitError", "Measured", "fit_timing", "relative_errors"]

_CONSTANTS: Final = ("base_s", "prefill_token_s", "running_s", "prefill_overhead_s")


class FitError(CapacityError):
    """What was measured does not say what the constants are."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one step took: so many prompt tokens, sequences in the batch and prompts begun in it. Tokens are the simulator's."""

    prefill_tokens: int
    sequences: int
    prompts_begun: int
    seconds: float


def fit_timing(measured: Sequence[Measured]) -> Timing:
    """The constants that explain these best.

    Raises:
        FitError: fewer measurements than constants, or all of one kind.
    """
    wanted = len(_CONSTANTS)
    rows = np.array([(1, m.prefill_tokens, m.sequences, m.prompts_begun) for m in measured], np.float64)
    seconds = np.array([m.seconds for m in measured], np.float64)
    if len(measured) < wanted or not np.all(seconds > 0) or np.linalg.matrix_rank(rows) < wanted:
        raise FitError(
            "UNAVAILABLE",
            f"{len(measured)} measurements do not say what the timing is: prompts and batches of different sizes are needed",
            hint="Measure again, with larger prompts and more requests at a time.",
        )
    rows /= seconds[:, None]
    ones = np.ones(len(measured))
    used = list(range(wanted))
    found = np.zeros(wanted)
    while used:
        solution = np.linalg.lstsq(rows[:, used], ones, rcond=None)[0]
        if np.all(solution >= 0):
            found[used] = solution
            break
        del used[int(np.argmin(solution))]
    return Timing(**dict(zip(_CONSTANTS, map(float, found), strict=True)))


def relative_errors(timing: Timing, measured: Sequence[Measured]) -> list[float]:
    """(predicted − measured) ÷ measured, for each."""
    return [_predicted_s(timing, m) / m.seconds - 1.0 for m in measured]


def _predicted_s(timing: Timing, m: Measured) -> float:
    prompts_s = timing.prefill_token_s * m.prefill_tokens + timing.prefill_overhead_s * m.prompts_begun
    return timing.base_s + timing.running_s * m.sequences + prompts_s
