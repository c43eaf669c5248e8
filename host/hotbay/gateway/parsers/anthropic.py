"""`anthropic-parser`: messages and the counting of their tokens. Pure."""

from collections.abc import Mapping
from typing import Final

from hotbay.gateway.parsers.form import Form, Payload, refuse_without
from hotbay.scheduling.prompts import Prompt, chat_text

__all__ = ["CLAIMS", "TYPE"]

TYPE: Final = "anthropic-parser"


def _prompts(payload: Payload) -> tuple[Prompt, ...]:
    """`system`, a text or blocks of text, before the messages: it begins every prompt that shares it."""
    messages = payload.get("messages")
    assert isinstance(messages, list), "checked"
    system = payload.get("system")
    return (chat_text(messages if system is None else [{"role": "system", "content": system}, *messages]),)


_MESSAGES: Final = Form(
    refuse_without("missing-messages", "messages", texts=False), _prompts, ("system",), takes_ids=False
)

CLAIMS: Final[Mapping[str, Form]] = {"/v1/messages": _MESSAGES, "/v1/messages/count_tokens": _MESSAGES}
