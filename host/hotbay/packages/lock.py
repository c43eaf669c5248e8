"""`hotbay deps`: writes a plugin's requirements.lock, with the versions and hashes of all that it needs beside the SDK.

The lock names distributions and hashes, no index and no folder, so that it says the same anywhere. It is replaced as a
whole, or not at all; versions in it stay as they are while they satisfy the project.
"""

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from hotbay.errors import InputError, PackageError, Place, Problem
from hotbay.packages.project_copy import copy_project
from hotbay.packages.project_folder import SDK, read_project, sdk_wheel
from hotbay.packages.tools import run_tool, uv_binary

LOCK_NAME: Final = "requirements.lock"
# A first resolution reads the metadata of every version that may fit, over slow links.
_RESOLVE_TIMEOUT_S: Final = 300.0

__all__ = ["LOCK_NAME", "lock", "lock_command", "lock_hint"]


def lock_hint(file: Path) -> str:
    """How to make the lock `file`."""
    return f"Make it with `hotbay deps {file.parent}`."


def lock_command(directory: Path, wheel_directory: Path | None = None, *, upgrade: bool = False) -> Path:
    """`lock` for callers without an event loop."""
    return anyio.run(partial(lock, directory, wheel_directory=wheel_directory, upgrade=upgrade))


async def lock(directory: Path, *, wheel_directory: Path | None = None, upgrade: bool = False) -> Path:
    """Resolves the project's dependencies for this Python and platform; returns the file that it wrote.

    The SDK itself is left out: `pack` adds the wheel of this host. With `upgrade` nothing of an older lock is kept.

    Raises:
        InputError: the project cannot be used, or there is no wheel of the SDK.
        PackageError: no set of versions satisfies it, or the index does not answer.
    """
    read_project(directory)
    sdk = sdk_wheel(wheel_directory)
    file = directory / LOCK_NAME
    with tempfile.TemporaryDirectory(prefix="hotbay-lock-") as temporary:
        copy = await anyio.to_thread.run_sync(partial(copy_project, directory, Path(temporary)))
        # An index may hold something of the SDK's name: only the wheel that `pack` will add counts.
        constraint = Path(temporary) / "constraint.txt"
        constraint.write_text(f"{SDK} @ {sdk.resolve().as_uri()}\n")
        command = [
            uv_binary(), "pip", "compile", str(copy / "pyproject.toml"), "--generate-hashes", "--no-header",
            "--no-annotate", "--no-emit-package", SDK, "--only-binary", ":all:", "--constraint", str(constraint),
            "--python", sys.executable, "--no-progress", "--quiet", "--output-file", str(copy / LOCK_NAME),
            *(["--upgrade"] if upgrade else []),
        ]  # fmt: skip
        result = await run_tool(command, timeout_s=_RESOLVE_TIMEOUT_S)
        if result.code:
            raise PackageError(
                "FETCH_FAILED",
                f"{directory / 'pyproject.toml'}: its dependencies cannot be resolved:\n"
                + result.excerpt.replace(str(copy), str(directory)),
                hint="Correct [project] dependencies, or see that the package index can be reached.",
            )
        await anyio.to_thread.run_sync(_publish, copy / LOCK_NAME, file)
    return file


def _publish(made: Path, file: Path) -> None:
    aside = file.with_name(f".{file.name}.part")
    try:
        shutil.copyfile(made, aside)
        aside.replace(file)
    except OSError as error:
        aside.unlink(missing_ok=True)
        hint = "The lock is written into the project's folder."
        raise InputError(
            [Problem("CONFIG_INVALID", error.strerror or "cannot be written", Place(str(file)), hint=hint)]
        ) from error
