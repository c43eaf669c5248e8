"""The steps that turn wheels into an environment's folder: screen, install, compile, seal. See `environment`.

Tools run offline, bounded in time. Byte code is compiled now and trusted later (unchecked hashes), because plugin
processes never write any. What is sealed holds every file of every wheel: whoever took some away meanwhile is no fault of
the package, and makes no environment.
"""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from packaging.utils import parse_wheel_filename

from hotbay.errors import CapacityError, PackageError
from hotbay.packages.archive import installed_files, screen_package, screen_wheel
from hotbay.packages.building import TEMPORARY_PREFIX, own_folder
from hotbay.packages.manifest import Manifest
from hotbay.packages.tools import ToolResult, run_tool, uv_binary
from hotbay.packages.tree import make_read_only, remove_tree, tree_bytes, tree_digest
from hotbay.store.digests import Digest
from hotbay.store.files import write_durably

FORM: Final = 2
_CLEANUP_TIMEOUT_S: Final = 10.0

WheelPath = Callable[[Digest], Path]
"""Where a wheel's file is."""

CheckRoom = Callable[[int], None]
"""Raises `CapacityError` when so many bytes more do not fit. Blocks."""

__all__ = ["FORM", "CheckRoom", "WheelPath", "build", "move_aside"]


async def build(
    manifest: Manifest,
    interpreter: str,
    wheel: WheelPath,
    final: Path,
    *,
    is_intact: Callable[[], bool],
    timeout_s: float,
    check_room: CheckRoom = lambda _bytes: None,
) -> None:
    """Builds beside `final` and renames; what stands there and is not intact goes. Safe to cancel and to overlap.

    `check_room` is asked before anything is unpacked.

    Raises:
        PackageError: FETCH_FAILED when a wheel is not there, INVALID_PACKAGE when one is refused.
        CapacityError: a tool took longer than `timeout_s`, the disk is full, somebody removed what was built, or what
            `check_room` raises.
    """
    files, size_bytes = await anyio.to_thread.run_sync(_screen, manifest, wheel)
    await anyio.to_thread.run_sync(check_room, size_bytes)
    temporary, owner = await anyio.to_thread.run_sync(_own, final.parent)
    try:
        await anyio.to_thread.run_sync(_lay_out, manifest, wheel, temporary)
        site = temporary / "environment" / "site"
        result = await run_tool(_install_command(interpreter, temporary, site), timeout_s=timeout_s)
        await anyio.to_thread.run_sync(_check, result, manifest, "install", temporary)
        result = await run_tool(_compile_command(interpreter, site), timeout_s=timeout_s)
        await anyio.to_thread.run_sync(_check, result, manifest, "compile", temporary)
        await anyio.to_thread.run_sync(_publish, temporary / "environment", final, files, is_intact)
    finally:
        with anyio.move_on_after(_CLEANUP_TIMEOUT_S, shield=True):
            await anyio.to_thread.run_sync(remove_tree, temporary)
        os.close(owner)


def move_aside(final: Path) -> Path:
    """Under its name an environment is there whole or not at all: takes that name away; returns the folder that is to be removed."""
    aside = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=final.parent))
    final.rename(aside / "old")
    return aside


def _own(root: Path) -> tuple[Path, int]:
    root.mkdir(parents=True, exist_ok=True)
    return own_folder(root)


def _screen(manifest: Manifest, wheel: WheelPath) -> tuple[frozenset[str], int]:
    """Screens the wheels; returns the paths of what they install, relative to the site, and its bytes."""
    facts = []
    for blob in manifest.blobs:
        path = wheel(blob.digest)
        if not path.is_file() or path.stat().st_size != blob.size:
            raise PackageError(
                "FETCH_FAILED",
                f"blob {blob.digest} ({blob.name}) is not in the store",
                details={"digest": blob.digest, "retryable": True},
            )
        facts.append(screen_wheel(path, blob.name))
    screen_package(facts)
    return installed_files(facts), sum(each.installed_bytes for each in facts)


