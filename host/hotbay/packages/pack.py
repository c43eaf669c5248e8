"""`hotbay pack`: builds a plugin's project into a package folder.

Reads the project, builds the wheel of a copy of it with uv, gathers the wheels of its hashed `requirements.lock` and
the SDK's wheel, screens them all as a host will, and writes an OCI image layout. The project's folder is only read.
Reproducible: equal sources, lock, rev and build backend give equal bytes, wherever and whenever it runs. May use the
package index; nothing that a host does later may.
"""

import logging
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from hotbay_sdk.protocol import PROTOCOL_VERSION
from packaging.utils import canonicalize_name

from hotbay.errors import InputError, PackageError, Place, Problem
from hotbay.packages.archive import WheelFacts, screen_package, screen_wheel
from hotbay.packages.layout import FileDigests, write_layout
from hotbay.packages.lock import LOCK_NAME, lock_hint
from hotbay.packages.manifest import Blob, Channel, Manifest, ProtocolRange, host_platform
from hotbay.packages.project import PluginProject
from hotbay.packages.project_copy import copy_project
from hotbay.packages.project_folder import SDK, read_project, sdk_wheel
from hotbay.packages.tools import run_tool, uv_binary

logger = logging.getLogger(__name__)

# 2025-01-01T00:00:00Z: the date inside every built wheel, and the origin of default revisions.
_ORIGIN_S: Final = 1_735_689_600
# First builds fetch a build backend and wheels of some 20 MB over slow links.
_BUILD_TIMEOUT_S: Final = 300.0

__all__ = ["pack", "pack_command"]


def pack_command(directory: Path, out: Path, rev: int | None = None, wheel_directory: Path | None = None) -> Manifest:
    """`pack` for callers without an event loop."""

    async def run() -> Manifest:
        return await pack(directory, out, rev=rev, wheel_directory=wheel_directory)

    return anyio.run(run)


async def pack(directory: Path, out: Path, *, rev: int | None = None, wheel_directory: Path | None = None) -> Manifest:
    """Builds the plugin project in `directory` into the package folder `out`, which is replaced.

    `wheel_directory` holds the SDK's wheel; default is what comes with the host.

    Raises:
        InputError: the project or its lock cannot be used; every problem has file and line.
        PackageError: a wheel could not be built, fetched, or is refused.
    """
    project = read_project(directory)
    lock = directory / LOCK_NAME
    _check_lock(lock)
    chosen_rev = _choose_rev(directory, project, rev)
    sdk = sdk_wheel(wheel_directory)
    with tempfile.TemporaryDirectory(prefix="hotbay-pack-") as temporary:
        wheels = Path(temporary) / "wheels"
        wheels.mkdir()
        copy = await anyio.to_thread.run_sync(partial(copy_project, directory, Path(temporary) / "project", out=out))
        await _fetch_locked(lock, wheels)
        own = await _build_wheel(directory, copy, Path(temporary) / "own")
        for wheel in (own, sdk):
            shutil.copyfile(wheel, wheels / wheel.name)
        return await anyio.to_thread.run_sync(_write, directory, project, chosen_rev, own.name, wheels, out)


def _check_lock(lock: Path) -> None:
    if not lock.is_file():
        raise InputError([Problem("CONFIG_INVALID", "is missing", Place(str(lock)), hint=lock_hint(lock))])
    if line := _locked_names(lock).get(SDK):
        hint = "The SDK's wheel comes from the wheel directory; leave it out of the lock."
        raise InputError([Problem("CONFIG_INVALID", f"names {SDK}", Place(str(lock), line), hint=hint)])


def _locked_names(lock: Path) -> dict[str, int]:
    """Maps each distribution that the lock names to its line. Indented lines and options carry hashes, not names."""
    starts = ((number, re.match(r"[A-Za-z0-9._-]+", line)) for number, line in enumerate(_lines(lock), start=1))
    return {canonicalize_name(start[0]): number for number, start in starts if start and start[0][0] != "-"}


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8", errors="replace").splitlines()


def _choose_rev(directory: Path, project: PluginProject, rev: int | None) -> int:
    if rev is not None and not 0 <= rev < 2**64:
        raise InputError([Problem("CONFIG_INVALID", f"rev must be 0 to 2^64-1, is {rev}")])
    if rev is not None:
        return rev
    if project.channel is Channel.RELEASE:
        place = Place(str(directory / "pyproject.toml"))
        hint = "Give --rev N, larger than the last one you published."
        raise InputError([Problem("CONFIG_INVALID", "a release needs a revision", place, hint=hint)])
    return time.time_ns() // 10**9 - _ORIGIN_S


