"""Screens wheels before anything is unpacked. Reads the given file; decides; repairs nothing.

A wheel is refused, with the name of the entry, for: a path that is absolute or leaves the root, a symlink or special
file, encryption, two names that are equal on some file system (case, Unicode form), a file that is a folder too, `.pth`
files and `sitecustomize` (they run at the start of the interpreter), a module of the standard library, files that
RECORD does not list or lists with another hash, `.data` other than scripts and data, and size or ratio over the limits.
Limits hold for bytes actually unpacked, not for what the headers say. Across the wheels of one package: a file from two
wheels, a distribution twice, and `hotbay_sdk` from any distribution but hotbay-sdk are refused.
"""

import base64
import csv
import hashlib
import io
import stat
import struct
import sys
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.parser import BytesHeaderParser
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from hotbay.errors import PackageError

_CHUNK_BYTES: Final = 1 << 20
_METADATA_LIMIT_BYTES: Final = 4 << 20
# Small files of zeros legitimately compress beyond any ratio.
_RATIO_FREE_BYTES: Final = 1 << 20
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_RUNS_AT_START: Final = ("sitecustomize", "usercustomize")
_SDK_MODULE: Final = "hotbay_sdk"
_SDK_DISTRIBUTION: Final = "hotbay-sdk"
_SCHEMES: Final = ("scripts", "data")
_ENCRYPTED: Final = 0x1
# The record at the end of an archive: where the table of entries is, and how long. A 64-bit archive has a locator before.
_END: Final = struct.Struct("<4s4H2LH")
_LOCATOR_BYTES: Final = 20
# Of the table, for each entry that is allowed: its fixed part and a path of usual length.
_ENTRY_BYTES: Final = 256

__all__ = ["ArchiveLimits", "WheelFacts", "installed_files", "screen_package", "screen_wheel"]


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Bounds of one wheel. The largest in wide use (accelerator builds excluded) unpack to some 300 MB."""

    entries: int = 50_000
    unpacked_bytes: int = 1 << 30
    ratio: int = 200


@dataclass(frozen=True, slots=True)
class WheelFacts:
    """What screening learnt about a wheel. `installed_bytes`: of its files, and of byte code, which is as large as its source."""

    filename: str
    distribution: str
    version: Version
    files: frozenset[str]
    requires: tuple[Requirement, ...] = field(default=())
    installed_bytes: int = 0

    def has_module(self, module: str) -> bool:
        """Whether the wheel holds this dotted module or package."""
        path = module.replace(".", "/")
        return any(
            name == f"{path}.py" or name.startswith((f"{path}/", f"{path}.cpython-", f"{path}.abi3."))
            for name in self.files
        )


def screen_wheel(path: Path, filename: str, *, limits: ArchiveLimits | None = None) -> WheelFacts:
    """Reads the whole wheel at `path`, known as `filename`. Raises PackageError INVALID_PACKAGE."""
    limits = limits or ArchiveLimits()
    name, version, _, _ = parse_wheel_filename(filename)
    try:
        _check_directory(path, filename, limits)
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            _check_names(filename, infos)
            files = [info for info in infos if not info.is_dir()]
            info_directory = _info_directory(filename, files, name)
            record = _read_record(archive, filename, f"{info_directory}/RECORD")
            _check_contents(archive, filename, files, record, limits)
            metadata = _read_small(archive, filename, f"{info_directory}/METADATA")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise _refused(filename, "", f"no readable zip archive: {error}") from error
    if not record.keys() <= {info.filename for info in files}:
        missing = min(record.keys() - {info.filename for info in files})
        raise _refused(filename, missing, "RECORD lists it, the archive does not hold it")
    # The contents were checked against these sizes.
    size = sum(info.file_size * (2 if info.filename.endswith(".py") else 1) for info in files)
    return WheelFacts(
        filename, name, version, frozenset(i.filename for i in files), _requires(filename, metadata), size
    )


def screen_package(wheels: Iterable[WheelFacts]) -> None:
    """Checks the wheels of one package against each other. Raises PackageError INVALID_PACKAGE."""
    owners: dict[str, str] = {}
    distributions: dict[str, str] = {}
    for wheel in wheels:
        if first := distributions.get(wheel.distribution):
            raise _refused(wheel.filename, "", f"{first} is the same distribution")
        distributions[wheel.distribution] = wheel.filename
        for name in sorted(_installed(file) for file in wheel.files):
            if _top(name) == _SDK_MODULE and wheel.distribution != _SDK_DISTRIBUTION:
                raise _refused(wheel.filename, name, f"only {_SDK_DISTRIBUTION} may bring {_SDK_MODULE}")
            if owner := owners.get(_folded(name)):
                raise _refused(wheel.filename, name, f"{owner} brings it too")
            owners[_folded(name)] = wheel.filename


def installed_files(wheels: Iterable[WheelFacts]) -> frozenset[str]:
    """Where the files of wheels lie once they are installed, relative to the environment's `site`."""
    return frozenset(_installed(name) for wheel in wheels for name in wheel.files)


