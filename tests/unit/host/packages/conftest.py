"""Wheels and layouts made in place, well formed unless a test breaks them."""

import base64
import hashlib
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hotbay.packages.layout import write_layout
from hotbay.packages.manifest import Blob, Channel, Manifest, ProtocolRange
from hotbay.store.digests import digest_of

WheelFactory = Callable[..., Path]
PackageFactory = Callable[..., Manifest]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def make_wheel(tmp_path: Path) -> WheelFactory:
    """make_wheel(name, files, requires, record, entries): `entries` are added raw; `record` overrides hashes."""

    def make(
        name: str = "sample",
        files: Mapping[str, bytes] | None = None,
        *,
        version: str = "1.0",
        requires: tuple[str, ...] = (),
        record: Mapping[str, str | None] | None = None,
        entries: tuple[tuple[zipfile.ZipInfo, bytes], ...] = (),
        info: str = "",
    ) -> Path:
        info = info or f"{name}-{version}.dist-info"
        content = dict(files if files is not None else {f"{name}/__init__.py": b"plugin = 1\n"})
        needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
        content[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode()
        content[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        hashes: dict[str, str | None] = {
            path: "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            for path, data in content.items()
        }
        hashes |= dict(record or {})
        rows = [f"{path},{value}," for path, value in hashes.items() if value is not None]
        content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        folder = tmp_path / "made"
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, data in content.items():
                archive.writestr(entry, data)
            for raw, data in entries:
                archive.writestr(raw, data)
        return path

    return make


@pytest.fixture
def make_package() -> PackageFactory:
    """make_package(out, id, rev, content): a layout whose one blob is `content`; no real wheel is needed to offer it."""

    def make(
        out: Path,
        *,
        id: str = "sample",  # noqa: A002 - the manifest's own word
        rev: int = 1,
        content: bytes = b"content",
        version: str = "1.0.0",
        platform: str = "python-cp311-linux-x86_64",
    ) -> Manifest:
        name = f"{id.replace('-', '_')}-{version}-py3-none-any.whl"
        manifest = Manifest(
            id=id,
            publisher="tests",
            rev=rev,
            version=version,
            platform=platform,
            entrypoint="sample:plugin",
            types=("sample-scorer",),
            protocol=ProtocolRange(first=1, last=1),
            blobs=(Blob(name=name, digest=digest_of(content), size=len(content)),),
            channel=Channel.DEV,
        )
        wheel = out.parent / f".{out.name}.wheel.part"
        out.parent.mkdir(parents=True, exist_ok=True)
        wheel.write_bytes(content)
        write_layout(out, manifest, {name: wheel})
        wheel.unlink()
        return manifest

    return make
