"""One call's arguments as views for authors, and the endpoint view that the process holds between calls."""

from __future__ import annotations

from hotbay_sdk import _bits, _lazy
from hotbay_sdk._columns import Columns, DataColumns, Fields
from hotbay_sdk._errors import CallFailedError
from hotbay_sdk._instances import Instance, refused
from hotbay_sdk._views import Endpoints, Request
from hotbay_sdk.protocol.calls import ITEM_BYTES, Requests, View, column_format, is_column_read, mask_bytes
from hotbay_sdk.protocol.messages import CallError, ErrorCode, Executed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hotbay_sdk._areas import Area
    from hotbay_sdk._plugin import Scope
    from hotbay_sdk._tables import HeldTables
    from hotbay_sdk.protocol.values import Value

    Copied = tuple[int, frozenset[str], Mapping[str, bytes]]

NO_AREAS: Mapping[int, Area] = {}
NO_COPIES: Mapping[int, Copied] = {}
NO_READS: frozenset[str] = frozenset()


class HeldView:
    """An endpoint view. `columns` is None where the host sent none and none were held.

    `shared` are the columns that were copied out of areas: area → (stamp, declared names, columns). `tables` are the side
    tables that a call brought last.
    """

    __slots__ = ("_by_scope", "columns", "epoch", "ids", "live", "membership", "rows", "shared", "tables")

    def __init__(
        self,
        epoch: int,
        membership: int,
        ids: Sequence[str],
        live: int,
        columns: Mapping[str, bytes] | None,
        shared: Mapping[int, Copied] = NO_COPIES,
        tables: HeldTables | None = None,
    ) -> None:
        self.epoch = epoch
        self.membership = membership
        self.ids = ids
        self.rows = len(ids)
        self.live = live
        self.columns = columns
        self.shared = shared
        self.tables = tables
        self._by_scope: dict[Scope, Columns] = {}

    def columns_of(self, instance: Instance) -> Columns:
        """What an instance may read; UNAVAILABLE when the host has to send the columns or side tables again."""
        scope = instance.scope
        columns = self._by_scope.get(scope)
        if columns is None:
            if self.columns is None and any(map(is_column_read, scope.reads)):
                raise _not_held("columns", f"epoch {self.epoch}")
            if scope.tables and (self.tables is None or not self.tables.has(scope.tables)):
                raise _not_held("tables", f"epoch {self.epoch}")
            columns = Columns(self.columns or {}, self.rows, scope.reads, scope.type_name, self.tables)
            self._by_scope[scope] = columns
        return columns


def take_view(
    value: Value, held: HeldView | None, areas: Mapping[int, Area] | None = None, reads: frozenset[str] = NO_READS
) -> HeldView:
    """The view that a call refers to, completed from the one that is held.

    `areas`: those that the process was passed, of which the columns among `reads` are copied.
    """
    epoch, rows, membership, sent_ids, columns, places, told = View.from_wire(value)
    known = held if held is not None and held.membership == membership else None
    current = known if known is not None and known.epoch == epoch else None
    tables = None if held is None else held.tables
    if told is not None and (tables is None or told != [tables.version, None]):
        tables = _tables(told, tables, rows)
    # A map without any is an answer: the host has none of the columns that it was asked for.
    if current is not None and columns is None and places is None and tables is current.tables:
        return current
    ids: Sequence[str]
    if sent_ids is not None:
        ids, live = tuple(sent_ids), _bits.from_flags(bytes(map(bool, sent_ids)))
    elif known is not None:
        ids, live = known.ids, known.live
    else:
        raise _not_held("ids", f"membership {membership}")
    if len(ids) != rows:
        raise refused(f"a view of {rows} rows with {len(ids)} ids")
    if columns:
        _check_lengths(columns, rows)
    shared = NO_COPIES if held is None else held.shared
    if places is not None:
        columns = {} if columns is None else columns
        shared = _copies(epoch, rows, places, shared, areas or NO_AREAS, reads)
        for _, _, copied in shared.values():
            columns.update(copied)
    if current is not None and current.columns is not None:
        columns = {**current.columns, **(columns or {})}
    return HeldView(epoch, membership, ids, live, columns, shared, tables)


def _tables(told: Value, held: HeldTables | None, rows: int) -> HeldTables:
    """The side tables of a call; `held` itself where nothing is new."""
    taken = _lazy.take_tables(told, held, rows)
    if taken is None:
        raise _not_held("tables", "this version")
    return taken


