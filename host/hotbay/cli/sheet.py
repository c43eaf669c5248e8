"""Pages for people: sentences, tables and bars, drawn for the terminal or the pipe that they go to.

A pipe gets plain lines at their natural width, a terminal tables that fit: the least important columns are left out by
name, no text is cut. What others named is escaped, and is never markup.
"""

import errno
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Sheet:
    """Collects what is to be shown, in order."""

    _parts: list[tuple[str | Grid | Bar, str]] = field(default_factory=list)

    def say(self, text: str, *, style: str = "") -> None:
        """One line of text, whoever wrote it."""
        self._parts.append((cell(text), style))

    def show(self, grid: Grid, *, style: str = "") -> None:
        """A table."""
        self._parts.append((grid, style))

    def bar(self, bar: Bar) -> None:
        """Progress."""
        self._parts.append((bar, ""))

    def print(self, console: Console) -> None:
        """Print everything."""
        for part, style in self._parts:
            if console.is_terminal:
                console.print(_drawn(part, style, console.width))
                continue
            for line in part.lines() if isinstance(part, Grid) else [str(part)]:
                console.print(Text(line), soft_wrap=True)

    def group(self, width: int) -> Group:
        """Everything as one picture for a terminal of this width."""
        return Group(*(_drawn(part, style, width) for part, style in self._parts))


def _drawn(part: str | Grid | Bar, style: str, width: int) -> RenderableType:
    if isinstance(part, Grid):
        return _table(part, style, width)
    if isinstance(part, Bar) and part.total > 0:
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_row(ProgressBar(part.total, min(part.done, part.total), width=_BAR_COLUMNS), Text(str(part)))
        return table
    return Text(str(part), style=style)


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
    return Group(table, Text(f"left out for want of room: {', '.join(left_out)}", style="dim"))


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
