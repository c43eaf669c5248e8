"""`approx-prefix-cache-producer`: guesses what engines' caches hold from what was sent to them. No engine is asked."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from hotbay_sdk import Context, DataProducer, Endpoints, PickedTargets, PreRequest, Request, StateDumper

from hotbay_prefix_cache import state
from hotbay_prefix_cache.index import PROMPT_BOUNDARY, PrefixIndex
from hotbay_prefix_cache.match_info import BLOCK_TOKENS, MATCHED, PRODUCED, TOTAL, computing, row_of_counts
from hotbay_prefix_cache.package import plugin
from hotbay_prefix_cache.parameters import ProducerParameters, parse_producer

_LEAST_SENSIBLE_BLOCK_TOKENS: Final = 16
_DUMPED_ENDPOINTS: Final = 100


def owner_of(request: Request) -> int:
    """A request's number in an index; 0, which vouches for nothing, where it has no id."""
    return hash(request.id) if request.id else 0


@plugin.type(
    "approx-prefix-cache-producer",
    reads=["request.id", "request.prompt_hashes", "endpoint.block_size", "endpoint.num_blocks"],
    produces=PRODUCED,
    parameters=parse_producer,
    state_versions=[state.VERSION],
)
class ApproxPrefixCacheProducer(DataProducer, PreRequest, StateDumper):
    """Counts, per endpoint, the leading prompt blocks that were sent to it before."""

    def __init__(self, context: Context, parameters: ProducerParameters) -> None:
        self.block_tokens = parameters.block_tokens
        self._parameters = parameters
        self._index = PrefixIndex()
        if parameters.block_tokens < _LEAST_SENSIBLE_BLOCK_TOKENS:
            context.logger.warning(
                "blockSizeTokens is %d: below %d the index costs more than it tells",
                parameters.block_tokens,
                _LEAST_SENSIBLE_BLOCK_TOKENS,
            )

    def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Mapping[str, object]:
        """The three columns of `PrefixCacheMatchInfo`."""
        self._index.follow(endpoints.ids)
        matched, totals = [], array("f")
        for request in requests:
            hashes = self._hashes(request)
            matched.append(row_of_counts(self._index.match(hashes), len(endpoints)))
            totals.append(len(hashes) - hashes.count(PROMPT_BOUNDARY))
        return {MATCHED: matched, TOTAL: totals, BLOCK_TOKENS: array("f", [self.block_tokens]) * len(requests)}

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Learn that these endpoints will have computed this prompt; further targets only stand by."""
        self._index.follow(endpoints.ids)
        for row in self._rows(picked):
            self._index.learn(row, self._hashes(request), self._capacity(endpoints, row), owner=owner_of(request))

    def withdrawn(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Forget what this request alone was to compute there: it ended without a first byte."""
        self._index.follow(endpoints.ids)
        owner = owner_of(request)
        for row in self._rows(picked) if owner else ():
            self._index.withdraw(row, self._hashes(request), owner)

    def export_state(self, version: int) -> Iterator[bytes]:
        """What was learned, for the next version of this package."""
        return state.pieces(self._index, self.block_tokens)

    def import_state(self, version: int, pieces: Iterator[bytes]) -> None:
        """Begin with what the last version learned; endpoints that are gone are forgotten with the first call."""
        self._index = state.restored(pieces, self.block_tokens, self._parameters.capacity_blocks)

    def dump_state(self) -> Mapping[str, object]:
        """Blocks in all and per endpoint."""
        held = {name: len(self._index.held_by(row)) for row, name in enumerate(self._index.ids) if name}
        first = dict(islice(held.items(), _DUMPED_ENDPOINTS))
        return {"blocks": self._index.block_count, "endpoints": len(held), "blocks_by_endpoint": first}

    def _rows(self, picked: PickedTargets) -> list[int]:
        rows = [self._index.row_of(name) for name in computing(picked.targets, picked.results)]
        return [row for row in rows if row is not None]

    def _hashes(self, request: Request) -> list[int]:
        return request.prompt_hashes.tolist()[: self._parameters.max_blocks]

    def _capacity(self, endpoints: Endpoints, row: int) -> int:
        """Blocks of ours that fit into the endpoint's KV cache, if it says so and is to be believed."""
        most = self._parameters.capacity_blocks
        if self._parameters.auto_tune:
            blocks: int = endpoints.column("endpoint.num_blocks")[row]
            block_tokens: int = endpoints.column("endpoint.block_size")[row]
            if blocks > 0 and block_tokens > 0:
                return max(1, min(blocks * block_tokens // self.block_tokens, most))
        return most
