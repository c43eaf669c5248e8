"""`hotbay dev`: work on a plugin's project, in a host that puts each save in force."""

from pathlib import Path

import click

from hotbay.cli.failures import fails_in_form

__all__ = ["dev"]

_PROJECT = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("directory", type=_PROJECT, default=".")
@click.option(
    "--config-file",
    "picker_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="EndpointPickerConfig file, followed too.  [default: the project's types beside bundled scorers]",
)
@click.option("--endpoint", "endpoints", multiple=True, metavar="URL", help="A model server; may be repeated.")
@click.option(
    "--servers",
    type=click.IntRange(1, 64),
    default=3,
    show_default=True,
    help="Simulated model servers where no --endpoint is given.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:0",
    help="Where to listen.  [default: a free port of this machine]",
)
@click.option("--wheels", type=_PROJECT, help="Folder of the SDK wheel, instead of the one that comes with the host.")
@click.option(
    "--wait-for-debugger",
    "is_debugging",
    is_flag=True,
    help="Let each process wait for a debugger (debugpy) before it begins.",
)
@click.option(
    "-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True, help="Form of the lines."
)
@fails_in_form
def dev(
    directory: Path,
    picker_file: Path | None,
    endpoints: tuple[str, ...],
    servers: int,
    listen: str,
    wheels: Path | None,
    output: str,
    *,
    is_debugging: bool,
) -> None:
    """Run the plugin project in DIRECTORY in a host of its own, and put each save in force.

    A save that fails is told with file and line, and the version before goes on. Ends at SIGINT or SIGTERM, and leaves
    nothing behind.
    """
    # Imported here because it brings in the whole host; the other commands do without.
    from hotbay.cli.dev_run import run_dev  # noqa: PLC0415
    from hotbay.cli.dev_session import DevOptions  # noqa: PLC0415

    options = DevOptions(
        directory.resolve(),
        picker_file.resolve() if picker_file is not None else None,
        endpoints,
        servers,
        listen,
        wheels,
        is_debugging,
    )
    run_dev(options, as_json=output == "json")
