"""The commands: what they take, and which code they exit with."""

import sys
from pathlib import Path

import click

from hotbay.cli.call import call
from hotbay.cli.conformance import conformance
from hotbay.cli.dev import dev
from hotbay.cli.failures import fail, fails_in_form, machine_error, silence_output
from hotbay.cli.grouped import GroupedCommands
from hotbay.cli.new import new
from hotbay.cli.operate import OPERATOR_COMMANDS
from hotbay.cli.publish import publish
from hotbay.cli.sim import sim
from hotbay.errors import HostError
from hotbay.process.init import leave_process_1

_LEVEL = click.Choice(("debug", "info", "warning", "error"))
_FORMAT = click.Choice(("json", "text"))


_PICKER_FILE = click.option(
    "--config-file", "picker_file", type=click.Path(path_type=Path), help="EndpointPickerConfig file."
)
_PICKER_TEXT = click.option("--config-text", "picker_text", help="EndpointPickerConfig as text.")


def _check_exclusive(picker_file: Path | None, picker_text: str | None) -> None:
    if picker_file is not None and picker_text is not None:
        raise click.UsageError("--config-file and --config-text exclude each other")


def main() -> None:
    """Entry point of the console script."""
    try:
        commands(prog_name="hotbay")
    except HostError as error:
        fail(error)
    except OSError as error:
        silence_output()
        fail(machine_error(error))


@click.group(cls=GroupedCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hotbay", prog_name="hotbay")
def commands() -> None:
    """A plugin host for live inference routing."""


for _command in (call, conformance, dev, new, publish, sim, *OPERATOR_COMMANDS):
    commands.add_command(_command)


@commands.command()
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path), help="HostConfig file.")
@_PICKER_FILE
@_PICKER_TEXT
@click.option("--endpoint", "endpoints", multiple=True, metavar="URL", help="A model server; may be repeated.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen instead of listen.http.")
@click.option("--take-over", is_flag=True, help="Take the place of the host that runs on the same state_dir, if any.")
@click.option(
    "--allow-experimental-plugins",
    "allow_experimental",
    is_flag=True,
    help="Use types that their packages do not call beta or stable, as scheduling.allow_experimental.",
)
@click.option("--log-level", type=_LEVEL, help="Instead of logging.level.")
@click.option("--log-format", type=_FORMAT, help="Instead of logging.format.")
def run(
    config_file: Path | None,
    picker_file: Path | None,
    picker_text: str | None,
    endpoints: tuple[str, ...],
    listen: str | None,
    log_level: str | None,
    log_format: str | None,
    *,
    take_over: bool,
    allow_experimental: bool,
) -> None:
    """Run the host and its gateway until SIGTERM or SIGINT."""
    _check_exclusive(picker_file, picker_text)
    # Before anything is imported that may start a thread.
    leave_process_1()
    # Imported here because it brings in the whole host; the other commands do without.
    from hotbay.cli.loading import Given  # noqa: PLC0415
    from hotbay.cli.run import run_host  # noqa: PLC0415

    run_host(
        Given(
            config_file,
            picker_file,
            picker_text,
            endpoints,
            listen,
            log_level,
            log_format,
            take_over=take_over,
            allow_experimental=allow_experimental,
        )
    )


@commands.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the tables.")
@click.option("--trace", type=click.Path(path_type=Path), help="Replay this request trace (Mooncake form), scaled.")
@click.option("--sabotage", is_flag=True, help="Kill every plugin for good: requests go on, the demo is red.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of model and load.")
@click.option("--duration", type=click.FloatRange(10, 60), default=40, show_default=True, help="Seconds of load.")
def demo(trace: Path | None, seed: int, duration: float, *, as_json: bool, sabotage: bool) -> None:
    """Real model servers, real requests, a swap and a kill under load.

    Exits with 0 when no request failed and nothing was degraded without reason, else with 1.
    """
    # Imported here because it brings in numpy and looks for packages that only the demo needs.
    from hotbay.demo.command import DemoOptions, run_demo  # noqa: PLC0415

    sys.exit(run_demo(DemoOptions(duration, seed, trace, as_json, sabotage)))


_WHEELS_HELP = "Folder of the SDK wheel, instead of the one that comes with the host."
_PROJECT = click.Path(exists=True, file_okay=False, path_type=Path)


@commands.command()
@click.argument("directory", type=_PROJECT)
@click.option("--upgrade", is_flag=True, help="Take the newest versions, whatever an older lock says.")
@click.option("--wheels", type=_PROJECT, help=_WHEELS_HELP)
def deps(directory: Path, wheels: Path | None, *, upgrade: bool) -> None:
    """Write requirements.lock of the plugin project in DIRECTORY: what `pack` puts beside its wheel."""
    # Imported here because running tools needs an event loop, which most commands do without.
    from hotbay.packages.lock import lock_command  # noqa: PLC0415

    file = lock_command(directory, wheels, upgrade=upgrade)
    click.echo(f"wrote {click.format_filename(file)} for {directory.resolve().name}")


