"""The requests of a study, made from lines of the trace. Pure.

The trace has lengths and hashes and no text. A block of 512 tokens becomes one of `BLOCK_TOKENS` tokens of four characters
each, equal for equal hashes: sixteen times shorter prompts, which share exactly what they share in the trace. Simulated
servers take sixteen times as long for each token.
"""

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import orjson

__all__ = ["SCALE", "TOKEN_CHARACTERS", "Sent", "read_window"]

TRACE_BLOCK_TOKENS: Final = 512
SCALE: Final = 16
"""Tokens of the trace in one of a study's."""
BLOCK_TOKENS: Final = TRACE_BLOCK_TOKENS // SCALE
TOKEN_CHARACTERS: Final = 4
"""Characters of a token, as routers without a tokenizer and the simulated server count."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: when it is due, in simulated seconds from the first, its prompt, and how many tokens are asked for."""

    due_s: float
    prompt: str
    output_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, by the estimate that everybody makes."""
        return len(self.prompt) // TOKEN_CHARACTERS


def read_window(path: Path, *, first: int, count: int, rate: float, seed: int) -> list[Sent]:
    """Requests number `first` to `first + count` of the trace, in the order of their times, `rate` times as often.

    Times of the trace are whole multiples of seconds, many at once: each is moved by up to three seconds, drawn by `seed`.
    """
    lines = path.read_bytes().splitlines()[first : first + count]
    if len(lines) < count:
        raise ValueError(f"{path}: expected {first + count} requests, found {first + len(lines)}")
    rng = random.Random(seed)
    found = [_sent(orjson.loads(line), rng, rate) for line in lines]
    found.sort(key=lambda sent: sent.due_s)
    start_s = found[0].due_s
    return [Sent(sent.due_s - start_s, sent.prompt, sent.output_tokens) for sent in found]


JITTER_S: Final = 3.0


def _sent(line: dict[str, object], rng: random.Random, rate: float) -> Sent:
    timestamp_ms, length, output, hashes = (
        line[name] for name in ("timestamp", "input_length", "output_length", "hash_ids")
    )
    assert isinstance(timestamp_ms, int)
    assert isinstance(length, int)
    assert isinstance(output, int)
    assert isinstance(hashes, list)
    due_s = (timestamp_ms / 1e3 + rng.uniform(0, JITTER_S)) / rate
    return Sent(due_s, _text(hashes, length), max(1, output // SCALE))


def _text(hashes: Sequence[int], length: int) -> str:
    text = "".join(map(_block, hashes))
    return text[: max(1, length // SCALE) * TOKEN_CHARACTERS]


@lru_cache(maxsize=65536)
def _block(number: int) -> str:
    """The text that stands for a block: letters, so that it is as many characters as bytes, and the same in JSON."""
    letters = random.Random(f"block {number}")
    return "".join(letters.choices(string.ascii_letters, k=BLOCK_TOKENS * TOKEN_CHARACTERS))
