"""Values for runs that nobody played."""

from collections.abc import Callable

import pytest
from hotbay.demo.gauges import Counters, EndpointStatus, HostStatus, PluginStatus

MakeStatus = Callable[..., HostStatus]


def plugin_status(plugin: str, **changes: object) -> PluginStatus:
    values: dict[str, object] = {
        "phase": "idle",
        "version": "1.0.0",
        "rev": 1,
        "digest": "sha256:1",
        "generation": 1,
        "pid": 100,
        "restarts": 0,
        "swaps": 0,
        "last_error": "",
    }
    return PluginStatus(plugin, **(values | changes))  # type: ignore[arg-type]


@pytest.fixture
def make_status() -> MakeStatus:
    """A status page with these plugins, given as {name: changes}."""

    def make(**plugins: dict[str, object]) -> HostStatus:
        rows = tuple(plugin_status(name, **changes) for name, changes in plugins.items())
        return HostStatus(True, "none", rows, (EndpointStatus("default/a", 0, None, None, None),), ())

    return make


@pytest.fixture
def make_counters() -> Callable[..., Counters]:
    """Counters with this many degraded steps of one binding."""

    def make(degraded: int = 0) -> Counters:
        return Counters({("queue", "CRASHED"): degraded}, ((0.001, 10), (float("inf"), 10)))

    return make
