"""Folders in which an environment is built: each belongs to the process that holds its lock, and goes when nobody does.

Invariants: a folder under TEMPORARY_PREFIX that is locked is never swept, by no host of the machine; one whose owner died is
free at once, however it ended, because the lock goes with the process. Everything here blocks.
"""

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from hotbay.packages.tree import remove_tree

TEMPORARY_PREFIX: Final = ".building-"

__all__ = ["TEMPORARY_PREFIX", "own_folder", "remove_unowned"]


def own_folder(root: Path) -> tuple[Path, int]:
    """A new folder below `root`, and the descriptor that owns it until it is closed. Raises OSError."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=root))
        owner = _owned(folder)
        if owner is not None:
            return folder, owner


def remove_unowned(root: Path) -> int:
    """Removes what interrupted builds left below `root`; returns how many folders."""
    count = 0
    for folder in root.glob(f"{TEMPORARY_PREFIX}*"):
        owner = _owned(folder)
        if owner is not None:
            try:
                remove_tree(folder)
            finally:
                os.close(owner)
            count += 1
    return count


def _owned(folder: Path) -> int | None:
    """Its descriptor, locked; None when somebody else has it, or it is gone: between a folder's making and its lock."""
    try:
        owner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(folder.stat(), os.fstat(owner)):
            return owner
    os.close(owner)
    return None
