"""What every exchange of a gateway shares."""

from dataclasses import dataclass

from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.gateway.explain_header import Explain, nothing
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.pool import Pool
from hotbay.gateway.seams import NOBODY, Attempts, Completed, Hearing, Ledger, Look, Router
from hotbay.observe.metrics import Metrics
from hotbay.scheduling.decision import Picked
from hotbay.scheduling.request import InferenceRequest

__all__ = ["Upstreams"]


@dataclass(frozen=True, slots=True)
class Upstreams:
    """See the module; `via` is the gateway's name."""

    pool: Pool
    ledger: Ledger
    metrics: Metrics
    limits: GatewayLimits
    router: Router
    attempts: Attempts
    look: Look
    via: bytes
    completed: Completed | None = None
    hearing: Hearing = NOBODY
    explain: Explain = nothing

    def settled(
        self,
        request: InferenceRequest,
        picked: Picked,
        endpoint: EndpointMetadata,
        outcome: Outcome,
        *,
        status: int,
        ttft_s: float | None,
    ) -> None:
        """Tell how a decided request ended that was tried at an endpoint; once. `status` is 0 where no answer began."""
        self.metrics.outcomes.add((outcome.value,))
        self.router.outcome(picked, failed=outcome.blames_endpoint or status >= 500, ttft_s=ttft_s)
        if self.completed is not None:
            self.completed(request, picked, endpoint, outcome, first_byte=status != 0)
