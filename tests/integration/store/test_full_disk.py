"""A disk that is really full: everything says so, keeps what it has, and goes on once there is room."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from hotbay.errors import CapacityError, InputError
from hotbay.store.blobs import BlobStore
from hotbay.store.budget import DiskBudget
from hotbay.store.digests import digest_of
from hotbay.store.state_dir import StateDirectory
from hotbay.store.world.engine import Put
from hotbay.store.world.records import Floor, ManifestRef
from hotbay.store.world.sqlite import SqliteWorld, read_world

pytestmark = pytest.mark.anyio
DISK_BYTES = 2 << 20
LARGE = ManifestRef("a", 1, "any", digest_of(b"m"), "s", "l", bytes(300 << 10))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if os.geteuid() or mount is None or unmount is None:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    options = f"size={DISK_BYTES}"
    made = subprocess.run([mount, "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no small file system can be mounted here: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run([unmount, "--lazy", folder], check=True, timeout=60)


def fill(disk: Path) -> Path:
    """Takes all the room that is left."""
    with (disk / "filler").open("wb", buffering=0) as opened:
        try:
            while opened.write(bytes(4096)):
                pass
        except OSError:
            pass
    return disk / "filler"


def test_part_that_does_not_fit_is_refused_before_its_first_byte(disk: Path) -> None:
    store = BlobStore(disk / "store")
    with (
        pytest.raises(CapacityError, match="no room for 3145728 bytes") as caught,
        store.part(digest_of(b"x"), 3 << 20),
    ):
        pass
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert list((store.root / "parts").iterdir()) == []
    content = os.urandom(1 << 20)
    assert store.put_bytes(content, digest_of(content)), "what was reserved for the other is free again"


def test_room_that_a_part_has_cannot_be_taken_from_it(disk: Path) -> None:
    store = BlobStore(disk / "store")
    content = os.urandom(1 << 20)
    with store.part(digest_of(content), len(content)) as part:
        fill(disk)
        part.write(content)
        part.finish()
    assert store.is_whole([part], rehash=True)


def test_interrupted_part_keeps_its_bytes_when_there_is_no_room_for_the_rest(disk: Path) -> None:
    store = BlobStore(disk / "store")
    content = os.urandom(1 << 20)
    with store.part(digest_of(content), len(content)) as part:
        part.write(content[: 1 << 19])
    filler = fill(disk)
    with pytest.raises(CapacityError, match="no room"), store.part(digest_of(content), len(content)):
        pass
    filler.unlink()
    with store.part(digest_of(content), len(content)) as part:
        assert part.offset == 1 << 19
        part.write(content[1 << 19 :])
        part.finish()
    assert store.is_whole([part], rehash=True)


def test_budget_refuses_before_the_disk_is_full(disk: Path) -> None:
    store = BlobStore(disk / "store")
    budget = DiskBudget(store, dict)
    usage = budget.usage()
    assert usage.total_bytes == DISK_BYTES
    budget.check_room(usage.free_bytes - usage.keep_free_bytes)
    with pytest.raises(CapacityError, match="have to stay free"):
        budget.check_room(usage.free_bytes - usage.keep_free_bytes + 1)
    fill(disk)
    assert "has 0 of 2097152 bytes free" in budget.usage().alarms[0]


async def test_world_on_a_full_disk_keeps_what_it_has_and_goes_on_later(disk: Path) -> None:
    world = await SqliteWorld.open(disk / "world.db")
    await world.transact(lambda _: [Put(Floor("a", 1))])
    filler = fill(disk)
    for _ in range(2):
        with pytest.raises(CapacityError, match="disk is full") as caught:
            await world.transact(lambda _: [Put(Floor("a", 2)), Put(LARGE)])
        assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert world.view.all(Floor) == (Floor("a", 1),)
    filler.unlink()
    await world.transact(lambda _: [Put(Floor("a", 3)), Put(LARGE)])
    await world.close()
    world = await SqliteWorld.open(disk / "world.db")
    assert world.view.all(Floor) == (Floor("a", 3),)
    assert world.view.all(ManifestRef) == (LARGE,)
    await world.close()


async def test_new_world_on_a_full_disk_is_refused_and_opens_later(disk: Path) -> None:
    filler = fill(disk)
    with pytest.raises(CapacityError, match="RESOURCE_EXHAUSTED"):
        await SqliteWorld.open(disk / "world.db")
    filler.unlink()
    world = await SqliteWorld.open(disk / "world.db")
    await world.close()


def test_generation_number_on_a_full_disk_is_not_given(disk: Path) -> None:
    state = StateDirectory.open(disk / "state")
    filler = fill(disk)
    with pytest.raises(CapacityError, match="generation cannot be written"):
        state.next_generation()
    filler.unlink()
    assert state.next_generation() == 1
    state.close()


async def test_world_that_may_only_be_read_is_refused_at_the_start_and_can_be_read(disk: Path) -> None:
    """SQLite opens such a file all the same: the first that noticed would be whoever has something to record."""
    path = disk / "world.db"
    world = await SqliteWorld.open(path)
    await world.transact(lambda _: [Put(Floor("a", 1))])
    await world.close()
    # For root, what may not be written is what is mounted so.
    for options in (["--bind", path, path], ["-o", "remount,bind,ro", path]):
        await anyio.run_process([shutil.which("mount") or "", *options])
    with pytest.raises(InputError, match="may not be written") as refused:
        await SqliteWorld.open(path)
    assert "let the host's user read and write it" in refused.value.hint
    assert read_world(path).all(Floor) == (Floor("a", 1),)
