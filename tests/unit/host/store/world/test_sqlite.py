"""The file of a world: refused whole when it cannot be used, and never touched then; errors say what to do."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hotbay.errors import CapacityError, InputError
from hotbay.store.digests import digest_of
from hotbay.store.world.engine import Put
from hotbay.store.world.migrations import MIGRATIONS
from hotbay.store.world.records import Floor, ManifestRef
from hotbay.store.world.sqlite import SqliteWorld, read_world

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A closed file with one record."""
    world = await SqliteWorld.open(tmp_path / "world.db")
    await world.transact(lambda _: [Put(Floor("a", 1))])
    await world.close()
    return tmp_path / "world.db"


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


async def refusal(path: Path) -> InputError:
    """The error of opening; the file must be as it was."""
    before = content(path)
    with pytest.raises(InputError) as caught:
        await SqliteWorld.open(path)
    assert content(path) == before
    (problem,) = caught.value.problems
    assert (problem.code, problem.path) == ("CONFIG_INVALID", "world.path")
    assert str(path) in problem.message
    assert problem.hint
    return caught.value


async def test_reopened_file_has_records_and_revision(path: Path) -> None:
    world = await SqliteWorld.open(path)
    assert world.view.all(Floor) == (Floor("a", 1),)
    assert world.view.revision == 1
    await world.close()


async def test_closed_world_is_one_file(path: Path) -> None:
    assert [entry.name for entry in path.parent.iterdir()] == ["world.db"]


async def test_commits_are_synced(path: Path) -> None:
    world = await SqliteWorld.open(path)
    connection = world._file._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    await world.close()


async def test_change_by_another_process_is_read_before_the_next_transaction(path: Path) -> None:
    first, second = await SqliteWorld.open(path), await SqliteWorld.open(path)
    await first.transact(lambda view: [Put(Floor("a", view.all(Floor)[0].rev + 1))])
    views = []
    await second.transact(lambda view: [views.append(view), Put(Floor("a", view.all(Floor)[0].rev + 1))][1:])
    assert [view.all(Floor) for view in views] == [(Floor("a", 1),), (Floor("a", 2),)]
    assert second.view.get(Floor, "a") == Floor("a", 3)
    assert second.view.revision == 3
    await first.close()
    await second.close()


async def test_newer_schema_is_refused_by_name(path: Path) -> None:
    sql(path, f"UPDATE world SET schema = {len(MIGRATIONS) + 1}")
    error = await refusal(path)
    assert f"it has schema {len(MIGRATIONS) + 1}" in str(error)
    assert "run the newer hotbay" in error.hint


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE world SET schema = 0", "schema 0"),
        ("UPDATE world SET schema = -1", "schema -1"),
        ("UPDATE world SET schema = 'x'", "schema 'x'"),
        ("DELETE FROM world", "no schema"),
    ],
)
async def test_schema_that_no_hotbay_writes_is_damage_and_says_what_was_found(
    path: Path, change: str, said: str
) -> None:
    sql(path, change)
    error = await refusal(path)
    assert f"it is damaged: it says {said}" in str(error)
    assert "put a copy of it back" in error.hint
    with pytest.raises(InputError, match=said):
        read_world(path)


async def test_other_programs_database_is_refused(tmp_path: Path) -> None:
    sql(tmp_path / "other.db", "CREATE TABLE world (schema INTEGER)")
    assert "another program" in str(await refusal(tmp_path / "other.db"))


def overwrite_header(path: Path) -> None:
    path.write_bytes(b"This is no database at all. " * 400)


def overwrite_page(path: Path) -> None:
    with path.open("r+b") as opened:
        opened.seek(4096)
        opened.write(os.urandom(4096))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 4096)


def lose_table(path: Path) -> None:
    sql(path, "DROP TABLE records")


def spoil_record(path: Path) -> None:
    sql(path, "UPDATE records SET content = '{}'")


def spoil_key(path: Path) -> None:
    sql(path, "UPDATE records SET key = CAST('b' AS BLOB)")


def spoil_kind(path: Path) -> None:
    sql(path, "UPDATE records SET kind = 'ceiling'")


