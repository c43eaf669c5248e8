"""Several feeds, in an order of precedence, as the one set of endpoints that the store is to hold.

Decides who is in: an id or an address (with its port) belongs to one endpoint. It is the first feed's that names it,
and within one feed the endpoint's that was there first; who comes later is ignored, is warned of with both names, and
takes over when the first lets go. A server that two feeds know under two names thus gets one share and not two.
Invariants: events of a feed count in the order in which they come; of what one call changes, upserts come before
deletes, so that a pool whose members are all replaced is never empty in between; an unchanged endpoint makes no event.
A change is worked out among those alone that share an id or an address with it, directly or through others. Pure.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert
from hotbay.errors import Problem

__all__ = ["Membership", "canonical_address"]

_CODE: Final = "DUPLICATE_NAME"

_Node: TypeAlias = tuple[str] | tuple[str, int]
"""What can be had by one endpoint only: an id, or an address with its port."""
_Key: TypeAlias = tuple[str, str]
"""Feed and id."""


@dataclass(frozen=True, slots=True)
class _Claim:
    feed: str
    number: int
    endpoint: EndpointMetadata

    @property
    def nodes(self) -> tuple[_Node, _Node]:
        return (self.endpoint.id,), (canonical_address(self.endpoint.address), self.endpoint.port)


class Membership:
    """See the module. `feeds` in order of precedence, each with the name that warnings give it."""

    def __init__(self, feeds: Mapping[str, str] = MappingProxyType({})) -> None:
        self._names = dict(feeds)
        self._rank = {feed: rank for rank, feed in enumerate(feeds)}
        self._claims: dict[_Key, _Claim] = {}
        self._at: dict[_Node, set[_Key]] = {}
        self._held: dict[str, _Claim] = {}
        self._ignored: dict[_Key, Problem] = {}
        self._number = 0

    @property
    def endpoints(self) -> tuple[EndpointMetadata, ...]:
        """What the store is to hold."""
        return tuple(claim.endpoint for claim in self._held.values())

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """One for each endpoint that is ignored: who has what it claims."""
        return tuple(self._ignored.values())

    def apply(self, feed: str, events: Iterable[EndpointEvent]) -> tuple[EndpointEvent, ...]:
        """Take over what a feed says and return what that changes. `feed` is one of the feeds."""
        assert feed in self._rank, "who speaks was named before"
        touched: set[_Node] = set()
        for event in events:
            key = (feed, event.endpoint.id)
            before = self._claims.get(key)
            if before is not None:
                touched.update(self._drop(key, before))
            if isinstance(event, Upsert):
                number = before.number if before is not None else self._next()
                touched.update(self._put(key, _Claim(feed, number, event.endpoint)))
        return self._settle(touched)

    def arrange(self, feeds: Mapping[str, str]) -> tuple[EndpointEvent, ...]:
        """Take over another order, and other names; feeds that are not in it are gone with all that they named."""
        self._names = dict(feeds)
        self._rank = {feed: rank for rank, feed in enumerate(feeds)}
        touched: set[_Node] = set()
        for key, claim in tuple(self._claims.items()):
            touched.update(self._drop(key, claim) if claim.feed not in self._rank else claim.nodes)
        return self._settle(touched)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _put(self, key: _Key, claim: _Claim) -> tuple[_Node, ...]:
        self._claims[key] = claim
        for node in claim.nodes:
            self._at.setdefault(node, set()).add(key)
        return claim.nodes

    def _drop(self, key: _Key, claim: _Claim) -> tuple[_Node, ...]:
        del self._claims[key]
        self._ignored.pop(key, None)
        for node in claim.nodes:
            keys = self._at[node]
            keys.discard(key)
            if not keys:
                del self._at[node]
        return claim.nodes

    def _settle(self, touched: set[_Node]) -> tuple[EndpointEvent, ...]:
        """Decide anew among all that the touched ids and addresses bear upon; elsewhere nothing can have changed."""
        keys, nodes = self._reach(touched)
        had = {node[0]: self._held.pop(node[0]) for node in nodes if len(node) == 1 and node[0] in self._held}
        taken: dict[_Node, _Claim] = {}
        upserts: list[EndpointEvent] = []
        for key in sorted(keys, key=lambda it: (self._rank[it[0]], self._claims[it].number)):
            claim = self._claims[key]
            holder = next((taken[node] for node in claim.nodes if node in taken), None)
            if holder is not None:
                self._ignored[key] = self._warning(claim, holder)
                continue
            self._ignored.pop(key, None)
            taken.update(dict.fromkeys(claim.nodes, claim))
            self._held[claim.endpoint.id] = claim
            before = had.pop(claim.endpoint.id, None)
            if before is None or before.endpoint != claim.endpoint:
                upserts.append(Upsert(claim.endpoint))
        gone = sorted(had.values(), key=lambda it: it.number)
        return (*upserts, *(Delete(claim.endpoint) for claim in gone))

    def _reach(self, touched: set[_Node]) -> tuple[set[_Key], set[_Node]]:
        keys: set[_Key] = set()
        nodes = set(touched)
        left = list(touched)
        while left:
            for key in self._at.get(left.pop(), ()):
                if key in keys:
                    continue
                keys.add(key)
                new = [node for node in self._claims[key].nodes if node not in nodes]
                nodes.update(new)
                left += new
        return keys, nodes

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
