"""What endpoints know of LoRA adapters, and how well each suits a request of one. Pure.

The tiers are those of the reference's `lora-affinity-scorer`, but that an adapter which is loaded and waited for takes its
room once, and that an endpoint which says nothing of adapters rates as one of which nothing is known.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Bools: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = npt.NDArray[np.intp]
Models: TypeAlias = Mapping[str, int]

ACTIVE_RATING: Final = np.float32(1.0)
ROOM_RATING: Final = np.float32(0.8)
WAITING_RATING: Final = np.float32(0.6)
FULL_RATING: Final = np.float32(0.0)
UNKNOWN_RATING: Final = np.float32(0.5)


class Residents:
    """Which adapters the rows have loaded and wait for.

    Args:
        active: different sets of loaded adapters.
        waiting: different sets of adapters that are waited for.
        active_places: E places among `active`; `len(active)` for a row of which that is not known.
        waiting_places: the same among `waiting`.
    """

    __slots__ = ("_active", "_active_places", "_in_use", "_pairs", "_waiting", "_waiting_places")

    def __init__(
        self, active: Sequence[Models], waiting: Sequence[Models], active_places: Places, waiting_places: Places
    ) -> None:
        self._active = active
        self._waiting = waiting
        self._active_places = active_places
        self._waiting_places = waiting_places
        pairs = active_places * (len(waiting) + 1) + waiting_places
        different, self._pairs = np.unique(pairs, return_inverse=True)
        self._in_use: Floats = np.array(
            [self._count(*divmod(int(pair), len(waiting) + 1)) for pair in different], dtype=np.float32
        )

    def _count(self, active: int, waiting: int) -> float:
        """Adapters in use of a row with these sets; NaN where one of them is not known."""
        if active == len(self._active) or waiting == len(self._waiting):
            return np.nan
        return len(self._active[active].keys() | self._waiting[waiting].keys())

    def rate(self, adapter: str, most: Floats) -> Floats:
        """E ratings: loaded 1; else room for one more 0.8; else waited for 0.6; else 0; 0.5 where that cannot be said.

        `most` has the adapters that each row can hold, NaN, 0 or less where that is not known.
        """
        active = _have(self._active, adapter)[self._active_places]
        waiting = _have(self._waiting, adapter)[self._waiting_places]
        in_use = self._in_use[self._pairs]
        can_say = np.isfinite(most) & (most > 0) & np.isfinite(in_use)
        room = can_say & (in_use < most)
        rest = np.where(can_say, FULL_RATING, UNKNOWN_RATING)
        rated = np.select([active, room, waiting], [ACTIVE_RATING, ROOM_RATING, WAITING_RATING], rest)
        ratings: Floats = rated.astype(np.float32)
        return ratings


def _have(sets: Collection[Models], adapter: str) -> Bools:
    """Which of the sets have the adapter; the last item is of what is not known."""
    return np.array([*(adapter in models for models in sets), False], dtype=np.bool_)
