"""What a list of changes makes of a view, and which rows have to be written for it. Pure.

Later changes to a record win over earlier ones in the same list. A change that leaves its record as it was writes
nothing; a list of nothing but such changes leaves the revision as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from hotbay.store.world.codec import encode
from hotbay.store.world.engine import Change, PluginRecords, Put, WorldView
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
    draft = _Draft(view)
    for (kind, key), record in sorted(wanted.items(), key=lambda item: item[0]):
        holder = _holder(view, kind, key)
        if (view.of(holder).tables[kind][key] if holder is not None else None) == record:
            continue
        if holder is not None:
            del draft.table(holder, kind)[key]
        if record is not None:
            draft.table(_owner(record), kind)[key] = record
        rows.append(Row(kind, key, None if record is None else encode(record)))
    return (draft.view(), tuple(rows)) if rows else (view, ())


def view_of(revision: int, records: Iterable[Record]) -> WorldView:
    """A view of these records, of which the last one with the same kind and key counts."""
    draft = _Draft(WorldView(revision - 1))
    for record in {(record.kind, record.key): record for record in records}.values():
        draft.table(_owner(record), record.kind)[record.key] = record
    return draft.view()


def _owner(record: Record) -> str:
    """The plugin id: history is kept by instance key, and follows its plugin."""
    return record.plugin_id.partition("/")[0]


def _holder(view: WorldView, kind: str, key: str) -> str | None:
    """Whose records have this key: a key is unique among all plugins."""
    return next((name for name, records in view.plugins.items() if key in records.tables.get(kind, {})), None)


class _Draft:
    """The next view while it is made: tables that are asked for are copies, all others are those of the view."""

    def __init__(self, view: WorldView) -> None:
        self._before = view
        self._tables: dict[str, dict[str, dict[str, Record]]] = {}

    def table(self, plugin_id: str, kind: str) -> dict[str, Record]:
        """The records of one kind and plugin, to be changed."""
        tables = self._tables.setdefault(plugin_id, {})
        if kind not in tables:
            tables[kind] = dict(self._before.of(plugin_id).tables.get(kind, {}))
        return tables[kind]

    def view(self) -> WorldView:
        """What came of it."""
        plugins = dict(self._before.plugins)
        for plugin_id, changed in self._tables.items():
            tables = {**plugins.pop(plugin_id, PluginRecords()).tables, **changed}
            kept = {
                kind: MappingProxyType(dict(sorted(table.items()))) if kind in changed else table
                for kind, table in tables.items()
                if table
            }
            if kept:
                plugins[plugin_id] = PluginRecords(MappingProxyType(kept))
        return WorldView(self._before.revision + 1, MappingProxyType(dict(sorted(plugins.items()))))
