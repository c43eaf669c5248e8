"""A plugin's log: bounded memory of what its process printed, and a bounded flow of it into the host's log.

Pure but for the logger that lines are forwarded to. Whatever a plugin prints costs the host at most
`RING_CHARS` of memory, and at most `RATE_BYTES_PER_S` of work; what is over is dropped and counted,
and a marker in the place of the gap says how much. Text is escaped before it is kept: no control
character of a plugin reaches a terminal or forges a line.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from hotbay.process.records import RecordJoiner

RING_CHARS: Final = 64 * 1024
LINE_BYTES: Final = 16 * 1024
RATE_BYTES_PER_S: Final = 64 * 1024
BURST_BYTES: Final = 256 * 1024
"""A traceback storm or a verbose start fits; a flood does not."""
RESUME_BYTES: Final = BURST_BYTES // 4
"""After a drop, lines are taken again from this much credit on: one marker a second instead of one per line."""
LINE_COST_BYTES: Final = 64
"""Charged for each line beside its bytes, because a line's cost is mostly not its bytes."""
LINES_PER_FEED: Final = 64
"""Bounds the time of one `feed`, about a millisecond."""


class LogLine(NamedTuple):
    """One line that was kept. `at_s` is of the sink's clock; `stream` is `stdout`, `stderr` or `host`.

    `pid` is 0 where the host speaks; `generation` and `rev` are None where the sink was not told them.
    """

    at_s: float
    stream: str
    text: str
    pid: int = 0
    generation: int | None = None
    rev: int | None = None


def escape(raw: bytes) -> str:
    """Decode one line so that only printable characters and tabs remain, the others as escapes."""
    text = raw.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode("ascii") for c in text)


class LogSink:
    """The log of one plugin process. Owned by the event loop's thread; nothing here waits for anything.

    Lines go to the logger `hotbay.plugin.<name>`, `<name>` being the label up to `#`: loggers live for
    ever, so a generation's number is a field (`plugin`) and no logger's name. What the label says behind `#`, and `rev`,
    are told with each line. `records` says which lines are
    one record and at which level; the lines below a record's first are its field `traceback`.
    """

    def __init__(self, label: str, *, now: Callable[[], float] = time.monotonic, rev: int | None = None) -> None:
        self.label = label
        number = label.partition("#")[2]
        self._generation = int(number) if number.isdecimal() else None
        self._rev = rev
        self.dropped_bytes = 0
        self._now = now
        self._logger = logging.getLogger(f"hotbay.plugin.{label.partition('#')[0]}")
        self._ring: deque[LogLine] = deque()
        self._ring_chars = 0
        self._credit_bytes = float(BURST_BYTES)
        self._credit_at_s = now()
        self._gap_bytes = 0
        self._joiners: dict[tuple[str, int], RecordJoiner] = {}

    def lines(self) -> list[LogLine]:
        """Return the kept lines, oldest first; a gap that is still open ends the list."""
        gap = [self._line(self._now(), "host", _marker(self._gap_bytes))] if self._gap_bytes else []
        return [*self._ring, *gap]

    def tail(self, chars: int) -> str:
        """Return the last `chars` characters of the log, lines joined by newlines."""
        return "\n".join(line.text for line in self.lines())[-chars:]

    def take(self, stream: str, raw: bytes, *, pid: int = 0) -> bool:
        """Keep and forward one line of at most `LINE_BYTES`, or count it as dropped. True if kept.

        What is forwarded may wait for lines that belong to it, until `flush`.
        """
        at_s = self._now()
        self._credit_bytes += (at_s - self._credit_at_s) * RATE_BYTES_PER_S
        self._credit_bytes = min(self._credit_bytes, BURST_BYTES)
        self._credit_at_s = at_s
        cost = len(raw) + LINE_COST_BYTES
        if self._credit_bytes < max(cost, RESUME_BYTES if self._gap_bytes else 0):
            self.drop(len(raw))
            return False
        self.close_gap(pid=pid)
        self._credit_bytes -= cost
        text = escape(raw)
        joiner = self._joiner(stream, pid)
        for start in range(0, len(text) or 1, LINE_BYTES):
            line = self._line(at_s, stream, text[start : start + LINE_BYTES], pid)
            self._keep(line)
            joiner.take(line.text)
        return True

    def flush(self) -> None:
        """Forward the records that are open."""
        for joiner in self._joiners.values():
            joiner.flush()

    def drop(self, count_bytes: int) -> None:
        """Count bytes that were discarded here, in the order of the stream."""
        self._gap_bytes += count_bytes
        self.dropped_bytes += count_bytes

    def close_gap(self, *, pid: int = 0) -> None:
        """Write the marker of an open gap, if there is one."""
        if self._gap_bytes:
            marker = self._line(self._now(), "host", _marker(self._gap_bytes))
            self._gap_bytes = 0
            self._keep(marker)
            self.flush()
            self._forward("host", pid, logging.WARNING, marker.text, ())

    def _joiner(self, stream: str, pid: int) -> RecordJoiner:
        key = (stream, pid)
        if key not in self._joiners:
            self._joiners[key] = RecordJoiner(partial(self._forward, stream, pid))
        return self._joiners[key]

    def _line(self, at_s: float, stream: str, text: str, pid: int = 0) -> LogLine:
        return LogLine(at_s, stream, text, pid, self._generation, self._rev)

    def _keep(self, line: LogLine) -> None:
        self._ring.append(line)
        self._ring_chars += len(line.text) + LINE_COST_BYTES
        while self._ring_chars > RING_CHARS:
            self._ring_chars -= len(self._ring.popleft().text) + LINE_COST_BYTES

    def _forward(self, stream: str, pid: int, level: int, text: str, below: tuple[str, ...]) -> None:
        fields = {"event": "plugin_output", "plugin": self.label, "pid": pid, "stream": stream}
        if below:
            fields["traceback"] = "\n".join(below)
        self._logger.log(level, "%s", text, extra=fields)


