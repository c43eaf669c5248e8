"""A discovery that asks DNS: A or AAAA records with a port of ours, or SRV records with one of theirs.

A look asks for every name. The next one is due when the first answer's TTL has run out, within bounds. The first sync is
whole when every name has answered once, be it without records; until then the run fails and is begun again. Afterwards a
name that cannot be resolved (no such name, a server's failure, no answer in time) keeps the addresses that it last had,
and the problem is told. So does a name that answers without records, unless `onEmpty: clear` is configured: a server that
is starting or is misled answers like this as well, and a pool emptied by mistake serves nobody.

Names are asked for as full names: the search list of /etc/resolv.conf does not matter. Its servers do, and it is read again
at every look. Nothing is cached here. A truncated answer is asked for again by TCP.
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import anyio
import anyio.to_thread
import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.rdatatype
import dns.resolver
from dns.rdtypes.IN.A import A
from dns.rdtypes.IN.AAAA import AAAA
from dns.rdtypes.IN.SRV import SRV

from hotbay.config.discovery_parameters import DnsDiscovery
from hotbay.datalayer.discovery.dns_endpoints import ServiceRecord, address_endpoints, next_look_s, service_endpoints
from hotbay.datalayer.discovery.feed import discovery_failed
from hotbay.datalayer.discovery.notifier import DiscoveryNotifier
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.errors import CapacityError, Problem, printable

__all__ = ["DnsEndpoints"]

_ATTEMPT_S: Final = 2.0
"""At most for one server, and at most half of the whole; the next one is asked then."""
_PARALLEL_COUNT: Final = 8
_MAX_TARGETS: Final = 1024
"""Of one SRV name: each is a question of its own."""
_MESSAGE_CHARACTERS: Final = 300


@dataclass(slots=True)
class _Look:
    """What one look has found so far."""

    resolver: dns.asyncresolver.Resolver
    limiter: anyio.CapacityLimiter
    ttls_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class DnsEndpoints:
    """An `EndpointDiscovery` of DNS names. `ready`: what it sets; its own if none is given."""

    def __init__(self, name: str, parameters: DnsDiscovery, ready: anyio.Event | None = None) -> None:
        self.name = name
        self.ready = anyio.Event() if ready is None else ready
        self._parameters = parameters
        self._labels = MappingProxyType(dict(parameters.labels))
        self._by_name: dict[str, tuple[EndpointMetadata, ...]] = {}
        self._targets: dict[str, dict[str, tuple[str, ...]]] = {}

    async def run(self, notifier: DiscoveryNotifier) -> None:
        """Ask, tell, wait, until cancelled. Raises `CapacityError` while the first sync is not whole."""
        while True:
            look = _Look(await anyio.to_thread.run_sync(self._resolver), anyio.CapacityLimiter(_PARALLEL_COUNT))
            async with anyio.create_task_group() as group:
                for name in self._parameters.names:
                    group.start_soon(self._ask, name, look)
            # Tasks end in any order.
            problems = sorted(look.problems)
            if problems and not self.ready.is_set():
                raise discovery_failed("; ".join(problems)[:_MESSAGE_CHARACTERS])
            names = self._parameters.names
            found = {endpoint.id: endpoint for name in names for endpoint in self._by_name.get(name, ())}
            notifier.replace(found.values(), is_all=True)
            hint = "the addresses that it last had stay in force"
            notifier.report([Problem("DISCOVERY_FAILED", f"{self.name}: {text}", hint=hint) for text in problems])
            self.ready.set()
            parameters = self._parameters
            await anyio.sleep(
                next_look_s(
                    look.ttls_s,
                    failed=bool(problems),
                    shortest_s=parameters.shortest_s,
                    longest_s=parameters.longest_s,
                )
            )

    async def _ask(self, name: str, look: _Look) -> None:
        """Ask for one name; what it had stays when it does not answer."""
        try:
            endpoints = await (
                self._services(name, look) if self._parameters.type == "SRV" else self._hosts(name, look)
            )
        except CapacityError as error:
            look.problems.append(error.message)
            return
        if not endpoints and self._by_name.get(name) and self._parameters.on_empty == "keep":
            look.problems.append(f"{name} answers without {self._parameters.type} records")
            return
        self._by_name[name] = endpoints

    async def _hosts(self, name: str, look: _Look) -> tuple[EndpointMetadata, ...]:
        parameters = self._parameters
        assert parameters.port is not None, "only SRV goes without a port"
        addresses = await self._resolve(name, parameters.type, look)
        return address_endpoints(addresses, port=parameters.port, namespace=parameters.namespace, labels=self._labels)

    async def _services(self, name: str, look: _Look) -> tuple[EndpointMetadata, ...]:
        records = [record for record in await self._records(name, "SRV", look) if isinstance(record, SRV)]
        targets = {record.target.to_text(omit_final_dot=True) for record in records if len(record.target) > 1}
        if len(targets) > _MAX_TARGETS:
            raise discovery_failed(f"{name} has {len(targets)} targets: expected at most {_MAX_TARGETS}")
        resolved: dict[str, tuple[str, ...]] = {}

        async def target(host: str) -> None:
            try:
                addresses = await self._resolve(host, "A", look) or await self._resolve(host, "AAAA", look)
            except CapacityError as error:
                look.problems.append(error.message)
                addresses = self._targets.get(name, {}).get(host, ())
            resolved[host] = addresses

        async with anyio.create_task_group() as group:
            for host in targets:
                group.start_soon(target, host)
        self._targets[name] = resolved
        services = [
            ServiceRecord(record.priority, record.weight, record.port, host, resolved[host])
            for record in records
            # A target that is the root says that there is no such service (RFC 2782).
            if (host := record.target.to_text(omit_final_dot=True)) in resolved and record.port
        ]
        return service_endpoints(services, namespace=self._parameters.namespace, labels=self._labels)

    async def _resolve(self, name: str, kind: str, look: _Look) -> tuple[str, ...]:
        records = await self._records(name, kind, look)
        return tuple(str(record.address) for record in records if isinstance(record, (A, AAAA)))

    async def _records(self, name: str, kind: str, look: _Look) -> tuple[object, ...]:
        """Raises `CapacityError` when there is no answer, or one that says that there is no such name."""
        timeout_s = self._parameters.timeout_s
        absolute = name if name.endswith(".") else f"{name}."
        try:
            async with look.limiter:
                answer = await look.resolver.resolve(absolute, kind, raise_on_no_answer=False)
        except dns.resolver.NXDOMAIN as error:
            raise discovery_failed(f"there is no name {name}") from error
        except dns.resolver.LifetimeTimeout as error:
            raise discovery_failed(f"no answer for {name} within {timeout_s:g} s") from error
        except (dns.exception.DNSException, OSError) as error:
            text = printable(str(error) or type(error).__name__)[:_MESSAGE_CHARACTERS]
            raise discovery_failed(f"no answer for {name}: {text}") from error
        look.ttls_s.append(float(answer.chaining_result.minimum_ttl))
        return tuple(answer.rrset or ())

    def _resolver(self) -> dns.asyncresolver.Resolver:
        """Reads /etc/resolv.conf unless servers are configured. Raises `CapacityError`."""
        servers = self._parameters.servers
        try:
            resolver = dns.asyncresolver.Resolver(configure=not servers)
        except (dns.resolver.NoResolverConfiguration, OSError) as error:
            raise discovery_failed(f"/etc/resolv.conf is of no use: {error}") from error
        if servers:
            resolver.nameservers = [dns.nameserver.Do53Nameserver(address, port) for address, port in servers]
        resolver.lifetime = self._parameters.timeout_s
        resolver.timeout = min(_ATTEMPT_S, self._parameters.timeout_s / 2)
        return resolver
