"""Half a package is never used and never kept: slow copies, wrong bytes, and a host that is killed at any point."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from hotbay.errors import CapacityError, PackageError
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import Manifest
from hotbay.packages.sources.directory import DirectorySource, Scan
from hotbay.packages.staging import copy_package, stage_package
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import Digest

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
PackageWriter = Callable[..., Manifest]
PIECE = 8 << 10

# Stages a package in pieces of 8 KiB and, after the given number of pieces, says so and waits to be killed.
STAGER = """
import os
import sys
from pathlib import Path
import anyio
from hotbay.packages.layout import read_layout
from hotbay.packages.staging import copy_package
from hotbay.store.blobs import BlobStore

left = int(sys.argv[3])

class Halting(BlobStore):
    def put_stream(self, chunks, digest, size):
        def pieces():
            global left
            for chunk in chunks:
                for start in range(0, len(chunk), 8192):
                    if left == 0:
                        os.write(1, b"half\\n")
                        sys.stdin.read()
                    left -= 1
                    yield chunk[start : start + 8192]
        return super().put_stream(pieces(), digest, size)

async def main():
    store, layout = Halting(Path(sys.argv[1])), Path(sys.argv[2])
    (manifest,) = read_layout(layout)
    await copy_package(store, manifest, layout)
    store.complete(manifest)

anyio.run(main)
"""


class CountingStore(BlobStore):
    """Remembers which blobs were written."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.written: set[Digest] = set()

    def put_stream(self, chunks: Iterable[bytes], digest: Digest, size: int) -> bool:
        self.written.add(digest)
        return super().put_stream(chunks, digest, size)


def kill_after(pieces: int, root: Path, layout: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STAGER, root, layout, str(pieces)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait(timeout=20) == -signal.SIGKILL


@pytest.mark.process
async def test_u09_hb10_kill_at_any_point_leaves_nothing_complete_and_is_made_good(
    tmp_path: Path, write_package: PackageWriter
) -> None:
    """Three blobs of 24 KiB, killed after each 8 KiB of them; scaled down from a package of any size."""
    contents = tuple(bytes([n]) * (3 * PIECE) for n in range(3))
    manifest = write_package(tmp_path / "layout", contents=contents)
    for pieces in range(9):
        root = tmp_path / f"store{pieces}"
        await anyio.to_thread.run_sync(kill_after, pieces, root, tmp_path / "layout")
        store = CountingStore(root)
        assert store.completed() == []
        assert list((root / "parts").iterdir()) != []
        whole = {blob.digest for blob in manifest.blobs if store.has(blob.digest)}
        for blob in manifest.blobs:
            if blob.digest in whole:
                assert store.path(blob.digest).read_bytes() in contents
        await copy_package(store, manifest, tmp_path / "layout")
        assert store.written == {blob.digest for blob in manifest.blobs} - whole
        store.complete(manifest)
        assert store.completed() == [manifest.digest]
        assert list((root / "parts").iterdir()) == []


@pytest.mark.process
async def test_u09_slow_copy_into_the_watched_folder_is_offered_when_it_is_whole(
    tmp_path: Path, write_package: PackageWriter
) -> None:
    """8 KiB every 100 ms as in the field; the blob is 128 KiB, so that it takes 2 s."""
    folder = tmp_path / "watched"
    write_package(folder / "v1", rev=1)
    manifest = write_package(tmp_path / "v2", rev=2, contents=(bytes(range(256)) * 512,))
    send, scans = anyio.create_memory_object_stream[Scan](100)
    copied = False
    with send, scans:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(DirectorySource(folder, "local", dev=True).watch, send.send)

            async def copy() -> None:
                nonlocal copied
                for path in sorted(path for path in (tmp_path / "v2").rglob("*") if path.is_file()):
                    target = folder / "v2" / path.relative_to(tmp_path / "v2")
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb", buffering=0) as opened:
                        content = path.read_bytes()
                        for start in range(0, len(content), PIECE):
                            await anyio.sleep(0.1)  # the pace of the copy is what is tested
                            opened.write(content[start : start + PIECE])
                copied = True

            tasks.start_soon(copy)
            with anyio.fail_after(30):
                while len((scan := await scans.receive()).offers) == 1:
                    assert scan.offers[0].manifest.rev == 1
            assert scan.offers[0].manifest == manifest
            assert copied
            tasks.cancel_scope.cancel()


async def test_wrong_bytes_behind_a_good_scan_complete_nothing(
    store: BlobStore, tmp_path: Path, write_package: PackageWriter
) -> None:
    manifest = write_package(tmp_path / "p", contents=(b"one", b"two", b"three"))
    blob_path(tmp_path / "p", manifest.blobs[1].digest).write_bytes(b"TWO")
    with pytest.raises(PackageError) as caught:
        await stage_package(store, manifest, tmp_path / "p", sys.executable)
    assert caught.value.code == "DIGEST_MISMATCH"
    assert not store.is_complete(manifest.digest)
    assert not store.has(manifest.blobs[1].digest)
    assert list((store.root / "parts").iterdir()) == []


async def test_source_that_vanishes_is_a_failed_fetch(
    store: BlobStore, tmp_path: Path, write_package: PackageWriter
) -> None:
    manifest = write_package(tmp_path / "p")
    shutil.rmtree(tmp_path / "p")
    with pytest.raises(PackageError, match="FETCH_FAILED"):
        await copy_package(store, manifest, tmp_path / "p")


async def test_stored_blobs_need_no_source(store: BlobStore, tmp_path: Path, write_package: PackageWriter) -> None:
    manifest = write_package(tmp_path / "p")
    await copy_package(store, manifest, tmp_path / "p")
    shutil.rmtree(tmp_path / "p")
    await copy_package(store, manifest, tmp_path / "p")


@pytest.mark.parametrize(("limit", "good"), [(7, True), (6, False)])
async def test_size_of_a_package_is_limited(
    store: BlobStore, tmp_path: Path, write_package: PackageWriter, limit: int, good: bool
) -> None:
    manifest = write_package(tmp_path / "p", contents=(b"content",))
    if good:
        await copy_package(store, manifest, tmp_path / "p", limit_bytes=limit)
    else:
        with pytest.raises(PackageError, match=r"has 7 bytes, allowed 6"):
            await copy_package(store, manifest, tmp_path / "p", limit_bytes=limit)


async def test_disk_without_room_is_a_lack_of_capacity(tmp_path: Path, write_package: PackageWriter) -> None:
    """The size is reserved first: a blob larger than any file fails before anything is copied."""
    store = BlobStore(tmp_path / "store")
    with pytest.raises(CapacityError, match="no room"):
        store.put_stream([], write_package(tmp_path / "p").digest, 1 << 56)
    assert list((store.root / "parts").iterdir()) == []
