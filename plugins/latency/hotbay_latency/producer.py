"""`predicted-latency-producer`: predicts what every endpoint would make a request wait, and learns from what it did.

The model is in the process: nothing else is asked, and there is nothing to wait for.
"""

from collections.abc import Iterator, Mapping, Sequence
from time import monotonic
from typing import Final

import numpy as np
import numpy.typing as npt
from hotbay_sdk import (
    Context,
    DataProducer,
    Endpoints,
    PickedTargets,
    PreRequest,
    Request,
    Response,
    ResponseBodyProcessor,
    StateDumper,
)

from hotbay_latency import contexts, state
from hotbay_latency.features import LOAD_COLUMNS, NAMES, WIDTH, feature_rows, scaled_load, uncached_tokens
from hotbay_latency.headroom import Bools
from hotbay_latency.package import (
    HEADER_READS,
    TPOT,
    TPOT_HEADER,
    TPOT_HEADROOM,
    TTFT,
    TTFT_HEADER,
    TTFT_HEADROOM,
    beyond,
    named,
    plugin,
)
from hotbay_latency.parameters import ProducerParameters, objective_ms
from hotbay_latency.regression import Floats, Regression

MATCHED: Final = "PrefixCacheMatchInfo.matched_blocks"
BLOCK_TOKENS: Final = "PrefixCacheMatchInfo.block_size_tokens"
CONSUMED: Final = (MATCHED, BLOCK_TOKENS)
PREFILL_ROLE: Final = "prefill"


@plugin.type(
    "predicted-latency-producer",
    reads=[*LOAD_COLUMNS, *HEADER_READS, "endpoint.labels", "request.id", "request.tokens_estimate"],
    consumes=[*CONSUMED, "*"],
    produces={TTFT: "row", TPOT: "row", TTFT_HEADROOM: "row", TPOT_HEADROOM: "row"},
    parameters=ProducerParameters,
    state_versions=[state.VERSION],
)
class PredictedLatencyProducer(DataProducer, PreRequest, ResponseBodyProcessor, StateDumper):
    """Time to first token and per output token, in milliseconds, and what is left of the request's objectives."""

    def __init__(self, context: Context, parameters: ProducerParameters) -> None:
        self._parameters = parameters
        producer = parameters.prefixMatchInfoProducerName
        self._matched, self._block_tokens = named(MATCHED, producer), named(BLOCK_TOKENS, producer)
        self.consumes = beyond((self._matched, self._block_tokens), CONSUMED)
        self._ttft, self._tpot = Regression(WIDTH), Regression(WIDTH)
        self._contexts = contexts.Contexts(parameters.context_ttl_s)

    def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Mapping[str, object]:
        """The four columns of `LatencyPredictionInfo`, NaN where nothing can be predicted."""
        now = monotonic()
        load = scaled_load([np.asarray(endpoints.column(name), np.float64) for name in LOAD_COLUMNS])
        strictest, speechless = self._contexts.strictest(endpoints.ids), self._speechless(endpoints)
        made: dict[str, list[npt.NDArray[np.float32]]] = {TTFT: [], TPOT: [], TTFT_HEADROOM: [], TPOT_HEADROOM: []}
        for number, request in enumerate(requests):
            tokens = float(request.tokens_estimate)
            matched = np.asarray(endpoints.data_row(self._matched, number), np.float64)
            uncached = uncached_tokens(tokens, matched, request.data(self._block_tokens))
            slo_ms = objective_ms(request.header(TPOT_HEADER))
            note = contexts.Context(endpoints.ids, load, uncached, tokens, slo_ms, now)
            allowed = np.minimum(slo_ms, strictest) * self._parameters.sloBufferFactor
            allowed[speechless] = np.inf
            columns = self._predicted(note, objective_ms(request.header(TTFT_HEADER)), allowed)
            self._contexts.note(request.id, note)
            for name, column in zip(made, columns, strict=True):
                made[name].append(column.astype(np.float32))
        return made

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Remember what was known of the endpoint that the request goes to, as it was when it was chosen."""
        note = self._contexts.find(request.id)
        target = picked.targets[0] if picked.targets else ""
        if note is None or target not in note.ids:
            return
        row = note.ids.index(target)
        rows = feature_rows(note.load[row : row + 1], note.prompt_tokens, note.uncached[row : row + 1])
        self._contexts.sent(request.id, target, rows[0])

    def response_body(self, request: Request, response: Response) -> None:
        """Learn from a response that came to its end by itself, from the endpoint that was expected to give it."""
        if not response.end:
            return
        note = self._contexts.end(request.id)
        if note is None or note.features is None or note.target != response.endpoint:
            return
        if response.cause != "natural" or not 200 <= response.status < 300:
            return
        elapsed_us, ttft_us = response.elapsed_us, response.ttft_us
        first_us = elapsed_us if ttft_us is None else ttft_us
        if first_us is None:
            return
        self._ttft.learn(note.features, first_us / 1000)
        tokens = (response.usage or {}).get("completion_tokens", 0)
        # What comes in one piece says nothing of the time between tokens.
        if self._parameters.streamingMode and elapsed_us is not None and tokens > 1 and response.chunks > 1:
            self._tpot.learn(note.features, (elapsed_us - first_us) / (tokens - 1) / 1000)

    def export_state(self, version: int) -> Iterator[bytes]:
        """What was learned, for the next version of this package."""
        return state.pieces((self._ttft, self._tpot), WIDTH)

    def import_state(self, version: int, pieces: Iterator[bytes]) -> None:
        """Begin with what the last version learned."""
        self._ttft, self._tpot = state.restored(pieces, WIDTH, 2)

    def dump_state(self) -> object:
        """The two models: what each was learned from, and what a unit of every feature costs in milliseconds."""
        models = {"ttft": self._ttft, "tpot": self._tpot}
        told: dict[str, object] = {"requests": len(self._contexts)}
        for name, model in models.items():
            weights = {} if model.cold else dict(zip(NAMES, model.weights.tolist(), strict=True))
            told[name] = {"observations": model.observations, "weights_ms": weights}
        return told

    def _predicted(self, note: contexts.Context, ttft_slo_ms: float, tpot_allowed_ms: Floats) -> tuple[Floats, ...]:
        """The four columns of one request; infinite `tpot_allowed_ms` stands for an endpoint whose output does not count."""
        if not self._parameters.predictInProduce or self._ttft.cold:
            nothing = np.full(len(note.ids), np.nan)
            return nothing, nothing, nothing, nothing
        rows = feature_rows(note.load, note.prompt_tokens, note.uncached)
        ttft, tpot = self._ttft.predict(rows), self._tpot.predict(rows)
        neutral = np.where(np.isnan(ttft), np.nan, 0.0)
        if not self._parameters.streamingMode or self._tpot.cold:
            return ttft, tpot, ttft_slo_ms - ttft, neutral
        return ttft, tpot, ttft_slo_ms - ttft, np.where(np.isinf(tpot_allowed_ms), neutral, tpot_allowed_ms - tpot)

    def _speechless(self, endpoints: Endpoints) -> Bools:
        """Endpoints that make no output tokens."""
        found = np.zeros(len(endpoints), np.bool_)
        label = self._parameters.endpointRoleLabel
        if label:
            values, codes = endpoints.table("endpoint.labels")
            prefill = [labels.get(label) == PREFILL_ROLE for labels in values]
            for row, code in enumerate(codes):
                found[row] = code < len(values) and prefill[code]
        return found
