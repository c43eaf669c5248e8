"""What side tables say of every row, worked out once for each different value of each version of a table.

A table stays the same object for as long as the host sends no other one, so that its codes are compared by identity.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from hotbay_sdk import Endpoints

Bools: TypeAlias = npt.NDArray[np.bool_]
Places: TypeAlias = npt.NDArray[np.intp]

LABELS: Final = "endpoint.labels"
NO_LABELS: Final[Mapping[str, str]] = {}


def places_of(codes: "memoryview[Any]", count: int) -> Places:
    """Place of each row's value among `count` values; rows without a known one have the place `count`."""
    places: Places = np.minimum(np.asarray(codes, dtype=np.uint32), count).astype(np.intp)
    return places


class Flags:
    """For every row, whether `holds` is true of its value in a side table; rows without a known value have `default`."""

    __slots__ = ("_codes", "_default", "_flags", "_holds", "_table")

    def __init__(self, table: str, holds: Callable[[Any], bool], default: object) -> None:
        self._table = table
        self._holds = holds
        self._default = default
        self._codes: object = None
        self._flags: Bools = np.zeros(0, dtype=np.bool_)

    def read(self, endpoints: Endpoints) -> Bools:
        """E flags, which are not to be changed."""
        values, codes = endpoints.table(self._table)
        if codes is not self._codes:
            by_value = np.array([self._holds(value) for value in (*values, self._default)], dtype=np.bool_)
            self._flags = by_value[places_of(codes, len(values))]
            self._codes = codes
        return self._flags


class LabelColumn:
    """One label of every row."""

    __slots__ = ("_codes", "_label", "_places", "_texts")

    def __init__(self, label: str) -> None:
        self._label = label
        self._codes: object = None
        self._texts: Sequence[str | None] = (None,)
        self._places: Places = np.zeros(0, dtype=np.intp)

    def read(self, endpoints: Endpoints) -> tuple[Sequence[str | None], Places]:
        """The label's different texts, the first of them None for rows without it, and for each row the place of its text.

        The same objects as long as nothing has changed.
        """
        values, codes = endpoints.table(LABELS)
        if codes is not self._codes:
            known: dict[str | None, int] = {None: 0}
            by_value = [known.setdefault(labels.get(self._label), len(known)) for labels in (*values, NO_LABELS)]
            self._texts = tuple(known)
            self._places = np.array(by_value, dtype=np.intp)[places_of(codes, len(values))]
            self._codes = codes
        return self._texts, self._places
