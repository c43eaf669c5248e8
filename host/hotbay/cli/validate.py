"""`hotbay config validate` and `hotbay config schema`."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import orjson

from hotbay.cli.exit_codes import EXIT_CONFIG
from hotbay.cli.run import Given, environment, load_scheduling
from hotbay.config.data_parameters import read_data_layer
from hotbay.config.documents import decode_text, load_document, refuse
from hotbay.config.host_config import KIND, host_config_schema, load_host_config
from hotbay.config.picker_config import load_picker_config
from hotbay.config.reload import read_content
from hotbay.datalayer.endpoint_documents import read_endpoints
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
            click.echo(f"{click.format_filename(path)}: valid {kind}")
    return EXIT_CONFIG if bad else 0


def validate_file(path: Path) -> str:
    """Return the kind of a valid file, whose warnings are printed. Raises `InputError`."""
    text = _read(path)
    value = load_document(text, file=str(path)).value
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == KIND:
        base = path.resolve().parent
        host = load_host_config(
            text, file=str(path), base_directory=base, environment=environment(), is_root=os.geteuid() == 0
        )
        _warn(load_scheduling(host, Given(config_file=path), base, _read)[0].warnings)
        return KIND
    if kind is None and isinstance(value, dict) and "endpoints" in value:
        read = read_endpoints(load_document(text, file=str(path)))
        refuse(read.problems)
        _warn(read.warnings)
        return "endpoint file"
    picker = load_picker_config(text, file=str(path))
    read_data_layer(picker)
    _warn(picker.warnings)
    return "EndpointPickerConfig"


def _read(path: Path) -> str:
    content = read_content(path)
    if content.data is None:
        problem = Problem("CONFIG_INVALID", f"cannot be read: {content.error}", Place(str(path)), hint="check its name")
        raise InputError([problem])
    return decode_text(content.data, file=str(path))


def _warn(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def print_schema() -> None:
    """Print the JSON Schema of a HostConfig."""
    click.echo(orjson.dumps(host_config_schema(), option=orjson.OPT_INDENT_2))
