"""Deciders: whether a request's prefill or encode stage runs on servers of its own.

A handler of this package finds them by their names and asks them in its own calls, so that they declare what the handler has to
be given: `columns`. They answer no call of the host's but what operators look at.
"""

from abc import ABC, abstractmethod
from typing import Final

from hotbay_sdk import Context, Endpoints, ParameterError, Request, StateDumper

from hotbay_disaggregation.package import plugin
from hotbay_disaggregation.parameters import PrefixDeciderParameters

MATCHED: Final = "matched_blocks"
BLOCK_TOKENS: Final = "block_size_tokens"
PREFIX_KEY: Final = "PrefixCacheMatchInfo"
TOTAL_SIZE: Final = "EncoderCacheMatchInfo.total_size"


class Decider(StateDumper, ABC):
    """One decider. `columns`: data that the handler which asks it consumes for it."""

    columns: tuple[str, ...] = ()

    def __init__(self, context: Context, parameters: object = None) -> None:
        self._asked = 0
        self._agreed = 0

    def disaggregate(self, request: Request, endpoints: Endpoints, row: int | None) -> bool:
        """Whether the stage runs; `row` is that of the endpoint which decodes, None where it is not known."""
        agreed = self._wants(request, endpoints, row)
        self._asked += 1
        self._agreed += agreed
        return agreed

    @abstractmethod
    def _wants(self, request: Request, endpoints: Endpoints, row: int | None) -> bool:
        """What `disaggregate` says."""

    def dump_state(self) -> object:
        """How often it was asked, and agreed."""
        return {"asked": self._asked, "agreed": self._agreed}


def decider_named(context: Context, name: str, path: str) -> Decider:
    """The decider of a name. Raises `ParameterError` at `path` where there is none."""
    found = context.plugin(name, path)
    if not isinstance(found, Decider):
        kinds = "always-disagg-pd-decider, always-disagg-multimodal-decider and prefix-based-pd-decider"
        raise ParameterError(path, f"{name[:80]!a} is a {type(found).__name__}, expected a decider, as {kinds} are")
    return found


@plugin.type("always-disagg-pd-decider")
class AlwaysDisaggPdDecider(Decider):
    """Always: every request has its prompt computed elsewhere."""

    def _wants(self, request: Request, endpoints: Endpoints, row: int | None) -> bool:
        return True


@plugin.type("always-disagg-multimodal-decider", consumes=[TOTAL_SIZE])
class AlwaysDisaggMultimodalDecider(Decider):
    """For requests with images, audio or video in them."""

    columns = (TOTAL_SIZE,)

    def _wants(self, request: Request, endpoints: Endpoints, row: int | None) -> bool:
        return request.data(TOTAL_SIZE) > 0


@plugin.type(
    "prefix-based-pd-decider",
    consumes=[f"{PREFIX_KEY}.{MATCHED}", f"{PREFIX_KEY}.{BLOCK_TOKENS}"],
    parameters=PrefixDeciderParameters,
)
class PrefixBasedPdDecider(Decider):
    """For prompts of which the decoding endpoint holds too little."""

    def __init__(self, context: Context, parameters: PrefixDeciderParameters) -> None:
        super().__init__(context)
        self._parameters = parameters
        producer = parameters.prefixMatchInfoProducerName
        key = f"{PREFIX_KEY}/{producer}" if producer else PREFIX_KEY
        self._matched, self._block_tokens = f"{key}.{MATCHED}", f"{key}.{BLOCK_TOKENS}"
        self.columns = (self._matched, self._block_tokens)
        if not parameters.nonCachedTokens:
            context.logger.info("nonCachedTokens is 0: no request is disaggregated")

    def _wants(self, request: Request, endpoints: Endpoints, row: int | None) -> bool:
        limit = self._parameters.nonCachedTokens
        if limit == 0 or row is None:
            return False
        cached = endpoints.data_row(self._matched)[row] * request.data(self._block_tokens)
        return too_little_cached(request.tokens_estimate, cached, limit, self._parameters.promptTokens)


def too_little_cached(prompt_tokens: int, cached_tokens: float, least_uncached: int, least_prompt: int) -> bool:
    """Whether the prompt is long enough, and enough of it is not cached; no for NaN, what nobody knows.

    With `least_uncached` 0 the answer is always no.
    """
    if least_uncached == 0 or prompt_tokens < least_prompt:
        return False
    return prompt_tokens - cached_tokens >= least_uncached
