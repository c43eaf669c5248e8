"""Whose fault an error is, as the machine wants to know it. Pure.

- Capacity, what a source could not deliver, and what the operator's configuration names and is not there, is not the
  plugin's: it is tried again for as long as it takes. Wrong bytes from a source are the source's, not those of the
  package that it was to deliver; of a package that is complete, they are the package's.
- A SIGKILL that the host did not send comes from outside: an operator, or a machine without memory.
- The versions of the protocol that a package speaks are in it for good: another try changes nothing.
- Everything else that a process does is the plugin's.
"""

from typing import Final

from hotbay.errors import CapacityError, HostError, InputError, PackageError
from hotbay.rollout.state import Cause, Failure, Phase

__all__ = ["MAX_SHOWN_CHARS", "cause_of", "failure_of"]

MAX_SHOWN_CHARS: Final = 4096
"""Of one text for status or the log: parts of it can be a plugin's words."""

SIGKILL: Final = 9
"""By number, on every Linux: this module knows nothing of the system that it runs on."""
_NEVER_AGAIN: Final = "PROTOCOL_VERSION"
_SOURCES: Final = frozenset({"FETCH_FAILED", "LENGTH_MISMATCH", "DIGEST_MISMATCH"})


def cause_of(error: HostError, phase: Phase, *, killed_by: int | None = None) -> Cause:
    """Whose fault an error is that came up in a phase; `killed_by` is the signal that ended the process, if one did."""
    if killed_by == SIGKILL:
        return Cause.OUTSIDE
    if isinstance(error, CapacityError | InputError):
        return Cause.CAPACITY
    if error.code == _NEVER_AGAIN:
        return Cause.PACKAGE
    if isinstance(error, PackageError):
        from_source = error.code == "FETCH_FAILED" or (phase is Phase.FETCHING and error.code in _SOURCES)
        return Cause.CAPACITY if from_source else Cause.PACKAGE
    return Cause.PLUGIN


def failure_of(error: HostError, phase: Phase, *, chance: float, killed_by: int | None = None) -> Failure:
    """The error as the machine takes it; texts are cut to a length."""
    message, hint = error.message, error.hint
    if isinstance(error, InputError) and len(error.problems) == 1:
        # The text of a list of problems says code and hint, too.
        message = error.problems[0].message
    cause = cause_of(error, phase, killed_by=killed_by)
    return Failure(cause, error.code, message[:MAX_SHOWN_CHARS], hint[:MAX_SHOWN_CHARS], chance)
