"""The watched folder: content makes events, nothing else does, and nothing that changes content is missed."""

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from hotbay.errors import PackageError
from hotbay.packages.layout import NOT_COMPLETE_YET, blob_path
from hotbay.packages.manifest import Manifest
from hotbay.packages.ref_watch import RefWatcher
from hotbay.packages.sources import folder_watch
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.oci_layout import OciLayoutSource
from hotbay.packages.sources.source import Scan
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import ManifestRef

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]
PackageWriter = Callable[..., Manifest]
Scans = MemoryObjectReceiveStream[Scan]
# So long that only events of the file system can explain a scan within a test's deadline.
NEVER_S = 3600.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "watched").mkdir()
    return tmp_path / "watched"


@asynccontextmanager
async def watching(
    path: Path, *, resync_s: float = NEVER_S, source: OciLayoutSource | None = None
) -> AsyncIterator[Scans]:
    """Scans that differ from the one before; a folder that is not there is an empty one."""
    send, receive = anyio.create_memory_object_stream[Scan](1000)
    watched = source or DirectorySource(path, "local", dev=True, resync_s=resync_s)

    async def watch() -> None:
        last: Scan | None = None
        while True:
            try:
                scan = await watched.scan()
            except PackageError:
                scan = Scan()
            if scan != last:
                await send.send(scan)
            last = scan
            await watched.wait()

    with send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            yield receive
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def known(folder: Path) -> AsyncIterator[MemoryWorld]:
    """The world of a watched folder, after its first scan."""
    world = MemoryWorld()
    source = DirectorySource(folder, "local", dev=True, resync_s=NEVER_S)
    watcher = RefWatcher(source, world, now=anyio.current_time, wall=lambda: 0.0, random=lambda: 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watcher.run)
        await watcher.first_scan.wait()
        yield world
        tasks.cancel_scope.cancel()


async def next_change(world: MemoryWorld, after: int) -> list[tuple[int, bool]]:
    with anyio.fail_after(30):
        view = await world.changed(after)
    assert view.revision == after + 1
    return sorted((ref.rev, ref.offered) for ref in view.all(ManifestRef))


async def next_scan(scans: Scans) -> Scan:
    with anyio.fail_after(10):
        return await scans.receive()


async def next_revs(scans: Scans, expected: list[int]) -> Scan:
    """Waits for the scan that offers these revisions, passing over those that tell of an unfinished copy only."""
    while True:
        scan = await next_scan(scans)
        if [offer.manifest.rev for offer in scan.offers] == expected:
            return scan
        assert {problem.code for problem in scan.problems} == {NOT_COMPLETE_YET}, scan


async def test_new_and_removed_packages_are_told(folder: Path, write_package: PackageWriter) -> None:
    async with watching(folder) as scans:
        assert await next_scan(scans) == Scan()
        write_package(folder / "r1", rev=1)
        await next_revs(scans, [1])
        write_package(folder / "r2", rev=2)
        await next_revs(scans, [2, 1])
        (folder / "r1").rename(folder / ".r1")
        await next_revs(scans, [2])


async def test_copy_file_by_file_is_told_when_it_is_whole(
    folder: Path, tmp_path: Path, write_package: PackageWriter
) -> None:
    write_package(tmp_path / "r1")
    async with watching(folder) as scans:
        await next_scan(scans)
        await anyio.to_thread.run_sync(shutil.copytree, tmp_path / "r1", folder / "r1")
        await next_revs(scans, [1])


async def test_unfinished_copy_is_told_as_a_problem(folder: Path, write_package: PackageWriter) -> None:
    async with watching(folder) as scans:
        await next_scan(scans)
        (folder / "p").mkdir()
        scan = await next_scan(scans)
        assert (scan.offers, [problem.code for problem in scan.problems]) == ((), [NOT_COMPLETE_YET])


async def test_u11_same_content_is_no_event(folder: Path, write_package: PackageWriter) -> None:
    """20 rewrites in 1 s, touch and chmod; the change at the end is what proves that the watch was listening."""
    manifest = write_package(folder / "p", rev=1)
    blob = blob_path(folder / "p", manifest.blobs[0].digest)
    async with known(folder) as world:
        assert world.view.revision == 1
        for _ in range(20):
            blob.write_bytes(blob.read_bytes())
            (folder / "p" / "index.json").write_bytes((folder / "p" / "index.json").read_bytes())
            await anyio.sleep(0.05)  # the pace of the rewrites is what is tested
        blob.touch()
        blob.chmod(0o600)
        write_package(folder / "p", rev=1)
        write_package(folder / "q", rev=2)
        assert await next_change(world, 1) == [(1, True), (2, True)]


async def test_u11_moment_in_which_a_rewrite_is_half_done_is_no_event(
    folder: Path, write_package: PackageWriter
) -> None:
    manifest = write_package(folder / "p", rev=1)
    blob = blob_path(folder / "p", manifest.blobs[0].digest)
    async with watching(folder) as scans, known(folder) as world:
        await next_revs(scans, [1])
        blob.write_bytes(b"con")
        scan = await next_scan(scans)
        assert [problem.code for problem in scan.problems] == [NOT_COMPLETE_YET]
        assert [offer.manifest.rev for offer in scan.offers] == [1]
        blob.write_bytes(b"content")
        write_package(folder / "q", rev=2)
        assert await next_change(world, 1) == [(1, True), (2, True)]


