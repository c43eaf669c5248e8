"""Tables for people: which columns fit, and rows as plain lines. Pure; whoever has a terminal draws them.

Nothing is ever cut: a pipe gets lines at their natural width, and on a terminal the least important columns are left
out, by name, before others fold.
"""

from dataclasses import dataclass
from typing import Final
from unicodedata import east_asian_width

from hotbay.errors import printable

__all__ = ["UNKNOWN", "Grid", "cell"]

UNKNOWN: Final = "–"
_GAP: Final = 2
# A name folded into two or three lines of this length can still be read.
_FOLDED: Final = 32


@dataclass(frozen=True, slots=True)
class Grid:
    """A header, rows as long as it, and for each column its rank: the highest rank is left out first, rank 0 never."""

    names: tuple[str, ...]
    ranks: tuple[int, ...]
    rows: tuple[tuple[str, ...], ...]

    def fitted(self, width: int) -> "Grid":
        """The grid without the columns that have to go for the others to fit into `width` characters, folded if long."""
        kept = list(range(len(self.names)))
        widths = [min(width, _FOLDED) for width in self._widths()]
        while sum(widths[i] + _GAP for i in kept) - _GAP > width:
            last = max(kept, key=lambda i: (self.ranks[i], i))
            if self.ranks[last] == 0:
                break
            kept.remove(last)
        return Grid(
            tuple(self.names[i] for i in kept),
            tuple(self.ranks[i] for i in kept),
            tuple(tuple(row[i] for i in kept) for row in self.rows),
        )

    def without(self, other: "Grid") -> tuple[str, ...]:
        """Names of the columns that `other` lacks."""
        return tuple(name for name in self.names if name not in other.names)

    def lines(self) -> list[str]:
        """Header and rows, padded to their natural width, without trailing spaces."""
        widths = self._widths()
        return [
            (" " * _GAP)
            .join(text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True))
            .rstrip()
            for row in (self.names, *self.rows)
        ]

    def _widths(self) -> list[int]:
        return [max(map(_width, column)) for column in zip(self.names, *self.rows, strict=True)]


def cell(value: object) -> str:
    """The text of a value: one line of printable characters, whoever named it; a dash when it is not known."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "" if value is None else str(value)
    return printable(text).replace("\n", "\\n") if text else UNKNOWN


def _width(text: str) -> int:
    return len(text) + sum(1 for character in text if east_asian_width(character) in "WF")
