"""Work in steps: a generator yields where others may have their turn, and returns what comes of it. Pure."""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

__all__ = ["Steps", "at_once"]

_Result = TypeVar("_Result")

Steps: TypeAlias = Generator[None, None, _Result]


def at_once(steps: Steps[_Result]) -> _Result:
    """Take all steps. Raises what they raise."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _Result = end.value
            return result
