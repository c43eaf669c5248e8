"""Which of the endpoints that discoveries name may be used: none where the host itself listens or no machine is, and with
networks that the operator allows none elsewhere.

Stands between what feeds say and the set that is made of it. Decides by every place that requests for an endpoint could be
sent to: its own address, where its metrics are, and the machine that it runs on. An endpoint is taken as a whole or not at
all; one that moves to where it may not be is gone. A name is refused under a list: whoever answers for it decides anew at
each connection where it leads. IPv4 in IPv6 is IPv4. What is refused is remembered, so that a longer list lets it in. Pure.
"""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias

from hotbay.datalayer.discovery.places import Own, is_nowhere, places_of, plain_address
from hotbay.datalayer.discovery.told import MAX_TOLD, and_more
from hotbay.datalayer.endpoint import Delete, EndpointEvent, EndpointMetadata, Upsert, format_authority
from hotbay.errors import Problem

__all__ = ["ADDRESS_REFUSED", "NOT_OWN", "RESERVED", "SOMEWHERE", "Gate"]

ADDRESS_REFUSED: Final = "ADDRESS_REFUSED"
RESERVED: Final = "reserved"
"""Why an endpoint is refused that is where no model server is."""
NOT_OWN: Final = "an address that is not this host's own"
SOMEWHERE: Final = "no unspecified, multicast or broadcast address"
_COMES_BACK: Final = "a request that is sent there comes back: name the address at which the model server listens"
_NO_ANSWER: Final = "no server has this address: a name server that blocks a name answers so"
_KEY: Final = "discovery.allowed_networks"
_MAX_SHOWN: Final = 5
"""Of the networks, in one problem."""

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class _Refusal:
    path: str
    host: str
    reason: str
    expected: str = ""
    hint: str = ""


class Gate:
    """See the module. `take` for each feed that is no configuration of the host's own.

    Args:
        networks: those that are allowed, each in the form `10.0.0.0/8`; None for all, and for names.
        refused: called at each endpoint that is refused with why: `network`, `name`, or RESERVED for the host's own and for no machine's.
        own: what the host listens on: a request that is sent there comes back.
    """

    def __init__(
        self,
        networks: Sequence[str] | None = None,
        refused: Callable[[str], None] = lambda _reason: None,
        *,
        own: Own = lambda _host, _port: False,
    ) -> None:
        self._own = own
        self._networks = _read(networks)
        self._count = refused
        self._names: Mapping[str, str] = {}
        self._named: dict[str, dict[str, EndpointMetadata]] = {}
        self._refused: dict[tuple[str, str], _Refusal] = {}

    @property
    def refused_count(self) -> int:
        """Endpoints that are refused as it is now."""
        return len(self._refused)

    @property
    def shown(self) -> object:
        """What `problems` is made of, except how many more there are than it shows: equal while nothing of it changed."""
        first = tuple(islice(self._refused.items(), MAX_TOLD))
        return self._networks, self._names, first, len(self._refused) > MAX_TOLD

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Which endpoints are refused, and why: the first MAX_TOLD of them, and how many more there are."""
        first = tuple(self._problem(*key, found) for key, found in islice(self._refused.items(), MAX_TOLD))
        more = len(self._refused) - len(first)
        return (*first, and_more(ADDRESS_REFUSED, more)) if more else first

    def take(self, feed: str, events: Iterable[EndpointEvent]) -> tuple[EndpointEvent, ...]:
        """What a feed says, as it may count."""
        named = self._named.setdefault(feed, {})
        passed: list[EndpointEvent] = []
        for event in events:
            endpoint = event.endpoint
            if isinstance(event, Upsert):
                named[endpoint.id] = endpoint
                passed.append(self._look(feed, endpoint, is_news=True))
            else:
                named.pop(endpoint.id, None)
                self._refused.pop((feed, endpoint.id), None)
                passed.append(event)
        return tuple(passed)

    def allow(self, networks: Sequence[str] | None) -> Mapping[str, tuple[EndpointEvent, ...]]:
        """Take over another list; by feed what is to be said anew of all that it names, nothing for the same list."""
        read = _read(networks)
        if read == self._networks:
            return {}
        self._networks = read
        return {feed: tuple(self._look_again(feed, named.values())) for feed, named in self._named.items()}

    def arrange(self, feeds: Mapping[str, str]) -> None:
        """These feeds are there from now on, by what problems call them; others are gone with all that they named."""
        self._names = dict(feeds)
        self._named = {feed: named for feed, named in self._named.items() if feed in feeds}
        self._refused = {key: found for key, found in self._refused.items() if key[0] in feeds}

    def _look_again(self, feed: str, endpoints: Iterable[EndpointMetadata]) -> Iterator[EndpointEvent]:
        for endpoint in endpoints:
            yield self._look(feed, endpoint, is_news=(feed, endpoint.id) not in self._refused)

    def _look(self, feed: str, endpoint: EndpointMetadata, *, is_news: bool) -> EndpointEvent:
        found = self._refusal(endpoint)
        if found is None:
            self._refused.pop((feed, endpoint.id), None)
            return Upsert(endpoint)
        self._refused[feed, endpoint.id] = found
        if is_news:
            self._count(found.reason)
        return Delete(endpoint)

    def _refusal(self, endpoint: EndpointMetadata) -> _Refusal | None:
        for path, host, port in places_of(endpoint):
            if self._own(host, port):
                return _Refusal(path, format_authority(host, port), RESERVED, NOT_OWN, _COMES_BACK)
            plain = plain_address(host)
            if plain is not None and is_nowhere(plain):
                return _Refusal(path, host, RESERVED, SOMEWHERE, _NO_ANSWER)
        if self._networks is None:
            return None
        for path, host, _ in places_of(endpoint):
            address = plain_address(host)
            if address is None:
                return _Refusal(path, host, "name")
            if not any(address in network for network in self._networks if network.version == address.version):
                return _Refusal(path, host, "network")
        return None

    def _problem(self, feed: str, endpoint_id: str, found: _Refusal) -> Problem:
        message = f"the endpoint {endpoint_id!r} of {self._names.get(feed, feed)} is not used"
        if found.expected:
            expected, hint = found.expected, found.hint
            return Problem(ADDRESS_REFUSED, message, path=found.path, expected=expected, found=found.host, hint=hint)
        shown = ", ".join(str(network) for network in (self._networks or ())[:_MAX_SHOWN])
        more = len(self._networks or ()) - _MAX_SHOWN
        expected = f"an address in {shown}{f' and {more} more networks' if more > 0 else ''}"
        hint = f"add its network to `{_KEY}` of the HostConfig if it is meant, or have the discovery not name it"
        if found.reason == "name":
            hint = (
                f"where a name leads is not checked: under `{_KEY}` name the address, or ask for it by `dns-discovery`"
            )
        return Problem(ADDRESS_REFUSED, message, path=found.path, expected=expected, found=found.host, hint=hint)


def _read(networks: Sequence[str] | None) -> tuple[_Network, ...] | None:
    return None if networks is None else tuple(ipaddress.ip_network(text) for text in networks)
