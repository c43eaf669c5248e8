"""Attributes that schedulers read: those that a producer declared, as columns `attribute.NAME`.

Written in one thread, the store's; told of changes from any. An attribute that is missing or of another type than
declared is unknown, and so are NaN, infinities, numbers that the format has no room for, and -1 of an int64 column.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import numpy as np
from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX

from hotbay.datalayer.attributes import AttributeMap, AttributeRefusedError, AttributeValue, check_attribute_key
from hotbay.datalayer.tables.columns import Columns, Format, Frozen
from hotbay.datalayer.tables.freshness import Freshness
from hotbay.datalayer.tables.rows import Row, RowTable

__all__ = ["AttributeColumns"]

_FORMATS: Final[Mapping[str, Format]] = {"f32": "f", "i64": "q"}
_LARGEST_F32: Final = float(np.finfo(np.float32).max)
_INT64: Final = range(-(1 << 63), 1 << 63)


class AttributeColumns:
    """The declared attributes of all endpoints, read from their maps when one changed and, dynamic ones, at a freezing."""

    def __init__(self) -> None:
        self._formats: dict[str, Format] = {}
        self._columns = Columns({}, {})
        # Appended to by the threads that change maps, each at most once until its map is settled.
        self._news: deque[str] = deque()
        self._dynamic: set[str] = set()

    def attributes_of(self, endpoint_id: str) -> AttributeMap:
        """Make the map of an endpoint that is new."""
        return AttributeMap(partial(self._news.append, endpoint_id))

    def declare(self, columns: Mapping[str, str], table: RowTable) -> bool:
        """Have exactly these columns, attribute -> `f32` or `i64`; False when they are what they were.

        Raises:
            ValueError: a name that no attribute can have, or another format; nothing has changed.
        """
        for name, code in columns.items():
            check_attribute_key(name)
            if code not in _FORMATS:
                raise ValueError(f"column of attribute {name}: expected f32 or i64, found {code!r}")
        formats = {name: _FORMATS[code] for name, code in columns.items()}
        if formats == self._formats:
            return False
        names = {name: ATTRIBUTE_PREFIX + name for name in formats}
        self._formats, self._dynamic = formats, set()
        self._columns = Columns(
            {names[name]: code for name, code in formats.items()}, {column: (column,) for column in names.values()}
        )
        self._columns.reserve(len(table))
        for row in table.taken:
            self._read(row)
            for name in names.keys() & row.put_at.keys():
                self._columns.stamp([names[name]], row.number, row.put_at[name])
        return True

    def reserve(self, rows: int) -> None:
        """Have room for so many rows."""
        self._columns.reserve(rows)

    def forget(self, row: int) -> None:
        """The row is free."""
        self._columns.forget(row)

    def renewed(self, row: Row, names: Iterable[str], now: float) -> bool:
        """These attributes were put at `now`; true when one of them was hidden."""
        was_hidden = False
        for name in names:
            row.put_at[name] = now
            if name in self._formats:
                was_hidden |= self._columns.stamp([ATTRIBUTE_PREFIX + name], row.number, now)
        return was_hidden

    def take_news(self, table: RowTable) -> bool:
        """Read the maps that have changed; True when a column did."""
        changed = False
        while self._news:
            row = table.get(self._news.popleft())
            if row is not None:
                row.endpoint.attributes.settle()
                changed |= self._read(row)
        return changed

    def freeze(self, table: RowTable, now: float, freshness: Freshness) -> Frozen:
        """Ask dynamic attributes and return what changed."""
        for endpoint_id in tuple(self._dynamic):
            row = table.get(endpoint_id)
            if row is None:
                self._dynamic.discard(endpoint_id)
            else:
                self._read(row)
        return self._columns.freeze(len(table), now, freshness)

    def _read(self, row: Row) -> bool:
        attributes = row.endpoint.attributes
        changed, is_dynamic = False, False
        for name, code in self._formats.items():
            figure = _FIGURES[code](_value(attributes, name))
            changed |= self._columns.write(ATTRIBUTE_PREFIX + name, row.number, figure)
            is_dynamic |= attributes.is_dynamic(name)
        if is_dynamic:
            self._dynamic.add(row.discovered.id)
        else:
            self._dynamic.discard(row.discovered.id)
        return changed


def _value(attributes: AttributeMap, name: str) -> AttributeValue | None:
    try:
        return attributes.get(name)
    except AttributeRefusedError:
        return None


def _f32(value: AttributeValue | None) -> float:
    if type(value) not in (int, float) or not -_LARGEST_F32 <= value <= _LARGEST_F32:  # type: ignore[operator]  # mypy does not narrow by exact types
        return math.nan
    return float(value)  # type: ignore[arg-type]  # as above


def _i64(value: AttributeValue | None) -> int:
    return value if type(value) is int and value in _INT64 else -1


_FIGURES: Final[Mapping[Format, Callable[[AttributeValue | None], float]]] = {"f": _f32, "q": _i64}
