"""`hotbay config validate` and `hotbay config schema`.

Of a HostConfig all is checked that can be without running anything: its folders, its scheduling, and whether the
packages that its sources offer now provide the types.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import click
import orjson

from hotbay.cli.environment import environment
from hotbay.cli.exit_codes import EXIT_CONFIG
from hotbay.cli.files import ENDPOINTS, folder_of, kind_of, read_text
from hotbay.cli.loading import Given, load_scheduling
from hotbay.config.data_sources import read_data_layer
from hotbay.config.documents import load_document, refuse
from hotbay.config.host_config import KIND as HOST_KIND
from hotbay.config.host_config import HostConfig, host_config_schema, load_host_config
from hotbay.config.picker_config import KIND as PICKER_KIND
from hotbay.config.picker_config import load_picker_config
from hotbay.config.source_config import BUNDLED, Source
from hotbay.datalayer.discovery.endpoint_documents import check_listed, read_endpoints
from hotbay.errors import InputError, PackageError, Place, Problem
from hotbay.packages.bundled import Part, absent, bundled_folder
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.oci_layout import OciLayoutSource
from hotbay.packages.sources.source import Offer
from hotbay.rollout.deployment import resolve
from hotbay.scheduling.registry import FIRST_PARTY_TYPES, SCHEDULING_TYPES, TypeIndex
from hotbay.wishes import binding_options

_UNCHECKED: Final = {
    HOST_KIND: "parameters are the plugins' own and were not checked",
    PICKER_KIND: "types and parameters of plugins were not checked: a HostConfig's check looks the types up",
    ENDPOINTS: "no endpoint was asked",
}
"""What being valid does not say."""
_NEAR: Final = (BUNDLED, "directory", "oci_layout")


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
    text = read_text(path)
    document = load_document(text, file=str(path))
    if document.value is None:
        hint = "write at least apiVersion and kind"
        raise InputError([Problem("EMPTY_CONFIG", "the document is empty", Place(str(path)), hint=hint)])
    kind = kind_of(document)
    if kind == HOST_KIND:
        base = folder_of(path)
        host = load_host_config(
            text, file=str(path), base_directory=base, environment=environment(), is_root=os.geteuid() == 0
        )
        _check_host(host, path, base)
    elif kind == ENDPOINTS:
        read = read_endpoints(document)
        refuse(read.problems)
        _warn(read.warnings)
    else:
        picker = load_picker_config(text, file=str(path))
        data = read_data_layer(picker, others=SCHEDULING_TYPES)
        check_listed(data.discovery)
        _warn((*picker.warnings, *data.warnings))
    return kind


def _check_host(host: HostConfig, path: Path, base: Path) -> None:
    """Raises `InputError` with all that is wrong around a HostConfig that is valid by itself."""
    problems = _missing_folders(host)
    offers, unusable = anyio.run(_look_at_sources, host)
    far = [source.name for source in host.sources if source.fetch != "off" and source.place_kind not in _NEAR]
    try:
        picker, _ = load_scheduling(host, Given(config_file=path), base, read_text)
        index = TypeIndex.build(((o.manifest.id, o.manifest.types) for o in offers), host.types)
        resolve(picker, index, binding_options(host), unusable=unusable, asked=list(_near(host)))
    except InputError as refused:
        error = _without_guesses(refused, host, offers)
        # A source that was not asked may offer what these packages do not.
        found = [problem for problem in error.problems if problem.code != "UNKNOWN_TYPE" or not far]
        if problems or found:
            raise InputError([*problems, *found]) from error
        _warn(error.problems)
        _warn([Problem("UNKNOWN_TYPE", f"not asked, and may offer the type: {', '.join(far)}")])
        return
    if problems:
        raise InputError(problems)
    _warn((*picker.warnings, *unusable))


def _near(host: HostConfig) -> dict[str, Path]:
    """Folders of the sources that are looked at, by the source's name."""
    found = {source.name: _folder(source) for source in host.sources if source.fetch != "off"}
    return {name: folder for name, folder in found.items() if folder is not None and folder.is_dir()}


def _without_guesses(error: InputError, host: HostConfig, offers: Sequence[Offer]) -> InputError:
    """Of a type that nothing provides: which folders are empty, in place of the host's own types if all are."""
    filled = {offer.source for offer in offers}
    empty = [
        Problem(
            "UNKNOWN_TYPE",
            f"source '{name}' has no package yet",
            Place(str(folder)),
            hint=f"`hotbay publish DIR {folder}` brings one there, DIR being what `hotbay pack` wrote",
        )
        for name, folder in _near(host).items()
        if name not in filled
    ]
    if not empty or not any(problem.code == "UNKNOWN_TYPE" for problem in error.problems):
        return error
    return InputError([*(error.problems if offers else map(_without_guess, error.problems)), *empty])


def _without_guess(problem: Problem) -> Problem:
    if problem.code != "UNKNOWN_TYPE" or problem.found in FIRST_PARTY_TYPES:
        return problem
    return replace(problem, expected="", found="", hint="")


def _missing_folders(host: HostConfig) -> list[Problem]:
    problems = []
    for index, source in enumerate(host.sources):
        folder = _folder(source)
        if source.fetch == "off" or folder is None or folder.is_dir():
            continue
        if source.place_kind == BUNDLED:
            problems.append(absent(Part.PACKAGES))
            continue
        kind = source.place_kind
        message = f"the folder of source '{source.name}' is not there: {folder}"
        place = host.place("sources", index, kind)
        hint = f"create it, or correct the source's {kind}"
        problems.append(Problem("FETCH_FAILED", message, place, f"sources[{index}].{kind}", hint=hint))
    return problems


async def _look_at_sources(host: HostConfig) -> tuple[list[Offer], list[Problem]]:
    """What the folders that are there offer now, and what in them is of no use."""
    offers: list[Offer] = []
    problems: list[Problem] = []
    for source in host.sources:
        folder = _folder(source)
        if source.fetch == "off" or folder is None or not folder.is_dir():
            continue
        kind = OciLayoutSource if source.place_kind == "oci_layout" else DirectorySource
        opened = kind(folder, source.name, dev=source.dev)
        try:
            scan = await opened.scan()
        except PackageError as error:
            problems.append(Problem(error.code, error.message, Place(str(folder)), hint=error.hint))
            continue
        finally:
            await opened.close()
        offers += scan.offers
        problems += scan.problems
    return offers, problems


def _folder(source: Source) -> Path | None:
    """Where on this machine the source's packages lie, if they do."""
    if source.place_kind not in _NEAR:
        return None
    return source.directory or source.oci_layout or bundled_folder(Part.PACKAGES)


def _warn(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def print_schema() -> None:
    """Print the JSON Schema of a HostConfig."""
    click.echo(orjson.dumps(host_config_schema(), option=orjson.OPT_INDENT_2))
