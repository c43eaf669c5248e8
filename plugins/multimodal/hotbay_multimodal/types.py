"""The plugin, its producer and its scorer."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hotbay_sdk import (
    Context,
    DataProducer,
    Endpoints,
    PickedTargets,
    Plugin,
    PreRequest,
    Request,
    Response,
    ResponseBodyProcessor,
    Scorer,
    StateDumper,
)

from hotbay_multimodal.index import ItemIndex, Notes
from hotbay_multimodal.items import media_hashes

plugin = Plugin("multimodal")

MATCHED: Final = "EncoderCacheMatchInfo.matched_size"
TOTAL: Final = "EncoderCacheMatchInfo.total_size"

DEFAULT_MIB: Final = 4096
ITEM_MIB: Final = 2
"""What one item takes in an engine's cache, as the reference assumes."""


@dataclass(frozen=True, slots=True)
class ProducerParameters:
    """`cacheSizeInMBPerServer`: an engine's cache of embeddings, in MiB; 0 and below stand for the default."""

    cacheSizeInMBPerServer: int = DEFAULT_MIB
    encodeProfile: str = "encode"

    @property
    def capacity(self) -> int:
        """Items that an endpoint is taken to hold."""
        size = self.cacheSizeInMBPerServer
        return max(1, (size if size > 0 else DEFAULT_MIB) // ITEM_MIB)


@dataclass(frozen=True, slots=True)
class ScorerParameters:
    """Whose data counts."""

    producerName: str = ""


@plugin.type(
    "mm-embeddings-cache-producer",
    reads=["request.id", "request.messages"],
    produces={MATCHED: "row", TOTAL: "request"},
    parameters=ProducerParameters,
)
class MmEmbeddingsCacheProducer(DataProducer, PreRequest, ResponseBodyProcessor, StateDumper):
    """Counts, per endpoint, the images, audios and videos of a request that were sent to it before."""

    def __init__(self, context: Context, parameters: ProducerParameters) -> None:
        self._index = ItemIndex(parameters.capacity)
        self._encode = parameters.encodeProfile or "encode"
        self._notes = Notes()

    def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Mapping[str, object]:
        """Both columns of `EncoderCacheMatchInfo`; every item weighs 1."""
        self._index.follow(endpoints.ids)
        nothing = array("f", bytes(4 * len(endpoints)))
        matched, totals = [], array("f")
        for request in requests:
            items = media_hashes(request.messages)
            totals.append(len(items))
            matched.append(self._matches(items, endpoints.ids) if items else nothing)
        return {MATCHED: matched, TOTAL: totals}

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """The endpoint that answers will hold the items, or where encoding has servers of its own, these."""
        items = media_hashes(request.messages)
        if not items:
            return
        self._index.follow(endpoints.ids)
        targets = (*picked.targets[:1], *(picked.results.get(self._encode) or ()))
        self._notes.add(request.id, [(target, self._index.learn(target, items)) for target in dict.fromkeys(targets)])

    def withdrawn(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """The request ended without a first byte: what it alone had brought is not there."""
        for target, fresh in self._notes.take(request.id):
            self._index.withdraw(target, fresh)

    def response_body(self, request: Request, response: Response) -> None:
        """The request was answered, so that nothing of it will be taken back."""
        # One that ended without a byte is told of by `withdrawn`, before or after this.
        if response.end and response.ttft_us is not None:
            self._notes.take(request.id)

    def dump_state(self) -> object:
        """How many items are noted of each endpoint, of at most 100."""
        return self._index.dump()

    def _matches(self, items: Sequence[int], ids: Sequence[str]) -> "array[float]":
        return array("f", [self._index.matched(endpoint_id, items) for endpoint_id in ids])


@plugin.type("mm-embeddings-cache-scorer", consumes=[MATCHED, TOTAL, "*"], parameters=ScorerParameters)
class MmEmbeddingsCacheScorer(Scorer):
    """Rates endpoints by the share of the request's items that they hold."""

    def __init__(self, context: Context, parameters: ScorerParameters) -> None:
        producer = parameters.producerName
        self._matched, self._total = _named(MATCHED, producer), _named(TOTAL, producer)
        self.consumes = (self._matched, self._total) if producer else ()

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence["array[float]"]:
        """matched / total, 0 without information."""
        nothing = array("f", bytes(4 * len(endpoints)))
        rows = []
        for number, request in enumerate(requests):
            total = request.data(self._total)
            matched = endpoints.data_row(self._matched, number)
            # NaN, what was not produced, compares as neither above 0 nor anything else.
            rows.append(array("f", [share(count, total) for count in matched]) if total > 0 else nothing)
        return rows


def share(matched: float, total: float) -> float:
    """matched / total in [0, 1]; 0 for what nobody knows."""
    return min(1.0, matched / total) if matched > 0 and total > 0 else 0.0


def _named(column: str, producer: str) -> str:
    key, _, field = column.partition(".")
    return f"{key}/{producer}.{field}" if producer else column
