"""What discoveries may name: the `discovery` of a HostConfig. Pure."""

import ipaddress
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from hotbay.config.endpoint_bounds import MAX_ENDPOINTS
from hotbay.config.host_fields import Section, refusal

__all__ = ["MAX_NETWORKS", "DiscoverySection"]

MAX_NETWORKS: Final = 256
"""Each address that is named is held against all of them."""
_EXPECTED: Final = "a network such as 10.0.0.0/8 or fd00::/8, or one address"


def _network(value: object) -> str:
    """A network in its one spelling."""
    if not isinstance(value, str):
        raise refusal(_EXPECTED, value)
    try:
        network = ipaddress.ip_network(value, strict=False)
    except ValueError as e:
        raise refusal(_EXPECTED, value) from e
    if "%" in value:
        raise refusal(_EXPECTED, value, hint="a zone means something on one host only: leave it out")
    first = network.network_address
    if isinstance(first, ipaddress.IPv6Address) and first.ipv4_mapped is not None:
        raise refusal(_EXPECTED, value, hint="write IPv4 networks as such: addresses of this form are read as IPv4")
    if ipaddress.ip_interface(value).ip != first:
        raise refusal(_EXPECTED, value, hint=f"the network of this address is {network}")
    return str(network)


def _some(value: object) -> object:
    # None at all would be read as "everywhere" by one and as "nowhere" by the next.
    if isinstance(value, list) and not 1 <= len(value) <= MAX_NETWORKS:
        raise refusal(f"a list of 1 to {MAX_NETWORKS} networks", value, hint="left out, every network is allowed")
    return value


_Network = Annotated[
    str, BeforeValidator(_network), WithJsonSchema({"type": "string", "examples": ["10.0.0.0/8", "fd00::/8"]})
]


class DiscoverySection(Section):
    """Networks that discoveries may name endpoints in. Without any: wherever they say; `endpoints` are not concerned.

    `plugin_endpoints`: how many the discovery of a package may name. Each costs a connection and up to 0.2 MiB also when
    nobody is there, which the author of a package need not mind.
    """

    allowed_networks: Annotated[tuple[_Network, ...] | None, Field(strict=False), BeforeValidator(_some)] = None
    plugin_endpoints: int = Field(default=2000, ge=1, le=MAX_ENDPOINTS)
