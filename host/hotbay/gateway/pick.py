"""Answers of `/pick` that are not settled yet: who holds which endpoint, and since when.

Pure: the time is an argument. All entries live equally long, so they expire in the order in which they came and one
look at the oldest is enough. Invariant: an entry leaves exactly once, by `settle` or by `expire`.
"""

from collections import deque

from hotbay.gateway.outcome import Outcome

__all__ = ["PickTable", "outcome_of"]


def outcome_of(value: object) -> Outcome | None:
    """The outcome that a client reports for its pick; None for one that does not exist."""
    try:
        return Outcome(str(value))
    except ValueError:
        return None


class PickTable:
    """Unsettled picks by id."""

    def __init__(self, lifetime_s: float, capacity: int) -> None:
        self._lifetime_s = lifetime_s
        self._capacity = capacity
        self._held: dict[str, str] = {}
        self._expiry: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def full(self) -> bool:
        """No further pick fits: the caller sheds load."""
        return len(self._held) >= self._capacity

    def hold(self, pick_id: str, endpoint_id: str, now: float) -> None:
        """Remember a pick until it is settled or expires."""
        self._held[pick_id] = endpoint_id
        self._expiry.append((now + self._lifetime_s, pick_id))

    def settle(self, pick_id: str) -> str | None:
        """The endpoint id of a pick, which is forgotten; None when it is unknown, settled or expired."""
        return self._held.pop(pick_id, None)

    def expire(self, now: float) -> list[str]:
        """Endpoint ids of the picks whose time is over; they are forgotten."""
        expired = []
        while self._expiry and (self._expiry[0][0] <= now or self._expiry[0][1] not in self._held):
            endpoint_id = self._held.pop(self._expiry.popleft()[1], None)
            if endpoint_id is not None:
                expired.append(endpoint_id)
        return expired
