"""Producers that run in the host: what they take as parameters, what they make, and what a request counts in tokens. Pure.

`inflight-load-producer` stands for the host's own ledger, which counts whether or not it is configured; what it says is how
tokens are counted. `token-producer` tells the token ids of prompts that were given as such; it has no tokenizer, so that of a
text it tells nothing and everybody goes on with the estimate of four bytes for a token. Neither needs what others make.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import Final, NamedTuple

import numpy as np

from hotbay.datalayer.tables.snapshot import Snapshot
from hotbay.errors import Place, Problem
from hotbay.scheduling.batch import Datum
from hotbay.scheduling.request import InferenceRequest

__all__ = [
    "BUILTIN_COLUMNS",
    "INFLIGHT_LOAD",
    "IN_FLIGHT_TOKENS",
    "MATCHED_BLOCKS",
    "MATCH_BLOCK_TOKENS",
    "Give",
    "PrefixMatch",
    "TokenCounting",
    "Tokens",
    "check_token_producer",
    "make_of",
    "token_counting",
]

INFLIGHT_LOAD: Final = "inflight-load-producer"
IN_FLIGHT_TOKENS: Final = "endpoint.in_flight_tokens"
MATCHED_BLOCKS: Final = "PrefixCacheMatchInfo.matched_blocks"
MATCH_BLOCK_TOKENS: Final = "PrefixCacheMatchInfo.block_size_tokens"

DEFAULT_OUTPUT_RATIO: Final = 1.5
"""The reference's: tokens of an answer for each of its prompt."""
MAX_OUTPUT_RATIO: Final = 1e6
"""Beyond it a count of tokens means nothing, and would leave the range of its column."""
_RELEASES: Final = ("end", "first-token")
_LOAD_PARAMETERS: Final = ("addEstimatedOutputTokens", "outputRatio", "syncCrossReplicaState", "release")
_RENDERED: Final = ("vllm", "modelName", "udsTokenizerConfig", "url")

Make = Callable[[InferenceRequest, Snapshot], Datum | None]
"""Makes one request's value of a column; None where there is none."""


class Give(NamedTuple):
    """A column that the host itself makes for somebody who consumes it, and where cycles keep it."""

    key: str
    make: Make


def _token_ids(request: InferenceRequest, snapshot: Snapshot) -> str | None:
    """Token ids in decimals, a blank between two of a prompt, NUL between two prompts; None where one of them is a text."""
    prompts = request.prompts
    if not prompts or any(isinstance(prompt, str) for prompt in prompts):
        return None
    return request.prompt_text()


def _requests(request: InferenceRequest, snapshot: Snapshot) -> Datum:
    return np.asarray(snapshot.columns["endpoint.in_flight"], np.float32)


def _tokens(request: InferenceRequest, snapshot: Snapshot) -> Datum:
    tokens = snapshot.columns[IN_FLIGHT_TOKENS]
    return np.where(tokens < 0, np.nan, tokens).astype(np.float32)


_TOKENIZED: Final[Mapping[str, Make]] = {"TokenizedPrompt.token_ids": _token_ids}
_MADE: Final[Mapping[str, Mapping[str, Make]]] = {
    INFLIGHT_LOAD: {"InFlightLoad.requests": _requests, "InFlightLoad.tokens": _tokens},
    "token-producer": _TOKENIZED,
    "tokenizer": _TOKENIZED,
}
BUILTIN_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {name: tuple(columns) for name, columns in _MADE.items()}
"""Type → data columns that it makes."""


def make_of(type_name: str, column: str) -> Make:
    """What makes a column of `BUILTIN_COLUMNS`."""
    return _MADE[type_name][column]


class PrefixMatch(NamedTuple):
    """Where a cycle keeps what is known of the part of a prompt that endpoints hold."""

    matched: str
    block_tokens: str

    def matched_blocks(self, data: Mapping[str, Datum], row: int) -> float:
        """Leading blocks that the endpoint of a row holds; 0 where nobody told."""
        matched = data.get(self.matched)
        blocks = float(matched[row]) if isinstance(matched, np.ndarray) else 0.0
        return blocks if 0.0 < blocks < inf else 0.0

    def cached_tokens(self, data: Mapping[str, Datum], row: int) -> int:
        """Tokens of those blocks."""
        size = data.get(self.block_tokens)
        # Both are a plugin's words: their product may be anything.
        tokens = self.matched_blocks(data, row) * (size if isinstance(size, float) else 0.0)
        return int(tokens) if 0.0 < tokens < inf else 0


