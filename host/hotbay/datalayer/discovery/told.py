"""How many problems and warnings of one feed are told: a file of ten thousand bad entries says no more than its first. Pure."""

from collections.abc import Sequence
from typing import Final

from hotbay.errors import Problem

__all__ = ["MAX_TOLD", "and_more", "first_told"]

MAX_TOLD: Final = 20
"""More than anybody reads at once."""


def first_told(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """The first ones, and one that counts the others if there are any."""
    first = tuple(problems[:MAX_TOLD])
    return (*first, and_more(first[-1].code, len(problems) - MAX_TOLD)) if len(problems) > MAX_TOLD else first


def and_more(code: str, count: int) -> Problem:
    """The one that counts those that are not told."""
    return Problem(code, f"and {count} more", hint="mend those that are told, then look again")
