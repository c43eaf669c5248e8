"""How the file of a world gets from each schema to the next. Forward only; the file's schema is the count of steps done.

A step runs inside the transaction that also records the new schema, so a file is at one schema or the next, never
between. A step that was ever released is never edited: a new form is a new step at the end.
"""

import sqlite3
from collections.abc import Callable
from typing import Final

__all__ = ["APPLICATION_ID", "MIGRATIONS", "Migration"]

Migration = Callable[[sqlite3.Connection], None]

APPLICATION_ID: Final = 0x686F7462
"""What SQLite keeps in a file's header to tell whose it is: `hotb`."""


def _first_tables(connection: sqlite3.Connection) -> None:
    """Keys are UTF-8 bytes with surrogates let through, because a source's place may be a file name that is no text."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("CREATE TABLE world (schema INTEGER NOT NULL, revision INTEGER NOT NULL)")
    connection.execute("INSERT INTO world VALUES (0, 0)")
    connection.execute(
        "CREATE TABLE records (kind TEXT NOT NULL, key BLOB NOT NULL, content BLOB NOT NULL, PRIMARY KEY (kind, key))"
    )


MIGRATIONS: Final[tuple[Migration, ...]] = (_first_tables,)