def _check_directory(path: Path, filename: str, limits: ArchiveLimits) -> None:
    """Counts the entries before a library makes an object of each: a hundred thousand empty ones are 60 MB of memory.

    The table of entries has to be where it is without searching: no comment, no 64-bit form (that is for archives over
    4 GiB), so that every reader finds the same one.
    """
    with path.open("rb") as opened:
        size = opened.seek(0, io.SEEK_END)
        opened.seek(max(0, size - _LOCATOR_BYTES - _END.size))
        tail = opened.read()
        end = tail[-_END.size :]
        if len(end) < _END.size or not end.startswith(b"PK\x05\x06") or tail.startswith(b"PK\x06\x07"):
            raise _refused(filename, "", "no readable zip archive: its end is not that of a plain one")
        _, _, _, _, _, table_bytes, table_at, comment_bytes = _END.unpack(end)
        if comment_bytes or table_at + table_bytes + _END.size != size:
            raise _refused(filename, "", "no readable zip archive: it holds more than its entries")
        if table_bytes > limits.entries * _ENTRY_BYTES:
            raise _refused(filename, "", f"a table of {table_bytes} bytes, allowed {limits.entries * _ENTRY_BYTES}")
        opened.seek(table_at)
        count = opened.read(table_bytes).count(b"PK\x01\x02")
    if count > limits.entries:
        raise _refused(filename, "", f"{count} entries, allowed {limits.entries}")


def _check_names(filename: str, infos: list[zipfile.ZipInfo]) -> None:
    seen: dict[str, str] = {}
    for info in infos:
        # The library ends a name at its first NUL, and keeps the whole one here.
        name = info.orig_filename
        if broken := _broken_path(name) or _broken_kind(info) or _forbidden(name):
            raise _refused(filename, name, broken)
        if other := seen.get(_folded(name)):
            raise _refused(filename, name, f"it and {other!r} are one file on some file systems")
        seen[_folded(name)] = name
    for folded, name in seen.items():
        for parent in PurePosixPath(folded).parents:
            other = seen.get(str(parent), "/")
            if not other.endswith("/"):
                raise _refused(filename, name, f"{other!r} is a file, and cannot be its folder")


def _broken_path(name: str) -> str:
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or "\\" in name or ":" in name:
        return "absolute path, drive or backslash"
    if any(part in ("", ".", "..") for part in parts):
        return "the path leaves the package or is not normal"
    if not name.isprintable() or len(name.encode("utf-8", "surrogatepass")) > 1024:
        return "the name is not printable or too long"
    return ""


def _broken_kind(info: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "symbolic link or special file"
    if info.flag_bits & _ENCRYPTED:
        return "encrypted"
    return "" if info.compress_type in _METHODS else f"compression method {info.compress_type}"


def _forbidden(name: str) -> str:
    parts = PurePosixPath(name).parts
    if len(parts) > 1 and parts[0].endswith(".data") and parts[1] not in _SCHEMES:
        return f".data may hold {' and '.join(_SCHEMES)} only"
    path = PurePosixPath(_installed(name))
    top = _top(str(path))
    if path.suffix.lower() == ".pth":
        return "a .pth file runs code at the start of the interpreter"
    if top.lower() in _RUNS_AT_START:
        return "runs at the start of the interpreter"
    if top in sys.stdlib_module_names or top.lower() in sys.stdlib_module_names:
        return f"hides the standard library's {top}"
    return ""


def _installed(name: str) -> str:
    """Path below the environment: `.data/data` is unpacked into its root, `.data/scripts` into `bin`."""
    parts = PurePosixPath(name).parts
    if len(parts) > 2 and parts[0].endswith(".data"):
        return "/".join(parts[2:] if parts[1] == "data" else ("bin", *parts[2:]))
    return name


def _top(name: str) -> str:
    return name.split("/")[0].split(".")[0] if not _is_metadata(name) else ""


def _is_metadata(name: str) -> bool:
    return name.split("/")[0].endswith((".dist-info", ".data", ".libs"))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name.removesuffix("/")).casefold()


