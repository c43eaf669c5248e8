"""How near endpoints are to another one, by labels that tell host, rack, zone and region. Pure.

The levels and what each is worth are those of the reference's `topology-affinity-scorer`; they follow how fast a KV cache
moves: within a host, through one switch, through several, between data centres.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Level = Literal["host", "rack", "zone", "region"]
Ints: TypeAlias = npt.NDArray[np.int8]
Floats: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]
Column: TypeAlias = tuple[Sequence[str | None], npt.NDArray[np.intp]]
"""A label's different texts, and the place of each row's among them."""

LEVELS: Final[Sequence[Level]] = ("host", "rack", "zone", "region")
"""The nearest first."""
NOT_NEAR: Final = len(LEVELS)
RATINGS: Final[Floats] = np.array([1.0, 0.2, 0.05, 0.02, 0.0], dtype=np.float32)
"""By level, and last of those that share none."""


def nearness(columns: Iterable[Column], row: int) -> Ints:
    """For every row the nearest level at which it has the same text as `row`; NOT_NEAR where there is none.

    A text that is missing or empty is not the same as anything. `columns` are those of LEVELS, in their order.
    """
    levels: Ints | None = None
    for level, (texts, places) in enumerate(columns):
        if levels is None:
            levels = np.full(places.shape, NOT_NEAR, dtype=np.int8)
        own = int(places[row])
        if texts[own]:
            levels[(places == own) & (levels == NOT_NEAR)] = level
    assert levels is not None, "there are columns"
    return levels
