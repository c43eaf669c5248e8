"""How many endpoints one discovery may name, and how many labels each may have and how long. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar

__all__ = ["MAX_ENDPOINTS", "MAX_LABELS", "MAX_LABEL_CHARACTERS", "wrong_labels"]

MAX_ENDPOINTS: Final = 10_000
"""Of one discovery: ten times the largest pool that is measured, and a bound for one that invents them."""
MAX_LABELS: Final = 256
"""Many times what anything has; each is kept for each endpoint, and selectors and filters look at them."""
MAX_LABEL_CHARACTERS: Final = 4096
"""Of a name, and of a text."""

_T = TypeVar("_T")


def wrong_labels(labels: Mapping[str, _T]) -> Iterator[tuple[tuple[str, ...], str, _T | str]]:
    """What is wrong with labels: where below them, what was expected and what was found. Of too many only that is told."""
    if len(labels) > MAX_LABELS:
        yield (), f"at most {MAX_LABELS} labels", f"{len(labels)} of them"
        return
    for name, text in labels.items():
        if len(name) > MAX_LABEL_CHARACTERS:
            yield (), f"names of at most {MAX_LABEL_CHARACTERS} characters", f"one of {len(name)}: {name[:32]}"
        elif not isinstance(text, str) or len(text) > MAX_LABEL_CHARACTERS:
            yield (name,), f"a text of at most {MAX_LABEL_CHARACTERS}", text
