"""`openai-parser`: chat completions, completions, responses and embeddings. Pure."""

from collections.abc import Mapping
from typing import Final

import orjson

from hotbay.gateway.answers import Refusal
from hotbay.gateway.parsers.form import Form, Payload, refuse_without
from hotbay.scheduling.prompts import Prompt, chat_text, openai_prompts, prompts_of

__all__ = ["CHAT", "CLAIMS", "COMPLETIONS", "TYPE", "input_prompts"]

TYPE: Final = "openai-parser"

# What stands in place of an input: what was said before, or a prompt that the server keeps.
_INSTEAD_OF_INPUT: Final = ("prompt", "previous_response_id", "conversation")


def input_prompts(payload: Payload) -> tuple[Prompt, ...]:
    """Of embeddings and their like: `messages`, or `input` in any form of a prompt."""
    messages = payload.get("messages")
    return (chat_text(messages),) if isinstance(messages, list) else prompts_of(payload.get("input"))


def _check_responses(payload: Payload) -> Refusal | None:
    given = payload.get("input")
    if given is None and any(payload.get(field) is not None for field in _INSTEAD_OF_INPUT):
        return None
    if not isinstance(given, str | list) or given == []:
        return Refusal(400, "missing-input", "`input` must be a string or a non-empty list.")
    return None


def _responses_prompts(payload: Payload) -> tuple[Prompt, ...]:
    """`instructions` as a system message, then `input` as messages; items that are none count by their JSON."""
    given = payload.get("input")
    items = given if isinstance(given, list) else [{"role": "user", "content": given}]
    messages = [item if _is_message(item) else {"content": _json(item)} for item in items]
    instructions = payload.get("instructions")
    if instructions is not None:
        messages.insert(0, {"role": "system", "content": instructions})
    return (chat_text(messages),)


def _is_message(item: object) -> bool:
    return not isinstance(item, Mapping) or "content" in item


def _json(item: object) -> str:
    return orjson.dumps(item).decode()


CHAT: Final = Form(refuse_without("missing-messages", "messages", texts=False), openai_prompts)
COMPLETIONS: Final = Form(refuse_without("missing-prompt", "prompt", "prompt_embeds"), openai_prompts, ("prompt",))
_RESPONSES: Final = Form(_check_responses, _responses_prompts, ("input", "instructions"), takes_ids=False)
_EMBEDDINGS: Final = Form(refuse_without("missing-input", "input", "messages"), input_prompts, ("input",))

CLAIMS: Final[Mapping[str, Form]] = {
    "/chat/completions": CHAT,
    "/completions": COMPLETIONS,
    "/responses": _RESPONSES,
    "/embeddings": _EMBEDDINGS,
}
