"""What every command has that asks a running host: the options that name it, the form of answers, the exit codes."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

import click
from click.core import ParameterSource

from hotbay.cli.exit_codes import EXIT_CONFIG, EXIT_FAILED, EXIT_NO_HOST
from hotbay.cli.failures import report_json
from hotbay.errors import HostError

if TYPE_CHECKING:
    from hotbay.cli.ask import Ask

__all__ = ["CODES", "asks"]

P = ParamSpec("P")

CODES: Final = (
    f"Exits with 0 when it is done, {EXIT_FAILED} when the host refuses, 2 on wrong usage, {EXIT_NO_HOST} when no host "
    f"answers, {EXIT_CONFIG} when a configuration, a plugin, a build or an endpoint that was named is no such thing."
)


def _socket(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.is_dir():
        # Nobody listens at a folder: it is an empty variable, or the state directory.
        raise click.BadParameter(f"expected a socket such as STATE_DIR/admin.sock, found the folder '{value}'")
    return value


def _refuse_options(context: click.Context, command: str) -> None:
    for option in context.command.params:
        if option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"write {option.opts[-1]} behind {command}, or leave it out")


def asks(command: Callable[Concatenate["Ask", P], None]) -> Callable[..., None]:
    """Give a command the options that name the host and the form, and an `Ask`."""

    @click.option("--socket", type=click.Path(path_type=Path), callback=_socket, help="The host's admin socket.")
    @click.option(
        "-c",
        "--config",
        type=click.Path(path_type=Path),
        help="HostConfig of the host, which says where its socket is.",
    )
    @click.option(
        "-o",
        "--output",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        help="Form of answers.",
    )
    @wraps(command)
    def run(socket: Path | None, config: Path | None, output: str, *args: P.args, **kwargs: P.kwargs) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is not None:
            # Of a group: the command that follows asks, and knows nothing of what stands before it.
            _refuse_options(context, context.invoked_subcommand)
            return
        # Imported here because rich and pydantic take longer to import than most commands to run.
        from hotbay.cli.ask import Ask, At  # noqa: PLC0415

        as_json = output == "json"
        try:
            command(Ask(At(socket, config, as_json)), *args, **kwargs)
        except HostError as error:
            if not as_json:
                raise
            report_json(error)

    return run
