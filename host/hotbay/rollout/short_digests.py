"""Which digest a person means by its beginning. Pure."""

from collections.abc import Iterable
from typing import Final

from hotbay.errors import InputError, Problem

__all__ = ["whole_digest"]

_LEAST_CHARS: Final = len("sha256:") + 12
"""As many as are shown: a shorter beginning is one digest's alone by luck only."""


def whole_digest(text: str, known: Iterable[str]) -> str:
    """The digest of `known` that begins with `text`, or `text` itself if none does or it is too short to say.

    Raises:
        InputError: UNKNOWN_VERSION, it is the beginning of several.
    """
    if not text.startswith("sha256:") or len(text) < _LEAST_CHARS:
        return text
    found = sorted({digest for digest in known if digest.startswith(text)})
    if len(found) > 1:
        message = f"{text} is the beginning of {len(found)} digests"
        raise InputError([Problem("UNKNOWN_VERSION", message, hint=f"name more digits of one: {', '.join(found)}")])
    return found[0] if found else text