def _lay_out(manifest: Manifest, wheel: WheelPath, temporary: Path) -> None:
    """Lays the wheels out under their names, with a requirements file that names each by hash."""
    (temporary / "wheels").mkdir()
    lines = []
    for blob in manifest.blobs:
        (temporary / "wheels" / blob.name).symlink_to(wheel(blob.digest).resolve())
        name, version, _, _ = parse_wheel_filename(blob.name)
        lines.append(f"{name}=={version} --hash={blob.digest}\n")
    (temporary / "requirements.txt").write_text("".join(lines))


def _install_command(interpreter: str, temporary: Path, site: Path) -> list[str]:
    """Copies, never links: an environment must not share files with a cache or with another environment."""
    return [
        uv_binary(), "pip", "install", "--offline", "--no-index", "--no-deps", "--require-hashes", "--no-config",
        "--only-binary", ":all:", "--no-cache", "--link-mode", "copy", "--no-progress", "--quiet", "--no-python-downloads",
        "--python", interpreter, "--target", str(site), "--find-links", str(temporary / "wheels"),
        "--requirements", str(temporary / "requirements.txt"),
    ]  # fmt: skip


def _compile_command(interpreter: str, site: Path) -> list[str]:
    """Test suites inside wheels are left out: half of numpy's files, imported by nobody here.

    `-q -q` and the tolerated exit status 1: some wheels carry templates with the suffix .py that do not compile.
    """
    return [
        interpreter, "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash",
        "-x", r"[/\\]tests?[/\\]", str(site),
    ]  # fmt: skip


def _check(result: ToolResult, manifest: Manifest, step: str, temporary: Path) -> None:
    if result.code == 0 or (step == "compile" and result.code == 1):
        return
    if not all((temporary / "wheels" / blob.name).exists() for blob in manifest.blobs):
        raise _removed_meanwhile(temporary, "wheels")
    if not _has_room(temporary):
        raise CapacityError(
            "RESOURCE_EXHAUSTED",
            f"no room below {temporary.parent} to {step} the wheels of {manifest.id} rev {manifest.rev}",
            hint="Free space on that file system; it is tried again by itself.",
            details={"digest": manifest.digest, "step": step},
        )
    raise PackageError(
        "INVALID_PACKAGE",
        f"{manifest.id} {manifest.version} (rev {manifest.rev}): its wheels do not {step}:\n{result.last_lines}",
        hint="The wheels do not fit this interpreter or each other; the publisher has to build the package again.",
        details={"digest": manifest.digest, "step": step},
    )


def _has_room(temporary: Path) -> bool:
    """Asked after a tool failed, with what it wrote still there: its exit status does not tell a full disk."""
    size = 1
    for path in (temporary / "wheels").iterdir():
        with zipfile.ZipFile(path) as wheel:
            size += sum(info.file_size for info in wheel.infolist())
    with tempfile.TemporaryFile(dir=temporary) as probe:
        try:
            os.posix_fallocate(probe.fileno(), 0, size)
        except OSError:
            return False
    return True


def _publish(environment: Path, final: Path, files: frozenset[str], is_intact: Callable[[], bool]) -> None:
    site = environment / "site"
    (site / ".lock").unlink(missing_ok=True)
    make_read_only(site)
    record = json.dumps({"bytes": tree_bytes(site), "form": FORM, "tree": tree_digest(site)}).encode()
    # After the digest: what is here now was here when it was taken.
    missing = next((name for name in sorted(files) if not (site / name).exists()), None)
    if missing is not None:
        raise _removed_meanwhile(site, missing)
    write_durably(environment / "record.json", record)
    if final.exists() and not is_intact():
        final.rename(environment.parent / "replaced")
    try:
        environment.rename(final)
    except OSError:
        # Another builder of equal content came first; it stays if it is whole.
        if not is_intact():
            raise


def _removed_meanwhile(folder: Path, name: str) -> CapacityError:
    return CapacityError(
        "UNAVAILABLE",
        f"somebody removed {name} from {folder} while it was built",
        hint="let nobody else write the state directory; it is tried again by itself",
    )
