"""Fairness policies: which flow of a priority goes next."""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Literal

from hotbay_sdk import (
    Band,
    Context,
    FairnessPolicy,
    Flow,
    ParameterError,
    Request,
    Response,
    ResponseBodyProcessor,
    StateDumper,
)

from hotbay_flow_control.attained import AttainedService, least_served
from hotbay_flow_control.package import plugin


class MixedOrderError(ValueError):
    """Flows of one priority are ordered by different policies: their heads cannot be compared."""


@plugin.type("global-strict-fairness-policy")
class GlobalStrictFairnessPolicy(FairnessPolicy):
    """The first request of all flows, whichever flow it is of."""

    def pick(self, band: Band) -> str | None:
        """The flow with the best head. Raises `MixedOrderError`."""
        best: Flow | None = None
        for flow in band.flows:
            if not flow.queue:
                continue
            if best is None:
                best = flow
                continue
            if type(flow.ordering) is not type(best.ordering):
                raise MixedOrderError(
                    f"priority {band.priority}: {best.key!a} is ordered by {_name(best)}, {flow.key!a} by {_name(flow)}; "
                    "give them one orderingPolicyRef"
                )
            if _goes_before(flow, best):
                best = flow
        return None if best is None else best.key


def _goes_before(flow: Flow, other: Flow) -> bool:
    if flow.ordering is None:
        return flow.queue[0].enqueued_s < other.queue[0].enqueued_s
    return flow.ordering.less(flow.queue[0], other.queue[0])


def _name(flow: Flow) -> str:
    return "arrival" if flow.ordering is None else type(flow.ordering).__name__


@plugin.type("round-robin-fairness-policy")
class RoundRobinFairnessPolicy(FairnessPolicy):
    """Every flow that has requests in its turn, in the order of their keys."""

    def __init__(self, context: Context) -> None:
        self._last: dict[int, str] = {}

    def pick(self, band: Band) -> str | None:
        """The flow after the one before, by keys; from the beginning if that one is gone."""
        keys = sorted(flow.key for flow in band.flows)
        waiting = {flow.key for flow in band.flows if flow.queue}
        last = self._last.pop(band.priority, None)
        start = keys.index(last) + 1 if last in keys else 0
        for key in keys[start:] + keys[:start]:
            if key in waiting:
                self._last[band.priority] = key
                return key
        return None


@dataclass(frozen=True, slots=True)
class ProgramAwareParameters:
    """Weights of the two signals, and how long what a flow was served is held against it."""

    strategy: Literal["las"] = "las"
    lasWeightService: float = 0.8
    lasWeightHeadWait: float = 0.2
    lasDecayFactor: float = 0.99997
    lasHalfLifeSeconds: float = 60.0
    evictionTtlSeconds: float = 3600.0
    evictionSweepSeconds: float = 300.0

    def __post_init__(self) -> None:
        """Refuse negative numbers, and a factor that would grow."""
        for name in ("lasWeightService", "lasWeightHeadWait", "lasHalfLifeSeconds", "evictionTtlSeconds"):
            if getattr(self, name) < 0:
                raise ParameterError(name, f"expected 0 or more, found {getattr(self, name):g}")
        if not 0 < self.lasDecayFactor <= 1:
            raise ParameterError("lasDecayFactor", f"expected above 0 up to 1, found {self.lasDecayFactor:g}")
        if self.evictionSweepSeconds <= 0:
            raise ParameterError("evictionSweepSeconds", f"expected above 0, found {self.evictionSweepSeconds:g}")

    @property
    def per_second(self) -> float:
        """What is left of a flow's service after one second."""
        return 0.5 ** (1 / self.lasHalfLifeSeconds) if self.lasHalfLifeSeconds else self.lasDecayFactor


@plugin.type("program-aware-fairness", reads=["request.fairness_id"], parameters=ProgramAwareParameters)
class ProgramAwareFairness(FairnessPolicy, ResponseBodyProcessor, StateDumper):
    """The flow that was served least lately, in tokens; how long its head waits decides among equals."""

    def __init__(self, context: Context, parameters: ProgramAwareParameters) -> None:
        self._parameters = parameters
        self._served = AttainedService(
            parameters.per_second, ttl_s=parameters.evictionTtlSeconds, sweep_s=parameters.evictionSweepSeconds
        )

    def pick(self, band: Band) -> str | None:
        """The flow with the highest score."""
        waiting: Sequence[Flow] = [flow for flow in band.flows if flow.queue]
        now = monotonic()
        services = [self._served.of(flow.key, now) for flow in waiting]
        arrivals = [flow.queue[0].enqueued_s for flow in waiting]
        weights = (self._parameters.lasWeightService, self._parameters.lasWeightHeadWait)
        row = least_served(services, arrivals, weights)
        return None if row is None else waiting[row].key

    def response_body(self, request: Request, response: Response) -> None:
        """Count what the server says that it did."""
        if not response.end:
            return
        usage = response.usage or {}
        self._served.add(
            request.fairness_id, usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), monotonic()
        )

    def dump_state(self) -> object:
        """The most served flows, at most 100 of them."""
        return self._served.dump(monotonic())