async def _build_wheel(directory: Path, copy: Path, out: Path) -> Path:
    command = [
        uv_binary(), "build", "--wheel", "--no-create-gitignore", "--no-progress", "--python", sys.executable,
        "--out-dir", str(out), str(copy),
    ]  # fmt: skip
    result = await run_tool(command, timeout_s=_BUILD_TIMEOUT_S, variables={"SOURCE_DATE_EPOCH": str(_ORIGIN_S)})
    built = await anyio.to_thread.run_sync(_wheels_in, out)
    if result.code or len(built) != 1:
        raise PackageError(
            "INVALID_PACKAGE",
            f"{directory}: the wheel was not built:\n{result.excerpt.replace(str(copy), str(directory))}",
            hint=f"`uv build --wheel {directory}` shows the whole output.",
        )
    return built[0]


def _wheels_in(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.whl"))


async def _fetch_locked(lock: Path, out: Path) -> None:
    """Puts the locked wheels into `out`. uv has no command that only downloads wheels, so pip does it."""
    if not await anyio.to_thread.run_sync(_locked_names, lock):
        return
    if find_spec("pip") is None:
        raise PackageError(
            "FETCH_FAILED",
            f"{sys.executable} has no pip, which fetches the locked wheels",
            hint=f"Run `{uv_binary()} pip install --python {sys.executable} pip`.",
        )
    command = [
        sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--quiet", "--no-deps",
        "--require-hashes", "--only-binary", ":all:", "--dest", str(out), "--requirement", str(lock),
    ]  # fmt: skip
    result = await run_tool(command, timeout_s=_BUILD_TIMEOUT_S)
    if result.code:
        raise PackageError(
            "FETCH_FAILED", f"{lock}: the locked wheels were not fetched:\n{result.excerpt}", hint=lock_hint(lock)
        )


def _write(directory: Path, project: PluginProject, rev: int, own: str, wheels: Path, out: Path) -> Manifest:
    names = [wheel.name for wheel in _wheels_in(wheels)]
    facts = [screen_wheel(wheels / name, name) for name in names]
    screen_package(facts)
    _check_entrypoint(directory, project, next(fact for fact in facts if fact.filename == own))
    _check_requirements(directory / LOCK_NAME, facts)
    manifest = Manifest(
        id=project.id,
        publisher=project.publisher,
        rev=rev,
        version=project.version,
        platform=host_platform(),
        entrypoint=project.entrypoint,
        types=project.types,
        protocol=ProtocolRange(first=PROTOCOL_VERSION, last=PROTOCOL_VERSION),
        blobs=tuple(_blob(wheels / name) for name in names),
        capabilities=project.capabilities,
        one_shot=project.one_shot,
        data_types=project.data_types,
        type_facts=project.type_facts,
        channel=project.channel,
        description=project.description,
        license=project.license,
    )
    write_layout(out, manifest, {name: wheels / name for name in names})
    logger.info("packed id=%s rev=%s digest=%s out=%s", manifest.id, rev, manifest.digest, out)
    return manifest


def _blob(wheel: Path) -> Blob:
    size = wheel.stat().st_size
    digest = FileDigests().of(wheel, size)
    assert digest is not None, "nobody else writes to the temporary folder"
    return Blob(name=wheel.name, digest=digest, size=size)


def _check_entrypoint(directory: Path, project: PluginProject, own: WheelFacts) -> None:
    module = project.entrypoint.partition(":")[0]
    if not own.has_module(module):
        place = Place(str(directory / "pyproject.toml"))
        hint = "Check the build backend's list of packages."
        message = f"{own.filename} holds no module {module}"
        raise InputError([Problem("CONFIG_INVALID", message, place, "tool.hotbay.entrypoint", hint=hint)])


def _check_requirements(lock: Path, facts: Sequence[WheelFacts]) -> None:
    """Every dependency that applies here must be among the wheels: a host installs without looking for more."""
    versions = {fact.distribution: fact.version for fact in facts}
    problems = []
    for fact in facts:
        for need in fact.requires:
            if need.marker is not None and not need.marker.evaluate({"extra": ""}):
                continue
            found = versions.get(canonicalize_name(need.name))
            if found is None or not need.specifier.contains(found, prereleases=True):
                problems.append(
                    Problem(
                        "CONFIG_INVALID",
                        f"{fact.distribution} needs {need.name}",
                        Place(str(lock)),
                        expected=f"{need.name}{need.specifier}",
                        found=str(found) if found else "nothing",
                        hint=lock_hint(lock),
                    )
                )
    if problems:
        raise InputError(problems)