@commands.command()
@click.argument("directory", type=_PROJECT)
@click.option("--rev", type=click.IntRange(min=0), help="Revision; required in channel release, else the time.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Package folder to write or replace.  [default: build/packages/NAME, NAME being DIRECTORY's]",
)
@click.option("--wheels", type=_PROJECT, help=_WHEELS_HELP)
def pack(directory: Path, rev: int | None, out: Path | None, wheels: Path | None) -> None:
    """Build a package from the plugin project in DIRECTORY, which is only read."""
    # Imported here because packing needs wheel and archive code that no other command needs.
    from hotbay.packages.pack import pack_command  # noqa: PLC0415

    target = out if out is not None else Path("build") / "packages" / directory.resolve().name
    manifest = pack_command(directory, target, rev, wheels)
    click.echo(f"{manifest.id} {manifest.version} rev {manifest.rev} {manifest.digest} -> {target}")


@commands.group()
def config() -> None:
    """Look at configuration files."""


@config.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@_PICKER_FILE
@_PICKER_TEXT
def validate(files: tuple[Path, ...], picker_file: Path | None, picker_text: str | None) -> None:
    """Check HostConfig, EndpointPickerConfig and endpoint FILES, whichever kind they are.

    With --config-file or --config-text that scheduling is checked, with the HostConfig among FILES or the default one.
    """
    _check_exclusive(picker_file, picker_text)
    if not files and picker_file is None and picker_text is None:
        raise click.UsageError("name FILES, or --config-file or --config-text")
    # Imported here because pydantic takes longer to import than most commands to run.
    from hotbay.cli.validate import validate_files  # noqa: PLC0415

    sys.exit(validate_files(files, picker_file, picker_text))


@config.command()
@click.argument("kind", type=click.Choice(("HostConfig", "EndpointPickerConfig")), default="HostConfig")
def schema(kind: str) -> None:
    """Print the JSON Schema of a KIND, by default of a HostConfig."""
    # Imported here because pydantic takes longer to import than most commands to run.
    from hotbay.cli.validate import print_schema  # noqa: PLC0415

    print_schema(kind)


_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True, help="Form of answers."
)


@config.command("print-effective")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@_PICKER_FILE
@_PICKER_TEXT
@_OUTPUT
@fails_in_form
def print_effective(file: Path | None, picker_file: Path | None, picker_text: str | None, output: str) -> None:
    """Print what is in force with FILE, or without one, every default written out.

    With --config-file or --config-text: that scheduling, with the packages of the HostConfig in FILE or the default one.
    """
    _check_exclusive(picker_file, picker_text)
    # Imported here because pydantic takes longer to import than most commands to run.
    from hotbay.cli.effective import print_effective  # noqa: PLC0415

    print_effective(file, picker_file, picker_text, as_json=output == "json")


@commands.command()
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path), help="HostConfig file.")
@_OUTPUT
@fails_in_form
def doctor(config_file: Path | None, output: str) -> None:
    """Look at all that a host needs of this machine; say what to do about what is missing.

    Changes nothing. Exits with 0 when nothing has to be repaired, else with 1.
    """
    # Imported here because it brings in most of what a host needs.
    from hotbay.cli.doctor import run_doctor  # noqa: PLC0415

    sys.exit(run_doctor(config_file, as_json=output == "json"))


@commands.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("plugins", metavar="[ID]…", nargs=-1)
@click.option("-c", "--config", "config_file", type=click.Path(path_type=Path), help="HostConfig of the host.")
@click.option("--with-quarantined", is_flag=True, help="Also what is in quarantine here.")
@_OUTPUT
@fails_in_form
def bundle(
    out: Path, plugins: tuple[str, ...], config_file: Path | None, output: str, *, with_quarantined: bool
) -> None:
    """Copy complete packages to the new folder OUT, for a host that reaches no source.

    Without ID all of them. Builds in quarantine are left out. The folder is an OCI image layout: name it as `oci_layout` of a source there.
    """
    # Imported here because pydantic takes longer to import than most commands to run.
    from hotbay.cli.bundle import bundle_command  # noqa: PLC0415

    bundle_command(out, plugins, config_file, as_json=output == "json", with_quarantined=with_quarantined)


@commands.command()
def version() -> None:
    """Print the versions of host, SDK and protocol."""
    # Imported here so that --help does not read package metadata.
    from hotbay.cli.version import version_line  # noqa: PLC0415

    click.echo(version_line())
