"""The columns and side tables of a call that one type may read, cast when first read.

Lookups are plain dict lookups after the first. Only what the type declares can be read; a declared
column that the host does not have reads as unknown: NaN or -1, None for a request field.
"""

from __future__ import annotations

from hotbay_sdk._errors import UndeclaredReadError
from hotbay_sdk.protocol.calls import (
    COLUMN_FORMATS,
    INT64_SUFFIX,
    PROMPT_HASHES,
    REQUEST_SCOPE,
    SIDE_TABLES,
    TEXT_SCOPE,
    is_column_read,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hotbay_sdk._tables import HeldTables, Table
    from hotbay_sdk.protocol.values import Value

_UNKNOWN = {"f": b"\x00\x00\xc0\x7f", "q": b"\xff" * 8}
"""NaN as float32, -1 as int64, little-endian."""


class Columns(dict[str, "memoryview[float]"]):
    """The endpoint columns that one type may read, cast when first read; `table` finds its side tables."""

    __slots__ = ("_declared", "_raw", "_rows", "_tables", "_type_name")

    def __init__(
        self,
        raw: Mapping[str, bytes],
        rows: int,
        declared: frozenset[str],
        type_name: str,
        tables: HeldTables | None = None,
    ) -> None:
        super().__init__()
        self._raw = raw
        self._rows = rows
        self._declared = declared
        self._type_name = type_name
        self._tables = tables

    def table(self, name: str) -> Table:
        """A declared side table."""
        if name not in SIDE_TABLES:
            raise ValueError(f"{name} is no side table; those are {', '.join(SIDE_TABLES)}")
        if name not in self._declared:
            raise UndeclaredReadError(name, self._type_name)
        assert self._tables is not None, "a view is completed before a type sees it"
        return self._tables.by_name[name]

    def __missing__(self, name: str) -> memoryview[float]:
        """Cast a declared column."""
        if name in SIDE_TABLES and name in self._declared:
            raise ValueError(f"{name} is no column of numbers: read it with Endpoints.table, or of one Endpoint")
        if name not in self._declared or not is_column_read(name):
            raise UndeclaredReadError(name, self._type_name)
        code, raw = self._found(name)
        plain = memoryview(_UNKNOWN[code] * self._rows if raw is None else raw)
        column: memoryview[float] = plain.cast("q") if code == "q" else plain.cast("f")  # type: ignore[assignment]  # its items are whole numbers, read as such where the type matters
        self[name] = column
        return column

    def _found(self, name: str) -> tuple[str, bytes | None]:
        """Format and bytes of a column; what an attribute's are is said by the name under which it came."""
        code = COLUMN_FORMATS.get(name)
        if code is not None:
            return code, self._raw.get(name)
        whole = self._raw.get(name + INT64_SUFFIX)
        if whole is not None:
            return "q", whole
        return "f", None if name.endswith(INT64_SUFFIX) else self._raw.get(name)


class Fields(dict[str, "list[Value]"]):
    """The request fields that one type may read, by their declared names."""

    __slots__ = ("_block_tokens", "_declared", "_raw", "_size", "_type_name")

    def __init__(
        self,
        raw: Mapping[str, list[Value]],
        size: int,
        declared: frozenset[str],
        type_name: str,
        *,
        block_tokens: int | None,
    ) -> None:
        super().__init__()
        self._raw = raw
        self._size = size
        self._declared = declared
        self._type_name = type_name
        self._block_tokens = block_tokens

    def __missing__(self, name: str) -> list[Value]:
        """Find a declared field; one that the host does not have is None for every request."""
        if name not in self._declared:
            raise UndeclaredReadError(name, self._type_name)
        wire_name = f"{name}/{self._block_tokens}" if name == PROMPT_HASHES else name
        found = self._raw.get(wire_name)
        values: list[Value] = [None] * self._size if found is None else found
        self[name] = values
        return values


class DataColumns(dict[str, "memoryview[float]"]):
    """The data columns that one type consumes: shape (B, E) where they go by row, (B,) by request; `texts` has those of texts."""

    __slots__ = ("_declared", "_raw", "_rows", "_size", "_type_name")

    def __init__(
        self,
        raw: Mapping[str, bytes | list[str | None]],
        size: int,
        rows: int,
        declared: frozenset[str],
        type_name: str,
    ) -> None:
        super().__init__()
        self._raw = raw
        self._size = size
        self._rows = rows
        self._declared = declared
        self._type_name = type_name

    def __missing__(self, name: str) -> memoryview[float]:
        """Cast a consumed column; one that no producer made is NaN everywhere, by row."""
        if name not in self._declared:
            raise UndeclaredReadError(name, self._type_name, "consumes")
        raw = self._raw.get(name + REQUEST_SCOPE)
        if isinstance(raw, bytes):
            column = memoryview(raw).cast("f")
        elif name + TEXT_SCOPE in self._raw:
            raise ValueError(f"{name} is a column of texts: read it with Request.text")
        else:
            whole = self._raw.get(name) or _UNKNOWN["f"] * (self._size * (self._rows or 1))
            assert isinstance(whole, bytes), "numbers by row cross as bytes"
            column = memoryview(whole).cast("f", (self._size, self._rows or 1))
        self[name] = column
        return column

    def texts(self, name: str) -> Sequence[str | None]:
        """A consumed column of texts; one that no producer made is None everywhere."""
        if name not in self._declared:
            raise UndeclaredReadError(name, self._type_name, "consumes")
        raw = self._raw.get(name + TEXT_SCOPE)
        if isinstance(raw, list):
            return raw
        if name in self._raw or name + REQUEST_SCOPE in self._raw:
            raise ValueError(f"{name} is a column of numbers: read it with data")
        return (None,) * self._size
