"""The adapter between cycles and one generation: its windows, what its process knows of the endpoints, notices."""

from collections.abc import Collection

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.rpc.leases import Generation
from hotbay.scheduling.calls import Lane, RemoteCall
from hotbay.scheduling.fields import is_table
from hotbay.scheduling.notices import Notices
from hotbay.scheduling.outputs import OutputAreas, Region
from hotbay.scheduling.sent_tables import SentTables
from hotbay.scheduling.shared_view import PassedAreas, SharedColumns, wire_name
from hotbay.scheduling.statistics import CallCounters
from hotbay.scheduling.window import Advance, Asker, Watcher, Window


def _in_frame(snapshot: Snapshot, columns: tuple[str, ...]) -> dict[str, bytes]:
    there = {name: snapshot.columns[name] for name in columns if name in snapshot.columns}
    named = {name: wire_name(name, column) for name, column in there.items()}
    return {shown: snapshot.column_bytes(name) for name, shown in named.items() if shown is not None}


class Remote:
    """All windows of one generation, and what its process already knows of the endpoints."""

    __slots__ = (
        "_advance",
        "_areas",
        "_outputs",
        "_parts",
        "_sent",
        "_sure",
        "_tables",
        "_watcher",
        "_windows",
        "counters",
        "generation",
        "notices",
    )

    def __init__(
        self, generation: Generation, *, counters: CallCounters, advance: Advance, shared: SharedColumns | None = None
    ) -> None:
        self.generation = generation
        self.counters = counters
        self._advance = advance
        self._windows: dict[Lane, Window] = {}
        self._sent: tuple[int, int, tuple[str, ...]] = (-1, -1, ())
        self._tables = SentTables()
        self._parts: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._areas = None if shared is None else PassedAreas(generation, shared)
        self._outputs = None if shared is None else OutputAreas(generation, shared.next_number)
        self._sure = False
        self.notices = Notices(generation, self, counters)
        self._watcher: Watcher | None = None

    def watch(self, watcher: Watcher | None) -> None:
        """Show every answer to `watcher` from now on."""
        self._watcher = watcher
        for window in self._windows.values():
            window.watcher = watcher

    def submit(self, cycle: Asker, call: RemoteCall) -> bool:
        """Queue a call; false when it failed at once and the failure policies have answered."""
        window = self._windows.get(call.lane)
        if window is None:
            window = self._windows[call.lane] = self._window(call)
        return window.submit(cycle, call)

    def _window(self, call: RemoteCall) -> Window:
        counters, advance = self.counters, self._advance
        window = Window(self.generation, self, call.method, call.overlap, counters=counters, advance=advance)
        window.watcher = self._watcher
        return window

    @property
    def is_broken(self) -> bool:
        """Whether one of its windows refuses calls because they kept failing."""
        return any(window.is_broken for window in self._windows.values())

    def abandoned(self) -> None:
        """Some cycle has ended before its answers came."""
        for window in self._windows.values():
            window.abandoned()

    @property
    def groups(self) -> Collection[str]:
        """The groups of shared columns that its calls have asked for."""
        return () if self._areas is None else self._areas.groups

    def view(self, snapshot: Snapshot, reads: tuple[str, ...], *, one_way: bool = False) -> list[object]:
        """The view argument: ids, columns and side tables only when this process does not hold them yet.

        Columns that this host does not have are left out. `one_way`: nobody could say that an area was overwritten.
        Raises UnsendableError where side tables are too long to cross.
        """
        columns, tables = self._parts.get(reads) or self._divided(reads)
        epoch, membership, held = self._sent
        ids = None if membership == snapshot.membership else list(snapshot.ids)
        values, areas = None, None
        # A view of another epoch takes the place of the one that is held, columns and all, also when it brings none.
        kept = held if epoch == snapshot.epoch else ()
        if columns != kept and not set(columns) <= set(kept):
            if self._areas is not None and not one_way and not self._sure:
                areas = self._areas.find(snapshot, columns)
            values = _in_frame(snapshot, columns) if areas is None else None
            kept = tuple(sorted({*kept, *columns}))
            self._sure = False
        self._sent = (snapshot.epoch, snapshot.membership, kept)
        view: list[object] = [snapshot.epoch, snapshot.rows, snapshot.membership, ids, values]
        if tables:
            return [*view, areas, self._tables.said(snapshot.tables, tables)]
        return view if areas is None else [*view, areas]

    def _divided(self, reads: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns among what a call reads of endpoints, and the side tables."""
        tables = tuple(name for name in reads if is_table(name))
        columns = tuple(name for name in reads if not is_table(name)) if tables else reads
        self._parts[reads] = columns, tables
        return columns, tables

    def region(self, scores_bytes: int) -> Region | None:
        """Where the process is to write the scores of the next call; None if they are to be in its reply."""
        return None if self._outputs is None else self._outputs.region(scores_bytes)

    def close(self) -> None:
        """No call follows: let go of the memory that its process writes, once the process is done with it."""
        if self._outputs is not None:
            self._outputs.close()

    def forget_view(self) -> None:
        """A call failed: what the process holds is not certain, send everything again, the columns in the call itself."""
        self._sent = (-1, -1, ())
        self._tables.forget()
        self._sure = True
