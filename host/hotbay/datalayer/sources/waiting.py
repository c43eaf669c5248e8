"""What waits for one plugin that hears events, and of what it made nothing. Pure.

Events are taken in the order in which they came. Up to a bound every one of them is told; of more, those are passed over that
a newer one about the same subject follows, and subjects that went before the plugin heard of them. What is left is the newest
of each subject that is there or that the plugin has to hear of the end of: as many as there are of these, however many events
come. So a plugin that is late misses what was in between, and never how things are. Where even the newest are too long to be kept
there is no room: who brings events can wait for it.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = [
    "LOST_SHOWN_S",
    "MOST_BYTES_WAITING",
    "MOST_NAMED",
    "MOST_OBJECTS_WAITING",
    "MOST_WAITING",
    "Entry",
    "Lost",
    "Waiting",
]

MOST_WAITING: Final = 4096
"""Events of endpoints that wait in full; of more, the newest of each subject waits."""
MOST_OBJECTS_WAITING: Final = 256
"""The same of objects: documents may be long, and each that changed since is there for what waits alone."""
MOST_BYTES_WAITING: Final = 16 << 20
"""Bytes that wait in full: `MOST_OBJECTS_WAITING` of the longest that a package may tell of."""
ROOM_BYTES: Final = 128 << 20
"""Bytes that may wait at all: every object that a source of a package may have, and every one that it had before."""
MOST_NAMED: Final = 64
"""Subjects that are remembered by name; who has to read more names reads the log."""
LOST_SHOWN_S: Final = 600.0
"""How long it is told that a plugin made nothing of an event, unless it made something of a newer one."""

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Entry(Generic[E]):
    """One event. `subject` is what it is about, `is_end` that this went, `since_s` when it came, `size_bytes` what it takes."""

    subject: str
    event: E
    is_end: bool
    since_s: float
    size_bytes: int = 0


class Waiting(Generic[E]):
    """See the module."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = self._thin_above = most
        self._thin_above_bytes = MOST_BYTES_WAITING
        self._bytes = 0
        self._entries: deque[Entry[E]] = deque()
        self._heard: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def has_room(self) -> bool:
        """Whether more may come, as far as bytes go. It is not refused if it comes all the same."""
        return self._bytes <= ROOM_BYTES

    @property
    def first(self) -> Entry[E] | None:
        """The one that is taken next."""
        return self._entries[0] if self._entries else None

    def put(self, entry: Entry[E]) -> Sequence[Entry[E]]:
        """Let it wait; returns what is passed over for want of room."""
        self._entries.append(entry)
        self._bytes += entry.size_bytes
        is_much = len(self._entries) > self._thin_above or self._bytes > self._thin_above_bytes
        return self._thin() if is_much else ()

    def take(self) -> Entry[E]:
        """The one that came first. Raises IndexError when none waits."""
        entry = self._entries.popleft()
        self._bytes -= entry.size_bytes
        (self._heard.discard if entry.is_end else self._heard.add)(entry.subject)
        return entry

    def clear(self) -> None:
        """Forget everything, also what was heard."""
        self._entries.clear()
        self._bytes = 0
        self._heard.clear()

    def _thin(self) -> Sequence[Entry[E]]:
        newest = {entry.subject: entry for entry in self._entries}
        kept: deque[Entry[E]] = deque()
        passed_over: list[Entry[E]] = []
        for entry in self._entries:
            is_unheard_of = entry.is_end and entry.subject not in self._heard
            wanted = newest[entry.subject] is entry and not is_unheard_of
            (kept if wanted else passed_over).append(entry)
        self._entries = kept
        self._bytes = sum(entry.size_bytes for entry in kept)
        # Whatever is kept has to be: looking through it at every event would make many of them dear.
        self._thin_above = max(self._most, 2 * len(kept))
        self._thin_above_bytes = max(MOST_BYTES_WAITING, min(2 * self._bytes, ROOM_BYTES))
        return passed_over


class Lost:
    """The subjects of whose last event a plugin made nothing: the newest `MOST_NAMED` of them, each for `LOST_SHOWN_S`."""

    def __init__(self) -> None:
        self._since_s: OrderedDict[str, float] = OrderedDict()

    def note(self, subject: str, now: float) -> None:
        """It made nothing of an event about this."""
        self.mend(subject)
        self._since_s[subject] = now
        if len(self._since_s) > MOST_NAMED:
            self._since_s.popitem(last=False)

    def mend(self, subject: str) -> None:
        """It made something of a newer one."""
        self._since_s.pop(subject, None)

    def subjects(self, now: float) -> tuple[str, ...]:
        """In the order in which they were lost."""
        while self._since_s and now - next(iter(self._since_s.values())) >= LOST_SHOWN_S:
            self._since_s.popitem(last=False)
        return tuple(self._since_s)
