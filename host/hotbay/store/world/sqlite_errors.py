"""What SQLite says about a world's file, in our words: who must act, and what there is to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotbay.errors import CapacityError, HostError, InputError, Problem

__all__ = ["NEW_WORLD_LACKS", "damaged", "explained", "refused"]

NEW_WORLD_LACKS = "pins, grants, quarantine, disabled plugins, the applied lock and history have to be given again"
"""What nobody but the operator can put into a world that begins anew."""


@contextmanager
def explained(path: Path, *, opening: bool = False) -> Iterator[None]:
    """Turns SQLite's errors into ours; `opening` tells those of a file that cannot be had at all."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(path, error, opening=opening) from error


def _explain(path: Path, error: sqlite3.Error, *, opening: bool) -> HostError:
    # The low byte is the primary code; extended codes refine it.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return damaged(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return CapacityError(
            "UNAVAILABLE",
            f"the world {path} is held by another process: {error}",
            hint="end the program that has the file open; it is tried again by itself",
        )
    if opening and code != sqlite3.SQLITE_FULL:
        return refused(path, str(error), hint="let the host's user read and write it and its folder")
    return CapacityError(
        "RESOURCE_EXHAUSTED",
        f"the world {path} cannot be written: {error}",
        hint="free space there, or let the host's user write it; it is tried again by itself",
    )


def damaged(path: Path, what: str) -> InputError:
    """The file is not what was written; what to do about that."""
    return refused(
        path,
        f"it is damaged: {what}",
        hint=f"put a copy of it back; without one, move {path.name}, {path.name}-wal and {path.name}-shm to another folder "
        f"and start again: packages are found and completed again, while {NEW_WORLD_LACKS}",
    )


def refused(path: Path, what: str, *, hint: str) -> InputError:
    """The file cannot be used."""
    problem = Problem("CONFIG_INVALID", f"the world {path} cannot be used: {what}", path="world.path", hint=hint)
    return InputError([problem])
