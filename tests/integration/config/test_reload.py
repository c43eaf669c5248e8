"""Watching real files: every way of saving is seen, and nothing else is.

Deadlines are five times the 1.5 s of the field failures: other work shares the machine.
"""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hotbay.config.file_content import FileContent, content_digest
from hotbay.config.reload import watch_directories, watch_files

DEADLINE_S = 7.5
# Longer than every deadline: what is seen in time was told by an event.
NO_RESYNC_S = 60.0

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class Seen:
    """What a watch reported, to be awaited one by one."""

    def __init__(self):
        self._send, self._receive = anyio.create_memory_object_stream[FileContent](100)

    async def add(self, content):
        await self._send.send(content)

    async def next(self):
        with anyio.fail_after(DEADLINE_S):
            return await self._receive.receive()

    def count(self):
        return self._receive.statistics().current_buffer_used

    def close(self):
        self._send.close()
        self._receive.close()


@asynccontextmanager
async def watching(*paths, **options):
    seen = Seen()
    try:
        async with anyio.create_task_group() as group:
            await group.start(
                lambda *, task_status: watch_files(
                    paths, seen.add, task_status=task_status, **({"resync_s": NO_RESYNC_S} | options)
                )
            )
            yield seen
            group.cancel_scope.cancel()
    finally:
        seen.close()


def save_by_rename(path, data):
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def write_over(path, data):
    """Write in place and without a moment in which the file is empty, which would be a change."""
    with path.open("r+b") as file:
        file.write(data)


async def test_u11_same_bytes_touch_and_chmod_are_no_changes(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1\n")
    async with watching(path) as seen:
        for _ in range(20):
            write_over(path, b"a: 1\n")
            await anyio.sleep(0.05)  # the repro: 20 times in a second
        path.touch()
        path.chmod(0o600)
        # Whatever came before is looked at before this one is reported.
        write_over(path, b"a: 2\n")
        assert (await seen.next()).data == b"a: 2\n"
        assert seen.count() == 0


async def test_u12_three_saves_by_rename_and_one_in_place_are_four_changes(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"0")
    async with watching(path) as seen:
        for data in (b"1", b"2", b"3"):
            save_by_rename(path, data)
            assert (await seen.next()).data == data
        path.write_bytes(b"4")
        assert (await seen.next()).data == b"4"
        assert seen.count() == 0


def swap_config_map(directory, version, data):
    """Do what a kubelet does for an update of a ConfigMap volume."""
    folder = directory / f"..v{version}"
    folder.mkdir()
    (folder / "c.yaml").write_bytes(data)
    link = directory / "..data_tmp"
    link.symlink_to(folder.name)
    old = directory / "..data"
    previous = old.readlink() if old.is_symlink() else None
    link.replace(old)
    if previous:
        (directory / previous / "c.yaml").unlink()
        (directory / previous).rmdir()


async def test_u14_each_of_three_config_map_swaps_is_seen(tmp_path):
    swap_config_map(tmp_path, 1, b"1")
    path = tmp_path / "c.yaml"
    path.symlink_to("..data/c.yaml")
    async with watching(path) as seen:
        for version in (2, 3, 4):
            swap_config_map(tmp_path, version, b"%d" % version)
            assert (await seen.next()).data == b"%d" % version
        assert seen.count() == 0


async def test_u16_silent_watcher_is_made_up_for_by_looking(tmp_path):
    async def silent(directories: Sequence[Path], stop: anyio.Event) -> AsyncIterator[object]:
        await stop.wait()
        for nothing in ():
            yield nothing

    path = tmp_path / "c.yaml"
    path.write_bytes(b"a: 1")
    before = path.stat()
    async with watching(path, watch=silent, resync_s=0.05) as seen:
        path.write_bytes(b"a: 2")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await seen.next()).data == b"a: 2"


async def test_failing_watcher_is_made_up_for_by_looking(tmp_path, caplog):
    def failing(directories, stop):
        raise OSError(28, "inotify watch limit reached")

    path = tmp_path / "c.yaml"
    path.write_bytes(b"1")
    async with watching(path, watch=failing, resync_s=0.05) as seen:
        path.write_bytes(b"2")
        assert (await seen.next()).data == b"2"
    assert "inotify watch limit reached" in caplog.text


async def test_file_that_vanishes_and_comes_back_is_reported_each_time(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"1")
    async with watching(path) as seen:
        path.unlink()
        assert (await seen.next()).data is None
        path.write_bytes(b"1")
        assert (await seen.next()).data == b"1"


async def test_folder_that_is_made_later_or_replaced_is_followed(tmp_path):
    path = tmp_path / "a" / "b" / "c.yaml"
    async with watching(path) as seen:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"1")
        assert (await seen.next()).data == b"1"
        (tmp_path / "a").rename(tmp_path / "old")
        assert (await seen.next()).data is None
        path.parent.mkdir(parents=True)
        path.write_bytes(b"2")
        assert (await seen.next()).data == b"2"


async def test_change_before_the_watch_is_reported_when_the_known_digest_is_given(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"2")
    async with watching(path, known={path: content_digest(b"1")}) as seen:
        assert (await seen.next()).data == b"2"


async def test_target_of_a_link_edited_in_place_is_seen(tmp_path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "c.yaml"
    target.write_bytes(b"1")
    (tmp_path / "links").mkdir()
    path = tmp_path / "links" / "c.yaml"
    path.symlink_to("../real/c.yaml")
    async with watching(path) as seen:
        target.write_bytes(b"2")
        assert (await seen.next()).data == b"2"


async def test_pipe_in_place_of_a_file_is_unreadable_and_blocks_nobody(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"1")
    async with watching(path) as seen:
        path.unlink()
        os.mkfifo(path)
        content = await seen.next()
        while content.error != "not a regular file":
            content = await seen.next()
        assert content.data is None


async def test_error_of_the_callback_ends_the_watch(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"2")

    async def failing(content):
        raise LookupError(content.path.name)

    with pytest.raises(ExceptionGroup) as caught, anyio.fail_after(DEADLINE_S):
        await watch_files([path], failing, known={path: content_digest(b"1")})
    assert caught.group_contains(LookupError, match=r"c\.yaml")


async def test_cancelling_ends_the_watch_at_once(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_bytes(b"1")
    async with watching(path) as seen:
        path.write_bytes(b"2")
        await seen.next()
        started = anyio.current_time()
    # Without being told, the watcher's thread would notice only after five seconds.
    assert anyio.current_time() - started < 4


async def test_looking_at_files_makes_no_events(tmp_path):
    events = 0
    too_many = anyio.Event()

    async def counted(directories: Sequence[Path], stop: anyio.Event) -> AsyncIterator[object]:
        nonlocal events
        async for change in watch_directories(directories, stop):
            events += 1
            if events > 3:
                too_many.set()
            yield change

    path = tmp_path / "c.yaml"
    path.write_bytes(b"1")
    async with watching(path, watch=counted) as seen:
        path.write_bytes(b"2")
        await seen.next()
        with anyio.move_on_after(0.5):
            await too_many.wait()
    assert events <= 3


async def test_folder_whose_name_is_no_unicode_is_looked_at_instead(tmp_path):
    path = tmp_path / os.fsdecode(b"bad\xff") / "c.yaml"
    path.parent.mkdir()
    path.write_text("a")
    async with watching(path, resync_s=0.1) as seen:
        path.write_text("b")
        assert (await seen.next()).data == b"b"
