"""Ranges of context length that endpoints are made for, and how well a length fits into one. Pure.

The formula and its constants are those of the reference's `context-length-aware`.
"""

import re
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Doubles: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

OUTSIDE_RATING: Final = 0.3
"""What a length just outside rates less than, and one inside never."""
WIDTH_SHARE: Final = 0.7
HEADROOM_SHARE: Final = 0.3
WIDTH_SCALE_TOKENS: Final = 10_000.0
DISTANCE_SCALE_TOKENS: Final = 1000.0
MAX_TOKENS: Final = 2**63 - 1
_RANGE: Final = re.compile(r"\s*(\d{1,19})\s*-\s*(\d{1,19})\s*", re.ASCII)


def read_range(text: str) -> tuple[int, int] | None:
    """`min-max` in tokens, both included; None for what is no range."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    lowest, highest = int(found[1]), int(found[2])
    return (lowest, highest) if lowest <= highest <= MAX_TOKENS else None


def fits(length: float, lowest: Doubles, highest: Doubles) -> Bools:
    """Whether the length lies in each of the ranges."""
    inside: Bools = (lowest <= length) & (length <= highest)
    return inside


def rate_ranges(length: float, lowest: Doubles, highest: Doubles) -> Doubles:
    """How well each range suits the length, from 0 to 1.

    Inside: 0.3 + 0.7 x (0.7 / (1 + width / 10000) + 0.3 x headroom / width), and 1 where the width is 0: narrow ranges
    and those with much room above the length rate high. Outside: 0.3 / (1 + distance / 1000), which is below all of these.
    """
    width = highest - lowest
    headroom = np.divide(highest - length, width, out=np.ones_like(width), where=width > 0)
    raw = WIDTH_SHARE / (1 + width / WIDTH_SCALE_TOKENS) + HEADROOM_SHARE * headroom
    distance = np.maximum(np.maximum(lowest - length, length - highest), 0)
    outside = OUTSIDE_RATING / (1 + distance / DISTANCE_SCALE_TOKENS)
    rated: Doubles = np.where(fits(length, lowest, highest), OUTSIDE_RATING + (1 - OUTSIDE_RATING) * raw, outside)
    return rated
