"""What a list of changes makes of a view, and which rows have to be written for it. Pure.

Later changes to a record win over earlier ones in the same list. A change that leaves its record as it was writes
nothing; a list of nothing but such changes leaves the revision as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from hotbay.store.world.codec import encode
from hotbay.store.world.engine import Change, Put, WorldView
from hotbay.store.world.records import Record

__all__ = ["Row", "apply_changes", "view_of"]


@dataclass(frozen=True, slots=True)
class Row:
    """A record as it is to be kept, or (content None) to be removed."""

    kind: str
    key: str
    content: bytes | None


def apply_changes(view: WorldView, changes: Iterable[Change]) -> tuple[WorldView, tuple[Row, ...]]:
    """The view after the changes and the rows that differ, by kind and key. No rows: the same view.

    Raises ValueError when a record cannot be kept (see `codec`); nothing has changed then.
    """
    wanted: dict[tuple[str, str], Record | None] = {}
    for change in changes:
        if isinstance(change, Put):
            wanted[change.record.kind, change.record.key] = change.record
        else:
            wanted[change.kind, change.key] = None
    rows: list[Row] = []
    tables: dict[str, dict[str, Record]] = {}
    for (kind, key), record in sorted(wanted.items(), key=lambda item: item[0]):
        present = view.tables.get(kind, {})
        if present.get(key) == record:
            continue
        table = tables.setdefault(kind, dict(present))
        if record is None:
            del table[key]
        else:
            table[key] = record
        rows.append(Row(kind, key, None if record is None else encode(record)))
    if not rows:
        return view, ()
    return _with_tables(view, tables), tuple(rows)


def view_of(revision: int, records: Iterable[Record]) -> WorldView:
    """A view of these records, none of which has another's kind and key."""
    tables: dict[str, dict[str, Record]] = {}
    for record in records:
        tables.setdefault(record.kind, {})[record.key] = record
    return _with_tables(WorldView(revision - 1), tables)


def _with_tables(view: WorldView, tables: dict[str, dict[str, Record]]) -> WorldView:
    changed = {kind: MappingProxyType(dict(sorted(table.items()))) for kind, table in tables.items()}
    return WorldView(view.revision + 1, MappingProxyType({**view.tables, **changed}))
