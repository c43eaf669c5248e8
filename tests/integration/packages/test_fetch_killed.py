"""The proof of the download: a host that is killed at any block, a source that goes at any block, and what each leaves."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hotbay.errors import PackageError
from hotbay.packages.manifest import Manifest
from hotbay.packages.sources.folder import DirectorySource
from hotbay.store.blobs import BlobStore
from hotbay.store.world.records import Completion
from hotbay.store.world.sqlite import SqliteWorld

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
Fetching = Any
BLOCK = 256 << 10

# Fetches a package from its layout block by block and, after the given number of blocks, says so and waits to be killed.
HOST = """
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from hotbay.packages.environment import Environments
from hotbay.packages.fetch import Fetcher
from hotbay.packages.package_blobs import FetchLimits
from hotbay.packages.ref_changes import refs_of
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.source import BlobStream
from hotbay.store.blobs import BlobStore
from hotbay.store.world.sqlite import SqliteWorld

root, layout, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

class Halting(DirectorySource):
    @asynccontextmanager
    async def open_blob(self, location, blob, *, start=0, validator=None):
        async with super().open_blob(location, blob, start=start, validator=validator) as stream:
            yield BlobStream(stream.start, self.blocks(stream.chunks), stream.validator)

    async def blocks(self, chunks):
        global left
        async for chunk in chunks:
            for at in range(0, len(chunk), 262144):
                if left == 0:
                    print("half", flush=True)
                    await anyio.sleep_forever()
                left -= 1
                yield chunk[at : at + 262144]

async def main():
    world = await SqliteWorld.open(root / "world.db")
    source = Halting(layout.parent, "local")
    (offer,) = (await source.scan()).offers
    (ref,) = refs_of([offer], known={}).values()
    fetcher = Fetcher(
        BlobStore(root / "store"), Environments(root / "environments"), world, {"local": source},
        limits=FetchLimits(concurrency=1), interpreter_of=lambda _: sys.executable, wall=lambda: 0.0,
    )
    await fetcher.fetch(ref)
    print("done", flush=True)

anyio.run(main)
"""


def kill_after(blocks: int, root: Path, layout: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOST, root, layout, str(blocks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait(timeout=60) == -signal.SIGKILL


def write(write_plugin: Callable[..., Manifest], out: Path) -> Manifest:
    """Three wheels, of three blocks and a bit each."""
    data = [bytes([n]) * (3 * BLOCK) for n in range(3)]
    others = tuple((f"part{n}", {f"part{n}/data": data[n]}) for n in range(1, 3))
    return write_plugin(out, files={"sample/__init__.py": b"plugin = 1\n", "sample/data": data[0]}, others=others)


@pytest.mark.process
async def test_hb10_host_killed_after_any_block_goes_on_with_the_next(
    tmp_path: Path,
    write_plugin: Callable[..., Manifest],
    memory_source: Callable[..., Any],
    fetching: Fetching,
) -> None:
    """Blocks of 256 KiB, three blobs of four; one host after the other in one state directory is killed at each."""
    manifest = write(write_plugin, tmp_path / "watched" / "p")
    root = tmp_path / "killed"
    root.mkdir()
    for _ in range(11):
        # The first block of each host is the one at which the one before was killed.
        await anyio.to_thread.run_sync(kill_after, 1, root, tmp_path / "watched" / "p")
        world = await SqliteWorld.open(root / "world.db")
        assert world.view.all(Completion) == ()
        await world.close()
    store = BlobStore(root / "store")
    held = sum(blob.size for blob in manifest.blobs if store.has(blob.digest))
    held += sum(int(path.read_bytes()[:20]) for path in (root / "store" / "parts").glob("*.progress"))
    last = max(blob.size for blob in manifest.blobs) - 3 * BLOCK
    assert held >= manifest.size_bytes - last
    source = memory_source()
    source.add(manifest, tmp_path / "watched" / "p")
    fetching.store = store
    await fetching.fetcher().fetch(await fetching.know(manifest, source))
    assert sum(source.sent.values()) == manifest.size_bytes - held
    assert fetching.world.view.get(Completion, manifest.digest) is not None
    assert list((root / "store" / "parts").iterdir()) == []


@pytest.mark.parametrize("fault", ["gone", "truncated", "corrupted", "released again"])
async def test_source_that_fails_at_any_block_completes_nothing_and_is_made_good(
    tmp_path: Path,
    write_plugin: Callable[..., Manifest],
    memory_source: Callable[..., Any],
    fetching: Fetching,
    fault: str,
) -> None:
    manifest = write(write_plugin, tmp_path / "p")
    source = memory_source()
    source.add(manifest, tmp_path / "p")
    good = dict(source.blobs)
    ref = await fetching.know(manifest, source)
    for at in range(0, 4 * BLOCK, BLOCK):
        if fault == "gone":
            source.cut = at
        elif fault == "truncated":
            source.stop = at
        elif fault == "corrupted":
            source.blobs = {
                name: c[:at] + bytes([c[min(at, len(c) - 1)] ^ 1]) + c[at + 1 :] for name, c in good.items()
            }
        else:
            source.blobs = {name: c[:at] + b"of another release" for name, c in good.items()}
        with pytest.raises(PackageError) as caught:
            await fetching.fetcher(concurrency=1).fetch(ref)
        assert caught.value.code in ("FETCH_FAILED", "DIGEST_MISMATCH", "LENGTH_MISMATCH")
        assert fetching.world.view.all(Completion) == ()
        assert not fetching.environments.root.exists()
        for blob in manifest.blobs:
            if fetching.store.has(blob.digest):
                assert fetching.store.path(blob.digest).read_bytes() == good[blob.digest]
    source.cut = source.stop = None
    source.blobs = good
    await fetching.fetcher().fetch(ref)
    assert fetching.world.view.get(Completion, manifest.digest) is not None


@pytest.mark.process
async def test_u09_slow_copy_into_the_watched_folder_is_offered_when_it_is_whole(
    tmp_path: Path, write_package: Callable[..., Manifest]
) -> None:
    """8 KiB every 100 ms as in the field; the blob is 128 KiB, so that it takes 2 s."""
    folder = tmp_path / "watched"
    write_package(folder / "v1", rev=1)
    manifest = write_package(tmp_path / "v2", rev=2, contents=(bytes(range(256)) * 512,))
    source = DirectorySource(folder, "local", dev=True)
    copied = anyio.Event()

    async def copy() -> None:
        for path in sorted(path for path in (tmp_path / "v2").rglob("*") if path.is_file()):
            target = folder / "v2" / path.relative_to(tmp_path / "v2")
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb", buffering=0) as opened:
                content = path.read_bytes()
                for start in range(0, len(content), 8 << 10):
                    await anyio.sleep(0.1)  # the pace of the copy is what is tested
                    opened.write(content[start : start + (8 << 10)])
        copied.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(copy)
        with anyio.fail_after(60):
            while len(offers := (await source.scan()).offers) == 1:
                assert offers[0].manifest.rev == 1
                await source.wait()
        assert offers[0].manifest == manifest
        with anyio.fail_after(5):
            await copied.wait()
