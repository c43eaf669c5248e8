"""Memory that a host shares with a plugin which may be hostile.

The host makes every area, fixes its size and forbids further seals before it passes anything: a peer that could
shrink a mapped file would kill its mapper with SIGBUS. A snapshot is written by the host alone: its map is made before
FUTURE_WRITE is sealed, and after that neither `write` nor a new writable map exists, whatever way the
plugin opens the file. An output area is written by the plugin; the host copies once and checks the copy.
"""

import fcntl
import mmap
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

F_SEAL_FUTURE_WRITE: Final = 0x10
"""From linux/fcntl.h; the fcntl module of 3.11 does not name it."""
_FIXED: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
SNAPSHOT_SEALS: Final = F_SEAL_FUTURE_WRITE | _FIXED
OUTPUT_SEALS: Final = _FIXED


class SharedArea:
    """A sealed area: `memory` is the host's map of it, `descriptor` what goes to the plugin. `close` ends both.

    The descriptor may be passed any number of times before it is closed: whoever passes it duplicates it.
    """

    __slots__ = ("descriptor", "memory")

    def __init__(self, memory: mmap.mmap, descriptor: int) -> None:
        self.memory = memory
        self.descriptor = descriptor

    @classmethod
    def snapshot(cls, name: str, size_bytes: int) -> "SharedArea":
        """An area that the host writes and the plugin reads. Raises OSError, also where the kernel cannot seal it so."""
        return cls._made(name, size_bytes, SNAPSHOT_SEALS, read_only=True)

    @classmethod
    def output(cls, name: str, size_bytes: int) -> "SharedArea":
        """An area that the plugin writes. What the host reads there may change while it does: copy, then check."""
        return cls._made(name, size_bytes, OUTPUT_SEALS, read_only=False)

    @classmethod
    def _made(cls, name: str, size_bytes: int, seals: int, *, read_only: bool) -> "SharedArea":
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size_bytes)
            memory = mmap.mmap(descriptor, size_bytes)
            try:
                fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
                if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) != seals:
                    raise OSError("the kernel did not keep the seals of a shared area")
                passed = _reopened(descriptor) if read_only else os.dup(descriptor)
            except OSError:
                memory.close()
                raise
        finally:
            os.close(descriptor)
        return cls(memory, passed)

    def close(self) -> None:
        """Give the host's map and descriptor up. Idempotent; a plugin that was passed the area keeps it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self.memory.close()


def duplicated(descriptors: Sequence[int]) -> tuple[int, ...]:
    """A descriptor more for each, all or none. Raises OSError."""
    with ExitStack() as made:
        copies = []
        for descriptor in descriptors:
            copies.append(os.dup(descriptor))
            made.callback(os.close, copies[-1])
        made.pop_all()
    return tuple(copies)


def _reopened(descriptor: int) -> int:
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
