"""Makes a package or a project runnable: a folder to import from, an entry point, and the types that it must provide.

A project runs as it lies there: its folder is on the path beside the wheels of its lock and the SDK's, so that an edit
shows at the next call. A package is what a host would run: its verified wheels, installed offline.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio.to_thread

from hotbay.config.wording import nearest
from hotbay.errors import InputError, PackageError, Place, Problem
from hotbay.packages.environment import Environments
from hotbay.packages.layout import blob_path, read_layout
from hotbay.packages.lock import LOCK_NAME, lock_hint
from hotbay.packages.manifest import Manifest, host_platform
from hotbay.packages.project_folder import read_project, sdk_wheel
from hotbay.packages.tools import run_tool, uv_binary
from hotbay.process.launch import STAGE0, LaunchSpec

INSTALL_TIMEOUT_S: Final = 300.0
"""A first installation fetches wheels over slow links."""
_SOURCE_FOLDERS: Final = ("", "src")

__all__ = ["Runnable", "make_runnable"]


@dataclass(frozen=True, slots=True)
class Runnable:
    """What can be started: `types` are those that it must declare."""

    plugin_id: str
    version: str
    rev: int
    digest: str
    types: tuple[str, ...]
    entrypoint: str
    site: Path

    def spec(self, working_directory: Path) -> LaunchSpec:
        """How its process starts."""
        return LaunchSpec(
            interpreter=sys.executable,
            stage0=STAGE0,
            environment=str(self.site),
            entrypoint=self.entrypoint,
            working_directory=str(working_directory),
            level="none",
            label=f"{self.plugin_id}#1",
        )


async def make_runnable(
    package: Path, work: Path, *, type_name: str | None = None, wheels: Path | None = None
) -> Runnable:
    """Prepare `package`, a package folder or a project's folder; everything that is made lies below `work`.

    Raises:
        InputError: it is neither, its project or lock cannot be used, or it does not provide `type_name`.
        PackageError: its wheels are refused, or cannot be fetched.
        CapacityError: installing took too long, or the disk is full.
    """
    if (package / "oci-layout").exists():
        return await _from_layout(package, work, type_name)
    if (package / "pyproject.toml").exists():
        return await _from_project(package, work, type_name, wheels)
    hint = "Name a folder that `hotbay pack` wrote, or one with a plugin's pyproject.toml."
    raise InputError([Problem("CONFIG_INVALID", "is neither a package nor a project", Place(str(package)), hint=hint)])


async def _from_layout(package: Path, work: Path, type_name: str | None) -> Runnable:
    manifests = await anyio.to_thread.run_sync(read_layout, package)
    manifest = _for_this_host(manifests, package)
    _check_provides(manifest.id, manifest.types, type_name)
    environments = Environments(work / "environments")
    built = await environments.build(manifest, sys.executable, lambda digest: blob_path(package, digest))
    return Runnable(
        manifest.id,
        manifest.version,
        manifest.rev,
        manifest.digest,
        manifest.types,
        manifest.entrypoint,
        built.site,
    )


def _check_provides(plugin_id: str, types: Sequence[str], type_name: str | None) -> None:
    """Before anything is installed, which takes seconds."""
    if type_name is None or type_name in types:
        return
    near = nearest(type_name, types)
    hint = f"Did you mean {near}?" if near else f"It provides {', '.join(types)}."
    raise InputError([Problem("UNKNOWN_TYPE", f"{plugin_id} provides no type {type_name}", hint=hint)])


def _for_this_host(manifests: tuple[Manifest, ...], package: Path) -> Manifest:
    here = host_platform()
    fitting = [manifest for manifest in manifests if manifest.platform == here]
    if not fitting:
        found = ", ".join(sorted({manifest.platform for manifest in manifests}))
        raise PackageError(
            "INVALID_PACKAGE",
            f"{package} holds builds for {found}, this is {here}",
            hint="Pack the plugin on this platform.",
        )
    return max(fitting, key=lambda manifest: manifest.rev)


async def _from_project(package: Path, work: Path, type_name: str | None, wheels: Path | None) -> Runnable:
    project = await anyio.to_thread.run_sync(read_project, package)
    _check_provides(project.id, project.types, type_name)
    lock = package / LOCK_NAME
    if not lock.is_file():
        raise InputError([Problem("CONFIG_INVALID", "is missing", Place(str(lock)), hint=lock_hint(lock))])
    site = work / "site"
    sdk = sdk_wheel(wheels)
    await _install(site, "--require-hashes", "--requirement", str(lock))
    await _install(site, "--offline", "--no-deps", str(sdk))
    await anyio.to_thread.run_sync(_link_sources, package, site)
    return Runnable(project.id, project.version, 0, "", project.types, project.entrypoint, site)


def _link_sources(package: Path, site: Path) -> None:
    folders = [package.resolve() / name for name in _SOURCE_FOLDERS]
    (site / "_hotbay_project.pth").write_text("".join(f"{folder}\n" for folder in folders if folder.is_dir()))


async def _install(site: Path, *what: str) -> None:
    command = [
        uv_binary(), "pip", "install", "--no-config", "--only-binary", ":all:", "--link-mode", "copy", "--no-progress",
        "--quiet", "--no-python-downloads", "--python", sys.executable, "--target", str(site), *what,
    ]  # fmt: skip
    result = await run_tool(command, timeout_s=INSTALL_TIMEOUT_S)
    if result.code:
        raise PackageError(
            "FETCH_FAILED",
            f"the wheels of the lock cannot be installed:\n{result.excerpt}",
            hint="See that the package index can be reached, or make the lock again with `hotbay deps`.",
        )
