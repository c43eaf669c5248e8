"""A discovery whose endpoints stand in the configuration itself: they are there at once and never change."""

from collections.abc import Sequence

import anyio

from hotbay.datalayer.discovery.notifier import DiscoveryNotifier
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.errors import Problem

__all__ = ["StaticEndpoints"]


class StaticEndpoints:
    """An `EndpointDiscovery` of a list. `warnings` are what was decided when it was read."""

    def __init__(self, name: str, endpoints: Sequence[EndpointMetadata], warnings: Sequence[Problem] = ()) -> None:
        self.name = name
        self.ready = anyio.Event()
        self._endpoints = tuple(endpoints)
        self._warnings = tuple(warnings)

    async def run(self, notifier: DiscoveryNotifier) -> None:
        """Tell all of them, and nothing more."""
        notifier.replace(self._endpoints, is_all=True)
        notifier.report((), self._warnings)
        self.ready.set()
        await anyio.sleep_forever()
