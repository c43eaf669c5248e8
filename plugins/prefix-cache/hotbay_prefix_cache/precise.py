"""`precise-prefix-cache-producer` and `precise-prefix-cache-scorer`: what caches hold, by what engines tell of them.

Both are one thing in two forms: the scorer is the older one, which holds the producer in itself and rates by it.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from time import monotonic
from typing import Final

from hotbay_sdk import (
    Context,
    DataProducer,
    Endpoints,
    PickedTargets,
    PreRequest,
    Request,
    Scorer,
    StateDumper,
)

from hotbay_prefix_cache import precise_state
from hotbay_prefix_cache.kv_events import MalformedEventError, read_message
from hotbay_prefix_cache.match_info import BLOCK_TOKENS, MATCHED, PRODUCED, TOTAL, row_of_counts
from hotbay_prefix_cache.matcher import ESTIMATE_BLOCK_TOKENS, READS, TOKENS, Match, Matcher
from hotbay_prefix_cache.package import plugin
from hotbay_prefix_cache.precise_parameters import PreciseParameters
from hotbay_prefix_cache.subscriber import Subscriber

_DUMPED_SLOTS: Final = 100


class _Precise(PreRequest, StateDumper):
    """What both have in common."""

    def __init__(self, context: Context, parameters: PreciseParameters) -> None:
        self.block_tokens = ESTIMATE_BLOCK_TOKENS
        self._logger = context.logger
        self._events = parameters.kvEventsConfig
        self._matcher = Matcher(
            block_tokens=parameters.tokenProcessorConfig.tokens,
            speculative_s=parameters.speculative_s if parameters.speculativeIndexing else 0.0,
        )
        self._malformed = 0
        self._heard: Mapping[str, str] = {}
        self._subscriber: Subscriber | None = None
        if self._events.zmqEndpoint:
            self._subscribed()

    def pre_request(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Note where the prompt will be computed: for prompts without known tokens, and for a short time if asked to."""
        self._matcher.sent(request, picked, endpoints, monotonic())
        self._listen()

    def withdrawn(self, request: Request, picked: PickedTargets, endpoints: Endpoints) -> None:
        """Take that back."""
        self._matcher.withdrawn(request, picked, endpoints)

    def receive(self, name: str, frames: Sequence[bytes]) -> None:
        """Follow one message; `name`: the endpoint's id where its own address was connected to."""
        try:
            message = read_message(frames)
        except MalformedEventError as error:
            self._malformed += 1
            if self._malformed == 1:
                self._logger.warning("KV events that cannot be read are left out: %s", error)
            return
        self._matcher.receive(message._replace(who=name) if name else message)

    def export_state(self, version: int) -> Iterator[bytes]:
        """What engines told, for the next version of this package."""
        return precise_state.pieces(self._matcher.index)

    def import_state(self, version: int, pieces: Iterator[bytes]) -> None:
        """Begin with what the last version was told."""
        self._matcher.take_over(precise_state.restored(pieces))

    def dump_state(self) -> Mapping[str, object]:
        """Blocks by cache, and what was left out."""
        index = self._matcher.index
        slots = [slot for slot in index.slots if slot.source]
        caches = [
            {"source": slot.source, "rank": slot.rank, "model": slot.model, "blocks": len(slot.vouchers)}
            for slot in islice(slots, _DUMPED_SLOTS)
        ]
        told = {"blocks": index.block_count, "caches": len(slots), "first_caches": caches}
        return {**told, "malformed": self._malformed, "ignored_blocks": index.ignored, "lost": index.lost}

    def close(self) -> None:
        """Listen no more."""
        if self._subscriber is not None:
            self._subscriber.close()

    def _match(self, requests: Sequence[Request], endpoints: Endpoints) -> list[Match]:
        found = self._matcher.match(requests, endpoints, monotonic())
        self._listen()
        return found

    def _listen(self) -> None:
        """Listen to the endpoints of the newest view, each at its own address, and to no others."""
        places = self._matcher.places
        if places is self._heard or not self._events.discoverPods:
            return
        for name in self._heard.keys() - places.keys():
            self._subscribed().disconnect(name)
        port = self._events.podDiscoveryConfig.socketPort
        for name, place in places.items():
            if self._heard.get(name) != place:
                self._subscribed().connect(name, f"tcp://{place.rpartition(':')[0]}:{port}")
        self._heard = places

    def _subscribed(self) -> Subscriber:
        if self._subscriber is None:
            topic, bind = self._events.topicFilter, self._events.zmqEndpoint
            self._subscriber = Subscriber(self.receive, self._logger, topic=topic, bind=bind)
        return self._subscriber


@plugin.type(
    "precise-prefix-cache-producer",
    reads=READS,
    optional=[TOKENS],
    produces=PRODUCED,
    parameters=PreciseParameters,
    state_versions=[precise_state.VERSION],
)
class PrecisePrefixCacheProducer(_Precise, DataProducer):
    """Counts, per endpoint, the leading prompt blocks that its engine says it holds."""

    def produce_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Mapping[str, object]:
        """The three columns of `PrefixCacheMatchInfo`."""
        found = self._match(requests, endpoints)
        return {
            MATCHED: [row_of_counts(match.counts, len(endpoints)) for match in found],
            TOTAL: array("f", [match.total for match in found]),
            BLOCK_TOKENS: array("f", [match.block_tokens for match in found]),
        }


@plugin.type(
    "precise-prefix-cache-scorer",
    reads=READS,
    optional=[TOKENS],
    parameters=PreciseParameters,
    state_versions=[precise_state.VERSION],
)
class PrecisePrefixCacheScorer(_Precise, Scorer):
    """Rates endpoints by the share of the prompt that their engines say they hold."""

    def score_batch(self, requests: Sequence[Request], endpoints: Endpoints) -> Sequence["array[float]"]:
        """One row of ratings per request."""
        found = self._match(requests, endpoints)
        return [
            row_of_counts({row: count / match.total for row, count in match.counts.items()}, len(endpoints))
            for match in found
        ]
