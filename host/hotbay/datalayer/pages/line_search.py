"""Finds the lines of wanted names in a metrics page without looking at the others, and where they stood last time.

A page has a thousand lines and a handful are wanted, twenty times a second. The exposition formats ask that all lines of
a family stand together, so that a page's wanted lines stay in the same few places while numbers before them grow by a
digit. `LineMemory` keeps these places of one endpoint, and the next search looks there, with room around them. Its
answer counts only if each place still begins and ends with lines of other names, and each family is where it was;
otherwise, and in every FULL_EVERY-th search in any case, the whole page is searched. So a family that a server begins
to report is found at the latest FULL_EVERY pages later, and one that a page has in two places apart (which the formats
forbid) is searched for in whole pages only. Pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hotbay.datalayer.pages.text import PageText

__all__ = ["FULL_EVERY", "MAX_LINES", "FoundLine", "LineMemory", "LineSearch"]

MAX_LINES: Final = 4096
"""A page has a handful; a thousand LoRA label sets are a quarter of it. Bounds what one page may cost the loop."""

FULL_EVERY: Final = 20
"""One second of pages at the shortest interval."""

FoundLine = tuple[bytes, bytes]
"""The name, and what follows it on its line."""

_ROOM_BYTES: Final = 1024
"""How far lines may move between two full searches: numbers of fifty lines before them grow by some digits."""

_NEAR_BYTES: Final = 8 * _ROOM_BYTES
"""Places that are nearer to each other than this are one."""

_MOST_PLACES: Final = 8
"""Of a page that needs more, a full search costs hardly more."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Part of a page: offsets from its beginning, and the names found in it, in order of first appearance."""

    start: int
    end: int
    names: tuple[bytes, ...]


class LineMemory:
    """What a search remembers of one endpoint's pages."""

    __slots__ = ("places", "searches")

    def __init__(self) -> None:
        self.places: tuple[_Place, ...] = ()
        self.searches = 0


class LineSearch:
    """Finds lines by name; names are of ASCII letters, digits, `_` and `:`."""

    def __init__(self, names: Iterable[str]) -> None:
        choice = "|".join(re.escape(name) for name in sorted(set(names)))
        # A literal line feed in front lets the search skip whole lines; an anchor would try every byte.
        self._wanted = re.compile(rf"\n[ \t]*+({choice})(?=[{{ \t\r\n]|\Z)([^\n]*)".encode("ascii")) if choice else None

    def find(self, page: PageText, memory: LineMemory | None = None) -> list[FoundLine]:
        """The lines of the wanted names, in page order, at most MAX_LINES + 1; looked for where `memory` says, if it can
        be trusted.
        """
        if self._wanted is None:
            return []
        if memory is not None:
            memory.searches += 1
            if memory.places and memory.searches % FULL_EVERY:
                found = _find_in_places(self._wanted, page, memory.places)
                if found is not None:
                    return found
        matches = _matches(self._wanted, page, page.start, page.end)
        if memory is not None:
            memory.places = _places_of(matches, page.start)
        return [(match[1], match[2]) for match in matches]


def _matches(wanted: re.Pattern[bytes], page: PageText, start: int, end: int) -> list[re.Match[bytes]]:
    """The wanted lines between two offsets of the buffer, of which the first is the beginning of a line."""
    return list(islice(wanted.finditer(page.buffer, start - 1, end), MAX_LINES + 1))


def _find_in_places(wanted: re.Pattern[bytes], page: PageText, places: Sequence[_Place]) -> list[FoundLine] | None:
    """The lines in these places of the page, None if there may be others beside them."""
    found: list[FoundLine] = []
    buffer, reached = page.buffer, page.start
    for place in places:
        # From the beginning of a line to the end of one.
        start = page.start
        if place.start > _ROOM_BYTES:
            start = buffer.find(b"\n", page.start + place.start - _ROOM_BYTES, page.end) + 1
        end = buffer.find(b"\n", page.start + place.end + _ROOM_BYTES, page.end)
        end = end if end >= 0 else page.end
        if start < reached:
            return None
        reached = end
        matches = _matches(wanted, page, start, end)
        if not matches or _names_of(matches) != place.names:
            return None
        # What lies just beyond the lines has to be here, too: only then it is known to have another name.
        begins = start == page.start or matches[0].start() >= start
        ends = end == page.end or matches[-1].end() < end
        if not (begins and ends):
            return None
        found += [(match[1], match[2]) for match in matches]
    return found


def _places_of(matches: Sequence[re.Match[bytes]], start: int) -> tuple[_Place, ...]:
    """Where these lines stand; nothing if a name stands in two places, or if there are too many."""
    ends: dict[bytes, int] = {}
    groups: list[list[re.Match[bytes]]] = []
    for match in matches:
        if ends.get(match[1], match.start()) != match.start():
            return ()
        ends[match[1]] = match.end()
        if groups and match.start() - groups[-1][-1].end() < _NEAR_BYTES:
            groups[-1].append(match)
        else:
            groups.append([match])
    if len(groups) > _MOST_PLACES:
        return ()
    return tuple(_Place(group[0].start() - start, group[-1].end() - start, _names_of(group)) for group in groups)


def _names_of(matches: Iterable[re.Match[bytes]]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(match[1] for match in matches))
