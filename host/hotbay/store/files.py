"""Files that hold either their old content or their new one, whatever interrupts the writing. Everything here blocks."""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from hotbay.errors import CapacityError, PackageError

__all__ = ["open_regular", "sync_directory", "write_durably", "writing"]


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading. Raises PackageError FETCH_FAILED for anything else that may lie there.

    Non-blocking, so that a named pipe in a watched folder cannot hold the caller up.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise PackageError("FETCH_FAILED", f"{path}: {error.strerror}", details={"path": str(path)}) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise PackageError("FETCH_FAILED", f"{path} is not a regular file", details={"path": str(path)})
    return cast(BinaryIO, os.fdopen(descriptor, "rb", buffering=0))


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """For making what an operator named: an OSError is raised as CapacityError RESOURCE_EXHAUSTED that names it."""
    try:
        yield
    except OSError as error:
        named = None if error.filename is None else Path(os.fsdecode(error.filename)).absolute()
        elsewhere = "" if named is None or named.is_relative_to(out.absolute().parent) else f"{named}: "
        message = f"{out} cannot be written: {elsewhere}{error.strerror or error}"
        hint = "free space there, or name another folder"
        raise CapacityError("RESOURCE_EXHAUSTED", message, hint=hint) from error


def write_durably(path: Path, content: bytes) -> None:
    """Writes by temporary file, sync and rename: the name holds the old content or the new, never a piece."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        with temporary.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the renames in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
