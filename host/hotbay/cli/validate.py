"""`hotbay config validate` and `hotbay config schema`.

Of a HostConfig all is checked that can be without running anything: its folders, its scheduling, and whether the
packages that its sources offer now provide the types.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click
import orjson

from hotbay.app import binding_options
from hotbay.cli.exit_codes import EXIT_CONFIG
from hotbay.cli.run import Given, environment, load_scheduling
from hotbay.config.data_parameters import read_data_layer
from hotbay.config.documents import Document, decode_text, load_document, refuse
from hotbay.config.host_config import API_VERSION as HOST_VERSION
from hotbay.config.host_config import KIND as HOST_KIND
from hotbay.config.host_config import HostConfig, Source, host_config_schema, load_host_config
from hotbay.config.picker_config import API_VERSION as PICKER_VERSION
from hotbay.config.picker_config import DEPRECATED_API_VERSION, load_picker_config
from hotbay.config.picker_config import KIND as PICKER_KIND
from hotbay.config.reload import read_content
from hotbay.config.wording import described, nearest
from hotbay.datalayer.endpoint_documents import read_endpoints
from hotbay.errors import InputError, Place, Problem
from hotbay.packages.bundled import Part, absent, bundled_folder
from hotbay.packages.sources.directory import DirectorySource, Offer
from hotbay.rollout.deployment import resolve
from hotbay.scheduling.registry import TypeIndex

_ENDPOINTS: Final = "endpoint file"
_PICKER_VERSIONS: Final = (PICKER_VERSION, DEPRECATED_API_VERSION)
_UNCHECKED: Final = {
    HOST_KIND: "parameters are the plugins' own and were not checked",
    PICKER_KIND: "types and parameters of plugins were not checked: a HostConfig's check looks the types up",
    _ENDPOINTS: "no endpoint was asked",
}
"""What being valid does not say."""


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
            click.echo(f"{click.format_filename(path)}: valid {kind}; {_UNCHECKED[kind]}")
    return EXIT_CONFIG if bad else 0


def validate_file(path: Path) -> str:
    """Return the kind of a valid file, whose warnings are printed. Raises `InputError`."""
    text = _read(path)
    document = load_document(text, file=str(path))
    if document.value is None:
        hint = "write at least apiVersion and kind"
        raise InputError([Problem("EMPTY_CONFIG", "the document is empty", Place(str(path)), hint=hint)])
    kind = _kind(document)
    if kind == HOST_KIND:
        base = path.resolve().parent
        host = load_host_config(
            text, file=str(path), base_directory=base, environment=environment(), is_root=os.geteuid() == 0
        )
        _check_host(host, path, base)
    elif kind == _ENDPOINTS:
        read = read_endpoints(document)
        refuse(read.problems)
        _warn(read.warnings)
    else:
        picker = load_picker_config(text, file=str(path))
        read_data_layer(picker)
        _warn(picker.warnings)
    return kind


def _kind(document: Document) -> str:
    """What the document is, or is meant to be; the reader of that kind then reports a kind that is mistyped."""
    value = document.value if isinstance(document.value, dict) else {}
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None:
        if version == HOST_VERSION:
            return HOST_KIND
        return _ENDPOINTS if "endpoints" in value else PICKER_KIND
    guess = nearest(kind, (HOST_KIND, PICKER_KIND)) if isinstance(kind, str) else None
    if guess is None and version == HOST_VERSION:
        guess = HOST_KIND
    if guess is None and version not in _PICKER_VERSIONS:
        expected = f"{HOST_KIND} or {PICKER_KIND}"
        place = document.place(("kind",))
        raise InputError(
            [
                Problem(
                    "CONFIG_INVALID", "not a kind of file that hotbay reads", place, "kind", expected, described(kind)
                )
            ]
        )
    return guess or PICKER_KIND


def _check_host(host: HostConfig, path: Path, base: Path) -> None:
    """Raises `InputError` with all that is wrong around a HostConfig that is valid by itself."""
    problems = _missing_folders(host)
    offers, unusable = _look_at_sources(host)
    try:
        picker, _ = load_scheduling(host, Given(config_file=path), base, _read)
        index = TypeIndex.build(((o.manifest.id, o.manifest.types) for o in offers), host.types)
        resolve(picker, index, binding_options(host), unusable=unusable)
    except InputError as error:
        raise InputError([*problems, *error.problems]) from error
    if problems:
        raise InputError(problems)
    _warn((*picker.warnings, *unusable))


def _missing_folders(host: HostConfig) -> list[Problem]:
    problems = []
    for index, source in enumerate(host.sources):
        folder = _folder(source)
        if source.fetch == "off" or folder.is_dir():
            continue
        if source.directory is None:
            problems.append(absent(Part.PACKAGES))
            continue
        message = f"the folder of source '{source.name}' is not there: {folder}"
        place = host.place("sources", index, "directory")
        hint = "create it, or correct the source's directory"
        problems.append(Problem("FETCH_FAILED", message, place, f"sources[{index}].directory", hint=hint))
    return problems


def _look_at_sources(host: HostConfig) -> tuple[list[Offer], list[Problem]]:
    """What the folders that are there offer now, and what in them is of no use."""
    scans = [
        DirectorySource(_folder(source), source.name, dev=source.dev).scan()
        for source in host.sources
        if source.fetch != "off" and _folder(source).is_dir()
    ]
    return [o for scan in scans for o in scan.offers], [problem for scan in scans for problem in scan.problems]


def _folder(source: Source) -> Path:
    return source.directory or bundled_folder(Part.PACKAGES)


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
