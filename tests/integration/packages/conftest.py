"""The SDK's wheel and one package, built once by the real tools."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.packages.layout import write_layout
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange, host_platform
from hotbay.packages.pack import pack_command
from hotbay.packages.tools import uv_binary
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of

ROOT = Path(__file__).resolve().parents[3]
REV = 7


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def wheel_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheels")
    command = [uv_binary(), "build", "--wheel", "--quiet", "--no-create-gitignore", "--out-dir", out, ROOT / "sdk"]
    subprocess.run(command, check=True, timeout=120)
    return out


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the sample plugin, for tests to break."""
    return Path(shutil.copytree(ROOT / "tests" / "data" / "packages" / "echo", tmp_path / "echo"))


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory, wheel_directory: Path) -> tuple[Manifest, Path]:
    """A packed plugin and its folder. Not to be written to."""
    out = tmp_path_factory.mktemp("packed") / "echo"
    project = shutil.copytree(
        ROOT / "tests" / "data" / "packages" / "echo", tmp_path_factory.mktemp("project") / "echo"
    )
    return pack_command(Path(project), out, REV, wheel_directory), out


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "state" / "store")


@pytest.fixture
def write_package(tmp_path: Path) -> Callable[..., Manifest]:
    """write_package(out, rev, contents): a layout whose blobs hold any bytes; enough for all but installing it."""

    def write(out: Path, *, rev: int = 1, contents: tuple[bytes, ...] = (b"content",)) -> Manifest:
        wheels = {f"part{n}-1.0-py3-none-any.whl": content for n, content in enumerate(contents)}
        manifest = Manifest(
            id="sample",
            publisher="tests",
            rev=rev,
            version="1.0.0",
            platform=host_platform(),
            entrypoint="sample:plugin",
            types=("sample-scorer",),
            protocol=ProtocolRange(first=1, last=1),
            blobs=tuple(Blob(name=name, digest=digest_of(data), size=len(data)) for name, data in wheels.items()),
        )
        aside = tmp_path / "wheels-of-write-package"
        aside.mkdir(exist_ok=True)
        for name, data in wheels.items():
            (aside / name).write_bytes(data)
        write_layout(out, manifest, {name: aside / name for name in wheels})
        return manifest

    return write