async def test_kubernetes_swap_is_one_event_and_equal_content_none(folder: Path, write_package: PackageWriter) -> None:
    def swap(name: str, rev: int) -> None:
        write_package(folder / name / "p", rev=rev)
        (folder / "..data_tmp").symlink_to(name)
        (folder / "..data_tmp").rename(folder / "..data")

    swap("..1", 1)
    (folder / "p").symlink_to("..data/p")
    async with known(folder) as world:
        swap("..2", 1)
        swap("..3", 2)
        assert await next_change(world, 1) == [(1, False), (2, True)]


async def test_folder_may_come_later_and_its_going_withdraws_nothing(
    tmp_path: Path, write_package: PackageWriter
) -> None:
    async with known(tmp_path / "later") as world:
        assert world.view.revision == 0
        write_package(tmp_path / "aside" / "r1", rev=1)
        (tmp_path / "aside").rename(tmp_path / "later")
        assert await next_change(world, 0) == [(1, True)]
        (tmp_path / "later").rename(tmp_path / "gone")
        write_package(tmp_path / "again" / "r2", rev=2)
        (tmp_path / "again").rename(tmp_path / "later")
        assert await next_change(world, 1) == [(1, False), (2, True)]


async def test_folder_that_comes_and_goes_ends_the_wait(tmp_path: Path, write_package: PackageWriter) -> None:
    async with watching(tmp_path / "later") as scans:
        assert (await next_scan(scans)).offers == ()
        write_package(tmp_path / "aside" / "r1", rev=1)
        (tmp_path / "aside").rename(tmp_path / "later")
        await next_revs(scans, [1])
        (tmp_path / "later").rename(tmp_path / "gone")
        assert (await next_scan(scans)).offers == ()


async def test_swapped_link_to_the_folder_is_seen(tmp_path: Path, write_package: PackageWriter) -> None:
    write_package(tmp_path / "a" / "p", rev=1)
    write_package(tmp_path / "b" / "p", rev=2)
    (tmp_path / "link").symlink_to("a")
    async with watching(tmp_path / "link") as scans:
        await next_revs(scans, [1])
        (tmp_path / "new").symlink_to("b")
        (tmp_path / "new").rename(tmp_path / "link")
        await next_revs(scans, [2])


async def test_change_inside_a_linked_package_is_seen(
    folder: Path, tmp_path: Path, write_package: PackageWriter
) -> None:
    write_package(tmp_path / "real", rev=1)
    (folder / "p").symlink_to(tmp_path / "real")
    async with watching(folder) as scans:
        await next_revs(scans, [1])
        for blob in (tmp_path / "real" / "blobs" / "sha256").iterdir():
            blob.write_bytes(b"x" * blob.stat().st_size)
        assert [problem.code for problem in (await next_scan(scans)).problems] == ["DIGEST_MISMATCH"]


async def test_hb08_change_between_scan_and_wait_is_not_lost(folder: Path, write_package: PackageWriter) -> None:
    source = DirectorySource(folder, "local", resync_s=NEVER_S)
    assert await source.scan() == Scan()
    write_package(folder / "p", rev=1)
    with anyio.fail_after(30):
        await source.wait()
    assert len((await source.scan()).offers) == 1


async def test_wait_without_a_change_ends_when_it_is_time_to_look_again(folder: Path) -> None:
    source = DirectorySource(folder, "local", resync_s=0.2)
    await source.scan()
    with anyio.fail_after(30):
        await source.wait()


async def test_layout_of_many_packages_is_followed(tmp_path: Path, write_package: PackageWriter) -> None:
    write_package(tmp_path / "images", rev=1)
    source = OciLayoutSource(tmp_path / "images", "oci", resync_s=NEVER_S)
    async with watching(tmp_path, source=source) as scans:
        await next_revs(scans, [1])
        write_package(tmp_path / "images", rev=2)
        scan = await next_revs(scans, [2])
        assert scan.offers[0].location == str(tmp_path / "images")
        (tmp_path / "images").rename(tmp_path / "gone")
        assert (await next_scan(scans)).offers == ()
    with pytest.raises(PackageError, match="is no folder"):
        await source.scan()


async def test_silent_file_system_is_looked_at_again(
    folder: Path, write_package: PackageWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Watching is refused, as on a host whose inotify instances are used up."""

    async def refused(*_: object, **__: object) -> AsyncIterator[None]:
        raise OSError(24, "Too many open files")
        yield  # pragma: no cover - makes it a generator

    monkeypatch.setattr(folder_watch, "awatch", refused)
    async with watching(folder, resync_s=0.1) as scans:
        await next_scan(scans)
        write_package(folder / "r1", rev=1)
        await next_revs(scans, [1])


@pytest.mark.parametrize("entry", ["good/blobs", ".", "bad"])
async def test_name_that_is_no_unicode_does_not_end_the_watch(
    folder: Path, write_package: PackageWriter, entry: str
) -> None:
    """The watcher cannot say such a name, and cannot watch a folder that is called so."""
    write_package(folder / "good", rev=1)
    async with watching(folder, resync_s=0.3) as scans:
        assert len((await next_scan(scans)).offers) == 1
        name = folder / entry / os.fsdecode(b"\xff")
        if entry == "bad":
            name.mkdir(parents=True)
        else:
            name.write_bytes(b"")
        write_package(folder / "better", rev=2)
        while len((await next_scan(scans)).offers) < 2:
            pass
