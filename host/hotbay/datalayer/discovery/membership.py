"""Several feeds, in an order of precedence, as the one set of endpoints that the store is to hold.

Decides who is in: an id or an address (with its port) belongs to one endpoint. It is the first feed's that names it,
and within one feed the endpoint's that was there first; who comes later is ignored, is warned of with both names, and
takes over when the first lets go. A server that two feeds know under two names thus gets one share and not two.
Invariants: events of a feed count in the order in which they come; of what one call changes, upserts come before
deletes, so that a pool whose members are all replaced is never empty in between; an unchanged endpoint makes no event.
Whoever is ignored waits at one id or address for the holder of it, who comes before; a change looks at who holds what it
is about, and at who waits first, however many want the same. Pure.
"""

import heapq
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType
from typing import Final, TypeAlias

from hotbay.datalayer.discovery.told import MAX_TOLD
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.errors import Problem

__all__ = ["Membership", "canonical_address"]

_CODE: Final = "DUPLICATE_NAME"

_Node: TypeAlias = tuple[str] | tuple[str, int]
"""What can be had by one endpoint only: an id, or an address with its port."""
_Key: TypeAlias = tuple[str, str]
"""Feed and id."""
_Order: TypeAlias = tuple[int, int]
"""Of claims: the feed's rank, and then who was there first. No two claims have the same."""


@dataclass(frozen=True, slots=True)
class _Claim:
    feed: str
    number: int
    endpoint: EndpointMetadata
    nodes: tuple[_Node, _Node] = field(init=False)

    def __post_init__(self) -> None:
        # Once: addresses are read by the thousand when a pool is replaced, in one step of the loop.
        address = canonical_address(self.endpoint.address)
        object.__setattr__(self, "nodes", ((self.endpoint.id,), (address, self.endpoint.port)))


@dataclass(slots=True)
class _Waiting:
    """Who waits at one id or address. Who left stands in the heap until it is too long."""

    _order: dict[_Key, _Order] = field(default_factory=dict)
    _heap: list[tuple[_Order, _Key]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._order)

    def add(self, key: _Key, order: _Order) -> None:
        self._order[key] = order
        heapq.heappush(self._heap, (order, key))

    def discard(self, key: _Key) -> None:
        self._order.pop(key, None)
        if len(self._heap) > 2 * len(self._order) + 16:
            self._heap = sorted((order, one) for one, order in self._order.items())

    def take_first(self) -> tuple[_Order, _Key] | None:
        while self._heap:
            order, key = heapq.heappop(self._heap)
            if self._order.get(key) == order:
                del self._order[key]
                return order, key
        return None


