"""Becomes another program that dies with the process that started it: `python tether.py PARENT PROGRAM ARGUMENT…`.

The kernel keeps a parent-death signal across exec, so that a demo killed with SIGKILL leaves no host behind.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["main"]

_PR_SET_PDEATHSIG: Final = 1


def main(argv: Sequence[str]) -> None:
    """Tie this process to its parent and exec the rest of the arguments. Does not return."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(argv[0]):
        os._exit(1)
    os.execv(argv[1], list(argv[1:]))  # noqa: S606  # no shell is wanted; the demo gives the program


if __name__ == "__main__":
    main(sys.argv[1:])
