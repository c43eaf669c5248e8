"""One heap for all threads of the host, asked for before there is any.

The C library gives threads heaps of their own otherwise. Here worker threads come and go, and what they read outlives
them: of each heap pieces stay in use, and its memory stays with the process (measured: half of what a swap left).
Threads that allocate at once wait for each other then, which under the interpreter's lock they do anyway.
"""

import ctypes
import logging
from typing import Final

logger = logging.getLogger(__name__)

__all__ = ["use_one_heap"]

_M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h; other C libraries have no such heaps."""


def use_one_heap() -> None:
    """For the main thread, at the start of the program."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt") and not library.mallopt(_M_ARENA_MAX, 1):
        logger.warning("heap_not_limited: the C library refused; memory grows with the number of threads")