class Membership:
    """See the module. `feeds` in order of precedence, each with the name that warnings give it."""

    def __init__(self, feeds: Mapping[str, str] = MappingProxyType({})) -> None:
        self._names = dict(feeds)
        self._rank = {feed: rank for rank, feed in enumerate(feeds)}
        self._claims: dict[_Key, _Claim] = {}
        self._holders: dict[_Node, _Claim] = {}
        self._waiting: dict[_Node, _Waiting] = {}
        self._waits_at: dict[_Key, _Node] = {}
        self._number = 0

    @property
    def ignored_count(self) -> int:
        """Endpoints that are ignored."""
        return len(self._waits_at)

    @property
    def warnings(self) -> Mapping[tuple[str, str], Problem]:
        """Who has what an endpoint claims, by feed and id of those that are ignored: of the first MAX_TOLD of them."""
        first = islice(self._waits_at.items(), MAX_TOLD)
        return {key: self._warning(self._claims[key], self._holders[node]) for key, node in first}

    def apply(self, feed: str, events: Iterable[EndpointEvent]) -> tuple[EndpointEvent, ...]:
        """Take over what a feed says and return what that changes. `feed` is one of the feeds."""
        assert feed in self._rank, "who speaks was named before"
        had: dict[str, _Claim | None] = {}
        for event in events:
            key = (feed, event.endpoint.id)
            before = self._claims.get(key)
            if isinstance(event, Upsert):
                number = before.number if before is not None else self._next()
                self._put(key, before, _Claim(feed, number, event.endpoint), had)
            elif before is not None:
                self._drop(key, before, had)
        return self._changes(had)

    def arrange(self, feeds: Mapping[str, str]) -> tuple[EndpointEvent, ...]:
        """Take over another order, and other names; feeds that are not in it are gone with all that they named."""
        self._names = dict(feeds)
        self._rank = {feed: rank for rank, feed in enumerate(feeds)}
        had: dict[str, _Claim | None] = {node[0]: claim for node, claim in self._holders.items() if len(node) == 1}
        self._claims = {key: claim for key, claim in self._claims.items() if claim.feed in self._rank}
        self._holders.clear()
        self._waiting.clear()
        self._waits_at.clear()
        self._settle(((self._order(claim), key) for key, claim in self._claims.items()), had)
        return self._changes(had)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _order(self, claim: _Claim) -> _Order:
        return self._rank[claim.feed], claim.number

    def _put(self, key: _Key, before: _Claim | None, claim: _Claim, had: dict[str, _Claim | None]) -> None:
        if before is not None and before.nodes == claim.nodes:
            # It claims what it claimed, and has it or waits for it as before.
            self._claims[key] = claim
            if key not in self._waits_at:
                had.setdefault(claim.endpoint.id, before)
                self._holders.update(dict.fromkeys(claim.nodes, claim))
            return
        if before is not None:
            self._drop(key, before, had)
        self._claims[key] = claim
        self._settle([(self._order(claim), key)], had)

    def _drop(self, key: _Key, claim: _Claim, had: dict[str, _Claim | None]) -> None:
        del self._claims[key]
        node = self._waits_at.pop(key, None)
        if node is None:
            self._settle(self._release(claim, had), had)
            return
        self._waiting[node].discard(key)
        if not self._waiting[node]:
            del self._waiting[node]

    def _settle(self, asking: Iterable[tuple[_Order, _Key]], had: dict[str, _Claim | None]) -> None:
        """Give those that ask what nobody before them has, and go on with who lost or may have something by that."""
        queue = list(asking)
        heapq.heapify(queue)
        while queue:
            order, key = heapq.heappop(queue)
            claim = self._claims[key]
            losers: dict[_Key, _Claim] = {}
            for node in claim.nodes:
                holder = self._holders.get(node)
                if holder is None:
                    continue
                if self._order(holder) < order:
                    self._wait(key, order, node)
                    break
                losers[holder.feed, holder.endpoint.id] = holder
            else:
                for other, loser in losers.items():
                    for one in (*self._release(loser, had, but=claim.nodes), (self._order(loser), other)):
                        heapq.heappush(queue, one)
                self._take(claim, had)
            # What it came for may be free all the same, when something else keeps it out.
            for one in self._first_waiting(claim.nodes):
                heapq.heappush(queue, one)

    def _wait(self, key: _Key, order: _Order, node: _Node) -> None:
        self._waits_at[key] = node
        self._waiting.setdefault(node, _Waiting()).add(key, order)

    def _take(self, claim: _Claim, had: dict[str, _Claim | None]) -> None:
        had.setdefault(claim.endpoint.id, self._holders.get((claim.endpoint.id,)))
        self._holders.update(dict.fromkeys(claim.nodes, claim))

    def _release(
        self, claim: _Claim, had: dict[str, _Claim | None], *, but: tuple[_Node, ...] = ()
    ) -> list[tuple[_Order, _Key]]:
        """Take from a holder what it has; who may have it now, but for what another one is about to take."""
        had.setdefault(claim.endpoint.id, claim)
        for node in claim.nodes:
            del self._holders[node]
        return list(self._first_waiting(node for node in claim.nodes if node not in but))

    def _first_waiting(self, nodes: Iterable[_Node]) -> Iterator[tuple[_Order, _Key]]:
        """Who waits first at each of these that nobody holds: it waits there no more."""
        for node in nodes:
            waiting = self._waiting.get(node)
            if waiting is None or node in self._holders:
                continue
            first = waiting.take_first()
            if not waiting:
                del self._waiting[node]
            if first is not None:
                del self._waits_at[first[1]]
                yield first

    def _changes(self, had: Mapping[str, _Claim | None]) -> tuple[EndpointEvent, ...]:
        """Events that lead from what ids had to what they have."""
        have = {endpoint_id: self._holders.get((endpoint_id,)) for endpoint_id in had}
        came = [
            claim
            for endpoint_id, claim in have.items()
            if claim is not None and ((before := had[endpoint_id]) is None or before.endpoint != claim.endpoint)
        ]
        gone = [before for endpoint_id, before in had.items() if before is not None and have[endpoint_id] is None]
        return (
            *(Upsert(claim.endpoint) for claim in sorted(came, key=self._order)),
            *(Delete(claim.endpoint) for claim in sorted(gone, key=lambda it: it.number)),
        )

    def _warning(self, ignored: _Claim, holder: _Claim) -> Problem:
        first, second = ignored.endpoint, holder.endpoint
        name = self._names[holder.feed]
        why = (
            f"{name} has that name"
            if first.id == second.id
            else f"it is the same server, {first.authority}, as {second.id!r} of {name}"
        )
        return Problem(_CODE, f"the endpoint {first.id!r} of {self._names[ignored.feed]} is ignored: {why}")


def canonical_address(address: str) -> str:
    """One spelling for all of an address: IPv4 in IPv6 is IPv4, names are in lower case and without a last dot."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address.lower().removesuffix(".")
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
