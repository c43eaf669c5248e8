"""What a command that fails prints, in the form that was asked for, and the exit code that it ends with.

Every failure of the machine below a command (a full disk, a name that cannot be written) is told like the host's own: one
line and what to do. A reader that has enough and an operator who interrupts are no failures, and nothing is said.
"""

import errno
import os
import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec

import click

from hotbay.cli.exit_codes import exit_code
from hotbay.errors import CapacityError, HostError, InputError, printable

__all__ = ["fail", "fails_in_form", "machine_error", "reader_has_left", "report_json", "silence_output"]

P = ParamSpec("P")
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def fail(error: HostError) -> None:
    """Print the error for people, and exit."""
    if isinstance(error, InputError):
        for problem in error.problems:
            click.echo(f"error: {printable(str(problem))}", err=True)
    else:
        click.echo(f"error: {printable(str(error))}", err=True)
        if error.hint:
            click.echo(f"  what to do: {printable(error.hint)}", err=True)
    sys.exit(exit_code(error))


def report_json(error: HostError) -> None:
    """Print the error as the object that the admin socket sends, and exit."""
    # Imported here because a command that succeeds has nothing to report.
    import orjson  # noqa: PLC0415

    from hotbay.gateway.admin_errors import error_page  # noqa: PLC0415

    click.echo(orjson.dumps(error_page(error)), err=True)
    sys.exit(exit_code(error))


def fails_in_form(command: Callable[P, None]) -> Callable[P, None]:
    """Let a command that has `--output` fail in that form."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except HostError as error:
            if kwargs.get("output") != "json":
                raise
            report_json(error)

    return run


def machine_error(error: OSError) -> CapacityError:
    """An error of the machine as what a command can tell; without a name it is about what the command prints to."""
    what = "the output" if error.filename is None else str(error.filename)
    hint = "free space there" if error.errno in _FULL else "see that it is there, and may be read or written"
    return CapacityError("RESOURCE_EXHAUSTED", f"{what}: {error.strerror or error}", hint=hint)


def reader_has_left() -> bool:
    """Whether standard output is a pipe that nobody reads any more."""
    poll = select.poll()
    poll.register(1, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def silence_output() -> None:
    """Let what is left to be printed go nowhere: an interpreter that cannot get rid of it ends with a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
