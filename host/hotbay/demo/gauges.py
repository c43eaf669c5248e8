"""What the demo reads off a host: its status page and its metrics page, as values. Pure.

The pages come from a host of the same version; a page that does not have its shape raises `GaugeError`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from hotbay.datalayer.pages.exposition import ExpositionError, PageReader

__all__ = ["Counters", "EndpointStatus", "GaugeError", "HostStatus", "PluginStatus", "read_counters", "read_status"]

_DEGRADED: Final = "hotbay_degraded_total"
_BUCKETS: Final = "hotbay_decision_duration_seconds_bucket"
_READER: Final = PageReader([_DEGRADED, _BUCKETS])


class GaugeError(Exception):
    """A page is not what a host of this version writes."""


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """One plugin; `pid` is None while no process of it answers, and the live fields then tell of the last one."""

    plugin: str
    phase: str
    version: str
    rev: int
    digest: str
    generation: int
    pid: int | None
    restarts: int
    swaps: int
    last_error: str


@dataclass(frozen=True, slots=True)
class EndpointStatus:
    """One endpoint; None is a figure that the endpoint has not told yet."""

    id: str
    in_flight: int
    waiting: float | None
    running: float | None
    kv_usage: float | None


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The status page, as far as the demo shows it."""

    ready: bool
    isolation: str
    plugins: tuple[PluginStatus, ...]
    endpoints: tuple[EndpointStatus, ...]
    problems: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether the host is ready and every plugin has a process that answers."""
        return self.ready and bool(self.plugins) and all(plugin.pid is not None for plugin in self.plugins)

    def plugin(self, plugin_id: str) -> PluginStatus | None:
        return next((plugin for plugin in self.plugins if plugin.plugin == plugin_id), None)


@dataclass(frozen=True, slots=True)
class Counters:
    """Of the metrics page: decisions made without a binding's answer, and how long decisions took.

    `decisions` is (upper edge in seconds, decisions up to it), ascending, the last edge infinite.
    """

    degraded: Mapping[tuple[str, str], int]
    decisions: tuple[tuple[float, int], ...]

    @property
    def degraded_total(self) -> int:
        return sum(self.degraded.values())

    def decision_us(self, quantile: float) -> float | None:
        """The quantile in microseconds, interpolated inside its bucket; None before the first decision."""
        total = self.decisions[-1][1] if self.decisions else 0
        if total == 0:
            return None
        rank = quantile * total
        lower_s, below = 0.0, 0
        for edge_s, count in self.decisions:
            if count >= rank and count > below:
                if math.isinf(edge_s):
                    break
                return (lower_s + (edge_s - lower_s) * (rank - below) / (count - below)) * 1e6
            lower_s, below = edge_s, count
        return lower_s * 1e6


def read_status(body: bytes) -> HostStatus:
    """Read the status page. Raises `GaugeError`."""
    try:
        page = json.loads(body)
        return HostStatus(
            ready=bool(page["ready"]),
            isolation=str(page["isolation"]),
            plugins=tuple(_plugin(row) for row in page["plugins"]),
            endpoints=tuple(_endpoint(row) for row in page["endpoints"]),
            problems=tuple(str(problem) for problem in page["problems"]),
        )
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise GaugeError(f"not a status page: {error!r}") from error


def _plugin(row: Mapping[str, object]) -> PluginStatus:
    live = cast("Mapping[str, object]", row["live"] or {})
    error = cast("Mapping[str, object]", row["last_error"] or {})
    pid = live.get("pid")
    return PluginStatus(
        plugin=str(row["plugin"]),
        phase=str(row["phase"]),
        version=str(live.get("version", "")),
        rev=int(str(live.get("rev", 0))),
        digest=str(live.get("digest", "")),
        generation=int(str(live.get("generation") or 0)),
        pid=None if pid is None else int(str(pid)),
        restarts=int(str(row["restarts"])),
        swaps=int(str(row["swaps"])),
        last_error=f"{error['code']}: {error['message']}" if error else "",
    )


def _endpoint(row: Mapping[str, object]) -> EndpointStatus:
    return EndpointStatus(
        id=str(row["id"]),
        in_flight=int(str(row["in_flight"])),
        waiting=_figure(row.get("waiting")),
        running=_figure(row.get("running")),
        kv_usage=_figure(row.get("kv_usage")),
    )


def _figure(value: object) -> float | None:
    return None if value is None else float(str(value))


def read_counters(body: bytes) -> Counters:
    """Read the metrics page. Raises `GaugeError`."""
    try:
        samples = _READER.read(body).samples
        degraded = {(s.labels["binding"], s.labels["reason"]): int(s.value) for s in samples.get(_DEGRADED, ())}
        decisions = sorted((float(s.labels["le"]), int(s.value)) for s in samples.get(_BUCKETS, ()))
    except (ExpositionError, KeyError, ValueError) as error:
        raise GaugeError(f"not a host's metrics page: {error!r}") from error
    return Counters(degraded, tuple(decisions))
