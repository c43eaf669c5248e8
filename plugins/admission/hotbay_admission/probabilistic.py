"""The plugin and its type."""

from dataclasses import dataclass

import numpy as np
from hotbay_sdk import Admitter, Context, Denial, Endpoints, ParameterError, Plugin, Request

from hotbay_admission.formulas import saturation, shed_probability

plugin = Plugin("admission")


@dataclass(frozen=True, slots=True)
class ProbabilisticParameters:
    """Waiting requests and KV usage at which an endpoint counts as full; `power` and `k` shape the probability."""

    queueDepthThreshold: int = 5
    kvCacheUtilThreshold: float = 0.8
    power: float = 5.0
    k: float = 300.0

    def __post_init__(self) -> None:
        """Refuse what would divide by zero or shed nothing."""
        for name in ("queueDepthThreshold", "power", "k"):
            if getattr(self, name) <= 0:
                raise ParameterError(name, f"expected more than 0, found {getattr(self, name):g}")
        if not 0 < self.kvCacheUtilThreshold <= 1:
            raise ParameterError(
                "kvCacheUtilThreshold", f"expected above 0 up to 1, found {self.kvCacheUtilThreshold:g}"
            )


@plugin.type(
    "probabilistic-admitter",
    reads=["request.priority", "endpoint.waiting", "endpoint.kv_usage"],
    parameters=ProbabilisticParameters,
)
class ProbabilisticAdmitter(Admitter):
    """Denies requests of a priority below 0, the more of them, the fuller the pool is."""

    def __init__(self, context: Context, parameters: ProbabilisticParameters) -> None:
        self._context = context
        self._parameters = parameters

    def admit(self, request: Request, endpoints: Endpoints) -> Denial | None:
        """Draw, for what may be shed."""
        if request.priority >= 0:
            return None
        waiting = np.asarray(endpoints.column("endpoint.waiting"), np.float64)
        kv_usage = np.asarray(endpoints.column("endpoint.kv_usage"), np.float64)
        given = self._parameters
        found = saturation(
            waiting,
            kv_usage,
            np.frombuffer(endpoints.mask(), np.bool_),
            given.queueDepthThreshold,
            given.kvCacheUtilThreshold,
        )
        if self._context.random.random() < shed_probability(found, given.power, given.k):
            return Denial(message=f"the pool is at {found:.2f} of its capacity, sheddable request dropped")
        return None
