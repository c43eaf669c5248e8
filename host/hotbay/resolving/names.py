"""What is known of names: whose addresses can be told at once, and which lookups may begin. Pure; `now` is monotonic seconds.

A system's resolver blocks a thread for as long as a name's servers are silent, which is ten seconds and more. So there is
one lookup of a name under way, whoever asks and gives up meanwhile, and names are of three ranks: those that were answered
soon the last time, those that nobody knows yet, and those that were not answered soon. The first two have RESERVED lookups
each that no other rank gets: however many names hang, those of a better rank and new ones do not wait for them. Within a
rank who came first is first, be it that names before hang; those that were answered have their last addresses meanwhile.
Invariants: a name is idle, waits, or is looked up; at most MAX_LOOKUPS are looked up at a time.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

__all__ = ["FRESH_S", "GRACE_S", "MAX_AGE_S", "MAX_LOOKUPS", "RESERVED", "SOON_S", "Names", "Rank", "Told"]

FRESH_S: Final = 1.0
"""Addresses, and the answer that there are none, are told again for so long without another lookup: who dials a thousand
times a second asks once."""
MAX_AGE_S: Final = 60.0
"""Addresses that were good so long ago still serve while there is no newer answer. Longer than a name server's restart; a
name that moved meanwhile is dialled where it was until it is answered again."""
GRACE_S: Final = 0.1
"""What a new answer is waited for before the last addresses serve: ten times what a name server beside the host takes."""
SOON_S: Final = 1.0
"""A name whose lookup took longer is of the last rank until one is answered sooner."""

MAX_LOOKUPS: Final = 128
_MOST_NAMES: Final = 4096
"""Names beyond that, which nobody asked for within MAX_AGE_S, are forgotten."""


class Rank(enum.IntEnum):
    """How a name's last lookup went, best first."""

    ANSWERED = 0
    UNKNOWN = 1
    SLOW = 2


RESERVED: Final = {Rank.ANSWERED: 32, Rank.UNKNOWN: 32, Rank.SLOW: 0}
"""Lookups of MAX_LOOKUPS that no other rank takes: an answer within some ms makes thousands a second of them. Names that were
slow get what is left."""


@dataclass(frozen=True, slots=True)
class Told:
    """What can be said of a name: its addresses, or why there are none.

    `wait_s`: how long an answer that is under way is waited for before that is said; 0 says it now.
    """

    addresses: tuple[str, ...] = ()
    error: str = ""
    wait_s: float = 0.0


@dataclass(slots=True)
class _Name:
    """One name. `asked_s` is when the lookup that is wanted was asked for first, None when none is; it is waited for, or runs."""

    addresses: tuple[str, ...] = ()
    good_s: float = -math.inf
    error: str = ""
    failed_s: float = -math.inf
    rank: Rank = Rank.UNKNOWN
    asked_s: float | None = None
    began_s: float | None = None
    used_s: float = -math.inf


@dataclass(slots=True)
class Names:
    """See the module. Not thread-safe."""

    _names: dict[str, _Name] = field(default_factory=dict)
    _waiting: dict[Rank, dict[str, None]] = field(default_factory=lambda: {rank: {} for rank in Rank})
    _running: dict[Rank, int] = field(default_factory=lambda: dict.fromkeys(Rank, 0))
    _forget_at: int = _MOST_NAMES

    @property
    def running(self) -> int:
        """Lookups under way."""
        return sum(self._running.values())

    def ask(self, name: str, now: float) -> Told:
        """Say what is known of a name; a lookup of it is wanted from now on unless that is new."""
        known = self._names.get(name)
        if known is None:
            self._forget(now)
            known = self._names[name] = _Name()
        known.used_s = now
        if now - max(known.good_s, known.failed_s) < FRESH_S:
            return self._said(known, now)
        if known.asked_s is None:
            known.asked_s = now
            self._waiting[known.rank][name] = None
        said = self._said(known, now)
        return Told(said.addresses, said.error, max(0.0, known.asked_s + GRACE_S - now) if said.addresses else math.inf)

    def begin(self, now: float) -> Sequence[str]:
        """The names whose lookups begin now: the better rank first, of one rank who waits longest."""
        begun: list[str] = []
        for rank, waiting in self._waiting.items():
            while waiting and self._has_room(rank):
                name = next(iter(waiting))
                del waiting[name]
                self._names[name].began_s = now
                self._running[rank] += 1
                begun.append(name)
        return begun

    def answered(self, name: str, addresses: tuple[str, ...], now: float) -> Told:
        """A lookup that began ended with addresses, at least one."""
        known = self._ended(name, now)
        known.addresses, known.good_s = addresses, now
        return Told(addresses)

    def failed(self, name: str, error: str, now: float) -> Told:
        """A lookup that began ended without; says what is told of the name then."""
        known = self._ended(name, now)
        known.error, known.failed_s = error, now
        return self._said(known, now)

    def is_waited_for(self, name: str) -> bool:
        """Whether a lookup of the name is under way or waits."""
        known = self._names.get(name)
        return known is not None and known.asked_s is not None

    def _ended(self, name: str, now: float) -> _Name:
        known = self._names[name]
        assert known.began_s is not None
        self._running[known.rank] -= 1
        known.rank = Rank.ANSWERED if now - known.began_s < SOON_S else Rank.SLOW
        known.asked_s = known.began_s = None
        return known

    def _has_room(self, rank: Rank) -> bool:
        kept = sum(max(0, RESERVED[other] - count) for other, count in self._running.items() if other is not rank)
        return self.running + kept < MAX_LOOKUPS

    def _said(self, known: _Name, now: float) -> Told:
        is_good = now - known.good_s < MAX_AGE_S
        return Told(known.addresses) if is_good else Told(error=known.error)

    def _forget(self, now: float) -> None:
        if len(self._names) < self._forget_at:
            return
        self._names = {
            name: known
            for name, known in self._names.items()
            if known.asked_s is not None or now - known.used_s < MAX_AGE_S
        }
        self._forget_at = max(_MOST_NAMES, 2 * len(self._names))
