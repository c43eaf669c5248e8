"""Packs a project at each save: as `hotbay pack` does at first, and after an edit of modules by exchanging their bytes.

A full build takes seconds, nearly all of them for starting tools. What a save usually changes is the text of modules that
the wheel holds as they lie in the project: then the wheel is the one before with these files exchanged, and its list of
hashes written anew. Any other change that a build may read (`pyproject.toml`, the lock, a file that comes or goes beside
the modules, a wheel that holds anything that is no copy of a file) is a full build. What is published is a package like any
other, under a revision of its own, which never falls. The project's folder is only read.
"""

import base64
import csv
import hashlib
import io
import shutil
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread
from packaging.utils import canonicalize_name, parse_wheel_filename

from hotbay.errors import PackageError
from hotbay.packages.layout import blob_path
from hotbay.packages.lock import LOCK_NAME
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.pack import pack
from hotbay.packages.project_copy import is_never_built
from hotbay.packages.project_folder import read_project
from hotbay.store.digests import Digest, digest_of

_INPUTS: Final = (
    "pyproject.toml",
    LOCK_NAME,
    "setup.py",
    "setup.cfg",
    "MANIFEST.in",
    "hatch_build.py",
    "CMakeLists.txt",
)
_SOURCE_FOLDERS: Final = ("", "src")
_KEPT: Final = 8
"""Wheels that stay: of what is live, what was before, and what is being brought up."""
_FIRST_DATE: Final = (1980, 1, 1, 0, 0, 0)

__all__ = ["Packed", "Workshop", "exchanged", "own_wheel", "with_fields"]


@dataclass(frozen=True, slots=True)
class Packed:
    """One version in the source. `files` are the author's files by their paths inside the wheel."""

    manifest: Manifest
    files: Mapping[str, Path]
    own: Path
    wheels: Mapping[Digest, Path]
    is_built: bool
    """Whether a whole build made it."""

    def sources(self) -> list[str]:
        """Texts of the modules, as they were packed. Blocks."""
        with zipfile.ZipFile(self.own) as wheel:
            return [wheel.read(name).decode("utf-8", "replace") for name in self.files if name.endswith(".py")]


@dataclass(frozen=True, slots=True)
class _Base:
    """The last full build: all wheels of it by name, what of the own wheel is a copy of what, and what else was looked at."""

    manifest: Manifest
    wheels: Mapping[str, Path]
    own: str
    copies: Mapping[str, Path]
    can_exchange: bool
    inputs: Mapping[str, bytes]


