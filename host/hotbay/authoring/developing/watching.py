"""Tells of saves in a project's folder, a burst of them at a time, and which files they may concern.

Editors save in place, by rename, or by both in turn: what counts is that something happened and is quiet for a moment. Whether
the content is another one is for who reads it.
"""

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

import anyio
from watchfiles import Change, awatch

from hotbay.packages.project_copy import is_never_built

__all__ = ["follow_saves", "settled_names"]

QUIET_MS: Final = 15
"""Writes of one save follow each other within a few milliseconds; each more would be waited for at every save."""

BURST_MS: Final = 150
"""A checkout of another branch writes for longer, and is looked at in between."""


async def follow_saves(root: Path, saved: Callable[[tuple[str, ...]], Awaitable[None]]) -> None:
    """Call `saved` with the names of files, relative to `root`, after each burst of changes, until cancelled.

    What is saved from the first step on is not missed. `root` is the folder's real path: changes are told by that.
    """
    stop = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_listen, root, saved, stop)
        try:
            await anyio.sleep_forever()
        finally:
            # The watcher's thread cannot be cancelled; it looks at this every few milliseconds.
            stop.set()


async def _listen(root: Path, saved: Callable[[tuple[str, ...]], Awaitable[None]], stop: anyio.Event) -> None:
    def concerns(_change: Change, path: str) -> bool:
        return not is_never_built(Path(path).relative_to(root))

    async for changes in awatch(root, watch_filter=concerns, step=QUIET_MS, debounce=BURST_MS, stop_event=stop):
        names = settled_names((path for _, path in changes), root)
        if names:
            await saved(names)


def settled_names(paths: Iterable[str], root: Path) -> tuple[str, ...]:
    """The names of a burst, each once, without those that editors make beside a file and take away."""
    names = {str(Path(path).relative_to(root)) for path in paths}
    return tuple(sorted(name for name in names if not _is_passing(Path(name).name)))


def _is_passing(name: str) -> bool:
    return (
        name.startswith((".#", ".goutputstream-"))
        or name.endswith(("~", ".swp", ".swx", ".tmp", ".part"))
        or name == "4913"
    )
