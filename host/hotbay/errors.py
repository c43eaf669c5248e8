"""The fault tree: every error that is somebody's to act upon, by who must act.

`HostError` > `InputError` (operator) · `PackageError` (publisher or source) · `PluginFault` (plugin's
author) · `CapacityError` (wait or scale). Errors carry fields; text is rendered by the command line
and by the log. Imports nothing of hotbay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar


def printable(text: str) -> str:
    """The text with everything but printable characters and newlines as escapes.

    For texts with other people's words in them on their way to a terminal or into JSON: an escape sequence acts on
    a terminal, and the name of a file that is no Unicode is no JSON.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in an operator's document something stands; lines and columns count from 1."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join([self.file, *(str(n) for n in (self.line, self.column) if n is not None)])


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input: where, what was expected, what was found, what to do."""

    code: str
    message: str
    place: Place | None = None
    path: str = ""
    expected: str = ""
    found: str = ""
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: " if self.place else ""
        text += f"{self.code}: "
        text += f"{self.path}: " if self.path else ""
        text += self.message
        if self.expected or self.found:
            text += f" (expected {self.expected or 'something else'}, found {self.found or 'nothing'})"
        return f"{text}. {self.hint}" if self.hint else text


class HostError(Exception):
    """Root of the tree. `code` is stable, `hint` says what to do next, `details` are fields for a log or status."""

    default_hint: ClassVar[str] = ""

    def __init__(self, code: str, message: str, *, hint: str = "", details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint or self.default_hint
        self.details = dict(details or {})

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class InputError(HostError):
    """An operator's document cannot be used. Nothing of it was applied. Carries all problems found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(first.code, "\n".join(str(p) for p in problems), hint=first.hint)
        self.problems = tuple(problems)


class PackageError(HostError):
    """A package, or the source that offers it, is not what it claims to be."""


class PluginFault(HostError):
    """A plugin process did not do its part."""


class CapacityError(HostError):
    """Nothing is broken: there is no room now."""


def taking_over() -> CapacityError:
    """What to tell while a successor brings itself up: nothing that is decided here now would outlast it."""
    return CapacityError("UNAVAILABLE", "a successor is taking over", hint="repeat it in a few seconds")


def only_host_error(errors: ExceptionGroup[Exception]) -> HostError | None:
    """The one error of a task group, however deep, if it is somebody's to act upon."""
    inner: Exception = errors
    while isinstance(inner, ExceptionGroup) and len(inner.exceptions) == 1:
        inner = inner.exceptions[0]
    return inner if isinstance(inner, HostError) else None
