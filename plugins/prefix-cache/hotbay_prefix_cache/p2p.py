"""`p2p-source-producer`: names the endpoint that holds most of the prompt, so that the one that computes it may fetch that part.

Sets the request header `x-kv-cache-source-host-port` for a side-car that pulls blocks from there; what a client sent under
that name is removed. Of several endpoints that hold the most, the one is drawn by the request's id, each with a chance of
1 / (1 + its waiting requests): everybody who needs a popular prefix would fetch it from one and the same endpoint otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from hotbay_sdk import Context, Edits, Endpoints, ParameterError, PickedTargets, PreRequest, Request

from hotbay_prefix_cache.match_info import PREFILL_PROFILE, columns_of
from hotbay_prefix_cache.package import plugin

HEADER: Final = "x-kv-cache-source-host-port"
_ADDRESS: Final = "endpoint.address"
_WAITING: Final = "endpoint.waiting"


@dataclass(frozen=True, slots=True)
class P2pParameters:
    """`minCachedTokenDelta`: tokens that the source must hold beyond the endpoint that computes."""

    prefixMatchInfoProducerName: str = ""
    minCachedTokenDelta: int = 1
    prefillProfileName: str = PREFILL_PROFILE

    def __post_init__(self) -> None:
        if self.minCachedTokenDelta < 1:
            raise ParameterError(
                "minCachedTokenDelta", f"expected a whole number from 1 up, found {self.minCachedTokenDelta}"
            )


def drawn(request_id: str, waiting: Mapping[int, float]) -> int:
    """One of the rows of `waiting`, which is not empty, with a chance of 1 / (1 + what waits there); the same for the same id."""
    weights = [(row, 1 / (1 + max(0.0, count))) for row, count in sorted(waiting.items())]
    digest = blake2b(request_id.encode(errors="surrogatepass"), digest_size=8).digest()
    left = int.from_bytes(digest, "little") / 2**64 * sum(weight for _, weight in weights)
    for row, weight in weights:
        left -= weight
        if left < 0:
            return row
    return weights[-1][0]


@plugin.type("p2p-source-producer", reads=["request.id", _ADDRESS, _WAITING], consumes=["*"], parameters=P2pParameters)
class P2pSourceProducer(PreRequest):
    """Sets the header where another endpoint holds more of the prompt than the one that computes it."""

    sets_request_headers: Sequence[str] = (HEADER,)

    def __init__(self, context: Context, parameters: P2pParameters) -> None:
        self._parameters = parameters
        self._columns = columns_of(parameters.prefixMatchInfoProducerName)
        self.consumes = (self._columns.matched, self._columns.block_tokens)

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> Edits | None:
        """The header, or its removal."""
        return Edits(request={HEADER: self._source(request, picked, endpoints) or None})

    def _source(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> str:
        block_tokens = request.data(self._columns.block_tokens)
        values, codes = endpoints.table(_ADDRESS)
        matched = endpoints.data_row(self._columns.matched)
        known = {row: matched[row] for row in endpoints.rows() if matched[row] > 0 and codes[row] < len(values)}
        if not known or not block_tokens > 0:
            return ""
        computing = self._computing(picked, endpoints)
        most = max(known.values())
        here = matched[computing] if computing is not None and matched[computing] > 0 else 0.0
        if computing is None or (most - here) * block_tokens < self._parameters.minCachedTokenDelta:
            return ""
        waiting = endpoints.column(_WAITING)
        # A queue of which nothing is known counts as empty.
        source = drawn(
            request.id, {row: waiting[row] if waiting[row] >= 0 else 0.0 for row in known if known[row] == most}
        )
        return str(values[codes[source]])

    def _computing(self, picked: PickedTargets, endpoints: Endpoints) -> int | None:
        """The row of the endpoint that will compute the prompt."""
        chosen = picked.results.get(self._parameters.prefillProfileName) or picked.targets
        ids = list(endpoints.ids)
        return ids.index(chosen[0]) if chosen and chosen[0] in ids else None
