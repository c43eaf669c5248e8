"""What every engine of the world does. Reading never waits: an engine keeps the newest view in memory.

- A transaction is a function from the view to changes. The engine calls it with the newest view and applies its
  changes all together, or calls it again when another writer came first: compare-and-set over several records.
- After `transact` returned, its changes survive the end of the process, and of the machine.
- `view.revision` grows with every transaction that changed something; a change that leaves every record as it
  was is none.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, cast

from hotbay.store.world.records import Record

R = TypeVar("R", bound=Record)

__all__ = ["Change", "Delete", "PluginRecords", "Put", "World", "WorldView"]


@dataclass(frozen=True, slots=True)
class Put:
    """Write a record, in place of the one with its key if there is one."""

    record: Record


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a record; no error when it is not there."""

    kind: str
    key: str


Change = Put | Delete


Tables = Mapping[str, Mapping[str, Record]]


@dataclass(frozen=True, slots=True)
class PluginRecords:
    """What the world holds of one plugin, instance keys included: by kind and key. Immutable; tables are sorted by key.

    The same object as long as nothing of it changed: who follows one plugin compares by `is`.
    """

    tables: Tables = field(default_factory=dict)

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """Every record of a kind, by key."""
        return cast("tuple[R, ...]", tuple(self.tables.get(kind.kind, {}).values()))

    def get(self, kind: type[R], key: str) -> R | None:
        """One record, or None."""
        return cast("R | None", self.tables.get(kind.kind, {}).get(key))


_NOTHING: Final = PluginRecords()


@dataclass(frozen=True, slots=True)
class WorldView:
    """All records at one revision, by plugin id. Immutable; sorted by plugin, and none of them is without records.

    A change of one plugin's records costs nothing for those of the others, and leaves theirs as they are.
    """

    revision: int = 0
    plugins: Mapping[str, PluginRecords] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many records there are."""
        return sum(len(table) for records in self.plugins.values() for table in records.tables.values())

    def of(self, plugin_id: str) -> PluginRecords:
        """The records of one plugin."""
        return self.plugins.get(plugin_id, _NOTHING)

    def all(self, kind: type[R]) -> tuple[R, ...]:
        """Every record of a kind, by plugin and key. Goes through all of them: for what does not happen often."""
        return tuple(record for records in self.plugins.values() for record in records.all(kind))

    def get(self, kind: type[R], key: str) -> R | None:
        """One record, or None. Asks one plugin after the other."""
        for records in self.plugins.values():
            found = records.get(kind, key)
            if found is not None:
                return found
        return None


class World(Protocol):
    """One engine, opened. All methods are for the loop's thread; calls may overlap."""

    @property
    def view(self) -> WorldView:
        """The newest view."""

    async def transact(self, build: Callable[[WorldView], Iterable[Change]]) -> WorldView:
        """Apply what `build` makes of the newest view; return the view with it.

        `build` is pure: it may be called several times. What it raises is raised, with nothing changed.
        Raises `CapacityError` RESOURCE_EXHAUSTED when the disk is full.
        """

    async def changed(self, after: int) -> WorldView:
        """Wait until the revision is above `after`; return the newest view. At once if it is."""

    async def close(self) -> None:
        """Finish what is being written and let go of the file. Idempotent."""
