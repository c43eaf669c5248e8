"""`hotbay publish`: what it takes and what it prints."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hotbay.cli.failures import fails_in_form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hotbay.packages.publish import Published

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

__all__ = ["publish"]


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target")
@click.option("--layout", "as_layout", is_flag=True, help="TARGET is one OCI layout for all packages; made if absent.")
@click.option("--username", help="For a registry.")
@click.option("--password-file", type=_FILE, help="File that holds the password of --username.")
@click.option("--token-file", type=_FILE, help="File that holds a token, in place of user and password.")
@click.option("--ca-file", type=_FILE, help="Certificate authorities to trust, in place of the system's.")
@click.option("--mount-from", metavar="NAME", help="Repository of the same registry that may hold the wheels already.")
@click.option("-o", "--output", type=click.Choice(("text", "json")), default="text", show_default=True)
@fails_in_form
def publish(
    directory: Path,
    target: str,
    username: str | None,
    password_file: Path | None,
    token_file: Path | None,
    ca_file: Path | None,
    mount_from: str | None,
    output: str,
    *,
    as_layout: bool,
) -> None:
    """Bring the package in DIRECTORY to TARGET: a watched folder, an OCI layout, or HOST[:PORT]/NAME[:TAG] of a registry.

    In a registry the tags REV and VERSION lead to it. A revision that is there with other content is not replaced.
    """
    if (username is None) != (password_file is None):
        raise click.UsageError("--username and --password-file go together")
    if username is not None and token_file is not None:
        raise click.UsageError("--token-file and --username exclude each other")
    # Imported here because they bring in an HTTP client that no other command needs.
    from hotbay.packages.publish import parse_target, publish_command  # noqa: PLC0415
    from hotbay.packages.sources.credentials import Credentials  # noqa: PLC0415

    published = publish_command(
        directory,
        parse_target(target, as_layout=as_layout),
        auth=Credentials(username, password_file, token_file),
        ca_file=ca_file,
        mounts_from=mount_from,
    )
    _show(published, output)


def _show(published: "Sequence[Published]", output: str) -> None:
    if output == "json":
        click.echo(json.dumps([_row(done) for done in published]))
        return
    for done in published:
        m = done.manifest
        note = "already there" if done.was_there else f"{done.sent_bytes} bytes sent"
        click.echo(f"{m.id} {m.version} rev {m.rev} {m.digest} -> {done.where} ({', '.join(done.names)}): {note}")


def _row(done: "Published") -> dict[str, object]:
    manifest = done.manifest
    return {
        "id": manifest.id,
        "version": manifest.version,
        "rev": manifest.rev,
        "platform": manifest.platform,
        "digest": manifest.digest,
        "where": done.where,
        "names": list(done.names),
        "sent_bytes": done.sent_bytes,
        "was_there": done.was_there,
    }
