"""The host's state directory: one host at a time, and generation numbers that are never given twice.

Invariants: the exclusive lock is held from `open` to `close`, but for the time in which it was handed to a successor,
and vanishes with the process, however it ends; a generation number is on disk before it is used, and none is given
without the lock.
"""

import fcntl
import os
import re
from pathlib import Path
from typing import Final, Self

from hotbay.errors import CapacityError, InputError, Problem
from hotbay.store.files import write_durably

RESERVED_AT_ONCE: Final = 1024
"""Numbers reserved by one write: a restart skips what is left of them, and a start costs no fsync."""

GENERATION_MAX: Final = 2**53 - 1
"""Up to here every reader of JSON and of metrics holds a number exactly. A host that starts a thousand processes a second
gets there after 285,000 years: a larger number in the file is damage."""

# One byte more than any number has: what is longer is none.
_NUMBER_LIMIT_BYTES: Final = 18
_NUMBER: Final = re.compile(rb"[0-9]{1,16}\s?")


class StateDirectory:
    """An opened and locked state directory."""

    def __init__(self, root: Path, lock_fd: int, first_generation: int) -> None:
        self.root = root
        self._lock_fd = lock_fd
        self._next = first_generation
        self._reserved = first_generation
        self._is_locked = True

    @classmethod
    def open(cls, root: Path) -> Self:
        """Create if needed, and lock. Raises `CapacityError` naming the host that holds it, `InputError`."""
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o755)
            lock_fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unusable(root, error) from error
        try:
            _lock(root, lock_fd)
            return cls(root, lock_fd, _read_number(root / "generation"))
        except BaseException:
            os.close(lock_fd)
            raise

    def next_generation(self) -> int:
        """A number that no instance of this state directory ever had. Raises `CapacityError` when it cannot be kept.

        UNAVAILABLE while a successor has the lock: it gives the numbers then.
        """
        if not self._is_locked:
            raise CapacityError(
                "UNAVAILABLE",
                f"the state directory {self.root} was handed to another host",
                hint="nothing new is started here; it goes on by itself if that host does not come up",
            )
        if self._next >= self._reserved:
            reserved = self._next + RESERVED_AT_ONCE
            try:
                write_durably(self.root / "generation", str(reserved).encode())
            except OSError as error:
                raise CapacityError(
                    "RESOURCE_EXHAUSTED",
                    f"{self.root / 'generation'} cannot be written: {error.strerror or error}",
                    hint="free space there, or let the host's user write it; the start is tried again by itself",
                ) from error
            self._reserved = reserved
        self._next += 1
        return self._next

    def release_lock(self) -> None:
        """Let a successor take the lock. From here on this process starts and records nothing. Idempotent."""
        self._is_locked = False
        fcntl.flock(self._lock_fd, fcntl.LOCK_UN)

    def reacquire(self) -> None:
        """Take the lock again, because the successor did not come up. Idempotent.

        Raises `CapacityError` naming the host that has it, `InputError`; this process is without it then as before.
        """
        if self._is_locked:
            return
        _lock(self.root, self._lock_fd)
        try:
            # The successor may have used numbers of its own.
            first = max(self._next, _read_number(self.root / "generation"))
        except BaseException:
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            raise
        self._next = self._reserved = first
        self._is_locked = True

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._lock_fd)


def _lock(root: Path, lock_fd: int) -> None:
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock_fd, 64, 0).decode("ascii", "replace").strip() or "unknown"
        raise CapacityError(
            "UNAVAILABLE",
            f"the state directory {root} is in use by the host with pid {holder}",
            hint="stop that host, take its place with --take-over, or give this one a state_dir of its own",
        ) from error
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, str(os.getpid()).encode(), 0)


def unusable(root: Path, error: OSError) -> InputError:
    """What to tell of a state directory that cannot be opened or laid out."""
    problem = Problem(
        "CONFIG_INVALID",
        f"the state directory {root} cannot be used: {error.strerror or error}",
        path="state_dir",
        hint="set state_dir to a directory that the host's user may write, with room in it",
    )
    return InputError([problem])


def _read_number(path: Path) -> int:
    try:
        with path.open("rb") as file:
            content = file.read(_NUMBER_LIMIT_BYTES)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise unusable(path.parent, error) from error
    if not _NUMBER.fullmatch(content) or int(content) > GENERATION_MAX:
        problem = Problem(
            "CONFIG_INVALID",
            f"{path} does not hold a number from 0 to {GENERATION_MAX}",
            found=repr(content[:40]),
            expected="the last reserved generation in digits",
            hint="write a number above any that was used, such as 1000000, or put a copy of the file back",
        )
        raise InputError([problem])
    return int(content)
