"""Where requests for an endpoint are sent: its hosts and ports, the addresses that a text stands for, and which are the host's own.

Names are not looked up here. Pure.
"""

import ipaddress
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from hotbay.config.addresses import host_and_port
from hotbay.datalayer.endpoint import EndpointMetadata

__all__ = ["Address", "Own", "addresses_in", "is_nowhere", "listens_on", "places_of", "plain_address"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Own: TypeAlias = Callable[[str, int], bool]
"""Whether an address or name, and a port, are the host's own."""

_IPV4_BELOW: Final = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Where the last 32 bits are an IPv4 address: of no use any more (RFC 4291), and what translators are given (RFC 2765, 6052, 8215)."""
_BROADCAST: Final = ipaddress.ip_address("255.255.255.255")
_LOOPBACKS: Final = frozenset(map(ipaddress.ip_address, ("127.0.0.1", "::1")))
_LOOPBACK_NAMES: Final = frozenset(
    ("localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")
)
"""What /etc/hosts gives a loopback address, beside names below `localhost` (RFC 6761)."""


def places_of(endpoint: EndpointMetadata) -> Iterator[tuple[str, str, int]]:
    """Where requests may be sent for an endpoint: the field, the host and the port, 0 where that is not said there."""
    yield "address", endpoint.address, endpoint.port
    if endpoint.metrics_host:
        yield ("metricsHost", *(host_and_port(endpoint.metrics_host) or (endpoint.metrics_host, 0)))
    if endpoint.node_address:
        yield "nodeAddress", endpoint.node_address, 0


def plain_address(host: str) -> Address | None:
    """The address that a text is, IPv4 in IPv6 as IPv4; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address


def is_nowhere(address: Address) -> bool:
    """Whether no machine has this address. Name servers that keep clients from a name answer with an unspecified one."""
    return address.is_unspecified or address.is_multicast or address == _BROADCAST


def addresses_in(address: Address) -> tuple[Address, ...]:
    """The address, and the IPv4 addresses that translators and tunnels take from one of this form."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    found: list[Address] = [address, *(address.teredo or ())]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    # `::` and `::1` are none.
    if int(address) > 0xFFFF and any(address in network for network in _IPV4_BELOW):
        found.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return tuple(found)


def listens_on(host: str, port: int) -> Own:
    """What is a host's own that listens at `host`, which may be a name or unspecified, and `port`.

    Names are not looked up, and other addresses of its machine are not known here: a host that listens everywhere is found by
    its loopback alone, and one that listens at a name by that name and its loopback.
    """
    there = plain_address(host)
    loops = there is None or there.is_unspecified
    named = host.lower().removesuffix(".")

    def is_address(found: Address) -> bool:
        if found.is_unspecified:
            # Who connects there reaches the loopback.
            return loops or there in _LOOPBACKS
        return found == there or (loops and (found.is_loopback if there is not None else found in _LOOPBACKS))

    def is_own(address: str, at: int) -> bool:
        if not port or at != port:
            return False
        found = plain_address(address)
        if found is not None:
            return any(map(is_address, addresses_in(found)))
        name = address.lower().removesuffix(".")
        is_loopback = name in _LOOPBACK_NAMES or name.endswith(".localhost")
        return name == named or (is_loopback and (loops or there in _LOOPBACKS))

    return is_own
