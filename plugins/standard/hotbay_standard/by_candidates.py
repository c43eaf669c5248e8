"""Rating once for each different set of candidates: requests of a batch mostly share theirs."""

from collections.abc import Callable, Sequence

import numpy as np
from hotbay_sdk import Endpoints

from hotbay_standard.formulas import Bools, Floats


def rated_by_candidates(rate: Callable[[Bools], Floats], endpoints: Endpoints, size: int) -> Sequence[Floats]:
    """One row of ratings for each of `size` requests; those that share their candidates share the array."""
    rated: dict[bytes, Floats] = {}
    rows = []
    for number in range(size):
        mask = bytes(endpoints.mask(number))
        ratings = rated.get(mask)
        if ratings is None:
            ratings = rated[mask] = rate(np.frombuffer(mask, dtype=np.bool_))
        rows.append(ratings)
    return rows
