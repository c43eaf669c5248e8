"""The plugin packages that figures run, as layouts under `build/bench/packages`, and their installed environments.

`gateway/` holds the first-party packages; `standard` is there three times under different ids, with one scorer of
each in use, so that three scorers are three processes. `echo/` is the cheapest plugin there is; others of one module,
without numpy, are made as a subject needs them. Nothing is fetched: every wheel comes from a first-party package.
"""

import base64
import csv
import functools
import hashlib
import io
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
from hotbay.packages.environment import Environments
from hotbay.packages.layout import blob_path, read_layout, write_layout
from hotbay.packages.manifest import Blob, Manifest
from hotbay.store.digests import Digest, digest_of
from packaging.utils import parse_wheel_filename

from benchmarks.probes import Room

STANDARD: Final = "standard"
SCORERS: Final[Mapping[str, str]] = {
    "queue-scorer": STANDARD,
    "kv-cache-utilization-scorer": "standard-kv",
    "running-requests-size-scorer": "standard-running",
}
"""The three scorers of the decision figures, and the package that provides each where they are three processes."""

PREFIX_CACHE: Final = "prefix-cache"

_ECHO_SOURCE: Final = Path(__file__).with_name("echo_plugin.py")
_WIDE_SOURCE: Final = Path(__file__).with_name("wide_plugin.py")
_LIGHT_NEEDS: Final = frozenset({"hotbay-sdk", "msgpack"})
_ZIP_DATE: Final = (2025, 1, 1, 0, 0, 0)


def first_party(room: Room, name: str) -> Path:
    """The layout that `make` built."""
    return room.root / "build" / "packages" / name


@functools.cache
def gateway_packages(room: Room) -> Path:
    """A source directory with the prefix cache and the three copies of `standard`."""
    folder = room.build / "packages" / "gateway"
    for name in SCORERS.values():
        write_copy(first_party(room, STANDARD), folder / name, name=name)
    write_copy(first_party(room, PREFIX_CACHE), folder / PREFIX_CACHE, name=PREFIX_CACHE)
    return folder


def write_copy(layout: Path, out: Path, *, name: str, rev: int | None = None) -> None:
    """The package of a layout under another id, or another revision: another package with the same wheels."""
    manifest = read_layout(layout)[0]
    changes = {"id": name} if rev is None else {"id": name, "rev": rev}
    wheels = {blob.name: blob_path(layout, blob.digest) for blob in manifest.blobs}
    write_layout(out, manifest.model_copy(update=changes), wheels)


@functools.cache
def echo_package(room: Room) -> Path:
    """The layout of the echo plugin: its wheel, the SDK's and msgpack's, and no numpy."""
    return light_package(room, "echo", "echo-scorer", _ECHO_SOURCE.read_bytes())


@functools.cache
def wide_package(room: Room) -> Path:
    """The layout of the plugin that reads many columns."""
    return light_package(room, "wide", "wide-scorer", _WIDE_SOURCE.read_bytes())


def light_package(room: Room, name: str, type_name: str, source: bytes, *, platform: str | None = None) -> Path:
    """The layout of a package of one module with one type: its wheel, the SDK's and msgpack's, and no numpy."""
    standard = first_party(room, STANDARD)
    manifest = read_layout(standard)[0]
    needed = [blob for blob in manifest.blobs if parse_wheel_filename(blob.name)[0] in _LIGHT_NEEDS]
    module = f"hotbay_bench_{name}"
    wheel = _write_wheel(room.build / "packages", module, source)
    content = wheel.read_bytes()
    own = Blob(name=wheel.name, digest=digest_of(content), size=len(content))
    wheels = {blob.name: blob_path(standard, blob.digest) for blob in needed} | {wheel.name: wheel}
    changes = {
        "id": f"bench-{name}",
        "version": "1.0.0",
        "platform": platform or manifest.platform,
        "entrypoint": f"{module}:plugin",
        "types": (type_name,),
        "blobs": (own, *needed),
        "description": "A plugin of one type, for benchmarks.",
    }
    out = room.build / "packages" / name
    write_layout(out, manifest.model_copy(update=changes), wheels)
    return out


def _write_wheel(folder: Path, module: str, source: bytes) -> Path:
    """Write the one-module wheel; equal sources give equal bytes."""
    info = f"{module}-1.0.0.dist-info"
    files = {
        f"{module}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0.0\nRequires-Dist: hotbay-sdk\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: hotbay\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([f"{info}/RECORD", "", ""])
    files[f"{info}/RECORD"] = record.getvalue().encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_DATE), content)
    return path


@functools.cache
def environment_of(room: Room, layout: Path) -> tuple[Manifest, Path]:
    """The manifest and the `site` folder of a layout's package, installed by the product's own routine."""
    manifest = read_layout(layout)[0]
    environments = Environments(room.build / "state" / "environments")
    wheel = functools.partial(_wheel, layout)
    return manifest, anyio.run(environments.build, manifest, sys.executable, wheel).site


def _wheel(layout: Path, digest: Digest) -> Path:
    return blob_path(layout, digest)
