"""What the scheduler answers for one request: an endpoint with fallbacks, or a refusal with a status and a reason.

Both are values that the front doors only read. `Rejected.reason` is stable and machine-readable: it is sent to the
client as a header, so it never carries text of a request.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from hotbay.datalayer.endpoint import EndpointMetadata

__all__ = [
    "BUSY",
    "INELIGIBLE",
    "NO_ENDPOINTS",
    "NO_HEADERS",
    "SHED",
    "Arm",
    "Decision",
    "Picked",
    "Rejected",
    "Results",
]

Results = Mapping[str, tuple[EndpointMetadata, ...] | None]
"""What each profile that ran chose, best first; None for one that found nothing."""
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_RESULTS: Final[Results] = MappingProxyType({})


class Arm(NamedTuple):
    """On which side of a canary a decision was made: `rollout` is the canary's salt."""

    rollout: str
    canary: bool


class Picked(NamedTuple):
    """Send the request to `endpoint`; when that one gives not a byte of an answer, to `fallbacks` in this order.

    `degraded` lists (binding, reason) for every plugin whose answer the decision had to do without.
    `arm` is None while no canary is under way. `results` are those of all profiles, the primary one's among them. Names of
    headers are in lower case; a header of the request that is None is to be taken away. `port`: the endpoints are reached at this
    port of their addresses instead of their own. `tokens`: what the request counts at the endpoint, None where nobody wants to
    know; of that `answer_tokens` are its answer's; `tokens_elsewhere` is what it counts at each fallback. `releases_tokens`: all
    but the answer's leave the count when the answer begins.
    """

    endpoint: EndpointMetadata
    fallbacks: tuple[EndpointMetadata, ...] = ()
    profile: str = "default"
    degraded: tuple[tuple[str, str], ...] = ()
    arm: Arm | None = None
    results: Results = _NO_RESULTS
    request_headers: Mapping[str, str | None] = NO_HEADERS
    response_headers: Mapping[str, str] = NO_HEADERS
    port: int | None = None
    tokens: int | None = None
    answer_tokens: int = 0
    tokens_elsewhere: tuple[int, ...] = ()
    releases_tokens: bool = False

    @property
    def candidates(self) -> tuple[EndpointMetadata, ...]:
        """Where the request may be sent by this decision, best first.

        Values of headers were made for the endpoint, removals were not: where a value is set, no fallback gets it.
        """
        if self.response_headers or any(value is not None for value in self.request_headers.values()):
            return (self.endpoint,)
        return (self.endpoint, *self.fallbacks)

    def narrowed(self, left: Sequence[EndpointMetadata]) -> "Picked":
        """The same decision with these of its candidates alone, in this order; at least one."""
        counts = [tokens for one in left if (tokens := self.tokens_at(one.id)) is not None]
        tokens = counts[0] if counts else None
        return self._replace(
            endpoint=left[0], fallbacks=tuple(left[1:]), tokens=tokens, tokens_elsewhere=tuple(counts[1:])
        )

    def tokens_at(self, endpoint_id: str) -> int | None:
        """What the request counts at the endpoint, or at one of the fallbacks."""
        for one, tokens in zip(self.fallbacks, self.tokens_elsewhere, strict=False):
            if one.id == endpoint_id:
                return tokens
        return self.tokens


class Rejected(NamedTuple):
    """Answer the request with `status` instead: 429 means busy, 503 that there is no endpoint for it."""

    status: int
    reason: str
    message: str
    arm: Arm | None = None


Decision = Picked | Rejected

BUSY: Final = Rejected(429, "rejected-saturated", "no endpoint is left after the filters: all are busy")
INELIGIBLE: Final = Rejected(
    503, "rejected-no-endpoints", "no endpoint is left after the filters: none of them may serve the request"
)
SHED: Final = Rejected(429, "rejected-saturated", "system saturated, sheddable request dropped")
NO_ENDPOINTS: Final = Rejected(503, "rejected-no-endpoints", "no endpoint is left that every screener keeps")
MAX_MESSAGE_CHARS: Final = 2000


def joined(drained: Mapping[str, Rejected], *others: str) -> Rejected | None:
    """One refusal for all that failed: status and reason are those of the first profile that did; None where none did.

    A typed error stays what it is, whatever failed beside it (case EP14).
    """
    if not drained:
        return None
    first = next(iter(drained.values()))
    names = (
        [f"profile '{name}': {why.message}" for name, why in drained.items()] if len(drained) > 1 else [first.message]
    )
    return first._replace(message="; ".join([*names, *others])[:MAX_MESSAGE_CHARS])
