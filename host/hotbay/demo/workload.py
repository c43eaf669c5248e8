"""Seeded multi-turn conversations: a few long system prompts that many share, short questions, short answers. Pure.

The same seed and number give the same conversation on every machine. A token is a byte for the generated model, so
lengths are in both. Sizes are for two cores that run three model servers besides everything else.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

__all__ = ["Conversation", "Turn", "conversation", "text"]

SYSTEM_PROMPTS_COUNT: Final = 4
SYSTEM_PROMPT_BYTES: Final = 640
_TURNS: Final = (2, 5)
_QUESTION_BYTES: Final = (24, 72)
_ANSWER_TOKENS: Final = (8, 24)
_THINK_S: Final = (0.1, 0.5)

_TEXT: Final = (
    "a gateway routes each request to the model server that will answer it first while caches stay warm and queues stay "
    "short a scorer reads what every endpoint said last and a picker takes the best of them"
)
_WORDS: Final = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class Turn:
    """One question, how long its answer is, and the pause before it."""

    question: str
    answer_tokens: int
    think_s: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """A system prompt and the turns that follow it."""

    system: str
    turns: tuple[Turn, ...]


def conversation(seed: int, number: int) -> Conversation:
    """The conversation with this number."""
    random = Random(f"conversation {seed} {number}")  # noqa: S311  # a workload, not a secret
    system = random.randrange(SYSTEM_PROMPTS_COUNT)
    turns = tuple(
        Turn(
            question=text(f"question {seed} {number} {index}", random.randint(*_QUESTION_BYTES)),
            answer_tokens=random.randint(*_ANSWER_TOKENS),
            think_s=random.uniform(*_THINK_S),
        )
        for index in range(random.randint(*_TURNS))
    )
    return Conversation(text(f"system {seed} {system}", SYSTEM_PROMPT_BYTES), turns)


def text(seed: str, length: int) -> str:
    """Words of exactly `length` bytes, the same for the same seed; a shorter text is the beginning of a longer one."""
    random = Random(seed)  # noqa: S311  # a workload, not a secret
    words: list[str] = []
    size = 0
    while size < length:
        words.append(random.choice(_WORDS))
        size += len(words[-1]) + 1
    return " ".join(words)[:length].ljust(length)
