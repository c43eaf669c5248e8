"""The world in one SQLite file: crash-safe, and whole or refused.

- Every transaction is one commit in WAL mode with `synchronous=FULL`: on disk before `transact` returns.
- The file counts its revisions. A transaction is built on the view in memory and written only if the file is still
  at that view's revision; otherwise the file is read again and the transaction built anew.
- One thread at a time works on the file, outside the pool that everybody else's blocking work shares.
- A file that is damaged, somebody else's, or of a newer schema is refused by name and left as it is.
- What is written to a file that lost its name is lost: no transaction is done whose file is not under its name before
  and after it.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import anyio
import anyio.to_thread

from hotbay.errors import CapacityError
from hotbay.store.files import sync_directory
from hotbay.store.world.changes import Row, apply_changes, view_of
from hotbay.store.world.codec import decode
from hotbay.store.world.engine import Change, WorldView
from hotbay.store.world.migrations import APPLICATION_ID, MIGRATIONS, Migration
from hotbay.store.world.newest import Newest
from hotbay.store.world.opened_files import OpenedFiles
from hotbay.store.world.records import Record
from hotbay.store.world.sqlite_errors import damaged, explained, refused

logger = logging.getLogger(__name__)

# Another process holds the file for one commit at most; on a disk that takes longer, trying again later is right.
_BUSY_TIMEOUT_S: Final = 5.0

T = TypeVar("T")

__all__ = ["SqliteWorld", "read_world"]


class SqliteWorld:
    """See `World`; `open` is how to get one."""

    def __init__(self, file: "_File", view: WorldView, limiter: anyio.CapacityLimiter) -> None:
        self._file = file
        self._newest = Newest(view)
        self._turn = anyio.Lock()
        self._limiter = limiter
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, migrations: Sequence[Migration] = MIGRATIONS, must_exist: bool = False) -> Self:
        """Open the file, made if there is none, and bring it to the newest schema. The folder must exist.

        With `must_exist`, a file that is not there or empty is damage, and no new world.

        Raises:
            InputError: the file is damaged, no world, of a newer schema, or may not be read and written.
            CapacityError: RESOURCE_EXHAUSTED when the disk is full, UNAVAILABLE when another process holds the file.
        """
        limiter = anyio.CapacityLimiter(1)
        work = partial(_open, path, migrations, must_exist=must_exist)
        file, view = await anyio.to_thread.run_sync(work, limiter=limiter)
        return cls(file, view, limiter)

    @property
    def view(self) -> WorldView:
        """The newest view."""
        return self._newest.view

    async def transact(self, build: Callable[[WorldView], Iterable[Change]]) -> WorldView:
        """See `World.transact`.

        Raises CapacityError: RESOURCE_EXHAUSTED when the disk is full or refuses, UNAVAILABLE when the world is closed,
        another process holds the file or the file is gone; InputError when the file turns out damaged.
        """
        async with self._turn:
            while True:
                if self._closed:
                    raise CapacityError("UNAVAILABLE", f"the world {self._file.path} is closed")
                view, rows = apply_changes(self.view, build(self.view))
                if not rows:
                    return view
                # From here to `publish` nothing can be cancelled: the thread's work is always taken notice of.
                if await self._run(partial(self._file.write, self.view.revision, rows)):
                    self._newest.publish(view)
                    return view
                logger.info("world_changed_elsewhere path=%s revision=%s", self._file.path, self.view.revision)
                self._newest.publish(await self._run(self._file.load))

    async def changed(self, after: int) -> WorldView:
        """See `World.changed`."""
        return await self._newest.above(after)

    async def close(self) -> None:
        """Finish what is being written and close the file; the view stays readable. Idempotent."""
        with anyio.CancelScope(shield=True):
            async with self._turn:
                if not self._closed:
                    self._closed = True
                    await self._run(self._file.close)

    async def _run(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


class _File:
    """The connection, for one thread at a time. Blocks."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._files: OpenedFiles | None = None

    def load(self) -> WorldView:
        """Everything at one revision."""
        with explained(self.path, opening=True), _transaction(self._connection, "BEGIN"):
            revision, rows = _everything(self._connection)
            # The first read has opened the log, too.
            self._files = self._files or OpenedFiles.now(self.path)
        return _view(self.path, revision, rows)

    def write(self, expected: int, rows: Sequence[Row]) -> bool:
        """All rows and the next revision. False, with nothing written, when the file is not at the expected one."""
        assert self._files is not None, "it is loaded before it is written"
        self._files.check()
        with explained(self.path), _transaction(self._connection, "BEGIN IMMEDIATE"):
            (found,) = self._connection.execute("SELECT revision FROM world").fetchone()
            if found != expected:
                return False
            for row in rows:
                key = row.key.encode("utf-8", "surrogatepass")
                if row.content is None:
                    self._connection.execute("DELETE FROM records WHERE kind = ? AND key = ?", (row.kind, key))
                else:
                    put = "INSERT INTO records VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET content = excluded.content"
                    self._connection.execute(put, (row.kind, key, row.content))
            self._connection.execute("UPDATE world SET revision = ?", (expected + 1,))
        self._files.check()
        return True

    def close(self) -> None:
        """Moves the log into the file, if nobody else has it open, and lets go of both."""
        with explained(self.path):
            self._connection.close()


