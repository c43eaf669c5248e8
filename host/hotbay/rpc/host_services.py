"""What this host lends to its plugins: one set of services for each, for as long as the host runs.

A plugin is a routine here: `id`, or `id/key` where bindings give it instance keys. All processes of one, one after the
other or live beside candidate, have the same store. Every process has its own table of what it may call, made when it
is started: grants hold for the life of a process.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from hotbay_sdk.protocol import Value

from hotbay.errors import CapacityError
from hotbay.rpc.host_calls import HostCall, HostCalls, HostServices

__all__ = ["STORAGE_BYTES", "HostLender", "MemoryStorage"]

STORAGE_BYTES: Final = 1024 * 1024
"""Keys and values of one plugin: what it learnt is state, and travels another way."""
MAX_ENTRIES: Final = 4096
"""Keys in a store: an empty entry costs some 150 bytes beside what the quota counts."""

Counted = Callable[[str, str, float, Mapping[str, str]], None]


class MemoryStorage:
    """A `PluginStorage` that lives as long as the host, so over swaps and crashes of the plugin."""

    def __init__(self, quota_bytes: int = STORAGE_BYTES) -> None:
        self._quota_bytes = quota_bytes
        self._values: dict[str, bytes] = {}
        self._used_bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def put(self, key: str, value: bytes | None) -> None:
        held = self._values.get(key)
        freed = 0 if held is None else len(key) + len(held)
        needed = 0 if value is None else len(key) + len(value)
        if self._used_bytes - freed + needed > self._quota_bytes:
            raise CapacityError(
                "RESOURCE_EXHAUSTED", f"{needed} bytes more do not fit into the plugin's {self._quota_bytes}"
            )
        if held is None and value is not None and len(self._values) >= MAX_ENTRIES:
            raise CapacityError("RESOURCE_EXHAUSTED", f"the plugin has {MAX_ENTRIES} keys, and no more fit")
        self._used_bytes += needed - freed
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value


class HostLender:
    """See the module. Lives on the loop.

    Args:
        count: takes plugin, name, amount and labels of what a plugin counted.
        endpoints: all that are known now, as plugins are told of them.
        now: monotonic seconds.
        wall: seconds since 1970.
        entropy: so many unpredictable bytes.
        storage_bytes: of each plugin.
    """

    def __init__(
        self,
        *,
        count: Counted,
        endpoints: Callable[[], Sequence[Mapping[str, Value]]],
        now: Callable[[], float],
        wall: Callable[[], float],
        entropy: Callable[[int], bytes],
        storage_bytes: int = STORAGE_BYTES,
    ) -> None:
        self._count = count
        self._endpoints = endpoints
        self._now = now
        self._wall = wall
        self._entropy = entropy
        self._storage_bytes = storage_bytes
        self._services: dict[str, HostServices] = {}

    def services(self, plugin: str) -> HostServices:
        """What is lent to a plugin; the same each time. It opens no connections, and keeps no secrets."""
        found = self._services.get(plugin)
        if found is None:
            found = self._services[plugin] = HostServices(
                storage=MemoryStorage(self._storage_bytes),
                metric=partial(self._count, plugin),
                endpoints=self._endpoints,
                wall=self._wall,
                entropy=self._entropy,
            )
        return found

    def serve(
        self, plugin: str, label: str, granted: Collection[str], recycle: Callable[[str], None]
    ) -> Callable[[HostCall], None]:
        """What a new process's client takes as `on_host_call`.

        Args:
            plugin: its routine.
            label: `plugin id#generation`.
            granted: capabilities that its manifest asks for and the operator allowed.
            recycle: told the reason, once, when the process asks for a successor.
        """
        services = replace(self.services(plugin), recycle=recycle)
        return HostCalls(plugin.partition("/")[0], label, granted, services, now=self._now).serve
