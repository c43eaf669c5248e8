"""A plugin's project without what building it left behind: build backends write beside the sources, and reuse it.

The author's folder is only read. Left out are version control, environments, caches, results of earlier builds and
package folders, wherever the last ones were written to.
"""

import os
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Final

from hotbay.errors import InputError, Place, Problem

_NEVER: Final = (
    ".git", ".hg", ".svn", ".jj", "__pycache__", "*.egg-info", "*.pyc", "node_modules",
    ".hypothesis", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".tox",
)  # fmt: skip
# Deeper in the tree these are names like any other.
_NEVER_AT_THE_TOP: Final = ("build", "dist")

__all__ = ["copy_project", "is_never_built"]


def is_never_built(path: PurePath) -> bool:
    """Whether no build reads a file of a project, `path` being relative to it, wherever it lies."""
    return any(fnmatch(part, pattern) for part in path.parts for pattern in _NEVER)


def copy_project(directory: Path, to: Path, *, out: Path | None = None) -> Path:
    """Copies what a build may read into a folder of the same name inside `to`, and returns it. Blocks.

    Raises InputError when `out`, which is about to be replaced, holds the project, or when the project cannot be read.
    """
    source = directory.resolve()
    written = out.resolve() if out is not None else None
    if written is not None and written in (source, *source.parents):
        hint = "Name a folder for the package alone."
        problem = Problem("CONFIG_INVALID", "the package would replace the project", Place(str(out)), hint=hint)
        raise InputError([problem])

    def left_out(folder: str, names: Sequence[str]) -> set[str]:
        return {name for name in names if _is_left_out(source, Path(folder), name, written)}

    target = to / (source.name or "project")
    try:
        shutil.copytree(source, target, ignore=left_out, ignore_dangling_symlinks=True)
    except OSError as error:
        # copytree collects what it could not copy: its arguments are triples of from, to and why.
        first = error.args[0][0] if isinstance(error, shutil.Error) else (error.filename, "", error.strerror)
        hint = "Everything that the build may need must be readable."
        raise InputError(
            [Problem("CONFIG_INVALID", f"cannot be copied: {first[2]}", Place(str(first[0])), hint=hint)]
        ) from error
    return target


def _is_left_out(source: Path, folder: Path, name: str, written: Path | None) -> bool:
    path = folder / name
    if any(fnmatch(name, pattern) for pattern in _NEVER):
        return True
    if not path.is_dir():
        # Pipes and sockets would be waited for.
        return path.exists() and not path.is_file()
    if folder == source and name in _NEVER_AT_THE_TOP and not (path / "__init__.py").exists():
        return True
    if (path / "pyvenv.cfg").exists() or (path / "oci-layout").exists():
        return True
    # A link to a folder above itself would be copied into itself.
    real = Path(os.path.realpath(path))
    return real == written or (path.is_symlink() and real in (folder.resolve(), *folder.resolve().parents))
