"""Prompts as they are told apart and hashed: what a body's fields mean, as texts or as token ids.

Pure. A request may have several prompts (a list of texts, or of lists of token ids); a chat is one. Token ids are kept as
such, four bytes each, which is what a token of a text is taken for: the blocks of a prompt are as long in both forms.
"""

import sys
from array import array
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import orjson

__all__ = [
    "BYTES_PER_TOKEN",
    "Prompt",
    "ReadPrompts",
    "chat_text",
    "content_text",
    "openai_prompts",
    "prompt_bytes",
    "prompt_text",
    "prompts_of",
    "token_ids",
]

BYTES_PER_TOKEN: Final = 4
"""Without a tokenizer a token is taken for four bytes of UTF-8, the reference's own estimate."""

Prompt: TypeAlias = "str | array[int]"
"""A text, or token ids."""
ReadPrompts: TypeAlias = Callable[[Mapping[str, object]], tuple[Prompt, ...]]
"""Makes a body's prompts, of any body that its parser accepted."""


def openai_prompts(payload: Mapping[str, object]) -> tuple[Prompt, ...]:
    """`messages` as one prompt, or without those `prompt` in any of its forms."""
    messages = payload.get("messages")
    return (chat_text(messages),) if isinstance(messages, list) else prompts_of(payload.get("prompt"))


def prompts_of(value: object) -> tuple[Prompt, ...]:
    """A text; a list of texts; token ids; or a list of lists of token ids. Anything else counts by its JSON."""
    if not isinstance(value, list):
        return (_plain(value),)
    if not value:
        return ()
    ids = token_ids(value)
    if ids is not None:
        return (ids,)
    if any(isinstance(item, str | list) for item in value):
        return tuple(_one_of_several(item) for item in value)
    return (" ".join(_plain(item) for item in value),)


def prompt_text(prompt: Prompt) -> str:
    """A prompt as a text: token ids spelled out."""
    return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))


def prompt_bytes(prompt: Prompt) -> bytes:
    """What blocks are made of: UTF-8, or token ids as little-endian u32."""
    if isinstance(prompt, str):
        return prompt.encode()
    if sys.byteorder == "big":
        prompt = prompt[:]
        prompt.byteswap()
    return prompt.tobytes()


def chat_text(messages: list[object]) -> str:
    """Messages as role NUL content NUL each."""
    return "".join(_message_text(message) for message in messages)


def content_text(content: object) -> str:
    """Text of a message: a string, or a list of parts, of which those that are not text count by their JSON."""
    if not isinstance(content, list):
        return _plain(content)
    return "".join(_part_text(part) for part in content)


def _one_of_several(item: object) -> Prompt:
    if isinstance(item, list):
        ids = token_ids(item)
        if ids is not None:
            return ids
    return _plain(item)


def token_ids(value: list[object]) -> "array[int] | None":
    """A list as token ids, each from 0 to 2^32 - 1; None when it is not."""
    try:
        return array("I", value)  # type: ignore[arg-type]  # it checks each item
    except (TypeError, OverflowError):
        return None


def _message_text(message: object) -> str:
    if not isinstance(message, Mapping):
        return f"\0{_plain(message)}\0"
    return f"{_plain(message.get('role'))}\0{content_text(message.get('content'))}\0"


def _part_text(part: object) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    return _plain(part)


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # Nested deeper than the encoder goes, though the decoder took it: no prompt that anybody shares a prefix with.
        return ""
