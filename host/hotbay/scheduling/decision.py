"""What the scheduler answers for one request: an endpoint with fallbacks, or a refusal with a status and a reason.

Both are values that the front doors only read. `Rejected.reason` is stable and machine-readable: it is sent to the
client as a header, so it never carries text of a request.
"""

from typing import NamedTuple

from hotbay.datalayer.endpoint import EndpointMetadata

__all__ = ["Arm", "Decision", "Picked", "Rejected"]


class Arm(NamedTuple):
    """On which side of a canary a decision was made: `rollout` is the canary's salt."""

    rollout: str
    canary: bool


class Picked(NamedTuple):
    """Send the request to `endpoint`; when that one gives not a byte of an answer, to `fallbacks` in this order.

    `degraded` lists (binding, reason) for every plugin whose answer the decision had to do without.
    `arm` is None while no canary is under way.
    """

    endpoint: EndpointMetadata
    fallbacks: tuple[EndpointMetadata, ...] = ()
    profile: str = "default"
    degraded: tuple[tuple[str, str], ...] = ()
    arm: Arm | None = None


class Rejected(NamedTuple):
    """Answer the request with `status` instead: 429 means busy, 503 that there is no endpoint for it."""

    status: int
    reason: str
    message: str
    arm: Arm | None = None


Decision = Picked | Rejected
