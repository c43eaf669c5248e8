"""How problems of operators' documents are worded: values described and cut, nearest names found.

Pure. Whatever stands in a document is quoted and cut before it gets into a message, so that a message
is one line whatever the document says.
"""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final, TypeAlias

from hotbay.errors import Place, Problem

Value: TypeAlias = "bool | int | float | str | list[Value] | dict[str, Value] | None"
Path: TypeAlias = tuple[str | int, ...]

_SHOWN_CHARACTERS: Final = 60
_SIMILARITY: Final = 0.6
# difflib is quadratic in the length of a word; nobody mistypes a field into more than this.
_LONGEST_TYPO: Final = 100


def quoted(text: str) -> str:
    """Return `text` in quotes, escaped, on one line and cut."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")


def described(value: object) -> str:
    """Return what a value is, in an operator's words: ``the text 'no'``, ``the boolean true``, ``a list``."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {quoted(value)}"
    kinds: dict[type, str] = {type(None): "nothing", list: "a list", tuple: "a list", dict: "a mapping"}
    return kinds.get(type(value), f"a value of type {type(value).__name__}")


def path_text(path: Sequence[str | int]) -> str:
    """Render a path as it is written in documentation: ``plugins[2].parameters.threshold``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            shown = part if len(part) <= _SHOWN_CHARACTERS and part.isprintable() else quoted(part)
            text += f".{shown}" if text else shown
    return text


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` was probably meant to be, or None when none is like it."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(known, reverse=True)}
    found = get_close_matches(name[:_LONGEST_TYPO].lower(), by_lower, n=1, cutoff=_SIMILARITY)
    return by_lower[found[0]] if found else None


def unknown_field(path: Path, place: Place, known: Iterable[str]) -> Problem:
    """Word the problem of a field that nobody reads; `path` ends with its name."""
    name = str(path[-1])
    names = sorted(known)
    guess = nearest(name, names)
    return Problem(
        "UNKNOWN_FIELD",
        f"unknown field {quoted(name)}",
        place,
        path_text(path),
        hint=f"did you mean {quoted(guess)}?" if guess else f"known here: {', '.join(names)}" if names else "",
    )


def not_supported(path: Path, place: Place, reason: str) -> Problem:
    """Word the problem of something the format knows and this release does not carry out."""
    return Problem("NOT_SUPPORTED", "not supported in this release", place, path_text(path), hint=reason)