class Tokens(NamedTuple):
    """What a request counts at its endpoint: `all_of` it, and of that what the answer may take. `elsewhere`: at its fallbacks."""

    all_of: int
    of_answer: int
    elsewhere: tuple[int, ...]


class TokenCounting(NamedTuple):
    """How requests count: `output_ratio` tokens of an answer for each of its prompt, 0 where answers are not counted.

    `releases`: those of the prompt leave the count when its answer begins. `match` None: nobody tells what is cached.
    """

    output_ratio: float = 0.0
    releases: bool = False
    match: PrefixMatch | None = None

    def of(self, request: InferenceRequest, data: Mapping[str, Datum], rows: Sequence[int]) -> Tokens:
        """What the request counts at each of `rows`: its prompt but for what is cached there, and its answer."""
        estimate = request.tokens_estimate
        of_answer = round(estimate * self.output_ratio)
        counts = [estimate + of_answer - self._cached(data, row, estimate) for row in rows]
        return Tokens(counts[0], of_answer, tuple(counts[1:]))

    def _cached(self, data: Mapping[str, Datum], row: int, estimate: int) -> int:
        return 0 if self.match is None else min(estimate, self.match.cached_tokens(data, row))


def token_counting(parameters: Mapping[str, object], name: str, place: Place | None) -> TokenCounting | Problem:
    """Read the parameters of `inflight-load-producer`; the match is not known here.

    `addEstimatedOutputTokens` (false), `outputRatio` (1.5) and `syncCrossReplicaState` (true) are the reference's; the last one
    says nothing yet, this host being alone. `release`: `end` (as in the reference), or `first-token`.
    """
    unknown = [given for given in parameters if given not in _LOAD_PARAMETERS]
    if unknown:
        return _problem(name, f"unknown parameter '{unknown[0]}'", f"it takes {', '.join(_LOAD_PARAMETERS)}", place)
    for flag in ("addEstimatedOutputTokens", "syncCrossReplicaState"):
        if not isinstance(parameters.get(flag, False), bool):
            return _problem(name, f"{flag} is {parameters[flag]!r}", "write true or false", place)
    ratio = parameters.get("outputRatio", DEFAULT_OUTPUT_RATIO)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not isfinite(ratio):
        return _problem(name, f"outputRatio is {ratio!r}", "write a number", place)
    if not 0 <= ratio <= MAX_OUTPUT_RATIO:
        return _problem(name, f"outputRatio is {ratio:g}", f"write a number from 0 to {MAX_OUTPUT_RATIO:g}", place)
    release = parameters.get("release", "end")
    if release not in _RELEASES:
        return _problem(name, f"release is {release!r}", f"write {' or '.join(_RELEASES)}", place)
    counts_answers = parameters.get("addEstimatedOutputTokens", False)
    return TokenCounting(float(ratio) if counts_answers else 0.0, release == "first-token")


def check_token_producer(parameters: Mapping[str, object], name: str, place: Place | None) -> Problem | None:
    """What is wrong with the parameters of `token-producer`.

    `estimate` is taken with whatever it holds: what the reference sets there are sizes of images and videos, and here those
    count as the text that they are sent as.
    """
    for given in parameters:
        if given in _RENDERED:
            message = f"'{given}' names a service that renders prompts into token ids, which this release does not ask"
            return _problem(name, message, "take it out: without it tokens are estimated, four bytes for one", place)
        if given != "estimate":
            return _problem(name, f"unknown parameter '{given}'", "it takes estimate", place)
    estimate = parameters.get("estimate", {})
    if estimate is not None and not isinstance(estimate, Mapping):
        return _problem(name, f"estimate is {estimate!r}", "write a map, or nothing", place)
    return None


def _problem(name: str, message: str, hint: str, place: Place | None) -> Problem:
    return Problem("CONFIG_INVALID", f"plugins '{name}': {message}", place=place, hint=hint)
