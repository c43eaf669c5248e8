"""`vllmhttp-parser`: what vLLM's HTTP server offers beside the OpenAI and Anthropic interfaces. Pure.

Its model is optional in most of these, as vLLM's is: a server has one. Chat and completions are rendered without being
answered; `generate` takes token ids; the rest pools, classifies or scores.
"""

from collections.abc import Mapping
from typing import Final

from hotbay.gateway.parsers.form import Form, ModelName, Payload, no_prompts, refuse_without
from hotbay.gateway.parsers.openai import CHAT, COMPLETIONS, input_prompts
from hotbay.scheduling.prompts import Prompt, openai_prompts, prompts_of

__all__ = ["CLAIMS", "TYPE"]

TYPE: Final = "vllmhttp-parser"


def _of(*fields: str) -> "_Fields":
    return _Fields(fields)


class _Fields:
    """Reads the prompts of several fields, one after the other."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields

    def __call__(self, payload: Payload) -> tuple[Prompt, ...]:
        given = (payload.get(field) for field in self._fields)
        return tuple(prompt for value in given if value is not None for prompt in prompts_of(value))


def _optional(check: tuple[str, ...], read: tuple[str, ...], code: str) -> Form:
    return Form(refuse_without(code, *check), _of(*read), read, ModelName.OPTIONAL)


_TOKENIZE: Final = Form(
    refuse_without("missing-prompt", "prompt", "messages"), openai_prompts, ("prompt",), ModelName.OPTIONAL
)
_DETOKENIZE: Final = Form(
    refuse_without("missing-tokens", "tokens", texts=False), no_prompts, ("tokens",), ModelName.OPTIONAL
)
_GENERATE: Final = Form(
    refuse_without("missing-token-ids", "token_ids", texts=False), _of("token_ids"), ("token_ids",), ModelName.OPTIONAL
)
_INPUT: Final = Form(
    refuse_without("missing-input", "input", "messages"), input_prompts, ("input",), ModelName.OPTIONAL
)
_SCORED: Final = ("text_1", "queries", "data_1", "items")
_SCORE: Final = _optional(
    _SCORED, ("text_1", "queries", "data_1", "text_2", "documents", "data_2", "items"), "missing-text"
)
_RERANK: Final = _optional(("query",), ("query", "documents"), "missing-query")

CLAIMS: Final[Mapping[str, Form]] = {
    "/tokenize": _TOKENIZE,
    "/detokenize": _DETOKENIZE,
    "/chat/completions/render": CHAT,
    "/completions/render": COMPLETIONS,
    "/inference/v1/generate": _GENERATE,
    "/pooling": _INPUT,
    "/classify": _INPUT,
    "/score": _SCORE,
    "/rerank": _RERANK,
}