def read_world(path: Path) -> WorldView:
    """What the file of a world holds now, also beside the host that has it; nothing when it is not there. Blocks.

    Raises as `SqliteWorld.open`. Reads files of any schema that this hotbay knows, and writes nothing.
    """
    if not path.exists() or not path.stat().st_size:
        return WorldView()
    # Without a log nobody has the file open, and a reader must not make one: it may be of another user than the host.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    with explained(path, opening=True):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=_BUSY_TIMEOUT_S, isolation_level=None
        )
    with closing(connection), explained(path, opening=True):
        if not _schema(path, connection, newest=len(MIGRATIONS)):
            return WorldView()
        with _transaction(connection, "BEGIN"):
            revision, rows = _everything(connection)
    return _view(path, revision, rows)


def _open(path: Path, migrations: Sequence[Migration], *, must_exist: bool) -> tuple[_File, WorldView]:
    _refuse_lost_main_file(path)
    if must_exist and not (path.exists() and path.stat().st_size):
        raise damaged(path, f"it is {'empty' if path.exists() else 'gone'}, and there was a world before")
    is_new = not path.exists()
    if not is_new and not os.access(path, os.W_OK):
        # SQLite would open it for reading alone, and whoever has something to record would be the first to hear of it.
        raise refused(path, "it may not be written", hint="let the host's user read and write it and its folder")
    with explained(path, opening=True):
        connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        with explained(path, opening=True):
            schema = _schema(path, connection, newest=len(migrations))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            # Reads are of the view in memory: pages are kept for what a transaction touches, and no more.
            connection.execute("PRAGMA cache_size = -256")
            _migrate(path, connection, schema, migrations)
            damage = [text for (text,) in connection.execute("PRAGMA quick_check(3)") if text != "ok"]
        if damage:
            raise damaged(path, "; ".join(damage))
        if is_new:
            sync_directory(path.parent)
        file = _File(path, connection)
        return file, file.load()
    except BaseException:
        connection.close()
        raise


def _refuse_lost_main_file(path: Path) -> None:
    """SQLite takes an empty file for a new one and drops the log beside it, with all that is only in there."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size and not (path.exists() and path.stat().st_size):
        raise damaged(path, f"it is empty or gone, and {log.name} beside it is not")


def _schema(path: Path, connection: sqlite3.Connection, *, newest: int) -> int:
    """The schema of a file that is ours and not newer than we are; 0 for a new one. Changes nothing."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables:
        return 0
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != APPLICATION_ID:
        raise refused(path, "it is a database of another program", hint="set world.path to a file of its own")
    row = connection.execute("SELECT schema FROM world").fetchone()
    schema = row[0] if row is not None else None
    if not isinstance(schema, int) or schema < 1:
        said = "no schema" if row is None else f"schema {schema!r}"
        raise damaged(path, f"it says {said}, and its tables are those of 1 or more")
    if schema > newest:
        raise refused(
            path,
            f"it has schema {schema}, written by a newer hotbay; this one knows schemas up to {newest}",
            hint="run the newer hotbay, or put the copy back that was made before the upgrade",
        )
    return schema


def _migrate(path: Path, connection: sqlite3.Connection, schema: int, migrations: Sequence[Migration]) -> None:
    if schema == len(migrations):
        return
    with _transaction(connection, "BEGIN IMMEDIATE"):
        for migration in migrations[schema:]:
            migration(connection)
        connection.execute("UPDATE world SET schema = ?", (len(migrations),))
    logger.info("world_migrated path=%s schema=%s was=%s", path, len(migrations), schema)


def _everything(connection: sqlite3.Connection) -> tuple[int, list[tuple[str, bytes, bytes]]]:
    """The revision, and the rows at it: inside a transaction, for somebody may write meanwhile."""
    (revision,) = connection.execute("SELECT revision FROM world").fetchone()
    return revision, connection.execute("SELECT kind, key, content FROM records").fetchall()


def _view(path: Path, revision: int, rows: Iterable[tuple[str, bytes, bytes]]) -> WorldView:
    try:
        return view_of(revision, [_record(*row) for row in rows])
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error)) from error


def _record(kind: str, key: bytes, content: bytes) -> Record:
    record = decode(kind, content)
    if record.key.encode("utf-8", "surrogatepass") != key:
        raise ValueError(f"a {kind} lies under the key of another one")
    return record


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have rolled back already; a rollback that fails too leaves it to the next opening.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise
