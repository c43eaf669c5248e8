"""Exit codes of the command: 0 done, 2 wrong usage (click's own), and these."""

from typing import Final

from hotbay.errors import CapacityError, HostError, InputError

EXIT_FAILED: Final = 1
"""Refused, or it did not work out."""
EXIT_NO_HOST: Final = 69
"""No host answers; EX_UNAVAILABLE of sysexits.h."""
EXIT_INTERRUPTED: Final = 130
"""As a shell tells of a process that SIGINT ended."""
EXIT_CONFIG: Final = 78
"""A configuration that cannot be used; EX_CONFIG of sysexits.h."""


_REFUSED: Final = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})
"""Codes with which nothing is wrong with what was given: it cannot be done now."""


class NoHostError(CapacityError):
    """Nobody answers where a running host was looked for."""

    default_hint = (
        "start a host with `hotbay run`; one with another configuration is found by -c FILE, and also without that file by "
        "--socket STATE_DIR/admin.sock; "
        "`hotbay doctor` looks for what is wrong"
    )

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__("UNAVAILABLE", message, hint=hint)


def exit_code(error: HostError) -> int:
    """The code that a command ends with after this error."""
    if isinstance(error, NoHostError):
        return EXIT_NO_HOST
    return EXIT_CONFIG if isinstance(error, InputError) and error.code not in _REFUSED else EXIT_FAILED
