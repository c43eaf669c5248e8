"""The files of parts: who may write one, what its progress says, and which are worth nothing any more. Blocks."""

import fcntl
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from hotbay.errors import CapacityError

COUNT_WIDTH: Final = 20
"""Digits of a progress's count: of fixed width, so that it is overwritten in place and leaves none of a longer one."""

_PROGRESS_LIMIT_BYTES: Final = 8192

__all__ = ["COUNT_WIDTH", "PartPaths", "is_whole", "locked", "read_progress", "sweep_parts"]


@dataclass(frozen=True, slots=True)
class PartPaths:
    """Where a blob's part, its progress and the finished blob lie; all on one file system."""

    part: Path
    progress: Path
    final: Path

    @classmethod
    def of(cls, parts: Path, final: Path) -> Self:
        """In the folder of parts, under the blob's own file name."""
        return cls(parts / f"{final.name}.part", parts / f"{final.name}.progress", final)


def sweep_parts(folder: Path, *, keep: frozenset[str] | None) -> int:
    """Removes parts that nobody is writing; returns how many.

    `keep` names those to leave by their hex digits; with None, all that another attempt can take up are left.
    """
    removed = 0
    for part in folder.glob("*.part"):
        descriptor = locked(part, wait=False, create=False, busy_ok=True)
        if descriptor is None:
            continue
        progress = part.with_suffix(".progress")
        try:
            found = read_progress(progress)
            resumable = found is not None and 0 < found[0] <= os.fstat(descriptor).st_size
            if not resumable or (keep is not None and part.stem not in keep):
                progress.unlink(missing_ok=True)
                part.unlink(missing_ok=True)
                removed += 1
        finally:
            os.close(descriptor)
    for progress in folder.glob("*.progress"):
        if not progress.with_suffix(".part").exists():
            progress.unlink(missing_ok=True)
    return removed


def locked(part: Path, *, wait: bool, create: bool = True, busy_ok: bool = False) -> int | None:
    """The part's descriptor, exclusively locked. None: its name went to another file meanwhile, look again.

    With `create`, its folder is made as well.

    Raises CapacityError UNAVAILABLE when somebody else is writing and `wait` is false; with `busy_ok`, None.
    """
    try:
        descriptor = _opened(part, create=create)
    except FileNotFoundError:
        if create:
            part.parent.mkdir(parents=True, exist_ok=True)
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        if _is_same_file(part, descriptor):
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR:
                return descriptor
            part.unlink(missing_ok=True)
    except BlockingIOError as error:
        os.close(descriptor)
        if busy_ok:
            return None
        raise CapacityError(
            "UNAVAILABLE",
            f"blob sha256:{part.stem} is being fetched by somebody else",
            hint="it is used as soon as it is whole; nothing to do",
            details={"digest": f"sha256:{part.stem}"},
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _opened(part: Path, *, create: bool) -> int:
    """For writing. For reading only, when a crash left it read-only, just before it got its name."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(part, flags | os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except PermissionError as error:
        try:
            return os.open(part, flags | os.O_RDONLY)
        except FileNotFoundError:
            # It is the folder that may not be written: looking again would find the same for ever.
            raise error from None


def read_progress(path: Path) -> tuple[int, str | None] | None:
    """The count and the validator; None when there is no progress that was written here."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        content = os.read(descriptor, _PROGRESS_LIMIT_BYTES)
    finally:
        os.close(descriptor)
    count, name = content[:COUNT_WIDTH], content[COUNT_WIDTH:]
    if not re.fullmatch(rb"\d{%d}" % COUNT_WIDTH, count) or not re.fullmatch(rb'\n(null|".*")\n', name):
        return None
    try:
        validator: str | None = json.loads(name)
    except ValueError:
        return None
    return int(count), validator


def is_whole(path: Path, size: int) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


def _is_same_file(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
