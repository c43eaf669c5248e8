"""Live reload: tells when the content of a file has changed.

Folders of files are watched, never files: a save by rename makes a watch of the file deaf, and a ConfigMap is
swapped by renaming a link beside the file. What counts is content, compared by digest; events only say when
to look, and a look every `resync_s` finds what no event told (network file systems, overflows, no more
watches). A content counts once two looks in a row have seen it, so that a save in place is not seen
half-written.
"""

import logging
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import anyio
import anyio.to_thread
import watchfiles
from anyio.abc import TaskStatus

from hotbay.config.documents import MAX_BYTES
from hotbay.config.file_content import FileContent

__all__ = ["DirectoryWatch", "read_content", "watch_directories", "watch_files", "watch_folder"]

logger = logging.getLogger(__name__)

RESYNC_S: Final = 10.0
# Editors and copies write in bursts of some ms; people do not notice twice this.
SETTLE_S: Final = 0.1
# A file that is being rewritten all the time is reported as it is after so many looks.
_MAX_LOOKS: Final = 10
_MAX_LINKS: Final = 16
_BATCH_MS: Final = 200
_QUIET_MS: Final = 25

OnChange: TypeAlias = Callable[[FileContent], Awaitable[None]]
DirectoryWatch: TypeAlias = Callable[[Sequence[Path], anyio.Event], AsyncIterator[object]]
_Identity: TypeAlias = tuple[Path, int, int]


def read_content(path: Path) -> FileContent:
    """Look at a file now.

    Reads at most one byte more than a document may have, so that who parses it refuses it as too large.
    Blocks on the disk, but never on a pipe or device: these count as unreadable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as e:
        return FileContent(path, None, e.strerror or str(e), e.errno)
    try:
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return FileContent(path, None, "not a regular file")
            return FileContent(path, file.read(MAX_BYTES + 1))
    except OSError as e:
        return FileContent(path, None, e.strerror or str(e), e.errno)


def watch_directories(directories: Sequence[Path], stop: anyio.Event) -> AsyncIterator[object]:
    """Yield after each burst of events in the directories, not of their subdirectories, until `stop` is set.

    The watch is in place once the first item is awaited.
    """
    return watchfiles.awatch(
        *directories,
        watch_filter=None,
        debounce=_BATCH_MS,
        step=_QUIET_MS,
        stop_event=stop,
        recursive=False,
        ignore_permission_denied=True,
    )


async def watch_files(
    paths: Collection[Path],
    on_change: OnChange,
    *,
    known: MutableMapping[Path, str] | None = None,
    resync_s: float = RESYNC_S,
    watch: DirectoryWatch = watch_directories,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Call `on_change` with each new content of the files, until cancelled.

    Calls do not overlap; contents that come and go while one runs are skipped. A file that vanishes is
    reported once, with `data` None. What `on_change` raises ends the watch.

    Args:
        paths: the files; they and their folders may be absent for now.
        on_change: called with what a file now contains.
        known: digests of the contents that the caller already has, kept up to date here. A file without one is looked
            at at the start, and reported from its next change on. A caller that takes a content without being told of it
            notes its digest here in the same step: what is saved after it is a change then, also when that is what was
            reported before.
        resync_s: longest time until a change is found that no event told.
        watch: yields after events in directories, until its event is set.
        task_status: started once the files' first contents are known; no later change is missed.
    """
    files = _Files(paths, {} if known is None else known, on_change)
    await files.take_baseline()
    listener = _Listener(list(paths), files.look, resync_s)
    async with anyio.create_task_group() as group:
        group.start_soon(listener.follow_events, watch)
        task_status.started()
        await listener.look_for_ever()


async def watch_folder(
    folder: Path,
    look: Callable[[], Awaitable[None]],
    *,
    resync_s: float = RESYNC_S,
    watch: DirectoryWatch = watch_directories,
) -> None:
    """Call `look` at once, after each burst of events in the folder, and every `resync_s`, until cancelled.

    Calls do not overlap. The folder may be absent for now, and be replaced by another. What `look` raises ends the watch.
    """
    # A name inside stands for the folder, the folder for the place where it appears or is replaced.
    listener = _Listener([folder, folder / "any"], look, resync_s)
    async with anyio.create_task_group() as group:
        group.start_soon(listener.follow_events, watch)
        await listener.look_for_ever()


