"""Errors on their way over the admin socket: the fault tree as JSON, and back to the same error at the other end.

Pure. `{error, code, message, hint, problems}`: `error` is the class, by who must act; a page that is none of ours
becomes a `CapacityError`. Never raises on a page, whatever it holds.
"""

from collections.abc import Mapping
from typing import Final

from hotbay.errors import CapacityError, HostError, InputError, PackageError, Place, PluginFault, Problem

__all__ = ["INTERNAL", "Page", "bad_request", "error_of", "error_page", "internal_page", "status_of"]

Page = dict[str, object]

INTERNAL: Final = "INTERNAL"
_CLASSES: Final[Mapping[str, type[HostError]]] = {
    kind.__name__: kind for kind in (PackageError, PluginFault, CapacityError)
}
_STATUS_OF_CODE: Final = {
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "UNKNOWN_ENDPOINT": 404,
    "UNKNOWN_PLUGIN": 404,
    "METHOD_NOT_ALLOWED": 405,
}
_STATUS_OF_CLASS: Final[tuple[tuple[type[HostError], int], ...]] = (
    (InputError, 400),
    (PackageError, 409),
    (PluginFault, 502),
    (CapacityError, 503),
)


def status_of(error: HostError) -> int:
    """The HTTP status: who must act decides, and some codes have one of their own."""
    own = _STATUS_OF_CODE.get(error.code)
    return own or next((status for kind, status in _STATUS_OF_CLASS if isinstance(error, kind)), 500)


def error_page(error: HostError) -> Page:
    """The error as JSON can carry it."""
    problems = error.problems if isinstance(error, InputError) else ()
    kind = next((kind for kind, _ in _STATUS_OF_CLASS if isinstance(error, kind)), HostError)
    return {
        "error": kind.__name__,
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "problems": [_problem_page(problem) for problem in problems],
    }


def bad_request(message: str) -> HostError:
    """What to say of bytes that are no request, or too many."""
    hint = "send HTTP/1.1 with a small JSON object, as `curl --unix-socket` does"
    return InputError([Problem("BAD_REQUEST", message, hint=hint)])


def internal_page() -> Page:
    """What to say of a fault of our own, whose traceback is in the log."""
    hint = "the host's log has the traceback; report it"
    return {"error": "HostError", "code": INTERNAL, "message": "the host failed", "hint": hint, "problems": []}


def error_of(page: object, status: int) -> HostError:
    """The error that a page tells of; `status` is named when the page is none of a host's."""
    if not isinstance(page, dict) or not isinstance(page.get("code"), str):
        hint = "see that the socket is that of a hotbay host of this version"
        return CapacityError("UNAVAILABLE", f"the answer is no host's: HTTP status {status}", hint=hint)
    problems = page.get("problems")
    read = [_problem_of(item) for item in problems if isinstance(item, dict)] if isinstance(problems, list) else []
    code, message, hint = (_text(page, name) for name in ("code", "message", "hint"))
    if page.get("error") == InputError.__name__:
        return InputError(read or [Problem(code, message, hint=hint)])
    return _CLASSES.get(_text(page, "error"), HostError)(code, message, hint=hint)


def _problem_page(problem: Problem) -> Page:
    place = problem.place
    return {
        "code": problem.code,
        "message": problem.message,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "path": problem.path,
        "expected": problem.expected,
        "found": problem.found,
        "hint": problem.hint,
    }


def _problem_of(page: Mapping[str, object]) -> Problem:
    place = None
    if isinstance(page.get("file"), str):
        line, column = (_count(page, name) for name in ("line", "column"))
        place = Place(_text(page, "file"), line, column)
    code, message, path, expected, found, hint = (
        _text(page, name) for name in ("code", "message", "path", "expected", "found", "hint")
    )
    return Problem(code, message, place, path, expected, found, hint)


def _text(page: Mapping[str, object], name: str) -> str:
    value = page.get(name)
    return value if isinstance(value, str) else ""


def _count(page: Mapping[str, object], name: str) -> int | None:
    value = page.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