@pytest.mark.parametrize(
    "damage", [overwrite_header, overwrite_page, cut, lose_table, spoil_record, spoil_key, spoil_kind]
)
async def test_damaged_file_is_refused_saying_what_to_do(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    error = await refusal(path)
    assert "it is damaged" in str(error)
    assert "put a copy of it back" in error.hint


@pytest.mark.parametrize("lose", [Path.unlink, lambda path: os.truncate(path, 0)])
async def test_lost_file_beside_its_log_is_damage_and_not_a_new_world(path: Path, lose: Callable[[Path], None]) -> None:
    (path.parent / "world.db-wal").write_bytes(b"changes that are nowhere else")
    lose(path)
    assert "it is empty or gone" in str(await refusal(path))
    assert (path.parent / "world.db-wal").read_bytes() == b"changes that are nowhere else"


async def test_empty_file_is_a_new_world(tmp_path: Path) -> None:
    (tmp_path / "world.db").touch()
    world = await SqliteWorld.open(tmp_path / "world.db")
    assert world.view.revision == 0
    await world.close()


@pytest.mark.parametrize("place", ["absent/world.db", "."])
async def test_place_that_cannot_be_a_file_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(InputError, match="cannot be used: unable to open"):
        await SqliteWorld.open(tmp_path / place)


async def test_migration_runs_once_and_keeps_the_records(path: Path) -> None:
    calls: list[int] = []

    def second(connection: sqlite3.Connection) -> None:
        calls.append(1)
        connection.execute("CREATE TABLE more (x)")

    for _ in range(2):
        world = await SqliteWorld.open(path, migrations=[*MIGRATIONS, second])
        assert world.view.all(Floor) == (Floor("a", 1),)
        await world.close()
    assert calls == [1]
    assert f"schema {len(MIGRATIONS) + 1}" in str(await refusal(path))


async def test_failed_migration_leaves_the_file_at_its_schema(path: Path) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE records")
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        await SqliteWorld.open(path, migrations=[*MIGRATIONS, broken])
    world = await SqliteWorld.open(path)
    assert world.view.all(Floor) == (Floor("a", 1),)
    await world.close()


async def test_full_disk_is_said_and_over_when_there_is_room(path: Path) -> None:
    """A page limit stands in for the disk: SQLite reports both alike."""
    world = await SqliteWorld.open(path)
    connection = world._file._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    large = ManifestRef("a", 1, "any", digest_of(b"m"), "s", "l", bytes(64 << 10))
    with pytest.raises(CapacityError, match="cannot be written: database or disk is full") as caught:
        await world.transact(lambda _: [Put(Floor("b", 1)), Put(large)])
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert caught.value.hint
    assert world.view.all(Floor) == (Floor("a", 1),)
    connection.execute("PRAGMA max_page_count = 10000")
    view = await world.transact(lambda _: [Put(Floor("b", 1)), Put(large)])
    assert len(view.all(Floor)) == 2
    await world.close()


async def test_file_that_another_process_holds_is_said(path: Path) -> None:
    world = await SqliteWorld.open(path)
    world._file._connection.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CapacityError, match="held by another process") as caught:
        await world.transact(lambda _: [Put(Floor("a", 2))])
    assert caught.value.code == "UNAVAILABLE"
    other.execute("ROLLBACK")
    other.close()
    assert (await world.transact(lambda _: [Put(Floor("a", 2))])).get(Floor, "a") == Floor("a", 2)
    await world.close()


async def test_transaction_is_one_revision_however_many_records(path: Path) -> None:
    world = await SqliteWorld.open(path)
    view = await world.transact(lambda _: [Put(Floor(f"p{n}", n)) for n in range(500)])
    assert view.revision == 2
    await world.close()


async def test_busy_shared_threads_do_not_hold_the_world_up(path: Path) -> None:
    """A stalled fetch may occupy every thread of the common pool."""
    world = await SqliteWorld.open(path)
    limiter = anyio.to_thread.current_default_thread_limiter()
    total, limiter.total_tokens = limiter.total_tokens, 1
    await limiter.acquire_on_behalf_of(limiter)
    try:
        with anyio.fail_after(25):
            await world.transact(lambda _: [Put(Floor("a", 9))])
    finally:
        limiter.release_on_behalf_of(limiter)
        limiter.total_tokens = total
    await world.close()
