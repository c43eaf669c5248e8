"""`dns-discovery` until it runs: what asks DNS is loaded by name then.

A plain import would have every start of a host load dnspython, which takes a fifth of a second and is for those alone who
configure this discovery.
"""

from importlib import import_module
from typing import Final

import anyio
import anyio.to_thread

from hotbay.config.discovery_parameters import DnsDiscovery
from hotbay.datalayer.discovery.notifier import DiscoveryNotifier, EndpointDiscovery

__all__ = ["LaterDnsEndpoints"]

_MODULE: Final = "hotbay.datalayer.discovery.dns"


class LaterDnsEndpoints:
    """An `EndpointDiscovery`: `DnsEndpoints`, loaded in a thread."""

    def __init__(self, name: str, parameters: DnsDiscovery) -> None:
        self.name = name
        self.ready = anyio.Event()
        self._parameters = parameters

    async def run(self, notifier: DiscoveryNotifier) -> None:
        """See `DnsEndpoints`."""
        module = await anyio.to_thread.run_sync(import_module, _MODULE)
        endpoints: EndpointDiscovery = module.DnsEndpoints(self.name, self._parameters, self.ready)
        await endpoints.run(notifier)
