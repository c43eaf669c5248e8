"""Prompts as token ids, and the chained keys of their blocks. Pure.

A key covers everything before its block, and what an engine's own hash covers beside tokens: the LoRA adapter, with every
block, and the cache salt, with the first one. It is the index's own, so nothing of an engine has to be known but the
inputs that it tells, and no two engines have to be set up alike.
"""

import re
from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgpack

KEY_BYTES: Final = 8
ROOT: Final = 0
"""The key before the first block."""

LONGEST_TEXT: Final = 2**20
"""Characters, some 150 000 tokens. Clients choose their number, and every one of them costs time before a deadline."""
MOST_PROMPTS: Final = 1024
"""Prompts of one request, for the same reason: each is matched by itself."""
# One class, repeated once: a pattern with several could begin anew at every character of a client's text.
_SPELLED: Final = re.compile(r"[0-9 \0]+")
_MAX_TOKEN: Final = 2**32 - 1
_LONGEST_TOKEN: Final = 10
"""Digits."""


def read_prompts(text: str) -> tuple[tuple[int, ...], ...]:
    """The prompts of a request that gave token ids, spelled as `1 2 3` and with a NUL between two prompts; else none.

    A text of nothing but numbers and blanks is taken for token ids: as such it is found nowhere, which is all that comes of it.
    One of more than `LONGEST_TEXT` characters or `MOST_PROMPTS` prompts is not read. Takes time in proportion to the length.
    """
    if len(text) > LONGEST_TEXT or text.count("\0") >= MOST_PROMPTS or not _SPELLED.fullmatch(text):
        return ()
    # A number of many digits is no token; it is not even converted.
    parts = [part.split() for part in text.split("\0")]
    if any(len(word) > _LONGEST_TOKEN for words in parts for word in words):
        return ()
    prompts = tuple(tuple(map(int, words)) for words in parts if words)
    return prompts if all(token <= _MAX_TOKEN for prompt in prompts for token in prompt) else ()


def extra_bytes(extra: object) -> bytes:
    """What a block's key covers beside its tokens, as bytes; empty for nothing. Raises ValueError for what cannot be packed."""
    if extra is None or extra in ([], ()):
        return b""
    try:
        packed: bytes = msgpack.packb(extra)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"extra keys of type {type(extra).__name__}") from error
    return packed


def request_extras(lora: str, salt: str) -> tuple[bytes, bytes]:
    """What an engine adds to the first block's hash of a request, and to each further one's."""
    adapter = [lora] if lora else []
    return extra_bytes([*adapter, *([salt] if salt else [])]), extra_bytes(adapter)


def next_key(parent: int, tokens: "array[int]", extra: bytes) -> int:
    """The key of a block after `parent`. `tokens`: of the block, as `array("I")`. Never `ROOT`."""
    digest = blake2b(parent.to_bytes(KEY_BYTES, "little"), digest_size=KEY_BYTES)
    # Its length first, so that no extra can look like tokens.
    digest.update(len(extra).to_bytes(4, "little"))
    digest.update(extra)
    digest.update(tokens.tobytes())
    return int.from_bytes(digest.digest(), "little") or 1


def prompt_keys(prompt: Sequence[int], block_tokens: int, extras: tuple[bytes, bytes]) -> Iterator[int]:
    """Keys of the full blocks of a prompt."""
    first, others = extras
    key, tokens = ROOT, array("I", prompt)
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        key = next_key(key, tokens[start : start + block_tokens], others if start else first)
        yield key
