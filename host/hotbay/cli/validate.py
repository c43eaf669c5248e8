"""`hotbay config validate` and `hotbay config schema`.

Of a HostConfig all is checked that can be without running anything: its folders, its scheduling, and whether the
packages that its sources offer now provide the types, each where it may stand. An EndpointPickerConfig alone is checked
against the host's own types and those of the packages that come with it.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click
import orjson

from hotbay.cli.environment import environment
from hotbay.cli.exit_codes import EXIT_CONFIG
from hotbay.cli.files import ENDPOINTS, MODELS, folder_of, has_models, kind_of, read_text
from hotbay.cli.loading import Given, check_data_layer, read_picker
from hotbay.cli.offers import NEAR, bundled_index, folder_of_source, index_of, look_at_sources
from hotbay.cli.socket_path import read_host_config
from hotbay.config.data_types import Point
from hotbay.config.documents import load_document, refuse
from hotbay.config.host_config import KIND as HOST_KIND
from hotbay.config.host_config import HostConfig, host_config_schema, load_host_config
from hotbay.config.picker_checks import check_picker
from hotbay.config.picker_config import KIND as PICKER_KIND
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.config.picker_fields import picker_config_schema
from hotbay.config.source_config import BUNDLED
from hotbay.config.system_defaults import complete
from hotbay.datalayer.discovery.endpoint_documents import read_endpoints
from hotbay.errors import InputError, Place, Problem
from hotbay.models.documents import read_models
from hotbay.packages.bundled import Part, absent
from hotbay.packages.sources.source import Offer
from hotbay.rollout.resolution import resolve
from hotbay.scheduling.registry import FIRST_PARTY_TYPES, TypeIndex
from hotbay.wishes import allowance, binding_options

_LATER: Final = "parameters are the plugins' own; these, and what plugins take from each other, show when they run"
_UNCHECKED: Final = {
    HOST_KIND: _LATER,
    PICKER_KIND: f"{_LATER}; a HostConfig's check looks types up in its sources",
    ENDPOINTS: "no endpoint was asked",
    MODELS: "the models and objectives that it names were not looked up",
}
"""What being valid does not say."""
_OPTIONS: Final = "command line"


def validate_files(files: Sequence[Path], picker_file: Path | None = None, picker_text: str | None = None) -> int:
    """Check each file, print every problem of each; return the exit code.

    `picker_file` or `picker_text` take the place of what a HostConfig names as its scheduling; without a file they are checked
    with the HostConfig of a host that was given none.
    """
    given = Given(picker_file=picker_file, picker_text=picker_text)
    bad = 0
    for path in files or (None,):
        try:
            kind = validate_file(path, given) if path is not None else _validate_given(given)
        except InputError as error:
            bad += 1
            for problem in error.problems:
                click.echo(f"error: {problem}", err=True)
        else:
            name = click.format_filename(path) if path is not None else _OPTIONS
            click.echo(f"{name}: valid {kind}; {_UNCHECKED[kind]}")
    return EXIT_CONFIG if bad else 0


def _validate_given(given: Given) -> str:
    _check_host(read_host_config(None), given, Path.cwd())
    return PICKER_KIND


def validate_file(path: Path, given: Given | None = None) -> str:
    """Return the kind of a valid file, whose warnings are printed. Raises `InputError`."""
    given = given or Given()
    text = read_text(path)
    if has_models(text, file=str(path)):
        read_models(text, file=str(path))
        return MODELS
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
        _check_host(host, replace(given, config_file=path), base)
    elif kind == ENDPOINTS:
        read = read_endpoints(document)
        refuse(read.problems)
        _warn(read.warnings)
    else:
        _check_alone(load_picker_config(text, file=str(path)))
    return kind


def _check_alone(picker: PickerConfig) -> None:
    """Raises `InputError`. A type that the bundled packages do not provide may be anybody's."""
    index = bundled_index()
    problems, warnings = _data_layer(picker, index)
    checked = check_picker(complete(picker, index.facts), index.facts, allow_experimental=None)
    problems += checked.problems
    unknown = [found for it in picker.plugins if isinstance(found := index.resolve(it.type, it.place), Problem)]
    refuse(problems)
    _warn((*picker.warnings, *warnings, *checked.warnings, *(replace(one, expected="", found="") for one in unknown)))


def _data_layer(picker: PickerConfig, index: TypeIndex) -> tuple[list[Problem], tuple[Problem, ...]]:
    """Problems and warnings of what the data layer refers to."""
    words = [str(point) for point in Point]
    facts = {entry.type: index.facts(entry.type) for entry in picker.plugins}
    others = [name for name, known in facts.items() if known and known.points and not known.answers(*words)]
    try:
        return [], check_data_layer(picker, others)
    except InputError as error:
        return [*error.problems], ()


def _check_host(host: HostConfig, given: Given, base: Path) -> None:
    """Raises `InputError` with all that is wrong around a HostConfig that is valid by itself."""
    problems = _missing_folders(host)
    offers, unusable = look_at_sources(host.sources)
    far = [source.name for source in host.sources if source.fetch != "off" and source.place_kind not in NEAR]
    warnings: tuple[Problem, ...] = ()
    try:
        picker, _ = read_picker(host, given, base, read_text)
        index = index_of(offers, dict(host.types))
        found, warnings = _data_layer(picker, index)
        problems += found
        scheduling = resolve(
            picker,
            index,
            binding_options(host),
            unusable=unusable,
            asked=list(_near(host)),
            allowance=allowance(host),
        )
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
    _warn((*picker.warnings, *warnings, *scheduling.warnings, *unusable))


def _near(host: HostConfig) -> dict[str, Path]:
    """Folders of the sources that are looked at, by the source's name."""
    found = {source.name: folder_of_source(source) for source in host.sources if source.fetch != "off"}
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
        folder = folder_of_source(source)
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


def _warn(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def print_schema(kind: str) -> None:
    """Print the JSON Schema of a kind."""
    schema = host_config_schema() if kind == HOST_KIND else picker_config_schema()
    click.echo(orjson.dumps(schema, option=orjson.OPT_INDENT_2))
