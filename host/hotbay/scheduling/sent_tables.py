"""Which side tables one process holds: what a call has to say of them. Pure.

Invariant: what the process was sent under a version is what snapshots of that version say, whatever was left out.
"""

from typing import Final

from hotbay_sdk.protocol import Value

from hotbay.datalayer.tables.side_tables import SideTables
from hotbay.rpc.faults import UnsendableError

__all__ = ["FEATURE", "MAX_TABLES_BYTES", "SentTables"]

FEATURE: Final = "side_tables"
"""What HELLO says of a plugin that takes side tables."""
MAX_TABLES_BYTES: Final = 8 * 1024 * 1024
"""Of one call: half of a frame, the rest of which is for columns and requests."""
_NEVER: Final = -1


class SentTables:
    """Side tables of one process. `said` is what its calls say of them."""

    __slots__ = ("_held", "_names", "_version")

    def __init__(self) -> None:
        self._version = _NEVER
        self._names: tuple[str, ...] = ()
        self._held: dict[str, list[Value]] = {}

    def said(self, tables: SideTables, names: tuple[str, ...]) -> list[object]:
        """The item of a view for a call that reads `names`: the tables that the process does not hold yet, and the version.

        Raises UnsendableError where they are longer than a call may carry.
        """
        if tables.version == self._version and (names is self._names or all(name in self._held for name in names)):
            self._names = names
            return [self._version, None]
        encoded = {name: tables.encoded(name) for name in names}
        size_bytes = sum(table.size_bytes for table in encoded.values())
        if size_bytes > MAX_TABLES_BYTES:
            raise UnsendableError(
                "FRAME_TOO_LARGE",
                f"side tables {', '.join(names)} have {size_bytes} bytes, a call carries {MAX_TABLES_BYTES}: "
                "give endpoints fewer or shorter labels",
            )
        wires = {name: table.wire for name, table in encoded.items()}
        fresh = {name: wire for name, wire in wires.items() if self._held.get(name) is not wire}
        base, self._version, self._names = self._version, tables.version, names
        # A table that is not named now may have changed with the version, and is not to be held under the new one.
        outdated = base != tables.version and any(name not in wires for name in self._held)
        if base == _NEVER or outdated or len(fresh) == len(names):
            self._held = wires
            return [tables.version, wires]
        self._held = {**self._held, **fresh}
        return [tables.version, fresh, base]

    def forget(self) -> None:
        """What the process holds is not certain."""
        self._version, self._names, self._held = _NEVER, (), {}
