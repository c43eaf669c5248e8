"""Columns and candidates of a call as arrays; what depends on candidates is worked out once for each different set."""

from collections.abc import Callable, Sequence

import numpy as np
from hotbay_sdk import Endpoints

from hotbay_flow_control.formulas import Bools, Floats


def column(endpoints: Endpoints, name: str) -> Floats:
    """A declared endpoint column as float64, in which whole numbers up to 2^53 stay what they are."""
    return np.asarray(endpoints.column(name), np.float64)


def members_of(endpoints: Endpoints) -> Bools:
    """Rows of endpoints that there are."""
    return np.frombuffer(endpoints.mask(), np.bool_)


def kept_by_candidates(keep: Callable[[Bools], Bools], endpoints: Endpoints, size: int) -> Sequence[Bools]:
    """One row of decisions for each of `size` requests; those that share their candidates share the array."""
    kept: dict[bytes, Bools] = {}
    rows = []
    for number in range(size):
        mask = bytes(endpoints.mask(number))
        found = kept.get(mask)
        if found is None:
            found = kept[mask] = keep(np.frombuffer(mask, np.bool_))
        rows.append(found)
    return rows
