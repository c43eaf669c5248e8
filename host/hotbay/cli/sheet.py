"""Pages for people: sentences, tables and bars, drawn for the terminal or the pipe that they go to.

A pipe gets plain lines at their natural width, a terminal tables that fit: the least important columns are left out by
name, no text is cut. What others named is escaped, and is never markup.
"""

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hotbay.observe.tables import UNKNOWN, Grid, cell

__all__ = ["Bar", "Screen", "Sheet", "ago", "cells", "mapping", "moment", "rows", "short_digests", "size", "texts"]

DIGEST_DIGITS: Final = 12
"""Enough to tell builds apart, what people are used to from other tools, and what commands take in place of all 64."""
_DIGEST: Final = re.compile(rf"(sha256:[0-9a-f]{{{DIGEST_DIGITS}}})[0-9a-f]{{{64 - DIGEST_DIGITS}}}(?![0-9a-f])")
_BAR_COLUMNS: Final = 30
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


class Screen(Console):
    """Where pages go. A reader that left is raised as such: whether that is a failure is not rich's to say."""

    def on_broken_pipe(self) -> None:
        """See `Console`, which exits with 1 here."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


@dataclass(frozen=True, slots=True)
class Bar:
    """Something under way, of which `done` of `total` bytes are there; `total` 0: nobody knows how much it will be."""

    label: str
    done: int
    total: int

    def __str__(self) -> str:
        if self.total <= 0:
            return f"{self.label}: {size(self.done)}"
        return f"{self.label}: {size(self.done)} of {size(self.total)} ({100 * self.done // self.total} %)"


@dataclass(frozen=True, slots=True)
class _Part:
    """`stays` are the numbers of rows that may be left out for want of lines, those first that go last.

    `is_aside`: it may be left out as a whole, and is before any row.
    """

    what: str | Grid | Bar
    style: str = ""
    stays: Sequence[int] = ()
    is_aside: bool = False


@dataclass(slots=True)
class Sheet:
    """Collects what is to be shown, in order."""

    _parts: list[_Part] = field(default_factory=list)

    def say(self, text: str, *, style: str = "", aside: bool = False) -> None:
        """One line of text, whoever wrote it. A picture that has too few lines leaves out what is said aside, the last first."""
        self._parts.append(_Part(cell(text), style, is_aside=aside))

    def show(self, grid: Grid, *, style: str = "", stays: Sequence[int] = ()) -> None:
        """A table. A picture that has too few lines leaves rows of `stays` out, the last of these first."""
        self._parts.append(_Part(grid, style, stays))

    def bar(self, bar: Bar) -> None:
        """Progress."""
        self._parts.append(_Part(bar))

    def print(self, console: Console) -> None:
        """Print everything."""
        for part in self._parts:
            if console.is_terminal:
                console.print(_drawn(part, console.width))
                continue
            for line in part.what.lines() if isinstance(part.what, Grid) else [str(part.what)]:
                console.print(Text(line), soft_wrap=True)

    def picture(self, console: Console) -> Group:
        """Everything as one picture that is drawn again and again, which only one that fits into the terminal can be."""
        longest = max(self._parts, key=lambda part: len(part.stays), default=None)
        rows, gone = 0 if longest is None else len(longest.stays), 0
        asides, hidden = [part for part in self._parts if part.is_aside], 0
        while True:
            left = asides[: len(asides) - hidden]
            parts = [part for part in self._parts if not part.is_aside or any(part is one for one in left)]
            drawn = [_drawn(_without(one, gone) if one is longest else one, console.width) for one in parts]
            if hidden:
                drawn.append(_left_out([f"{hidden} remark{'s' * (hidden != 1)}"]))
            whole = Group(*drawn)
            lines = len(console.render_lines(whole, pad=False))
            excess = lines - (console.height - 1)
            if excess <= 0 or (gone == rows and hidden == len(asides)):
                return whole
            if hidden < len(asides):
                hidden = min(len(asides), hidden + excess)
            else:
                # A row may fold into several lines, so that what is too much is taken away bit by bit.
                gone += max(1, (rows - gone) * excess // lines)


def _without(part: _Part, count: int) -> _Part:
    """The same without so many rows, in the place of which one says how many there are."""
    if not count:
        return part
    assert isinstance(part.what, Grid), "only a table has rows"
    gone = frozenset(part.stays[-count:])
    left = tuple(row for number, row in enumerate(part.what.rows) if number not in gone)
    more = (f"and {count} more", *([""] * (len(part.what.names) - 1)))
    return _Part(replace(part.what, rows=(*left, more)), part.style)


def _drawn(part: _Part, width: int) -> RenderableType:
    what = part.what
    if isinstance(what, Grid):
        return _table(what, part.style, width)
    if isinstance(what, Bar) and what.total > 0:
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_row(ProgressBar(what.total, min(what.done, what.total), width=_BAR_COLUMNS), Text(str(what)))
        return table
    return Text(str(what), style=part.style)


def _table(grid: Grid, style: str, width: int) -> RenderableType:
    fitted = grid.fitted(width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", style=style)
    for name in fitted.names:
        table.add_column(Text(name), overflow="fold")
    for row in fitted.rows:
        table.add_row(*(Text(text, style=style) for text in row))
    left_out = grid.without(fitted)
    if not left_out:
        return table
    return Group(table, _left_out(left_out))


def _left_out(names: Sequence[str]) -> Text:
    return Text(f"left out for want of room: {', '.join(names)}", style="dim")


def texts(value: object) -> list[str]:
    """The items of a list of a page, as text."""
    return [str(item) for item in value] if isinstance(value, list) else []


def rows(value: object) -> list[Mapping[str, object]]:
    """The objects of a list of a page."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def mapping(value: object) -> Mapping[str, object]:
    """An object of a page, or one without anything."""
    return value if isinstance(value, dict) else {}


def cells(row: Mapping[str, object], names: Iterable[str]) -> tuple[str, ...]:
    """Some values of a row."""
    return tuple(cell(row.get(name)) for name in names)


def ago(value: object) -> str:
    """How long ago, as people say it."""
    if not isinstance(value, int | float):
        return UNKNOWN
    for unit, length_s in (("h", 3600), ("min", 60)):
        if value >= 2 * length_s:
            return f"{value / length_s:.0f} {unit} ago"
    return f"{value:.0f} s ago"


def short_digests(text: str) -> str:
    """The text with the beginning of each digest in its place."""
    return _DIGEST.sub(r"\1", text)


def moment(at_s: float) -> str:
    """A time of the wall clock, in UTC; the number itself if it is none that a calendar has."""
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(at_s)


def size(count: int) -> str:
    """Bytes in the unit in which people read them."""
    number, unit = float(count), "bytes"
    for larger in _UNITS:
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{number:.1f} {unit}"
