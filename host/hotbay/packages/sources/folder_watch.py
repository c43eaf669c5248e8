"""Waits for changes below folders of packages: what the file system reports, and what it does not.

Noticed are saves by rename, folders and links that are swapped (also the `..data` link of a Kubernetes volume) and a
folder's own coming and going. Nothing between a look's begin and the wait after it is lost: the look remembers how
the folders stood before it read them, and the wait compares once it listens. Where a file system reports nothing,
every wait ends after `resync_s`.
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import anyio
import anyio.lowlevel
import anyio.to_thread
from watchfiles import Change, awatch

logger = logging.getLogger(__name__)

RESYNC_S: Final = 10.0
# One burst of events is one look: a copy makes hundreds.
_STEP_MS: Final = 50
_DEBOUNCE_MS: Final = 400
_BURST_S: Final = 0.1

_Entry = tuple[str, str, int, int, int, int]

__all__ = ["RESYNC_S", "FolderWatch", "Places"]


@dataclass(frozen=True, slots=True)
class Places:
    """Folders whose direct entries count, and one parent of which only the entry `name` does."""

    parent: str
    name: str
    folders: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, below: Iterable[Path]) -> Self:
        """The existing ones of `folder` and `below`. Links are followed: a watch sits on what they lead to now."""
        parent = os.path.realpath(folder.absolute().parent)
        return cls(parent, folder.name, tuple(sorted({os.path.realpath(p) for p in (folder, *below) if _is_folder(p)})))


class FolderWatch:
    """The notices of one source. `mark` blocks; `wait` is for the loop; neither overlaps with itself."""

    def __init__(self, source: str, *, resync_s: float = RESYNC_S) -> None:
        self._source = source
        self._resync_s = resync_s
        self._marked: tuple[Places, frozenset[_Entry]] | None = None

    def mark(self, places: Places) -> None:
        """Remember how the places stand, before they are read."""
        self._marked = (places, _state(places))

    async def wait(self, look: Callable[[], Places]) -> None:
        """Return at a change since `mark`, or when it is time to look again. `look` finds the places; it may block."""
        places = await anyio.to_thread.run_sync(look)
        bell, stop = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, places, bell, stop)
            # The listener registers with the kernel at its first step; what changes from here on rings.
            await anyio.lowlevel.checkpoint()
            try:
                same = self._marked == (places, await anyio.to_thread.run_sync(_state, places))
                with anyio.move_on_after(self._resync_s if same else _BURST_S):
                    await bell.wait()
            finally:
                # The watcher's thread cannot be cancelled; it looks at this every few milliseconds.
                stop.set()

    async def _listen(self, places: Places, bell: anyio.Event, stop: anyio.Event) -> None:
        def concerns(_change: Change, path: str) -> bool:
            folder, _, last = path.rpartition("/")
            return last == places.name or folder in places.folders

        watched = sorted({p for p in (places.parent, *places.folders) if _is_folder(Path(p))})
        try:
            async for _ in awatch(
                *watched,
                watch_filter=concerns,
                step=_STEP_MS,
                debounce=_DEBOUNCE_MS,
                recursive=False,
                stop_event=stop,
            ):
                bell.set()
        except (OSError, RuntimeError, ValueError, ExceptionGroup) as error:
            # The watcher gives up at a file's name that is no UTF-8, too. What it raises while it waits comes in a group.
            logger.warning(
                "watch_failed source=%s: looking every %s s instead: %r", self._source, self._resync_s, error
            )


def _state(places: Places) -> frozenset[_Entry]:
    found: set[_Entry] = set()
    for folder in places.folders:
        try:
            with os.scandir(folder) as entries:
                found.update(_entry(folder, entry.name) for entry in entries)
        except OSError:
            continue
    found.add(_entry(places.parent, places.name))
    return frozenset(found)


def _entry(folder: str, name: str) -> _Entry:
    """What differs when an entry was changed or replaced."""
    try:
        found = (Path(folder) / name).lstat()
    except OSError:
        return folder, name, 0, 0, 0, 0
    return folder, name, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
