"""Turns the parameters of a built-in discovery into what is run."""

from pathlib import Path
from typing import Final, assert_never

from hotbay.config.discovery_parameters import (
    DiscoveryParameters,
    DnsDiscovery,
    FileDiscovery,
    HttpSdDiscovery,
    StaticDiscovery,
)
from hotbay.config.documents import refuse
from hotbay.datalayer.discovery.dns_later import LaterDnsEndpoints
from hotbay.datalayer.discovery.endpoint_documents import read_endpoints
from hotbay.datalayer.discovery.feed import FeedPlan
from hotbay.datalayer.discovery.file import FileEndpoints
from hotbay.datalayer.discovery.http_sd import HttpSdEndpoints
from hotbay.datalayer.discovery.static import StaticEndpoints

__all__ = ["DISCOVERY_SLOT", "discovery_plan"]

DISCOVERY_SLOT: Final = "discovery"
"""Of what `dataLayer.discovery` names, so that another one begins with what the last one left."""


def discovery_plan(ref: str, parameters: DiscoveryParameters, directory: Path) -> FeedPlan:
    """What is to be run for the plugin ref of a built-in discovery; relative paths count from `directory`.

    Raises:
        InputError: with every problem of entries that stand in the configuration.
    """
    match parameters:
        case FileDiscovery():
            file = directory / parameters.path
            name = str(file)

            def follow() -> FileEndpoints:
                return FileEndpoints(name, file, follow=parameters.watch_file)

            return FeedPlan(DISCOVERY_SLOT, name, (ref, parameters, file), follow, follow().check)
        case StaticDiscovery():
            read = read_endpoints(parameters.document, parameters.at)
            refuse(read.problems)
            name = f"static-discovery {ref!r}"
            return FeedPlan(
                DISCOVERY_SLOT, name, (ref, parameters), lambda: StaticEndpoints(name, read.endpoints, read.warnings)
            )
        case DnsDiscovery():
            name = f"dns-discovery {ref!r}"
            return FeedPlan(DISCOVERY_SLOT, name, (ref, parameters), lambda: LaterDnsEndpoints(name, parameters))
        case HttpSdDiscovery():
            name = f"http-sd-discovery {ref!r}"

            def ask() -> HttpSdEndpoints:
                return HttpSdEndpoints(name, parameters, directory)

            return FeedPlan(DISCOVERY_SLOT, name, (ref, parameters, directory), ask, ask().check)
        case _:
            assert_never(parameters)
