"""`utilization-filter`: drops endpoints that are too busy, by what engines report and what the host has sent them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from hotbay_sdk import Context, Endpoints, Filter, ParameterError, Request

from hotbay_attributes.figures import Bools, known_figures, or_everybody, passes
from hotbay_attributes.package import plugin

Metric = Literal["active-requests", "running-requests", "waiting-queue", "kv-cache-utilization"]

COLUMNS: Final[Mapping[Metric, str]] = {
    "active-requests": "endpoint.in_flight",
    "running-requests": "endpoint.running",
    "waiting-queue": "endpoint.waiting",
    "kv-cache-utilization": "endpoint.kv_usage",
}
SHARE: Final = "kv-cache-utilization"


@dataclass(frozen=True, slots=True)
class Condition:
    """The most that a figure of an endpoint may be: requests, or a share of 0 to 1."""

    metric: Metric
    maxValue: float

    def __post_init__(self) -> None:
        if self.maxValue < 0:
            raise ParameterError("maxValue", f"expected 0 or more, found {self.maxValue:g}")
        if self.metric == SHARE and self.maxValue > 1:
            raise ParameterError("maxValue", f"expected a share of 0 to 1 for {SHARE}, found {self.maxValue:g}")


@dataclass(frozen=True, slots=True)
class UtilizationParameters:
    """`conditions`: all have to hold. `fallbackOnEmpty`: where they hold for nobody, everybody is kept.

    The last is taken for the reference's files and means nothing: the host has one ledger.
    """

    conditions: Sequence[Condition]
    fallbackOnEmpty: bool = False
    inFlightLoadProducerName: str = ""

    def __post_init__(self) -> None:
        if not self.conditions:
            raise ParameterError("conditions", "expected at least one, found none")


@plugin.type("utilization-filter", reads=tuple(COLUMNS.values()), parameters=UtilizationParameters)
class UtilizationFilter(Filter):
    """Endpoints of which every condition holds; what is not known of one exceeds nothing."""

    def __init__(self, context: Context, parameters: UtilizationParameters) -> None:
        self._limits = [(COLUMNS[condition.metric], condition.maxValue) for condition in parameters.conditions]
        self._falls_back = parameters.fallbackOnEmpty

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """One row of flags per request, mostly the same."""
        kept: Bools = np.ones(len(endpoints), dtype=np.bool_)
        for column, most in self._limits:
            # What is not known, NaN or below 0, is above no limit; requests in flight that are not known count as none.
            kept &= passes(known_figures(endpoints.column(column)), "LessThanOrEqual", most, unknown_passes=True)
        if not self._falls_back:
            return [kept] * len(requests)
        masks = [endpoints.mask(number) for number in range(len(requests))]
        rows = {mask: or_everybody(kept, np.frombuffer(mask, dtype=np.bool_)) for mask in set(masks)}
        return [rows[mask] for mask in masks]
