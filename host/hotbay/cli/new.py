"""`hotbay new`: a plugin's first project."""

from pathlib import Path

import click

from hotbay.cli.points import NEW_POINTS, PointChoice
from hotbay.errors import printable

__all__ = ["new"]


@click.command()
@click.argument("name")
@click.option("--point", type=PointChoice(NEW_POINTS), default="scorer", show_default=True, help="What it answers.")
@click.option("--publisher", default="me", show_default=True, help="Who publishes it.")
@click.option("--into", type=click.Path(path_type=Path), default=".", help="Where to make it.  [default: .]")
@click.option("--lock/--no-lock", "locked", default=True, help="Write requirements.lock, from the package index.")
@click.option(
    "--wheels",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the SDK wheel, instead of the one that comes with the host.",
)
def new(name: str, point: str, publisher: str, into: Path, wheels: Path | None, *, locked: bool) -> None:
    """Make the project of a plugin called NAME: code, tests, README and requirements.lock, ready to be packed.

    NAME is the plugin's id: lower-case letters, digits and dashes, at most 63.
    """
    # Imported here because the lock needs an event loop, which most commands do without.
    from hotbay.authoring.new_project import create_project  # noqa: PLC0415
    from hotbay.authoring.scaffold import check_name  # noqa: PLC0415

    check_name(publisher)
    created = create_project(name, point, into=into, publisher=publisher, wheels=wheels, locked=locked)
    where = click.format_filename(created.directory)
    click.echo(f"{created.names.type} in {where}: start with README.md and {created.names.module}/__init__.py")
    if created.not_locked is not None:
        click.echo(f"warning: it has no requirements.lock: {printable(created.not_locked.message)}", err=True)
        click.echo(f"  what to do: run `hotbay deps {where}` before `hotbay pack`", err=True)
