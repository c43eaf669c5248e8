"""The side tables that a process holds, decoded when first read. Imported when some are sent.

A table stays the same object for as long as calls do not bring another one: what was read of it is not decoded again with
every publication.
"""

from __future__ import annotations

from hotbay_sdk.protocol.calls import SIDE_TABLES
from hotbay_sdk.protocol.messages import MalformedMessageError
from hotbay_sdk.protocol.tables import decode_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from types import MappingProxyType
    from typing import Any

    from hotbay_sdk.protocol.values import Value
else:
    MappingProxyType = type(type.__dict__)  # as `types` itself finds it


class Table:
    """One table. `codes` has one u32 a row: the place of the row's value among `values`, or UNKNOWN_CODE."""

    __slots__ = ("_kind", "_raw", "_values", "codes")

    def __init__(self, kind: str, raw: Sequence[Value], codes: bytes) -> None:
        self.codes = memoryview(codes).cast("I")
        self._kind = kind
        self._raw = raw
        self._values: Sequence[Any] | None = None

    @property
    def values(self) -> Sequence[Any]:
        """Each value once: texts, or maps that cannot be changed."""
        if self._values is None:
            decoded = (decode_value(self._kind, value) for value in self._raw)
            self._values = tuple(v if isinstance(v, str) else MappingProxyType(v) for v in decoded)
        return self._values


class HeldTables:
    """The tables of one version, by name; never changed."""

    __slots__ = ("by_name", "version")

    def __init__(self, version: int, by_name: Mapping[str, Table]) -> None:
        self.version = version
        self.by_name = by_name

    def has(self, names: Collection[str]) -> bool:
        """Whether all of these are held."""
        return all(name in self.by_name for name in names)


def take(told: Value, held: HeldTables | None, rows: int) -> HeldTables | None:
    """What a call says of side tables, completed from what is held; None if the host has to send them again.

    Raises `MalformedMessageError`.
    """
    if not isinstance(told, list) or len(told) not in (2, 3) or type(told[0]) is not int:
        raise MalformedMessageError(
            "side tables are [version, tables], or [version, tables, version of those that are held]"
        )
    version, sent = told[0], told[1]
    if not isinstance(sent, dict):
        return held if held is not None and held.version == version else None
    made = {name: _table(name, raw, rows) for name, raw in sent.items() if name in SIDE_TABLES}
    if len(told) == 2:
        return HeldTables(version, made)
    if held is None or held.version != told[2]:
        return None
    return HeldTables(version, {**held.by_name, **made})


def _table(name: str, raw: Value, rows: int) -> Table:
    if not isinstance(raw, list) or len(raw) != 2:
        raise MalformedMessageError(f"side table {name} is [values, codes]")
    values, codes = raw
    if not isinstance(values, list) or not isinstance(codes, bytes) or len(codes) != 4 * rows:
        raise MalformedMessageError(
            f"side table {name}: a list of values and {4 * rows} bytes of codes expected for {rows} rows"
        )
    return Table(SIDE_TABLES[name], values, codes)
