"""The ends of a plugin process that no return reaches."""

from __future__ import annotations

import os
import sys

from hotbay_sdk._errors import attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def exit_code(leaving: SystemExit) -> int:
    """The code that the interpreter would exit with; text goes to the log."""
    if leaving.code is None or isinstance(leaving.code, int):
        return (leaving.code or 0) & 0xFF
    sys.stderr.write(f"{leaving.code!s}\n")
    return 1


def leave(code: int, message: str) -> NoReturn:
    """End the process from any thread, at once."""
    if message:
        sys.stderr.write(message + "\n")
    for stream in (sys.stdout, sys.stderr):
        attempt(stream.flush)
    os._exit(code)
