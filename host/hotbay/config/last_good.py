"""What a look at a file found, and the keeper of the last good value made from it.

Decides whether a new content replaces the value: only if it parses, and only if it says something else.
Invariant: the value is always one that parsed. A content that is refused leaves it, and its problems stand
beside it until a good content comes. A file that was emptied is refused here, whatever an empty file means
at the start: it is far more often a save that went wrong. Pure.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Generic, TypeVar

from hotbay.config.documents import decode_text, is_blank
from hotbay.errors import InputError, Place, Problem

__all__ = ["FileContent", "LastGood", "Outcome", "content_digest"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's bytes, or why there are none."""

    path: Path
    data: bytes | None
    error: str = ""

    @property
    def digest(self) -> str:
        """Identity of the content; of a file that cannot be read, of the reason."""
        return content_digest(self.data) if self.data is not None else f"unreadable: {self.error}"


class Outcome(Enum):
    """What a content did to the value."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


def content_digest(data: bytes) -> str:
    """Return the digest that contents are compared by."""
    return hashlib.sha256(data).hexdigest()


class LastGood(Generic[T]):
    """A value that follows a file as long as the file is good.

    Args:
        value: what the file said first.
        parse: makes a value from a text; raises InputError, and nothing else, for a text that is not good.
        file: the name that places carry.
    """

    def __init__(self, value: T, parse: Callable[[str], T], *, file: str) -> None:
        self._value = value
        self._parse = parse
        self._file = file
        self._problems: tuple[Problem, ...] = ()

    @property
    def value(self) -> T:
        """The last good value."""
        return self._value

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why the file as it is now is not what `value` says; empty when it is."""
        return self._problems

    def offer(self, content: FileContent) -> Outcome:
        """Take a new content of the file. Values are compared with ``==``."""
        try:
            value = self._parse(self._text(content))
        except InputError as e:
            self._problems = e.problems
            return Outcome.REFUSED
        self._problems = ()
        if value == self._value:
            # Kept anyway, because its places are those of the file as it is now.
            self._value = value
            return Outcome.UNCHANGED
        self._value = value
        return Outcome.APPLIED

    def _text(self, content: FileContent) -> str:
        if content.data is None:
            raise self._refused("CONFIG_INVALID", f"the file cannot be read: {content.error}")
        text = decode_text(content.data, file=self._file)
        if is_blank(text):
            raise self._refused("EMPTY_CONFIG", "the file is empty now")
        return text

    def _refused(self, code: str, message: str) -> InputError:
        hint = "what it said before stays in force"
        return InputError([Problem(code, message, Place(self._file), hint=hint)])
