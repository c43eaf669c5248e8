"""Figures of all endpoints as columns: written one by one, and frozen for a snapshot.

Pure; one caller's thread. Float32 columns say NaN for what is unknown, int64 columns -1. Invariants: a frozen array
is read-only and never written; a column is frozen anew only when it shows something else than before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from hotbay.datalayer.tables.freshness import Freshness, StalePolicy
from hotbay.datalayer.tables.snapshot import Column

__all__ = ["Columns", "Format", "Frozen"]

Format: TypeAlias = Literal["f", "q"]
"""float32 and int64, as in the SDK's COLUMN_FORMATS."""

_FIRST_ROWS: Final = 16
_Scalar = TypeVar("_Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """What a freezing brought.

    Args:
        changed: new arrays by name of those columns that show something new.
        ages: seconds since a field was stamped, float32 by row, never negative, NaN when it never was; left out where
            they are the NaN that they were.
        hidden: rows by field whose values are not shown because they are stale.
        rehidden: fields of which other rows are hidden than before.
        stale: rows that are stale by field, hidden or not.
        oldest_stale_s: age of the oldest of them, by each field that has one.
    """

    changed: Mapping[str, Column]
    ages: Mapping[str, npt.NDArray[np.float32]]
    hidden: Mapping[str, npt.NDArray[np.bool_]]
    rehidden: frozenset[str]
    stale: Mapping[str, int]
    oldest_stale_s: Mapping[str, float]


class Columns:
    """Columns by name over rows that grow.

    Args:
        formats: of every column.
        fields: field -> columns that age with it. A column that stands in none never goes stale.
        rows: how many there are at first; `reserve` makes more.
    """

    def __init__(
        self, formats: Mapping[str, Format], fields: Mapping[str, Sequence[str]], rows: int = _FIRST_ROWS
    ) -> None:
        self._values: dict[str, Column] = {
            name: np.full(rows, np.nan, np.float32) if code == "f" else np.full(rows, -1, np.int64)
            for name, code in formats.items()
        }
        self._fields = {field: tuple(names) for field, names in fields.items()}
        self._field_of = {name: field for field, names in self._fields.items() for name in names}
        self._number = {field: number for number, field in enumerate(self._fields)}
        self._stamped_at = np.full((len(self._fields), rows), np.nan, np.float64)
        self._dirty: set[str] = set()
        self._stamped: set[str] = set()
        self._frozen_rows = -1
        self._hides = False
        self._hidden = np.zeros((len(self._fields), 0), np.bool_)
        self._limits: tuple[Freshness | None, npt.NDArray[np.float64]] = (None, np.zeros((0, 1)))

    def write(self, name: str, row: int, value: float) -> bool:
        """Set one value; False when it was there already."""
        column = self._values[name]
        before = column[row]
        if before == value or (before != before and value != value):
            return False
        column[row] = value
        self._dirty.add(name)
        return True

    def stamp(self, fields: Iterable[str], row: int, now: float) -> bool:
        """The fields were renewed at `now`; true when one of them was hidden."""
        was_hidden = False
        for field in fields:
            number = self._number[field]
            self._stamped_at[number, row] = now
            self._stamped.add(field)
            if self._hides:
                was_hidden |= row < self._frozen_rows and bool(self._hidden[number, row])
        return was_hidden

    def forget(self, row: int) -> None:
        """Nothing is known of a row any more."""
        for values in self._values.values():
            values[row] = _unknown(values)
        self._stamped_at[:, row] = np.nan
        self._dirty.update(self._values)

    def reserve(self, rows: int) -> None:
        """Have room for so many rows; what is new is unknown."""
        have = self._stamped_at.shape[1]
        if rows <= have:
            return
        size = max(rows, 2 * have)
        self._values = {name: _grown(values, size) for name, values in self._values.items()}
        stamped_at = np.full((len(self._fields), size), np.nan, np.float64)
        stamped_at[:, :have] = self._stamped_at
        self._stamped_at = stamped_at

    def freeze(self, rows: int, now: float, freshness: Freshness) -> Frozen:
        """Return what a snapshot of the first `rows` rows shows at `now`."""
        ages = now - self._stamped_at[:, :rows]
        limits = self._limits_s(freshness)
        # An age that is not a number is no more than any limit: what was never told is unknown, not stale.
        stale = ages > limits
        hidden = stale if freshness.policy is StalePolicy.UNKNOWN else np.zeros_like(stale)
        resized = rows != self._frozen_rows
        flipped = np.ones(len(self._fields), np.bool_) if resized else (hidden != self._hidden).any(axis=1)
        rehidden = frozenset(field for field, number in self._number.items() if flipped[number])
        hidden_by_field = {field: hidden[number] for field, number in self._number.items()}
        changed: dict[str, Column] = {}
        for name, values in self._values.items():
            field = self._field_of.get(name)
            if resized or name in self._dirty or field in rehidden:
                changed[name] = _frozen(values[:rows], None if field is None else hidden_by_field[field])
        shown_ages = np.maximum(ages, 0.0).astype(np.float32)
        shown_ages.flags.writeable = False
        self._hidden, self._hides, self._frozen_rows = hidden, bool(hidden.any()), rows
        self._dirty.clear()
        return Frozen(
            changed=changed,
            ages={f: shown_ages[number] for f, number in self._number.items() if resized or f in self._stamped},
            hidden=hidden_by_field,
            rehidden=rehidden,
            stale=dict(zip(self._fields, stale.sum(axis=1).tolist(), strict=True)),
            oldest_stale_s=self._oldest(ages, stale) if stale.any() else {},
        )

    def _oldest(self, ages: npt.NDArray[np.float64], stale: npt.NDArray[np.bool_]) -> dict[str, float]:
        oldest = np.where(stale, ages, -np.inf).max(axis=1).tolist()
        return {field: age_s for field, age_s in zip(self._fields, oldest, strict=True) if age_s > -np.inf}

    def _limits_s(self, freshness: Freshness) -> npt.NDArray[np.float64]:
        of, limits = self._limits
        if of is not freshness:
            limits = np.array([freshness.limit_s(field) for field in self._fields], np.float64).reshape(-1, 1)
            self._limits = freshness, limits
        return limits


def _unknown(column: Column) -> float:
    return -1 if column.dtype == np.int64 else np.nan


def _frozen(values: Column, hidden: npt.NDArray[np.bool_] | None) -> Column:
    frozen = values.copy()
    if hidden is not None:
        frozen[hidden] = _unknown(frozen)
    frozen.flags.writeable = False
    return frozen


def _grown(values: Column, size: int) -> Column:
    grown = np.full(size, _unknown(values), values.dtype)
    grown[: len(values)] = values
    return grown
