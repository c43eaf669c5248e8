"""Which items each endpoint has had lately: an LRU for each; and what each request has brought that has not ended yet. Pure.

Invariants: no endpoint holds more than `capacity` items, and what is noted of requests is bounded in requests and in items. The
index is a guess: engines are not asked.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

MAX_DUMPED: Final = 100
MAX_NOTED_REQUESTS: Final = 4096
MAX_NOTED_ITEMS: Final = 65_536
"""Items of all requests whose end may still take them back, some 5 MB."""

Brought: TypeAlias = Sequence[tuple[str, tuple[int, ...]]]
"""Endpoint ids, each with the items that it did not hold before."""


class ItemIndex:
    """Items by endpoint id."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held: dict[str, OrderedDict[int, None]] = {}
        self._ids: Sequence[str] | None = None

    def follow(self, ids: Sequence[str]) -> None:
        """Forget endpoints that are not among `ids`."""
        if ids is self._ids:
            return
        self._ids = ids
        present = set(ids)
        for endpoint_id in [held for held in self._held if held not in present]:
            del self._held[endpoint_id]

    def matched(self, endpoint_id: str, items: Iterable[int]) -> int:
        """How many of the items the endpoint holds. Looking changes nothing."""
        held = self._held.get(endpoint_id)
        return 0 if held is None else sum(item in held for item in items)

    def learn(self, endpoint_id: str, items: Iterable[int]) -> tuple[int, ...]:
        """The endpoint gets the items; returns those that it did not hold."""
        held = self._held.setdefault(endpoint_id, OrderedDict())
        fresh = []
        for item in items:
            if item in held:
                held.move_to_end(item)
            else:
                held[item] = None
                fresh.append(item)
        while len(held) > self._capacity:
            held.popitem(last=False)
        return tuple(fresh)

    def withdraw(self, endpoint_id: str, items: Iterable[int]) -> None:
        """The endpoint did not get the items after all."""
        held = self._held.get(endpoint_id)
        if held is not None:
            for item in items:
                held.pop(item, None)

    def dump(self) -> dict[str, object]:
        """How many items endpoints hold, the fullest first."""
        counts = sorted(
            ((len(held), endpoint_id) for endpoint_id, held in self._held.items()), key=lambda c: (-c[0], c[1])
        )
        shown = [{"endpoint": endpoint_id, "items": count} for count, endpoint_id in counts[:MAX_DUMPED]]
        return {"endpoints": shown, "total": len(counts)}


class Notes:
    """What requests have brought, by their id; of more than `requests`, or than `items`, the oldest are forgotten."""

    def __init__(self, requests: int = MAX_NOTED_REQUESTS, items: int = MAX_NOTED_ITEMS) -> None:
        self._most_requests = requests
        self._most_items = items
        self._items = 0
        self._noted: OrderedDict[str, Brought] = OrderedDict()

    def add(self, request_id: str, brought: Brought) -> None:
        """A request was sent; one of the same id is replaced."""
        self.take(request_id)
        self._noted[request_id] = brought
        self._items += _count(brought)
        while len(self._noted) > self._most_requests or self._items > self._most_items:
            self.take(next(iter(self._noted)))

    def take(self, request_id: str) -> Brought:
        """What the request has brought, which is forgotten with this."""
        brought = self._noted.pop(request_id, ())
        self._items -= _count(brought)
        return brought


def _count(brought: Brought) -> int:
    return sum(len(fresh) for _, fresh in brought)
