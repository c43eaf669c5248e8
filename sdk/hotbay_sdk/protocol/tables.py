"""Side tables of a view: what is known of endpoints beyond numbers, coded by dictionary. Pure.

A table is [values, codes]: each value once, in the order of its first row, and one u32 a row, little-endian: the place of the
row's value, or UNKNOWN_CODE. A map of texts crosses as a map, a map of counts as a list of [name, count].
"""

from __future__ import annotations

from array import array
from sys import byteorder

from hotbay_sdk.protocol.calls import SIDE_TABLES, UNKNOWN_CODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Final, TypeAlias

    from hotbay_sdk.protocol.values import Value
else:
    from _collections_abc import Mapping  # what `collections.abc` is, without the rest of `collections`

RowValue: TypeAlias = str | Mapping[str, str] | Mapping[str, int]
"""What one row of a table says."""

ROLE_LABEL: Final = "llm-d.ai/role"
"""The label whose value is `endpoint.role`."""
LABELS: Final = "endpoint.labels"
ROLE: Final = "endpoint.role"
MAX_COUNT: Final = 2**63 - 1


def encode_table(name: str, rows: Iterable[RowValue | None]) -> list[Value]:
    """[values, codes] of a table, None for a row whose value is not known.

    Lone surrogates are replaced, and counts kept to 0 to 2^63 - 1: what cannot cross in one row is not to cost the others theirs.
    """
    kind = SIDE_TABLES[name]
    values: list[Value] = []
    codes = array("I")
    known: dict[object, int] = {}
    for row in rows:
        if row is None:
            codes.append(UNKNOWN_CODE)
            continue
        # Equal maps mostly have one order, too, and then need not be sorted.
        spelled = row if isinstance(row, str) else tuple(row.items())
        code = known.get(spelled)
        if code is None:
            code = known[spelled] = _code(spelled, kind, row, known, values)
        codes.append(code)
    if byteorder == "big":
        codes.byteswap()
    return [values, codes.tobytes()]


def _code(spelled: object, kind: str, row: RowValue, known: dict[object, int], values: list[Value]) -> int:
    """The code of a value that was not spelled like this before."""
    key = spelled if isinstance(row, str) else tuple(sorted(row.items()))
    code = known.get(key)
    if code is None:
        code = known[key] = len(values)
        values.append(_wire_value(kind, row))
    return code


def decode_value(kind: str, value: Value) -> RowValue:
    """A table's value as it was before."""
    if kind == "counts":
        assert isinstance(value, list)
        counts: dict[str, int] = dict(value)  # type: ignore[arg-type]  # pairs of a text and a number
        return counts
    return value  # type: ignore[return-value]  # a text or a map, as its kind says


def _wire_value(kind: str, row: RowValue) -> Value:
    if isinstance(row, str):
        return _text(row)
    if kind == "counts":
        return [[_text(name), _count(count)] for name, count in sorted(row.items())]
    return {_text(name): _text(value) if isinstance(value, str) else str(value) for name, value in row.items()}


def _text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _count(count: object) -> int:
    return min(max(count, 0), MAX_COUNT) if isinstance(count, int) else 0
