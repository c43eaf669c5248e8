"""An immutable, columnar view of all endpoints: what one scheduling decision looks at.

Row r is the same endpoint in every column. A row whose id is "" is free and never live. `epoch` grows with every
publication; `membership` changes only when `ids` does, so that a consumer can keep what it derived from the ids.
Arrays are read-only. A column that did not change between two snapshots is the same array object in both.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from hotbay_sdk.protocol.calls import COLUMN_FORMATS

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.tables.side_tables import NO_TABLES, EndpointFacts, SideTables

__all__ = ["EMPTY_SNAPSHOT", "Column", "EndpointFacts", "Snapshot"]

Column = npt.NDArray[np.float32] | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """See the module. `columns` has every name of COLUMN_FORMATS, and `attribute.NAME` of each declared attribute.

    float32 unknown = NaN, int64 unknown = -1.

    Args:
        epoch: number of this publication, from 1; 0 is the empty snapshot before the first.
        membership: number of the id list.
        rows: length of every array and tuple here.
        at: monotonic time, in seconds, at which ages were taken.
        ids: id by row, "" for a free row.
        row_of: row by id.
        endpoints: metadata by row, None for a free row.
        facts: what is known beyond numbers by row, None for a free row.
        live: rows that may be picked.
        columns: one array per column name.
        stale: endpoints of which a field is stale, by FRESHNESS_FIELDS and attributes that are columns.
        oldest_stale_s: age of the oldest stale figure, in seconds, by each of these that has one.
        tables: labels and facts as plugins read them; the same object in snapshots that do not differ in them.
    """

    epoch: int
    membership: int
    rows: int
    at: float
    ids: tuple[str, ...]
    row_of: Mapping[str, int]
    endpoints: tuple[EndpointMetadata | None, ...]
    facts: tuple[EndpointFacts | None, ...]
    live: npt.NDArray[np.bool_]
    columns: Mapping[str, Column]
    stale: Mapping[str, int] = field(default_factory=dict)
    oldest_stale_s: Mapping[str, float] = field(default_factory=dict)
    bytes_cache: dict[str, bytes] = field(default_factory=dict, repr=False)
    tables: SideTables = field(default=NO_TABLES, repr=False)

    @property
    def tables_version(self) -> int:
        """Number of labels and facts: another one only where those of some row, or the rows, differ."""
        return self.tables.version

    def column_bytes(self, name: str) -> bytes:
        """The column as little-endian bytes, as the wire wants it; made once per change of the column."""
        packed = self.bytes_cache.get(name)
        if packed is None:
            column = self.columns[name]
            packed = (column if sys.byteorder == "little" else column.byteswap()).tobytes()
            self.bytes_cache[name] = packed
        return packed


def _empty() -> Snapshot:
    columns: dict[str, Column] = {
        name: np.empty(0, np.float32) if code == "f" else np.empty(0, np.int64) for name, code in COLUMN_FORMATS.items()
    }
    live = np.empty(0, np.bool_)
    for array in (*columns.values(), live):
        array.flags.writeable = False
    return Snapshot(0, 0, 0, 0.0, (), MappingProxyType({}), (), (), live, MappingProxyType(columns))


EMPTY_SNAPSHOT = _empty()
"""No endpoints at all: what a store shows before its first publication."""
