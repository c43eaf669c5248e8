"""How the host logs: one record a line on standard error, as JSON or as text.

Whatever stands in a record, it is one line and has no control characters: names and messages come from others, too.
Fields given as `extra` are kept. Nothing here ever sees a prompt: who logs gives ids, sizes and codes.

One thing that goes on happening to one subject is said a few times a minute (see `flood`); the field `repeated` is how
often it happened since its last line beside that. Requests have a line each all the same, and what plugins print has
bounds of its own (see `process.log`); of that, an error that a plugin says again word for word counts as one thing, too.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TextIO

import orjson

from hotbay.observe.flood import FloodLimiter

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("json", "text")
ACCESS_LOGGER: Final = "hotbay.access"
"""Says one line a request at level info, so that it can be told from what happens to the host."""
PLUGIN_LOGGERS: Final = "hotbay.plugin."
"""Say what plugins print, which their sinks bound already."""

_ESCAPES: Final = {
    code: f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}
_BELOW: Final = "    | "
# Legal inside a JSON string as they are, and acted upon by a terminal all the same.
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
_SUBJECTS: Final = ("plugin", "endpoint", "source")
_SUBJECT: Final = re.compile(r"\b(?:plugin|endpoint|source|ref|field|file|path|digest)=(\S+)")
_CODE: Final = re.compile(r"\b(?:code|reason|phase|operation|event)=(\S+)")
"""A rollout goes through eight phases in a minute, and what an operator did is to be read in full."""
_LOOK_EVERY_S: Final = 1.0
PLUGIN_ERRORS_KEPT: Final = 64
"""Different errors of plugins that are remembered. A record may hold 16 KiB, so this is a mebibyte at most."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str, form: str, *, access: bool = True) -> None:
    """Send all loggers to standard error.

    Args:
        level: one of LEVELS.
        form: one of FORMATS.
        access: whether there is a line for each request that was answered.
    """
    handler = LimitedHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(ACCESS_LOGGER).setLevel(logging.NOTSET if access else logging.WARNING)
    # They tell of every request with its whole address, which may be a signed one, and of every touched file.
    for name in ("httpcore", "httpx", "watchfiles"):
        logging.getLogger(name).setLevel(logging.WARNING)


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes records, but of what repeats itself only as much as `FloodLimiter` admits. `now` is a monotonic clock."""

    def __init__(self, stream: TextIO, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now = now
        self._limiter: FloodLimiter[tuple[str, ...], logging.LogRecord] = FloodLimiter()
        # Their texts are anybody's: many of them are not to push out what the host's own records hold back.
        self._of_plugins: FloodLimiter[tuple[str, ...], logging.LogRecord] = FloodLimiter(PLUGIN_ERRORS_KEPT)
        self._looked_at_s = now()

    def emit(self, record: logging.LogRecord) -> None:
        """Write it, hold it back, or write what was held back before, too. The caller has the handler's lock."""
        now_s = self._now()
        if now_s - self._looked_at_s >= _LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._say([*self._limiter.overdue(now_s), *self._of_plugins.overdue(now_s)])
        if is_limited(record):
            held_count = self._limiter.admit(subject_and_code(record), record, now_s)
        elif is_plugin_error(record):
            held_count = self._of_plugins.admit(error_words(record), record, now_s)
        else:
            held_count = 0
        if held_count is not None:
            self._say([(record, held_count)])

    def close(self) -> None:
        """Say what is still held back."""
        self.acquire()
        try:
            self._say([*self._limiter.close(), *self._of_plugins.close()])
        finally:
            self.release()
        super().close()

    def _say(self, told: list[tuple[logging.LogRecord, int]]) -> None:
        for record, repeated in told:
            if repeated:
                record.repeated = repeated
            super().emit(record)


def is_limited(record: logging.LogRecord) -> bool:
    """Whether records like this one count together: not requests, not plugins' output, not what a person debugs."""
    return (
        record.levelno > logging.DEBUG and record.name != ACCESS_LOGGER and not record.name.startswith(PLUGIN_LOGGERS)
    )


def is_plugin_error(record: logging.LogRecord) -> bool:
    """Whether it is an error in a plugin's own words."""
    return record.levelno >= logging.ERROR and record.name.startswith(PLUGIN_LOGGERS)


def error_words(record: logging.LogRecord) -> tuple[str, ...]:
    """What an error of a plugin says: its line, and the last one below it, which of a traceback is the exception."""
    below = str(vars(record).get("traceback", ""))
    return record.name, record.getMessage(), below.rpartition("\n")[2]


def subject_and_code(record: logging.LogRecord) -> tuple[str, ...]:
    """What a record says, of whom, and with which code: equal for the records that are one thing again.

    Fields come before words of the message, `name=value`. A generation's number is no part of a subject: the next
    process of a plugin that fails is the same failing thing. Another version of it, by the field `digest`, is another.
    """
    text = record.getMessage()
    subject = next((str(found) for name in _SUBJECTS if (found := vars(record).get(name)) is not None), None)
    if subject is None:
        in_text = _SUBJECT.search(text)
        subject = in_text[1] if in_text else ""
    code = vars(record).get("code")
    if code is None:
        in_text = _CODE.search(text)
        code = in_text[1] if in_text else ""
    raised = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
    digest = vars(record).get("digest", "")
    return record.name, str(record.msg), subject.partition("#")[0], str(digest), str(code), raised


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts (RFC 3339), level, logger, msg, then the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Render; values that JSON lacks become text."""
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode().translate(_JSON_ESCAPES)
        except orjson.JSONEncodeError:
            # Names of files can be no Unicode, and integers can be longer than 64 bits.
            return json.dumps(line, default=str)


def _is_said(field: str, message: str) -> bool:
    """Whether the message has this `name=value`, on its own or before a colon."""
    return any(f" {field}{end}" in f" {message} " for end in (" ", ": "))


class TextFormatter(logging.Formatter):
    """For people: time, level, logger, message, fields; the field `traceback` is lines below."""

    def format(self, record: logging.LogRecord) -> str:
        """Render on one line, and a traceback below where there is one."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        given = _fields(record)
        below = str(given.pop("traceback", ""))
        message = record.getMessage()
        if message.partition(" ")[0].removesuffix(":") == given.get("event"):
            del given["event"]
        shown = [f"{key}={value}" for key, value in given.items() if key != "color_message"]
        fields = " ".join(field for field in shown if not _is_said(field, message))
        text = f"{at} {record.levelname.lower():7} {record.name.removeprefix('hotbay.')}: {message}"
        text = (f"{text} {fields}" if fields else text).translate(_ESCAPES)
        # Set off, so that no line of a plugin's looks like a record.
        text += "".join(f"\n{_BELOW}{line.translate(_ESCAPES)}" for line in below.split("\n") if below)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text
