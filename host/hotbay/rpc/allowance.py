"""How much of something a process may take: so much at once, and so much a second for ever. Pure."""

from collections.abc import Callable

__all__ = ["Allowance"]


class Allowance:
    """So much at once, and so much a second for ever. `now` is monotonic."""

    __slots__ = ("_at_once", "_filled_at", "_left", "_now", "_per_s")

    def __init__(self, at_once: int, per_s: float, now: Callable[[], float]) -> None:
        self._at_once = at_once
        self._per_s = per_s
        self._now = now
        self._left = float(at_once)
        self._filled_at = now()

    def take(self, cost: int = 1) -> bool:
        """Spend, or say that there is not enough."""
        now = self._now()
        self._left = min(self._at_once, self._left + (now - self._filled_at) * self._per_s)
        self._filled_at = now
        if self._left < cost:
            return False
        self._left -= cost
        return True

    def owe(self, cost: float) -> None:
        """Spend what is known only now, also more than there is: nothing is left then until it has come in again."""
        self._left -= cost

    def give_back(self, cost: int = 1) -> None:
        """Undo a `take` for which nothing was done after all."""
        self._left += cost
