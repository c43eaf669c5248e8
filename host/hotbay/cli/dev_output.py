"""What plugins print and what the host warns of while an author works, told at once and with the author's own files.

A handler of the root logger: on the loop's thread, within the call that logs. Of an error that a plugin says again word for
word only a few are told in a minute, with how many were not.
"""

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from hotbay.authoring.developing.debugging import ADDRESS
from hotbay.authoring.developing.lines import Page
from hotbay.authoring.developing.places import SourcePlaces
from hotbay.observe.flood import FloodLimiter
from hotbay.observe.logs import PLUGIN_LOGGERS

__all__ = ["DevOutput"]

_TOLD_OTHERWISE: Final = re.compile(
    r"(candidate_failed|crashed|instance_lost|environment_changed|open_files_limited|isolation_none|leftover_ended)\b"
)
_LINES_KEPT: Final = 200


class DevOutput(logging.Handler):
    """See the module. `places` may be exchanged while it is in use.

    `project` is the plugin's id; without `holds_back` what a version says before it is live is told at once, too.
    """

    def __init__(
        self, tell: Callable[[Page], None], places: SourcePlaces, *, project: str, holds_back: bool = True
    ) -> None:
        super().__init__()
        self._project = project
        self._live: int | None = -1 if holds_back else None
        self.places = places
        self._tell = tell
        self._recent: deque[tuple[str, str]] = deque(maxlen=_LINES_KEPT)
        self._held: list[tuple[str, Page]] = []
        self._limiter: FloodLimiter[str, None] = FloodLimiter()

    def attach(self) -> None:
        """Take the place of all handlers."""
        root = logging.getLogger()
        root.handlers[:] = [self]
        root.setLevel(logging.INFO)

    def said(self, process: str) -> str:
        """What a process, by its label, said last, from the author's own frames on where it is a traceback."""
        return self.places.own_part("\n".join(text for label, text in self._recent if label == process))

    def went_live(self, generation: int) -> None:
        """Tell what this generation of the project said so far, and all of it from now on."""
        held, self._held = self._held, []
        if self._live is not None:
            self._live = generation
        for label, page in held:
            if _number(label) == generation:
                self._tell(page)

    def gave_up(self, process: str) -> None:
        """Forget what a process said and what was held back: it is told with why the version is not live."""
        self._held = []
        self._recent = deque((each for each in self._recent if each[0] != process), maxlen=_LINES_KEPT)

    def _holds(self, label: str) -> bool:
        """Whether it is a process of the project's that may yet fail: what it says belongs to how that ends."""
        return self._live is not None and label.partition("#")[0] == self._project and _number(label) > self._live

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it. Nothing that is logged may end who logs it."""
        try:
            self._take(record)
        except Exception:  # noqa: BLE001  # the boundary that logging itself has: see `Handler.handleError`
            self.handleError(record)

    def _take(self, record: logging.LogRecord) -> None:
        text = self.places.mapped(record.getMessage())
        if record.name.startswith(PLUGIN_LOGGERS):
            self._take_output(record, text)
        elif record.levelno >= logging.WARNING and not _TOLD_OTHERWISE.match(text):
            self._tell({"event": "host", "level": record.levelname.lower(), "line": text})
        elif text.startswith("reload_applied"):
            self._tell({"event": "host", "level": "info", "line": text})

    def _take_output(self, record: logging.LogRecord, text: str) -> None:
        plugin = str(getattr(record, "plugin", ""))
        below = self.places.mapped(str(getattr(record, "traceback", "")))
        self._recent.extend((plugin, line) for line in (*below.splitlines(), text))
        if found := ADDRESS.search(text):
            self._tell({"event": "debugger", "address": found[1]})
            return
        key = f"{record.name} {text}" if record.levelno >= logging.ERROR else ""
        held = self._limiter.admit(key, None, time.monotonic()) if key else 0
        if held is None:
            return
        again = f" ({held} more like it)" if held else ""
        place = self.places.place(below)
        page = {"event": "output", "plugin": plugin, "level": record.levelname.lower(), "line": f"{text}{again}"}
        page |= {"place": place, "traceback": self.places.own_part(below)}
        if self._holds(plugin):
            self._held = [*self._held[1 - _LINES_KEPT :], (plugin, page)]
        else:
            self._tell(page)


def _number(label: str) -> int:
    """The generation in a process' label, `plugin#7`."""
    number = label.partition("#")[2]
    return int(number) if number.isdecimal() else -1
