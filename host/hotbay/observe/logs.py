"""How the host logs: one record a line on standard error, as JSON or as text.

Whatever stands in a record, it is one line and has no control characters: names and messages come from others, too.
Fields given as `extra` are kept. Nothing here ever sees a prompt: who logs gives ids, sizes and codes.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

import orjson

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("json", "text")
ACCESS_LOGGER: Final = "hotbay.access"
"""Says one line a request at level info, so that it can be told from what happens to the host."""

_ESCAPES: Final = {
    code: f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}
_BELOW: Final = "    | "
# Legal inside a JSON string as they are, and acted upon by a terminal all the same.
_JSON_ESCAPES: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str, form: str, *, access: bool = True) -> None:
    """Send all loggers to standard error.

    Args:
        level: one of LEVELS.
        form: one of FORMATS.
        access: whether there is a line for each request that was answered.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger(ACCESS_LOGGER).setLevel(logging.NOTSET if access else logging.WARNING)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)


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


class TextFormatter(logging.Formatter):
    """For people: time, level, logger, message, fields; the field `traceback` is lines below."""

    def format(self, record: logging.LogRecord) -> str:
        """Render on one line, and a traceback below where there is one."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        given = _fields(record)
        below = str(given.pop("traceback", ""))
        fields = " ".join(f"{key}={value}" for key, value in given.items() if key != "color_message")
        text = f"{at} {record.levelname.lower():7} {record.name.removeprefix('hotbay.')}: {record.getMessage()}"
        text = (f"{text}  {fields}" if fields else text).translate(_ESCAPES)
        # Set off, so that no line of a plugin's looks like a record.
        text += "".join(f"\n{_BELOW}{line.translate(_ESCAPES)}" for line in below.split("\n") if below)
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text
