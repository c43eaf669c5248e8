"""`concurrency-detector`: how full the pool is by what the host has sent and not got back."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hotbay_sdk import Context, Endpoints, Filter, ParameterError, Request, SaturationDetector, StateDumper

from hotbay_flow_control.candidates import column, members_of
from hotbay_flow_control.formulas import Bools, below_limit, burst_limit, share_in_flight
from hotbay_flow_control.package import plugin


@dataclass(frozen=True, slots=True)
class ConcurrencyParameters:
    """What one endpoint should have in flight; `headroom` is the share by which the filter lets it go beyond."""

    concurrencyMode: Literal["requests", "tokens", "hybrid"] = "requests"
    maxConcurrency: int = 100
    maxTokenConcurrency: int = 1_000_000
    headroom: float = 0.0
    inFlightLoadProducerName: str = ""
    """Taken for the reference's files; means nothing: the host has one ledger."""

    def __post_init__(self) -> None:
        """Refuse capacities of nothing."""
        for name in ("maxConcurrency", "maxTokenConcurrency"):
            if getattr(self, name) <= 0:
                raise ParameterError(name, f"expected 1 or more, found {getattr(self, name)}")
        if self.headroom < 0:
            raise ParameterError("headroom", f"expected 0 or more, found {self.headroom:g}")

    @property
    def capacities(self) -> dict[str, int]:
        """Column → capacity of an endpoint, for what the mode looks at."""
        capacities = {}
        if self.concurrencyMode != "tokens":
            capacities["endpoint.in_flight"] = self.maxConcurrency
        if self.concurrencyMode != "requests":
            capacities["endpoint.in_flight_tokens"] = self.maxTokenConcurrency
        return capacities


@plugin.type(
    "concurrency-detector",
    reads=["endpoint.in_flight", "endpoint.in_flight_tokens"],
    parameters=ConcurrencyParameters,
    rowwise=True,
)
class ConcurrencyDetector(SaturationDetector, Filter, StateDumper):
    """What is in flight of what fits; as a filter it drops endpoints that are full, all of them if need be."""

    def __init__(self, context: Context, parameters: ConcurrencyParameters) -> None:
        self._capacities = parameters.capacities
        self._headroom = parameters.headroom
        self._last = {"endpoints": 0, "saturation": 0.0}
        if parameters.headroom > 1:
            context.logger.warning("headroom is %g, which is %.0f %%", parameters.headroom, 100 * parameters.headroom)

    def saturation(self, endpoints: Endpoints) -> float:
        """All in flight / all capacity, the larger one in mode hybrid; 1 without endpoints."""
        members = members_of(endpoints)
        found = max(share_in_flight(column(endpoints, name), members, most) for name, most in self._capacities.items())
        self._last = {"endpoints": int(members.sum()), "saturation": found}
        return found

    def keep_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence[Bools]:
        """Endpoints below capacity x (1 + headroom), the same for every request."""
        kept: Bools | None = None
        for name, most in self._capacities.items():
            below = below_limit(column(endpoints, name), burst_limit(most, self._headroom))
            kept = below if kept is None else kept & below
        assert kept is not None
        return [kept] * len(requests)

    def dump_state(self) -> object:
        """The last saturation that was asked for."""
        return dict(self._last)