def _marker(count_bytes: int) -> str:
    return f"dropped {count_bytes} bytes"


class LogStream:
    """Cuts one of a process's output streams into lines for its sink. A line over `LINE_BYTES` is cut in pieces."""

    def __init__(self, sink: LogSink, name: str, pid: int) -> None:
        self._sink = sink
        self._name = name
        self._pid = pid
        self._partial = b""

    def feed(self, data: bytes) -> bytes:
        """Take the stream's next bytes; return those to feed again next, to keep each turn short.

        No record waits for a later turn: lines that are written together are read together, nearly always.
        """
        rest = self._feed(data)
        self._sink.flush()
        return rest

    def _feed(self, data: bytes) -> bytes:
        data = self._partial + data
        self._partial = b""
        start = 0
        for _ in range(LINES_PER_FEED):
            newline = data.find(b"\n", start, start + LINE_BYTES + 1)
            if newline < 0 and len(data) - start <= LINE_BYTES:
                self._partial = data[start:]
                return b""
            end = newline if newline >= 0 else _character_start(data, start + LINE_BYTES)
            if not self._sink.take(self._name, data[start:end], pid=self._pid):
                return self._drop_rest(data, end)
            start = end + 1 if newline >= 0 else end
        return data[start:]

    def close(self, rest: bytes = b"") -> None:
        """End the stream: what is left is taken, an unfinished line too, and a gap gets its marker."""
        while rest:
            rest = self.feed(rest)
        if self._partial:
            self._sink.take(self._name, self._partial, pid=self._pid)
            self._partial = b""
        self._sink.flush()
        self._sink.close_gap(pid=self._pid)

    def _drop_rest(self, data: bytes, start: int) -> bytes:
        """Drop all that came with a refused line in one step: a flood of short lines must not cost a loop each.

        What follows the last newline stays, as the beginning of a line that may yet be taken.
        """
        last = data.rfind(b"\n", start)
        if last < 0:
            last = len(data) - 1
        self._sink.drop(last + 1 - start)
        self._partial = data[last + 1 :][:LINE_BYTES]
        self._sink.drop(max(0, len(data) - last - 1 - LINE_BYTES))
        return b""


def _character_start(data: bytes, position: int) -> int:
    """Return the start of the UTF-8 character that `position` falls into."""
    for back in range(4):
        if data[position - back] & 0xC0 != 0x80:
            return position - back
    return position