class _Listener:
    """Two tasks: one hears events in the folders of files, one looks after them."""

    def __init__(self, paths: Sequence[Path], look: Callable[[], Awaitable[None]], resync_s: float) -> None:
        self._paths = tuple(paths)
        self._look = look
        self._resync_s = resync_s
        self._event = anyio.Event()
        self._stop = anyio.Event()
        self._watched: frozenset[_Identity] = frozenset()
        self._is_deaf = False

    async def follow_events(self, watch: DirectoryWatch) -> None:
        """Wake the looks after events; start anew each time that `_stop` is set."""
        while True:
            self._stop = anyio.Event()
            self._watched = await self._directories()
            self._is_deaf = False
            # For what changed before the watch was in place: heard when this task waits for the first event.
            self._event.set()
            try:
                async for _ in watch([path for path, _, _ in self._watched], self._stop):
                    self._event.set()
            except (OSError, RuntimeError, ValueError, ExceptionGroup) as e:
                # An ExceptionGroup because the watch waits for its thread inside a task group, a ValueError for the name
                # of a folder that is no UTF-8.
                logger.warning("watch_failed resync_s=%s error=%r", self._resync_s, e)
            self._is_deaf = not self._stop.is_set()
            self._event.set()
            await self._stop.wait()

    async def look_for_ever(self) -> None:
        """Look after each event and every `resync_s`."""
        try:
            while True:
                with anyio.move_on_after(self._resync_s) as waiting:
                    await self._event.wait()
                self._event = anyio.Event()
                await self._look()
                if (waiting.cancelled_caught and self._is_deaf) or await self._directories() != self._watched:
                    self._stop.set()
        finally:
            # The watch waits in a thread that hears of a cancellation only in this way.
            self._stop.set()

    async def _directories(self) -> frozenset[_Identity]:
        return await anyio.to_thread.run_sync(_directories_of, self._paths)


class _Files:
    """Compares files with what is known of them: what was last reported, or what the caller took by itself."""

    def __init__(self, paths: Iterable[Path], known: MutableMapping[Path, str], on_change: OnChange) -> None:
        self._paths = tuple(paths)
        self._known = known
        self._on_change = on_change

    async def take_baseline(self) -> None:
        for path in self._paths:
            if path not in self._known:
                self._known[path] = (await anyio.to_thread.run_sync(read_content, path)).digest

    async def look(self) -> None:
        """Look at all files, and report new contents."""
        for path in self._paths:
            await self._compare(path)

    async def _compare(self, path: Path) -> None:
        content = await anyio.to_thread.run_sync(read_content, path)
        for _ in range(_MAX_LOOKS):
            if content.digest == self._known.get(path):
                return
            await anyio.sleep(SETTLE_S)
            before, content = content, await anyio.to_thread.run_sync(read_content, path)
            if content.digest == before.digest:
                break
        if content.digest != self._known.get(path):
            self._known[path] = content.digest
            await self._on_change(content)


def _directories_of(paths: Iterable[Path]) -> frozenset[_Identity]:
    """Return the folders in which something can happen to the files, each with its device and inode."""
    found = set()
    for path in paths:
        for hop in _links_of(path):
            identity = _nearest_directory(hop.parent)
            if identity:
                found.add(identity)
    return frozenset(found)


def _links_of(path: Path) -> Iterable[Path]:
    """Yield the path and, while it is a symbolic link, what it points to."""
    for _ in range(_MAX_LINKS):
        yield path
        try:
            path = path.parent / path.readlink()
        except OSError:
            return


def _nearest_directory(path: Path) -> _Identity | None:
    """Return the folder, or while it is absent the nearest one above it, in which it would appear."""
    for directory in (path, *path.parents):
        try:
            status = directory.stat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode):
            return directory, status.st_dev, status.st_ino
    return None