def _check_lengths(columns: Mapping[str, bytes], rows: int) -> None:
    for name, raw in columns.items():
        code = column_format(name)
        if code is not None and len(raw) != rows * ITEM_BYTES[code]:
            raise refused(f"column {name} has {len(raw)} bytes for {rows} rows")


def _copies(
    epoch: int,
    rows: int,
    places: Sequence[Sequence[int]],
    before: Mapping[int, Copied],
    areas: Mapping[int, Area],
    reads: frozenset[str],
) -> dict[int, Copied]:
    """The columns that lie in areas; what has not changed since the view before is not copied again."""
    found: dict[int, Copied] = {}
    for number, slot, stamp in places:
        copied = before.get(number)
        if copied is None or copied[0] != stamp or copied[1] is not reads:
            area = areas.get(number)
            columns = None if area is None else area.copy(slot, stamp, reads, rows)
            if columns is None:
                raise _not_held("columns", f"epoch {epoch}")
            copied = (stamp, reads, columns)
        found[number] = copied
    return found


def _not_held(what: str, which: str) -> CallFailedError:
    return CallFailedError(
        CallError(
            ErrorCode.UNAVAILABLE,
            f"this process does not hold the {what} of {which}: send them",
            retryable=True,
            executed=Executed.NO,
            details={"missing": what},
        )
    )


class Batch:
    """B requests over a view. `masks` are the candidates of each request; filters narrow them."""

    __slots__ = ("_data", "_flags", "_requests", "masks", "size", "view")

    def __init__(self, view: HeldView, requests: Requests, masks: list[int]) -> None:
        self.view = view
        self._requests = requests
        self.size = requests.size
        self.masks = masks
        self._flags: dict[int, bytes] = {}
        self._data: dict[Scope, DataColumns] = {}

    def flags(self, index: int) -> bytes:
        """Candidates of one request, one byte per row."""
        mask = self.masks[index]
        flags = self._flags.get(mask)
        if flags is None:
            flags = self._flags[mask] = _bits.to_flags(mask, self.view.rows)
        return flags

    def packed_masks(self) -> bytes:
        """The candidates of all requests as the bits of the wire."""
        return b"".join(_bits.to_wire(mask, self.view.rows) for mask in self.masks)

    def endpoints(self, instance: Instance) -> Endpoints:
        """The endpoint view of one instance, with the candidates as they are now."""
        return Endpoints(
            self.view.epoch,
            self.view.ids,
            self.view.columns_of(instance),
            self._data_of(instance),
            tuple(self.masks),
            flags=self._flags,
        )

    def requests(self, instance: Instance) -> list[Request]:
        """The requests of one instance."""
        scope = instance.scope
        fields = Fields(
            self._requests.fields, self.size, scope.reads, scope.type_name, block_tokens=instance.facts.block_tokens
        )
        data = self._data_of(instance)
        return [Request(fields, data, index) for index in range(self.size)]

    def _data_of(self, instance: Instance) -> DataColumns:
        scope = instance.scope
        data = self._data.get(scope)
        if data is None:
            data = DataColumns(self._requests.data, self.size, self.view.rows, scope.consumes, scope.type_name)
            self._data[scope] = data
        return data


def read_requests(value: Value) -> Requests:
    """The batch argument, with the lengths of its columns checked."""
    requests = Requests.from_wire(value)
    for name, column in requests.fields.items():
        if len(column) != requests.size:
            raise refused(f"field {name} has {len(column)} values for {requests.size} requests")
    for name, texts in requests.data.items():
        if isinstance(texts, list) and len(texts) != requests.size:
            raise refused(f"column {name} has {len(texts)} texts for {requests.size} requests")
    return requests


def read_masks(value: Value, view: HeldView, size: int) -> list[int]:
    """Candidates of each request: every live row, one set for all, or one for each. Free rows never are."""
    if value is None:
        return [view.live] * size
    if isinstance(value, bytes):
        # B rows in one byte string; a single row is shared by the batch.
        width = mask_bytes(view.rows)
        value = [value[start : start + width] for start in range(0, len(value), width)] if width else []
    if not isinstance(value, list) or len(value) not in (1, size):
        raise refused(f"candidates are nil, one row of bits or {size} rows")
    masks = [_bits.from_wire(row) & view.live for row in value if isinstance(row, bytes)]
    if len(masks) != len(value):
        raise refused("a row of candidates is bytes")
    return masks * size if len(masks) == 1 else masks


NO_VIEW = HeldView(0, 0, (), 0, {})
"""For calls that refer to no endpoints."""
