"""`hotbay config validate` and `hotbay config schema`."""

import os
from collections.abc import Sequence
from pathlib import Path

import click
import orjson

from hotbay.cli.exit_codes import EXIT_CONFIG
from hotbay.cli.run import environment
from hotbay.config.documents import decode_text, load_document
from hotbay.config.host_config import KIND, host_config_schema, load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.config.reload import read_content
from hotbay.errors import InputError, Place, Problem


def validate_files(files: Sequence[Path]) -> int:
    """Check each file, print every problem of each; return the exit code."""
    bad = 0
    for path in files:
        try:
            kind = validate_file(path)
        except InputError as error:
            bad += 1
            for problem in error.problems:
                click.echo(f"error: {problem}", err=True)
        else:
            click.echo(f"{path}: valid {kind}")
    return EXIT_CONFIG if bad else 0


def validate_file(path: Path) -> str:
    """Return the kind of a valid file. Raises `InputError`."""
    content = read_content(path)
    if content.data is None:
        raise InputError([Problem("CONFIG_INVALID", f"cannot be read: {content.error}", Place(str(path)))])
    text = decode_text(content.data, file=str(path))
    value = load_document(text, file=str(path)).value
    if isinstance(value, dict) and value.get("kind") == KIND:
        load_host_config(
            text,
            file=str(path),
            base_directory=path.resolve().parent,
            environment=environment(),
            is_root=os.geteuid() == 0,
        )
        return KIND
    load_picker_config(text, file=str(path))
    return "EndpointPickerConfig"


def print_schema() -> None:
    """Print the JSON Schema of a HostConfig."""
    click.echo(orjson.dumps(host_config_schema(), option=orjson.OPT_INDENT_2))
