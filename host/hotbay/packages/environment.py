"""Builds the folder of installed wheels that a plugin process imports from.

    <environments>/<key>/site            the wheels, installed; read-only
    <environments>/<key>/record.json     the digest of `site`, written before the rename

The key is a digest over the wheels, the interpreter and the platform, so that packages with equal wheels share one
folder. It is built offline in a temporary folder beside it, from wheels of the store that were screened first,
under a time limit, and renamed when whole. Byte code is compiled now and trusted later (unchecked hashes), because
plugin processes never write any; so the tree is hashed again before each use, and a tree that changed is rebuilt.
A process without isolation can change it in any way: nothing that lies there may hold the look up or end it.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
from packaging.utils import parse_wheel_filename

from hotbay.errors import CapacityError, PackageError
from hotbay.packages.archive import screen_package, screen_wheel
from hotbay.packages.manifest import Manifest
from hotbay.packages.tools import ToolResult, run_tool, uv_binary
from hotbay.store.blobs import BlobStore, open_regular, write_durably
from hotbay.store.digests import Digest, digest_of

logger = logging.getLogger(__name__)

# numpy installs and compiles in some 3 s on one busy core; a package of the largest allowed size in some 30 s.
BUILD_TIMEOUT_S: Final = 120.0
_CLEANUP_TIMEOUT_S: Final = 10.0
_FORM: Final = 2
_TEMPORARY_PREFIX: Final = ".building-"
_RECORD_LIMIT_BYTES: Final = 4096

__all__ = ["BUILD_TIMEOUT_S", "build_environment", "environment_key", "sweep_environments", "tree_digest"]


async def build_environment(
    store: BlobStore,
    manifest: Manifest,
    interpreter: str,
    *,
    environments: Path | None = None,
    timeout_s: float = BUILD_TIMEOUT_S,
) -> Path:
    """Returns the `site` folder for the manifest's wheels, building it if it is not there or was changed.

    Calls may overlap; equal environments are built side by side and one of them stays. `environments` is by
    default the folder of that name beside the store's root.

    Raises:
        PackageError: FETCH_FAILED when a blob is not in the store, INVALID_PACKAGE when a wheel is refused.
        CapacityError: building took longer than `timeout_s`, or the disk is full.
    """
    root = environments or store.root.parent / "environments"
    key = await anyio.to_thread.run_sync(environment_key, manifest, interpreter)
    final = root / key
    if not await anyio.to_thread.run_sync(_is_intact, final):
        await _build(store, manifest, interpreter, final, timeout_s)
    return final / "site"


def environment_key(manifest: Manifest, interpreter: str) -> str:
    """Name of the environment's folder: 64 hex digits."""
    binary = Path(interpreter).resolve()
    found = binary.stat()
    content = {
        "form": _FORM,
        "interpreter": [str(binary), found.st_size, found.st_mtime_ns],
        "platform": manifest.platform,
        "wheels": sorted([blob.name, blob.digest] for blob in manifest.blobs),
    }
    return digest_of(json.dumps(content, sort_keys=True).encode()).removeprefix("sha256:")


def sweep_environments(environments: Path) -> int:
    """Removes what an interrupted build left; returns how many. Only while nobody builds: at a host's start."""
    left = list(environments.glob(f"{_TEMPORARY_PREFIX}*"))
    for folder in left:
        _remove(folder)
    return len(left)


async def _build(store: BlobStore, manifest: Manifest, interpreter: str, final: Path, timeout_s: float) -> None:
    temporary = await anyio.to_thread.run_sync(_prepare, store, manifest, final.parent)
    try:
        site = temporary / "environment" / "site"
        result = await run_tool(_install_command(interpreter, temporary, site), timeout_s=timeout_s)
        await anyio.to_thread.run_sync(_check, result, manifest, "install", temporary)
        result = await run_tool(_compile_command(interpreter, site), timeout_s=timeout_s)
        await anyio.to_thread.run_sync(_check, result, manifest, "compile", temporary)
        await anyio.to_thread.run_sync(_publish, temporary / "environment", final)
    finally:
        with anyio.move_on_after(_CLEANUP_TIMEOUT_S, shield=True):
            await anyio.to_thread.run_sync(_remove, temporary)
    logger.info("environment_built package=%s digest=%s path=%s", manifest.id, manifest.digest, final)


def _prepare(store: BlobStore, manifest: Manifest, root: Path) -> Path:
    """Screens the wheels and lays them out under their names, with a requirements file that names each by hash."""
    facts = []
    for blob in manifest.blobs:
        if not store.has(blob.digest, size=blob.size):
            raise PackageError("FETCH_FAILED", f"blob {blob.digest} ({blob.name}) is not in the store")
        facts.append(screen_wheel(store.path(blob.digest), blob.name))
    screen_package(facts)
    root.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=root))
    (temporary / "wheels").mkdir()
    lines = []
    for blob in manifest.blobs:
        (temporary / "wheels" / blob.name).symlink_to(store.path(blob.digest).resolve())
        name, version, _, _ = parse_wheel_filename(blob.name)
        lines.append(f"{name}=={version} --hash={blob.digest}\n")
    (temporary / "requirements.txt").write_text("".join(lines))
    return temporary


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


def _publish(environment: Path, final: Path) -> None:
    (environment / "site" / ".lock").unlink(missing_ok=True)
    for path in _below(environment / "site"):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)
    site = environment / "site"
    record = json.dumps({"bytes": _tree_bytes(site), "form": _FORM, "tree": tree_digest(site)}).encode()
    write_durably(environment / "record.json", record)
    if final.exists() and not _is_intact(final):
        damaged = Path(tempfile.mkdtemp(prefix=_TEMPORARY_PREFIX, dir=final.parent))
        final.rename(damaged / "old")
        _remove(damaged)
    try:
        environment.rename(final)
    except OSError:
        if not _is_intact(final):
            raise
        logger.debug("environment_built_elsewhere path=%s", final)


def _is_intact(final: Path) -> bool:
    try:
        with open_regular(final / "record.json") as opened:
            record = json.loads(opened.read(_RECORD_LIMIT_BYTES))
        # The sizes first: a file that was blown up to terabytes is not read to its end.
        site = final / "site"
        intact = bool(record["bytes"] == _tree_bytes(site) and record["tree"] == tree_digest(site))
    except (OSError, ValueError, KeyError, TypeError, PackageError):
        intact = False
    if not intact and final.exists():
        logger.error("environment_changed path=%s: it is built again", final)
    return intact


def tree_digest(root: Path) -> Digest:
    """Digest over every path below `root` with its kind and content. Modes and times do not count."""
    total = hashlib.sha256()
    for path in sorted(_below(root)):
        name = str(path.relative_to(root)).encode("utf-8", "surrogateescape")
        if path.is_symlink():
            content = b"link " + os.fsencode(path.readlink())
        elif path.is_dir():
            content = b"directory"
        elif path.is_file():
            content = b"file " + _file_digest(path)
        else:
            # Never opened: reading a named pipe would wait for a writer for ever.
            content = b"special"
        total.update(len(name).to_bytes(4, "big") + name + len(content).to_bytes(4, "big") + content)
    return Digest(f"sha256:{total.hexdigest()}")


def _tree_bytes(root: Path) -> int:
    return sum(path.lstat().st_size for path in _below(root) if not path.is_dir())


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _below(root: Path) -> Iterable[Path]:
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            yield Path(folder) / name


def _remove(folder: Path) -> None:
    """Removes a tree whose folders may be read-only."""
    for path in (folder, *_below(folder)):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
