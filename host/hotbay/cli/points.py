"""Words for what a plugin answers: a new project is named by who answers, a call by what is done. Either may be typed."""

from collections.abc import Sequence
from typing import Final

import click

__all__ = ["CALLED_POINTS", "NEW_POINTS", "PointChoice"]

NEW_POINTS: Final = (
    "scorer",
    "filter",
    "picker",
    "producer",
    "profile-handler",
    "pre-request",
    "extractor",
    "discovery",
    "admitter",
)
CALLED_POINTS: Final = (
    "score",
    "filter",
    "pick",
    "produce",
    "profile_handler",
    "pre_request",
    "extract",
    "discover",
    "admit",
    "source",
    "watch",
    "poll",
    "screen",
    "request_headers",
    "parse",
    "saturation",
    "response_headers",
    "response_body",
    "dump_state",
)
"""In the order of `NEW_POINTS`, and behind them those of which there is no first project."""


class PointChoice(click.Choice[str]):
    """One of the words, or its counterpart in the other list."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)
        pairs = [*zip(NEW_POINTS, CALLED_POINTS, strict=False), *zip(CALLED_POINTS, NEW_POINTS, strict=False)]
        self._meant = {other: word for word, other in pairs if word in words and other not in words}

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word of this list. Raises `click.BadParameter`."""
        return super().convert(self._meant.get(value, value), param, ctx)
