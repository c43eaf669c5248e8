"""What a plugin's lines are in the host's log: at which level, and which of them are one record. Pure.

A line that begins with a level's word, as the SDK's logger and Python's own write it, has that level; what is indented
below it belongs to it, and so does a bare traceback with the line that ends it. Everything else is a record of its own,
at level info. A record holds at most `RECORD_CHARS`: what is over begins another one of the same level. Whose record
it is comes from the host alone, so the most that a text can choose is its level.
"""

import logging
import re
from collections.abc import Callable
from typing import Final

__all__ = ["RECORD_CHARS", "RecordJoiner"]

RECORD_CHARS: Final = 16 * 1024
"""As long as one line may be."""

_LEVEL: Final = re.compile(r"(DEBUG|INFO|WARNING|ERROR|CRITICAL)[ :]")
# The host alone says that something is critical.
_LEVELS: Final = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.ERROR,
}
_TRACEBACK: Final = "Traceback (most recent call last):"


class RecordJoiner:
    """Takes the lines of one stream in order; `emit` is called with level, first line and the lines below it.

    A record stays open until the next line that is not part of it, or `flush`: whoever feeds lines flushes when there
    are no more for now. Lines that come later for a flushed record are a record of its level.
    """

    def __init__(self, emit: Callable[[int, str, tuple[str, ...]], None]) -> None:
        self._emit = emit
        self._lines: list[str] = []
        self._chars = 0
        self._level = logging.INFO
        self._may_continue = False
        self._is_traceback = False

    def take(self, text: str) -> None:
        """Add one line, which is escaped already."""
        indented = text.startswith((" ", "\t"))
        found = _LEVEL.match(text)
        begins_traceback = text.startswith(_TRACEBACK)
        ends_traceback = self._is_traceback and bool(text) and not found and not begins_traceback
        if self._may_continue and (indented or ends_traceback):
            self._may_continue = indented
            self._add(text)
            return
        self.flush()
        self._is_traceback = begins_traceback
        self._may_continue = found is not None or self._is_traceback
        self._level = _LEVELS[found[1]] if found else logging.ERROR if self._is_traceback else logging.INFO
        self._add(text)

    def flush(self) -> None:
        """Emit the open record, if there is one."""
        if self._lines:
            first, *below = self._lines
            self._lines = []
            self._chars = 0
            self._emit(self._level, first, tuple(below))

    def _add(self, text: str) -> None:
        if self._chars + len(text) > RECORD_CHARS:
            self.flush()
        self._lines.append(text)
        self._chars += len(text)