class Workshop:
    """See the module. Calls of `pack` do not overlap.

    Args:
        directory: the project.
        work: a folder of its own for what is built.
        wheels: the folder of the SDK's wheel; by default what comes with the host.
    """

    def __init__(self, directory: Path, work: Path, wheels: Path | None = None) -> None:
        self._directory = directory.resolve()
        self._work = work
        self._wheels = wheels
        self._base: _Base | None = None
        self._content: dict[str, bytes] = {}
        self._rev = 0
        self._made: list[Path] = []

    async def pack(self) -> Packed | None:
        """Make a package of the project as it lies there; None when nothing that it holds has changed.

        Raises:
            InputError: the project or its lock cannot be used.
            PackageError: a module does not parse, or the wheel could not be built.
        """
        self._rev = max(self._rev + 1, time.time_ns() // 10**6)
        changed = await anyio.to_thread.run_sync(self._changed)
        if changed is not None and not changed:
            return None
        if changed is None:
            self._base = None
            await self._build()
        base = self._base
        assert base is not None, "it was built"
        content = await anyio.to_thread.run_sync(partial(_read, base.copies))
        for name, data in content.items():
            _parse(data, base.copies[name])
        packed = await anyio.to_thread.run_sync(partial(self._make, base, content, is_built=changed is None))
        # Last: what failed is tried again as it is.
        self._content = content
        return packed

    # -- inside ----------------------------------------------------------------------------------

    def _changed(self) -> set[str] | None:
        """Copied files whose content is another one; None where only a build can tell what the wheel holds now."""
        base = self._base
        if base is None or not base.can_exchange or _inputs(self._directory, base.copies) != base.inputs:
            return None
        content = _read(base.copies)
        return {name for name in content if content[name] != self._content.get(name)}

    async def _build(self) -> None:
        layout = self._work / "built"
        inputs_of = partial(_inputs, self._directory)
        await anyio.to_thread.run_sync(partial(shutil.rmtree, layout, ignore_errors=True))
        manifest = await pack(self._directory, layout, rev=self._rev, wheel_directory=self._wheels)
        wheels = {blob.name: blob_path(layout, blob.digest) for blob in manifest.blobs}
        own = own_wheel(manifest, (await anyio.to_thread.run_sync(read_project, self._directory)).name)
        copies, can_exchange = await anyio.to_thread.run_sync(_copies, self._directory, wheels[own])
        inputs = await anyio.to_thread.run_sync(inputs_of, copies)
        self._base = _Base(manifest, wheels, own, copies, can_exchange, inputs)

    def _make(self, base: _Base, content: Mapping[str, bytes], *, is_built: bool) -> Packed:
        data = exchanged(base.wheels[base.own].read_bytes(), content)
        own = self._work / f"{self._rev}.whl"
        own.write_bytes(data)
        self._made.append(own)
        for old in self._made[:-_KEPT]:
            old.unlink(missing_ok=True)
        del self._made[:-_KEPT]
        blob = Blob(name=base.own, digest=digest_of(data), size=len(data))
        blobs = tuple(blob if each.name == base.own else each for each in base.manifest.blobs)
        manifest = with_fields(base.manifest, rev=self._rev, blobs=blobs)
        wheels = {each.digest: base.wheels[each.name] for each in blobs} | {blob.digest: own}
        return Packed(manifest, base.copies, own, wheels, is_built)


def exchanged(wheel: bytes, content: Mapping[str, bytes]) -> bytes:
    """The wheel with these files' content in the place of theirs, and with a RECORD that fits. Pure."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(wheel)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        rows = []
        infos = [info for info in old.infolist() if not info.is_dir()]
        record = next(info.filename for info in infos if info.filename.endswith(".dist-info/RECORD"))
        for info in infos:
            if info.filename == record:
                continue
            data = content.get(info.filename, None)
            data = old.read(info) if data is None else data
            fresh = zipfile.ZipInfo(info.filename, _FIRST_DATE)
            fresh.external_attr = info.external_attr
            new.writestr(fresh, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append((info.filename, f"sha256={digest}", str(len(data))))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
        new.writestr(zipfile.ZipInfo(record, _FIRST_DATE), text.getvalue())
    return out.getvalue()


def with_fields(manifest: Manifest, **fields: object) -> Manifest:
    """The manifest with other fields, checked as any, and with the digest that is its own. Pure."""
    return Manifest(**{**{name: getattr(manifest, name) for name in Manifest.model_fields}, **fields})


def own_wheel(manifest: Manifest, distribution: str) -> str:
    """The name of the wheel that was built from the project, `distribution` being its name. Pure."""
    wanted = canonicalize_name(distribution)
    return next(blob.name for blob in manifest.blobs if parse_wheel_filename(blob.name)[0] == wanted)


def _copies(directory: Path, wheel: Path) -> tuple[Mapping[str, Path], bool]:
    """The project's file for each path of the wheel that is a copy of it; and whether that is all that the wheel holds."""
    copies: dict[str, Path] = {}
    is_all = True
    with zipfile.ZipFile(wheel) as opened:
        for info in opened.infolist():
            if info.is_dir() or info.filename.split("/")[0].endswith(".dist-info"):
                continue
            data = opened.read(info)
            found = (directory / folder / info.filename for folder in _SOURCE_FOLDERS)
            source = next((path for path in found if path.is_file() and path.read_bytes() == data), None)
            if source is None:
                is_all = False
            else:
                copies[info.filename] = source
    return copies, is_all


def _inputs(directory: Path, copies: Mapping[str, Path]) -> Mapping[str, bytes]:
    """Digests of what a build reads beside the modules, and the names of all that lies beside them."""
    found = {}
    for name in _INPUTS:
        path = directory / name
        if path.is_file():
            found[name] = hashlib.sha256(path.read_bytes()).digest()
    tops = {path.relative_to(directory).parts[0] for path in copies.values()}
    for top in tops:
        for path in (directory / top).rglob("*") if (directory / top).is_dir() else ():
            beside = path.relative_to(directory)
            if path.is_file() and not is_never_built(beside):
                found[str(beside)] = b""
    return found


def _read(copies: Mapping[str, Path]) -> dict[str, bytes]:
    """A file that is gone is left out, and found missing among the inputs."""
    return {name: path.read_bytes() for name, path in copies.items() if path.is_file()}


def _parse(data: bytes, source: Path) -> None:
    """Raises `PackageError` for a module that does not parse: no process has to be started for that."""
    if source.suffix != ".py":
        return
    try:
        compile(data, str(source), "exec", dont_inherit=True)
    except SyntaxError as error:
        shown = f"{source}:{error.lineno}: {type(error).__name__}: {error.msg}"
        text = f'  File "{source}", line {error.lineno}\n    {(error.text or "").rstrip()}'
        raise PackageError("INVALID_PACKAGE", f"{shown}\n{text}", hint="Correct it, and save again.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise PackageError("INVALID_PACKAGE", f"{source}: {error!r}", hint="Correct it, and save again.") from error
