"""`no-hit-lru-scorer`: sends prompts that nobody holds to where such a prompt went longest ago.

Such requests fill caches with blocks of their own, so spreading them spreads that growth. Endpoints that are gone are
forgotten with the first call that no longer has them.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hotbay_sdk import Context, Endpoints, ParameterError, PickedTargets, PreRequest, Request, Scorer, StateDumper

from hotbay_prefix_cache.match_info import columns_of, computing
from hotbay_prefix_cache.package import plugin

STATE_VERSION: Final = 1
NEUTRAL: Final = 0.5
"""The rating of every endpoint for a request that somebody has blocks of."""
_MAX_PENDING: Final = 8192
"""Cold requests that were rated and not yet sent; of more, the oldest count as never sent."""
_DUMPED_ENDPOINTS: Final = 100


@dataclass(frozen=True, slots=True)
class NoHitLruParameters:
    """`prefixPluginType` and `prefixPluginName` never had an effect in the reference, and have none here."""

    lruSize: int = 1024
    prefixMatchInfoProducerName: str = ""
    prefixPluginType: str = ""
    prefixPluginName: str = ""

    def __post_init__(self) -> None:
        if self.lruSize < 0:
            raise ParameterError("lruSize", f"expected a whole number from 0 up, found {self.lruSize}")

    @property
    def most(self) -> int:
        """Endpoints that are remembered; 0 says nothing, as in the reference."""
        return self.lruSize or 1024


def rank_ratings(candidates: Sequence[int], last_use: Mapping[int, int]) -> dict[int, float]:
    """Rating of each candidate row: 1 for who is due, 0 for who had the last cold request.

    `last_use`: row → a number that grows with time; rows that are missing never had one and come first, in row order.
    """
    order = sorted(candidates, key=lambda row: last_use.get(row, -1))
    steps = len(order) - 1
    return {row: 1.0 - rank / steps if steps else 1.0 for rank, row in enumerate(order)}


@plugin.type(
    "no-hit-lru-scorer",
    reads=["request.id"],
    consumes=["*"],
    parameters=NoHitLruParameters,
    state_versions=[STATE_VERSION],
)
class NoHitLruScorer(Scorer, PreRequest, StateDumper):
    """Rates by last cold use where no candidate holds a block of the prompt, and everybody 0.5 where one does."""

    def __init__(self, context: Context, parameters: NoHitLruParameters) -> None:
        self._matched = columns_of(parameters.prefixMatchInfoProducerName).matched
        self.consumes = (self._matched,)
        self._most = parameters.most
        self._used: OrderedDict[str, None] = OrderedDict()
        self._pending: OrderedDict[str, None] = OrderedDict()
        self._followed: Sequence[str] = ()

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence["array[float]"]:
        """One row of ratings per request."""
        self._follow(endpoints.ids)
        numbers = {name: number for number, name in enumerate(self._used)}
        last_use = {row: numbers[name] for row, name in enumerate(endpoints.ids) if name in numbers}
        neutral = array("f", [NEUTRAL]) * len(endpoints)
        rows = []
        for number, request in enumerate(requests):
            candidates = endpoints.rows(number)
            matched = endpoints.data_row(self._matched, number)
            if any(matched[row] > 0 for row in candidates):
                rows.append(neutral)
                continue
            self._expect(request.id)
            ratings = array("f", bytes(4 * len(endpoints)))
            for row, value in rank_ratings(candidates, last_use).items():
                ratings[row] = value
            rows.append(ratings)
        return rows

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Note who got a cold request: the first target, and that of a profile `prefill`."""
        self._follow(endpoints.ids)
        if request.id not in self._pending:
            return
        del self._pending[request.id]
        self._note(name for name in computing(picked.targets, picked.results) if name in endpoints.ids)

    def export_state(self, version: int) -> bytes:
        """Ids of the endpoints that had cold requests, longest ago first, a line each."""
        return "\n".join(self._used).encode()

    def import_state(self, version: int, pieces: Iterator[bytes]) -> None:
        """Go on with the order that the last version knew."""
        self._note(name for name in b"".join(pieces).decode().split("\n") if name)

    def dump_state(self) -> Mapping[str, object]:
        """Endpoints by their last cold request, longest ago first."""
        return {"endpoints": len(self._used), "longest_ago_first": list(self._used)[:_DUMPED_ENDPOINTS]}

    def _follow(self, ids: Sequence[str]) -> None:
        if ids is self._followed:
            return
        members = set(ids)
        for name in [name for name in self._used if name not in members]:
            del self._used[name]
        self._followed = ids

    def _expect(self, request_id: str) -> None:
        self._pending[request_id] = None
        self._pending.move_to_end(request_id)
        if len(self._pending) > _MAX_PENDING:
            self._pending.popitem(last=False)

    def _note(self, names: Iterable[str]) -> None:
        for name in names:
            self._used[name] = None
            self._used.move_to_end(name)
        while len(self._used) > self._most:
            self._used.popitem(last=False)
