"""The plugin, its producer and its scorer.

The producer guesses what an engine's prefix cache holds from what was sent to it: no engine is asked.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence

from hotbay_sdk import Context, DataProducer, Endpoints, Plugin, PreRequest, Request, Scorer

from hotbay_prefix_cache import state
from hotbay_prefix_cache.index import PROMPT_BOUNDARY, PrefixIndex
from hotbay_prefix_cache.parameters import ProducerParameters, ScorerParameters, parse_producer, parse_scorer

plugin = Plugin("prefix-cache")

MATCHED = "PrefixCacheMatchInfo.matched_blocks"
TOTAL = "PrefixCacheMatchInfo.total_blocks"
BLOCK_TOKENS = "PrefixCacheMatchInfo.block_size_tokens"

_LEAST_SENSIBLE_BLOCK_TOKENS = 16


@plugin.type(
    "approx-prefix-cache-producer",
    reads=["request.prompt_hashes", "endpoint.block_size", "endpoint.num_blocks"],
    produces={MATCHED: "row", TOTAL: "request", BLOCK_TOKENS: "request"},
    parameters=parse_producer,
    state_versions=[state.VERSION],
)
class ApproxPrefixCacheProducer(DataProducer, PreRequest):
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
        rows = len(endpoints)
        matched, totals = [], array("f")
        for request in requests:
            hashes = self._hashes(request)
            counts = array("f", bytes(4 * rows))
            for row, count in self._index.match(hashes).items():
                counts[row] = count
            matched.append(counts)
            totals.append(len(hashes) - hashes.count(PROMPT_BOUNDARY))
        return {MATCHED: matched, TOTAL: totals, BLOCK_TOKENS: array("f", [self.block_tokens]) * len(requests)}

    def pre_request(self, request: Request, targets: Sequence[str], endpoints: Endpoints) -> None:
        """Learn that the primary target will have computed this prompt; the others only stand by."""
        self._index.follow(endpoints.ids)
        row = self._index.row_of(targets[0]) if targets else None
        if row is not None:
            self._index.learn(row, self._hashes(request), self._capacity(endpoints, row))

    def export_state(self, version: int) -> Iterator[bytes]:
        """What was learned, for the next version of this package."""
        return state.pieces(self._index, self.block_tokens)

    def import_state(self, version: int, pieces: Iterator[bytes]) -> None:
        """Begin with what the last version learned; endpoints that are gone are forgotten with the first call."""
        self._index = state.restored(pieces, self.block_tokens, self._parameters.capacity_blocks)

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


@plugin.type("prefix-cache-scorer", consumes=[MATCHED, TOTAL, BLOCK_TOKENS], parameters=parse_scorer)
class PrefixCacheScorer(Scorer):
    """Rates endpoints by the share, and if asked by the length, of the prompt that they hold."""

    def __init__(self, context: Context, parameters: ScorerParameters) -> None:
        self._name = context.name
        self._weight = parameters.length_weight
        self._scale_tokens = parameters.length_scale_tokens

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence["array[float]"]:
        """One row of ratings per request."""
        nothing = array("f", bytes(4 * len(endpoints)))
        rows = []
        for number, request in enumerate(requests):
            total, block_tokens = request.data(TOTAL), request.data(BLOCK_TOKENS)
            matched = endpoints.data_row(MATCHED, number).tolist()
            # NaN, what was not produced, compares as neither above 0 nor anything else.
            if total > 0 and block_tokens > 0 and any(matched):
                ratings = {count: self._rate(count, total, block_tokens) for count in set(matched)}
                rows.append(array("f", map(ratings.__getitem__, matched)))
            else:
                rows.append(nothing)
        return rows

    def _rate(self, matched: float, total: float, block_tokens: float) -> float:
        """(1 - w) x match / total + w x min(1, match x block size / scale)^2; 0 for what nobody knows."""
        if not matched > 0:
            return 0.0
        share = min(1.0, matched / total)
        length = min(1.0, matched * block_tokens / self._scale_tokens)
        return (1 - self._weight) * share + self._weight * length * length
