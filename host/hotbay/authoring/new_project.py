"""Writes a plugin's first project: whole and under its name, or not at all."""

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hotbay.authoring.scaffold import Names, names_of, project_files
from hotbay.errors import HostError, InputError, Place, Problem
from hotbay.packages.lock import lock_command

__all__ = ["Created", "create_project"]


@dataclass(frozen=True, slots=True)
class Created:
    """A project that was written. `not_locked` says why it has no requirements.lock yet."""

    names: Names
    directory: Path
    not_locked: HostError | None = None


def create_project(
    name: str, point: str, *, into: Path, publisher: str, wheels: Path | None = None, locked: bool = True
) -> Created:
    """Write the project `into/NAME`; with `locked`, resolve its dependencies, which may use the package index.

    A lock that cannot be made leaves the project without one, and the reason in the result.

    Raises:
        InputError: INVALID_NAME, or the folder is there already, or cannot be written.
    """
    names = names_of(name, point)
    files = project_files(names, point, publisher=publisher)
    directory = into / names.id
    _write(directory, files)
    if not locked:
        return Created(names, directory)
    try:
        lock_command(directory, wheels)
    except HostError as error:
        return Created(names, directory, error)
    return Created(names, directory)


def _write(directory: Path, files: Mapping[str, str]) -> None:
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        hint = "Choose another name, or another folder with --into."
        raise InputError([Problem("CONFIG_INVALID", "is there already", Place(str(directory)), hint=hint)])
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            for path, text in files.items():
                target = aside / "new" / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            (aside / "new").replace(directory)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        hint = "The project's folder is made below --into, by default the current folder."
        message = f"cannot be written: {error.strerror or error}"
        raise InputError([Problem("CONFIG_INVALID", message, Place(str(directory)), hint=hint)]) from error
