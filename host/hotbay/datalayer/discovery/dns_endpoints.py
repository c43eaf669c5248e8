"""What DNS records say as endpoints, and when to ask again. Pure.

An endpoint's name is its address and port, so that it is the same one whichever name or record leads to it. Answers come
in any order, so endpoints are put in an order of their own.

Of SRV records (RFC 2782) those with the lowest priority number are in service; the others are there for the time when
those are gone from DNS, and are cordoned until then. Weights are proportions among records of one priority; here the
largest of them is a full share. "Weight 0 … should have a very small chance of being selected", beside others.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hotbay.datalayer.endpoint import EndpointMetadata, EndpointState, format_authority

__all__ = ["ServiceRecord", "address_endpoints", "next_look_s", "service_endpoints"]

RETRY_S: Final = 5.0
"""After a look that failed, within the bounds that are configured."""
_SMALLEST_SHARE: Final = 0.001

_Sort = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ServiceRecord:
    """An SRV record with the addresses of its target."""

    priority: int
    weight: int
    port: int
    target: str
    addresses: tuple[str, ...]


def address_endpoints(
    addresses: Iterable[str], *, port: int, namespace: str, labels: Mapping[str, str]
) -> tuple[EndpointMetadata, ...]:
    """One endpoint for each address."""
    return tuple(_endpoint(address, port, namespace, labels) for address in sorted(set(addresses), key=_order))


def service_endpoints(
    records: Sequence[ServiceRecord], *, namespace: str, labels: Mapping[str, str]
) -> tuple[EndpointMetadata, ...]:
    """One endpoint for each address and port; of two records for one, the better priority holds, then the weight.

    Several ports of one address are its ranks, in ascending order.
    """
    usable = [record for record in records if record.addresses]
    best = min((record.priority for record in usable), default=0)
    heaviest: dict[int, int] = {}
    for record in usable:
        heaviest[record.priority] = max(heaviest.get(record.priority, 0), record.weight)
    found: dict[tuple[str, int], EndpointMetadata] = {}
    for record in sorted(usable, key=lambda it: (it.priority, -it.weight, it.target, it.port)):
        known = {"srv_priority": str(record.priority), "srv_target": record.target}
        for address in record.addresses:
            endpoint = replace(
                _endpoint(address, record.port, namespace, {**labels, **known}),
                state=EndpointState.ACTIVE if record.priority == best else EndpointState.CORDONED,
                weight=_share(record.weight, heaviest[record.priority]),
            )
            found.setdefault((endpoint.address, endpoint.port), endpoint)
    ranks: dict[str, int] = {}
    endpoints = []
    for (address, _), endpoint in sorted(found.items(), key=lambda it: (_order(it[0][0]), it[0][1])):
        endpoints.append(replace(endpoint, rank_index=ranks.get(address, 0)))
        ranks[address] = ranks.get(address, 0) + 1
    return tuple(endpoints)


def next_look_s(ttls_s: Iterable[float], *, failed: bool, shortest_s: float, longest_s: float) -> float:
    """Seconds until the next look: the shortest time that an answer may be kept, within the bounds."""
    wanted_s = min((*ttls_s, RETRY_S) if failed else ttls_s, default=longest_s)
    return min(max(wanted_s, shortest_s), longest_s)


def _endpoint(address: str, port: int, namespace: str, labels: Mapping[str, str]) -> EndpointMetadata:
    spelled = str(ipaddress.ip_address(address))
    name = format_authority(spelled, port)
    return EndpointMetadata(id=f"{namespace}/{name}", name=name, address=spelled, port=port, labels=labels)


def _share(weight: int, heaviest: int) -> float:
    return max(weight / heaviest, _SMALLEST_SHARE) if heaviest else 1.0


def _order(address: str) -> _Sort:
    parsed = ipaddress.ip_address(address)
    return parsed.version, int(parsed)
