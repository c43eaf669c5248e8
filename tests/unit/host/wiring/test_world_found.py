"""The world of a state directory that had one: gone it is begun anew and told, empty it is refused."""

import sqlite3
from pathlib import Path

import anyio.to_thread
import pytest
from hotbay.config.host_config import load_host_config
from hotbay.depot import Depot
from hotbay.errors import CapacityError, InputError
from hotbay.store.state_dir import StateDirectory
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Floor

pytestmark = pytest.mark.anyio


async def opened(folder: Path, world: str = "{}") -> Depot:
    text = f"state_dir: {folder}\nsources: []\nworld: {world}\n"
    config = load_host_config(text, file="host.yaml", base_directory=folder, environment={}, is_root=True)
    state = StateDirectory.open(folder)
    try:
        return await Depot.open(config, state, now=lambda: 0.0, wall=lambda: 0.0, random=lambda: 0.5)
    except BaseException:
        state.close()
        raise


async def used(folder: Path, world: str = "{}") -> None:
    """What a host leaves that has started a process and recorded something."""
    depot = await opened(folder, world)
    assert depot.warnings == ()
    depot.state.next_generation()
    await depot.world.transact(lambda _: [Put(Floor("a", 1))])
    await depot.close()
    depot.state.close()


async def test_world_that_is_there_is_nothing_to_tell_of(tmp_path: Path) -> None:
    await used(tmp_path / "state")
    await used(tmp_path / "state")


async def test_empty_world_where_a_host_ran_is_refused_with_what_to_do(tmp_path: Path) -> None:
    await used(tmp_path / "state")
    world = tmp_path / "state" / "world.db"
    world.write_bytes(b"")
    with pytest.raises(InputError, match=r"world\.db cannot be used: it is damaged: it is empty") as caught:
        await opened(tmp_path / "state")
    assert "put a copy of it back" in caught.value.hint
    assert world.read_bytes() == b""


async def test_empty_world_of_a_first_start_that_was_killed_is_new(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "world.db").touch()
    await used(tmp_path / "state")


async def test_world_that_is_gone_where_a_host_ran_is_begun_anew_and_told(tmp_path: Path) -> None:
    await used(tmp_path / "state")
    (tmp_path / "state" / "world.db").unlink()
    depot = await opened(tmp_path / "state")
    (problem,) = depot.warnings
    assert "is not there any more" in problem.message
    assert "pins, grants" in problem.hint
    await depot.close()
    depot.state.close()


class KilledError(BaseException): ...


async def test_start_that_was_killed_while_it_began_anew_is_taken_up_and_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    await used(folder)
    (folder / "world.db").unlink()

    def killed(path: Path, **_: object) -> None:
        # What SQLite leaves before it has written its first page.
        path.touch()
        raise KilledError

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(sqlite3, "connect", killed)
            with pytest.raises(KilledError):
                await opened(folder)
    depot = await opened(folder)
    assert ["is not there any more" in problem.message for problem in depot.warnings] == [True]
    await depot.close()
    depot.state.close()
    await used(folder)
    (folder / "world.db").write_bytes(b"")
    with pytest.raises(InputError, match="it is empty"):
        await opened(folder)


@pytest.mark.parametrize("world", ["{engine: memory}", "{path: other.db}"])
async def test_world_of_another_engine_or_path_is_new_and_not_lost(tmp_path: Path, world: str) -> None:
    folder = tmp_path / "state"
    await used(folder, world)
    await used(folder)
    await used(folder, world)


async def test_lost_world_is_told_until_its_log_is_out_of_the_way(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    await used(folder)
    (folder / "world.db").unlink()
    (folder / "world.db-wal").write_bytes(b"changes")
    for _ in range(2):
        with pytest.raises(InputError, match=r"it is empty or gone, and world\.db-wal beside it is not"):
            await opened(folder)
    (folder / "world.db-wal").unlink()
    depot = await opened(folder)
    assert len(depot.warnings) == 1
    await depot.close()
    depot.state.close()


async def test_world_that_went_during_a_handover_is_not_begun_anew(tmp_path: Path) -> None:
    depot = await opened(tmp_path / "state")
    await depot.world.transact(lambda _: [Put(Floor("a", 1))])
    await depot.suspend()
    await anyio.to_thread.run_sync((tmp_path / "state" / "world.db").unlink)
    with pytest.raises(InputError, match="it is gone"):
        await depot.resume()
    assert depot.world.view.all(Floor) == (Floor("a", 1),), "what was known is still shown"
    await depot.close()
    depot.state.close()


async def test_what_is_decided_during_a_handover_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    depot = await opened(tmp_path / "state")
    await depot.suspend()
    with pytest.raises(CapacityError, match="a successor is taking over") as refused:
        await depot.world.transact(lambda _: [Put(Floor("a", 1))])
    assert refused.value.hint == "repeat it in a few seconds"
    await depot.resume()
    await depot.world.transact(lambda _: [Put(Floor("a", 1))])
    await depot.close()
    depot.state.close()
