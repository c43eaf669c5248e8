"""`utilization-detector`: how full the pool is by what engines report, and which endpoints are too full for more."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hotbay_sdk import Context, Endpoints, Filter, ParameterError, Request, SaturationDetector, StateDumper

from hotbay_flow_control.candidates import column, kept_by_candidates, members_of
from hotbay_flow_control.durations import seconds
from hotbay_flow_control.formulas import (
    Bools,
    EngineFigures,
    Limits,
    below_limits,
    fresh_rows,
    pool_saturation,
    row_saturation,
)
from hotbay_flow_control.package import plugin


@dataclass(frozen=True, slots=True)
class UtilizationParameters:
    """What counts as full, and as stale; `headroom` is the share by which the filter lets endpoints go beyond."""

    queueDepthThreshold: int = 5
    kvCacheUtilThreshold: float = 0.8
    metricsStalenessThreshold: str = "200ms"
    headroom: float = 0.0
    stalenessPolicy: Literal["saturated", "ignore"] = "saturated"

    def __post_init__(self) -> None:
        """Refuse thresholds that nothing, or everything, would reach."""
        if self.queueDepthThreshold <= 0:
            raise ParameterError("queueDepthThreshold", f"expected 1 or more, found {self.queueDepthThreshold}")
        if not 0 < self.kvCacheUtilThreshold <= 1:
            raise ParameterError(
                "kvCacheUtilThreshold", f"expected above 0 up to 1, found {self.kvCacheUtilThreshold:g}"
            )
        if self.headroom < 0:
            raise ParameterError("headroom", f"expected 0 or more, found {self.headroom:g}")
        seconds(self.metricsStalenessThreshold, "metricsStalenessThreshold")

    @property
    def limits(self) -> Limits:
        """The thresholds as numbers."""
        stale_s = seconds(self.metricsStalenessThreshold, "metricsStalenessThreshold")
        return Limits(self.queueDepthThreshold, self.kvCacheUtilThreshold, stale_s)


@plugin.type(
    "utilization-detector",
    reads=["endpoint.waiting", "endpoint.kv_usage", "endpoint.age_waiting", "endpoint.age_kv_usage"],
    parameters=UtilizationParameters,
)
class UtilizationDetector(SaturationDetector, Filter, StateDumper):
    """The mean of the endpoints' fullness; as a filter it drops full ones, and none where all are full."""

    def __init__(self, context: Context, parameters: UtilizationParameters) -> None:
        self._limits = parameters.limits
        self._headroom = parameters.headroom
        self._ignore_stale = parameters.stalenessPolicy == "ignore"
        self._last = {"endpoints": 0, "stale_endpoints": 0, "saturation": 0.0}
        if parameters.headroom > 1:
            context.logger.warning("headroom is %g, which is %.0f %%", parameters.headroom, 100 * parameters.headroom)

    def saturation(self, endpoints: Endpoints) -> float:
        """Mean of max(waiting / threshold, KV usage / threshold); 1 without endpoints."""
        figures = _figures(endpoints)
        members = members_of(endpoints)
        fresh = fresh_rows(figures, self._limits.stale_s)
        rows = row_saturation(figures, self._limits, fresh)
        found = pool_saturation(rows, members, fresh, ignore_stale=self._ignore_stale)
        stale = int((members & ~fresh).sum())
        self._last = {"endpoints": int(members.sum()), "stale_endpoints": stale, "saturation": found}
        return found

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """The candidates below the limits; all of them where there is none."""
        figures = _figures(endpoints)
        fresh = fresh_rows(figures, self._limits.stale_s)
        below = below_limits(figures, self._limits, self._headroom, fresh)
        return kept_by_candidates(lambda mask: below if (below & mask).any() else mask, endpoints, len(requests))

    def dump_state(self) -> object:
        """The last saturation that was asked for, and of how many endpoints nothing recent is known."""
        return dict(self._last)


def _figures(endpoints: Endpoints) -> EngineFigures:
    return EngineFigures(*(column(endpoints, f"endpoint.{name}") for name in EngineFigures._fields))
