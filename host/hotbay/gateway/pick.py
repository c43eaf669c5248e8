"""Answers of `/pick` that are not settled yet: who holds which endpoint, and since when.

Pure: the time is an argument. All entries live equally long, so they expire in the order in which they came and one
look at the oldest is enough. Invariant: an entry leaves exactly once, by `settle` or by `expire`.
"""

from collections import OrderedDict
from typing import Generic, TypeVar

from hotbay.gateway.outcome import Outcome

__all__ = ["PickTable", "outcome_of"]


def outcome_of(value: object) -> Outcome | None:
    """The outcome that a client reports for its pick; None for one that does not exist."""
    try:
        return Outcome(str(value))
    except ValueError:
        return None


Held = TypeVar("Held")


class PickTable(Generic[Held]):
    """Unsettled picks by id, each with what its settling needs."""

    def __init__(self, lifetime_s: float, capacity: int) -> None:
        self._lifetime_s = lifetime_s
        self._capacity = capacity
        # Not a plain dict: finding the first of those that are left costs it time for each that was settled before.
        self._held: OrderedDict[str, tuple[float, Held]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def full(self) -> bool:
        """No further pick fits: the caller sheds load."""
        return len(self._held) >= self._capacity

    def hold(self, pick_id: str, pick: Held, now: float) -> None:
        """Remember a pick until it is settled or expires."""
        self._held[pick_id] = (now + self._lifetime_s, pick)

    def settle(self, pick_id: str) -> Held | None:
        """A pick, which is forgotten; None when it is unknown, settled or expired."""
        held = self._held.pop(pick_id, None)
        return None if held is None else held[1]

    def expire(self, now: float) -> list[Held]:
        """The picks whose time is over; they are forgotten."""
        expired = []
        while self._held:
            pick_id, (expires_at, pick) = next(iter(self._held.items()))
            if expires_at > now:
                break
            del self._held[pick_id]
            expired.append(pick)
        return expired
