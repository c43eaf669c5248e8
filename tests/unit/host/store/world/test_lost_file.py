"""A world whose file was taken away answers no transaction as done, and an empty file is no new world for ever."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hotbay.errors import CapacityError, InputError
from hotbay.store.world.engine import Change, Put, WorldView
from hotbay.store.world.records import Floor
from hotbay.store.world.sqlite import SqliteWorld, read_world

# ruff: noqa: ASYNC240 - what is done to a file here is the test
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "world.db"


def put(rev: int) -> Callable[[WorldView], list[Change]]:
    return lambda _view: [Put(Floor("a", rev))]


@pytest.mark.parametrize("name", ["world.db", "world.db-wal"])
async def test_transaction_is_refused_after_a_file_was_deleted_and_says_what_to_do(path: Path, name: str) -> None:
    world = await SqliteWorld.open(path)
    await world.transact(put(1))
    path.with_name(name).unlink()
    with pytest.raises(CapacityError, match=f"{name} was deleted while the host runs") as caught:
        await world.transact(put(2))
    assert caught.value.code == "UNAVAILABLE"
    assert "keep serving" in caught.value.hint
    assert "restart the host" in caught.value.hint
    assert world.view.all(Floor) == (Floor("a", 1),), "what is not kept is not shown"
    await world.close()


async def test_transaction_is_refused_after_the_file_was_replaced(path: Path) -> None:
    world = await SqliteWorld.open(path)
    await world.transact(put(1))
    other = path.with_name("copy")
    other.write_bytes(path.read_bytes())
    other.replace(path)
    with pytest.raises(CapacityError, match=r"world\.db was replaced"):
        await world.transact(put(2))
    await world.close()


async def test_transaction_during_which_the_file_goes_is_not_done(path: Path) -> None:
    world = await SqliteWorld.open(path)
    loaded: list[bool] = []

    class GoneAtCommit(sqlite3.Connection):
        def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
            if statement == "COMMIT" and loaded:
                path.unlink()
            return super().execute(statement, *arguments)

    world._file._connection.close()
    world._file._connection = sqlite3.connect(path, factory=GoneAtCommit, isolation_level=None, check_same_thread=False)
    world._file._files = None
    await world._run(world._file.load)
    loaded.append(True)
    with pytest.raises(CapacityError, match="was deleted"):
        await world.transact(put(1))
    assert world.view.all(Floor) == ()
    await world.close()


async def test_file_that_is_put_back_takes_transactions_again(path: Path) -> None:
    world = await SqliteWorld.open(path)
    path.rename(path.with_name("aside"))
    with pytest.raises(CapacityError):
        await world.transact(put(1))
    path.with_name("aside").rename(path)
    await world.transact(put(2))
    await world.close()
    again = await SqliteWorld.open(path, must_exist=True)
    assert again.view.all(Floor) == (Floor("a", 2),)
    await again.close()


@pytest.mark.parametrize("state", ["gone", "empty"])
async def test_file_that_must_be_there_is_not_begun_anew(path: Path, state: str) -> None:
    if state == "empty":
        path.touch()
    with pytest.raises(InputError, match=f"it is {state}, and there was a world before") as caught:
        await SqliteWorld.open(path, must_exist=True)
    assert "pins, grants" in caught.value.hint
    assert path.exists() == (state == "empty")
    world = await SqliteWorld.open(path)
    assert world.view.revision == 0
    await world.close()


async def test_file_is_read_at_one_revision_while_its_host_writes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement finds the file as the host left it a moment ago."""
    world = await SqliteWorld.open(path)
    await world.transact(put(1))
    connect = sqlite3.connect

    class Beside(sqlite3.Connection):
        def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
            cursor = super().execute(statement, *arguments)
            if "revision" in statement or "FROM records" in statement:
                other = connect(path)
                with other:
                    other.execute("UPDATE world SET revision = revision + 1")
                    other.execute("DELETE FROM records")
                other.close()
            return cursor

    monkeypatch.setattr(sqlite3, "connect", partial(connect, factory=Beside))
    view = read_world(path)
    assert (view.revision, view.all(Floor)) == (1, (Floor("a", 1),))
    monkeypatch.undo()
    await world.close()


async def test_file_is_read_beside_its_host_and_without_one(path: Path) -> None:
    assert read_world(path) == WorldView()
    path.touch()
    assert read_world(path) == WorldView()
    world = await SqliteWorld.open(path)
    await world.transact(put(7))
    assert read_world(path) == world.view
    await world.close()
    assert read_world(path).all(Floor) == (Floor("a", 7),)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name], "nothing of who reads is left there"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match="it is damaged"):
        read_world(path)