def _info_directory(filename: str, files: list[zipfile.ZipInfo], distribution: str) -> str:
    found = {info.filename.split("/")[0] for info in files if info.filename.split("/")[0].endswith(".dist-info")}
    if len(found) != 1:
        raise _refused(filename, "", f"expected one .dist-info folder, found {len(found)}")
    folder = found.pop()
    if canonicalize_name(folder.removesuffix(".dist-info").rpartition("-")[0]) != distribution:
        raise _refused(filename, folder, "belongs to another distribution than the file's name says")
    return folder


def _read_small(archive: zipfile.ZipFile, filename: str, name: str) -> bytes:
    try:
        with archive.open(name) as opened:
            content = opened.read(_METADATA_LIMIT_BYTES + 1)
    except KeyError:
        raise _refused(filename, name, "missing") from None
    if len(content) > _METADATA_LIMIT_BYTES:
        raise _refused(filename, name, f"more than {_METADATA_LIMIT_BYTES} bytes")
    return content


def _read_record(archive: zipfile.ZipFile, filename: str, name: str) -> Mapping[str, str]:
    """Maps each file that RECORD lists to its `sha256=...`; RECORD itself and its signatures have none."""
    try:
        text = _read_small(archive, filename, name).decode()
        rows = [row for row in csv.reader(io.StringIO(text), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise _refused(filename, name, f"unreadable: {error}") from error
    if any(len(row) != 3 for row in rows):
        raise _refused(filename, name, "expected three columns in each row")
    return {row[0]: row[1] for row in rows}


def _check_contents(
    archive: zipfile.ZipFile,
    filename: str,
    files: list[zipfile.ZipInfo],
    record: Mapping[str, str],
    limits: ArchiveLimits,
) -> None:
    left = limits.unpacked_bytes
    for info in files:
        unsigned = info.filename.endswith((".dist-info/RECORD", ".dist-info/RECORD.jws", ".dist-info/RECORD.p7s"))
        if info.filename not in record and not unsigned:
            raise _refused(filename, info.filename, "RECORD does not list it")
        hasher = hashlib.sha256()
        size = 0
        with archive.open(info) as opened:
            while chunk := opened.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > left:
                    raise _refused(filename, info.filename, f"unpacks to more than {limits.unpacked_bytes} bytes")
                if size > max(_RATIO_FREE_BYTES, info.compress_size * limits.ratio):
                    raise _refused(filename, info.filename, f"unpacks to more than {limits.ratio} times its size")
                hasher.update(chunk)
        left -= size
        if not unsigned and record[info.filename] != _record_hash(hasher.digest()):
            raise _refused(filename, info.filename, "RECORD lists it with another hash")


def _record_hash(digest: bytes) -> str:
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _requires(filename: str, metadata: bytes) -> tuple[Requirement, ...]:
    values = BytesHeaderParser().parsebytes(metadata).get_all("Requires-Dist") or []
    try:
        return tuple(Requirement(str(value)) for value in values)
    except InvalidRequirement as error:
        raise _refused(filename, "METADATA", f"Requires-Dist: {error}") from error


def _refused(filename: str, entry: str, reason: str) -> PackageError:
    shown = f"{filename}: {entry[:200]!r}" if entry else filename
    return PackageError(
        "INVALID_PACKAGE",
        f"{shown}: {reason}",
        hint="The wheel is refused as it is; ask its publisher, or lock another version.",
        details={"wheel": filename, "entry": entry, "reason": reason},
    )
