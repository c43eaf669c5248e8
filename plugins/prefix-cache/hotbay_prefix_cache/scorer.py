"""`prefix-cache-scorer`: rates endpoints by the part of the prompt that they hold."""

from array import array
from collections.abc import Sequence

from hotbay_sdk import Context, Endpoints, Request, Scorer

from hotbay_prefix_cache.match_info import columns_of
from hotbay_prefix_cache.package import plugin
from hotbay_prefix_cache.parameters import ScorerParameters, parse_scorer


def rating(matched: float, total: float, block_tokens: float, *, weight: float, scale_tokens: float) -> float:
    """(1 - w) x match / total + w x min(1, match x block size / scale)^2; 0 for what nobody knows."""
    if not matched > 0:
        return 0.0
    share = min(1.0, matched / total)
    length = min(1.0, matched * block_tokens / scale_tokens)
    return (1 - weight) * share + weight * length * length


@plugin.type("prefix-cache-scorer", consumes=["*"], parameters=parse_scorer)
class PrefixCacheScorer(Scorer):
    """Rates endpoints by the share, and if asked by the length, of the prompt that they hold."""

    def __init__(self, context: Context, parameters: ScorerParameters) -> None:
        self._columns = columns_of(parameters.producer)
        self.consumes = tuple(self._columns)
        self._weight = parameters.length_weight
        self._scale_tokens = parameters.length_scale_tokens

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence["array[float]"]:
        """One row of ratings per request."""
        nothing = array("f", bytes(4 * len(endpoints)))
        rows = []
        for number, request in enumerate(requests):
            total, block_tokens = request.data(self._columns.total), request.data(self._columns.block_tokens)
            matched = endpoints.data_row(self._columns.matched, number).tolist()
            # NaN, what was not produced, compares as neither above 0 nor anything else.
            if total > 0 and block_tokens > 0 and any(matched):
                # Of a long list most counts are the same few.
                ratings = {count: self._rate(count, total, block_tokens) for count in set(matched)}
                rows.append(array("f", map(ratings.__getitem__, matched)))
            else:
                rows.append(nothing)
        return rows

    def _rate(self, matched: float, total: float, block_tokens: float) -> float:
        return rating(matched, total, block_tokens, weight=self._weight, scale_tokens=self._scale_tokens)
