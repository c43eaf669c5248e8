"""How often the host says one thing: at most `LINES_PER_MINUTE` lines in any minute, the rest counted. Pure.

One thing is a key that the caller makes: what happened, to which version of whom, with which code. A key may say `BURST`
lines at once and then one per `REFILL_S`, which is never more than `BURST + 1` in a minute. Memory is bounded by `keys_max`:
over it, the key that was silent for longest is forgotten.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

__all__ = ["BURST", "KEYS_MAX", "LINES_PER_MINUTE", "REFILL_S", "FloodLimiter"]

LINES_PER_MINUTE: Final = 6
BURST: Final = LINES_PER_MINUTE - 1
REFILL_S: Final = 60.0
KEYS_MAX: Final = 1024
"""By default: plugins and endpoints of a large host, times what can go wrong with each."""

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


@dataclass(slots=True)
class _Account(Generic[_T]):
    lines: float
    at_s: float
    held_count: int = 0
    last_held: _T | None = None


class FloodLimiter(Generic[_K, _T]):
    """Decides for each item whether it is said. Times are of one monotonic clock, in seconds, never going back."""

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._accounts: OrderedDict[_K, _Account[_T]] = OrderedDict()
        self._holding: set[_K] = set()

    def admit(self, key: _K, item: _T, now_s: float) -> int | None:
        """How many were held back since the last one that was said, or None: this one is held back, too."""
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = _Account(float(BURST), now_s)
            self._forget_oldest()
        self._accounts.move_to_end(key)
        if self._spend(account, now_s):
            return self._told(key, account)
        account.held_count += 1
        account.last_held = item
        self._holding.add(key)
        return None

    def overdue(self, now_s: float) -> list[tuple[_T, int]]:
        """Last items of keys that may say a line again, with how many more were held back before each: say them now."""
        found: list[tuple[_T, int]] = []
        for key in [*self._holding]:
            account = self._accounts[key]
            last = account.last_held
            if last is not None and self._spend(account, now_s):
                found.append((last, self._told(key, account) - 1))
        return found

    def close(self) -> list[tuple[_T, int]]:
        """As `overdue`, of all keys that hold something back: there is no later."""
        accounts = [(key, self._accounts[key]) for key in [*self._holding]]
        found = [(a.last_held, self._told(key, a) - 1) for key, a in accounts]
        return [(item, count) for item, count in found if item is not None]

    def _spend(self, account: _Account[_T], now_s: float) -> bool:
        account.lines = min(float(BURST), account.lines + (now_s - account.at_s) / REFILL_S)
        account.at_s = now_s
        if account.lines < 1:
            return False
        account.lines -= 1
        return True

    def _told(self, key: _K, account: _Account[_T]) -> int:
        count, account.held_count, account.last_held = account.held_count, 0, None
        self._holding.discard(key)
        return count

    def _forget_oldest(self) -> None:
        if len(self._accounts) > self._keys_max:
            key, _ = self._accounts.popitem(last=False)
            self._holding.discard(key)
