"""Reads what `hotbay run` and `hotbay validate` are given: both configurations, with the command line over them."""

import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hotbay.cli.environment import environment
from hotbay.cli.files import folder_of
from hotbay.config.data_sources import read_data_layer
from hotbay.config.documents import is_blank
from hotbay.config.host_config import HostConfig, load_host_config
from hotbay.config.picker_config import PickerConfig, load_picker_config
from hotbay.config.reload import read_content
from hotbay.datalayer.discovery.endpoint_documents import check_listed
from hotbay.errors import InputError, Place, Problem
from hotbay.scheduling.registry import SCHEDULING_TYPES

logger = logging.getLogger(__name__)

__all__ = ["Given", "Loaded", "check_data_layer", "load", "load_scheduling", "log_warnings", "read_picker"]


@dataclass(frozen=True, slots=True)
class Given:
    """The command line of `hotbay run`."""

    config_file: Path | None = None
    picker_file: Path | None = None
    picker_text: str | None = None
    endpoints: tuple[str, ...] = ()
    listen: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    take_over: bool = False
    allow_experimental: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """Both configurations, the folder that paths of the second are relative to, and the files to follow."""

    host: HostConfig
    picker: PickerConfig
    picker_directory: Path
    files: Mapping[Path, str]


def load(given: Given, files: dict[Path, str] | None = None, *, may_be_blank: bool = True) -> Loaded:
    """Read what the command line names.

    Args:
        given: the command line.
        files: filled with the files that were looked at and their digests, also when one of them is bad.
        may_be_blank: whether a file without content stands for the defaults. While a host runs it is far more often a
            save that went wrong.

    Raises:
        InputError: with every problem of the first bad file.
    """
    files = {} if files is None else files
    reader = _Files(files, may_be_blank)
    text, file, base = "", "<no file>", Path.cwd()
    if given.config_file is not None:
        text, file = reader.text(given.config_file), str(given.config_file)
        base = folder_of(given.config_file)
    host = load_host_config(text, file=file, base_directory=base, environment=environment(), is_root=os.geteuid() == 0)
    host = _with_options(host, given, base)
    picker, directory = load_scheduling(host, given, base, reader.text)
    return Loaded(host, picker, directory, files)


def load_scheduling(
    host: HostConfig, given: Given, base: Path, read: Callable[[Path], str]
) -> tuple[PickerConfig, Path]:
    """Read the EndpointPickerConfig that the command line or the HostConfig names, and its folder.

    Raises:
        InputError: with every problem found, those of built-in types' parameters included.
    """
    picker, directory = read_picker(host, given, base, read)
    return replace(picker, warnings=(*picker.warnings, *check_data_layer(picker))), directory


def read_picker(host: HostConfig, given: Given, base: Path, read: Callable[[Path], str]) -> tuple[PickerConfig, Path]:
    """As `load_scheduling`, without a look at what its plugins are. Raises `InputError`."""
    path = given.picker_file or host.scheduling.file
    if given.picker_text is not None:
        return load_picker_config(given.picker_text, file="--config-text"), Path.cwd()
    if path is not None:
        return load_picker_config(read(path), file=str(path)), folder_of(path)
    return load_picker_config(host.scheduling.text or "", file=f"{given.config_file}#scheduling.text"), base


def check_data_layer(picker: PickerConfig, others: Collection[str] = ()) -> tuple[Problem, ...]:
    """Check what `dataLayer` refers to, and built-in types' parameters; return warnings. Raises `InputError`.

    `others` are further types that are known to have no part in it.
    """
    data = read_data_layer(picker, others={*SCHEDULING_TYPES, *others})
    check_listed(data.discovery)
    return data.warnings


@dataclass(frozen=True, slots=True)
class _Files:
    """Reads files and notes which, and with what content."""

    seen: dict[Path, str]
    may_be_blank: bool

    def text(self, path: Path) -> str:
        content = read_content(path)
        self.seen[path] = content.digest
        text = content.text(hint="check the file's name")
        if is_blank(text) and not self.may_be_blank:
            hint = "what it said before stays in force"
            raise InputError([Problem("EMPTY_CONFIG", "the file is empty now", Place(str(path)), hint=hint)])
        return text


def _with_options(host: HostConfig, given: Given, base: Path) -> HostConfig:
    """The configuration with the command line's options over it, checked as if they stood in the file."""
    lines = ["apiVersion: hotbay/v1alpha1", "kind: HostConfig"]
    if given.endpoints:
        lines += ["endpoints:", *(f"- {{url: {_quoted(url)}}}" for url in given.endpoints)]
    if given.listen is not None:
        lines.append(f"listen: {{http: {_quoted(given.listen)}}}")
    options = load_host_config(
        "\n".join(lines),
        file="command line",
        base_directory=base,
        # Where state goes by default is none of the options: an environment that does not tell is no problem of theirs.
        environment={},
        is_root=True,
    )
    changes: dict[str, object] = {}
    if given.endpoints:
        changes["endpoints"] = options.endpoints
    if given.listen is not None:
        changes["listen"] = options.listen
    if given.allow_experimental:
        changes["scheduling"] = host.scheduling.model_copy(update={"allow_experimental": True})
    logging_changes = {"level": given.log_level, "format": given.log_format}
    chosen = {key: value for key, value in logging_changes.items() if value is not None}
    if chosen:
        changes["logging"] = host.logging.model_copy(update=chosen)
    return host.model_copy(update=changes)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def log_warnings(loaded: Loaded) -> None:
    for warning in loaded.picker.warnings:
        logger.warning("configuration_warning: %s", warning)
