"""What a simulated model answers: the text of each token. Pure: random words are drawn from an argument.

A token of the answer is four bytes, as one of the prompt is, so an answer that comes back in the next prompt counts and
hashes as it did before. Where a character lies across tokens, its text comes with the token that completes it.
"""

import codecs
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from random import Random
from typing import Final, NamedTuple

from hotbay.scheduling.prompts import BYTES_PER_TOKEN

__all__ = ["Reply", "make_reply"]

_WORDS: Final = (
    "and ", "the ", "for ", "not ", "but ", "all ", "any ", "one ", "two ", "now ", "out ", "who ", "how ", "its ", "may ", "day ",
    "way ", "see ", "say ", "new ", "old ", "run ", "set ", "get ", "put ", "end ", "far ", "few ", "low ", "top ", "own ", "yet ",
)  # fmt: skip
assert all(len(word) == BYTES_PER_TOKEN for word in _WORDS)

UNASKED_TOKENS: Final = (16, 128)
"""How long an answer is when nobody said: between these, evenly."""


class Reply(NamedTuple):
    """The text of each token, and whether the answer ends by itself."""

    pieces: Sequence[str]
    stops: bool


def make_reply(payload: Mapping[str, object], mode: str, max_tokens: int | None, room: int, random: Random) -> Reply:
    """The answer to a request. It has at least one token, at most `max_tokens`, and at most `room`.

    Random words fill `max_tokens`. An echo ends with its text, unless the request says `ignore_eos`: then it is repeated.
    """
    most = room if max_tokens is None else min(max_tokens, room)
    if mode == "echo":
        pieces = _split(_last_text(payload)) or [" "]
        if payload.get("ignore_eos") is True and max_tokens is not None:
            return Reply(list(islice(cycle(pieces), most)), stops=False)
        return Reply(pieces[:most], stops=len(pieces) <= most)
    if max_tokens is None:
        drawn = random.randint(*UNASKED_TOKENS)
        return Reply(random.choices(_WORDS, k=min(drawn, room)), stops=drawn <= room)
    return Reply(random.choices(_WORDS, k=most), stops=False)


def _last_text(payload: Mapping[str, object]) -> str:
    """The last message of a chat, or the prompt."""
    messages = payload.get("messages")
    if not isinstance(messages, list):
        prompt = payload.get("prompt")
        return prompt if isinstance(prompt, str) else ""
    content = messages[-1].get("content") if messages and isinstance(messages[-1], Mapping) else ""
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content if isinstance(part, Mapping) and "text" in part)
    return content if isinstance(content, str) else ""


def _split(text: str) -> list[str]:
    data = text.encode(errors="replace")
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(data[start : start + BYTES_PER_TOKEN]) for start in range(0, len(data), BYTES_PER_TOKEN)]
