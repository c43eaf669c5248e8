"""What an instance is told of itself, and its logger.

The logger writes lines to standard error, which the host drains into the plugin's log for ever; the
`logging` package is not used because importing it costs half a start. The host forwards each line at its level. No
text can forge a line.
"""

from __future__ import annotations

import sys

from hotbay_sdk import _lazy
from hotbay_sdk._errors import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MAX_LINE_CHARS = 16 * 1024
"""The host's own limit of a line."""
_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {9: "\t", 10: "\\n", 13: "\\r"}


class Logger:
    """Writes lines `LEVEL name: message` to the plugin's log, frames indented below theirs. Safe to use from several threads."""

    __slots__ = ("_level", "_name")

    def __init__(self, name: str, level: str = "info") -> None:
        self._name = name
        self._level = LEVELS.get(level, 20)

    def debug(self, message: str, *arguments: object) -> None:
        """Write at level debug; `arguments` fill the %-places of `message`."""
        self._write("DEBUG", 10, message, arguments)

    def info(self, message: str, *arguments: object) -> None:
        """Write at level info."""
        self._write("INFO", 20, message, arguments)

    def warning(self, message: str, *arguments: object) -> None:
        """Write at level warning."""
        self._write("WARNING", 30, message, arguments)

    def error(self, message: str, *arguments: object) -> None:
        """Write at level error."""
        self._write("ERROR", 40, message, arguments)

    def exception(self, message: str, *arguments: object) -> None:
        """Write at level error, with the frames and the text of the exception being handled below."""
        fault = sys.exception()
        below = (*_lazy.traceback_text(fault).splitlines(), describe(fault)) if fault is not None else ()
        self._write("ERROR", 40, message, arguments, below)

    def fault(self, fault: BaseException) -> None:
        """Write an exception at level error, with its frames below."""
        self._write("ERROR", 40, "%s", (describe(fault),), _lazy.traceback_text(fault).splitlines())

    def _write(
        self, word: str, level: int, message: str, arguments: tuple[object, ...], below: Iterable[str] = ()
    ) -> None:
        if level < self._level:
            return
        text = message % arguments if arguments else message
        lines = (f"{word} {self._name}: {text}", *(f"    {line}" for line in below))
        whole = "\n".join(line[:MAX_LINE_CHARS].translate(_ESCAPES) for line in lines) + "\n"
        # At once, so that no other thread's lines get between and the host reads one record.
        sys.stderr.write(whole.encode("utf-8", "backslashreplace").decode())
        sys.stderr.flush()


class Context:
    """What an instance is told of itself when it is made.

    Attributes:
        name: the plugin ref's name in the operator's configuration.
        type: the plugin type.
        logger: lines for the plugin's log, with %-style arguments.
    """

    __slots__ = ("_random", "_seed", "logger", "name", "type")

    def __init__(self, name: str, type_name: str, *, seed: int = 0, log_level: str = "info") -> None:
        self.name = name
        self.type = type_name
        self.logger = Logger(name, log_level)
        self._seed = seed
        self._random: Random | None = None

    @property
    def random(self) -> Random:
        """A generator of this instance's own, seeded by the host's seed, the type and the name.

        The same seed gives the same draws, so decisions can be replayed.
        """
        if self._random is None:
            self._random = _lazy.seeded_random(f"{self._seed}/{self.type}/{self.name}")
        return self._random
