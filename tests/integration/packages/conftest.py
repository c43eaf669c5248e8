"""The SDK's wheel and one package, built once by the real tools."""

import base64
import hashlib
import io
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from hotbay.errors import PackageError
from hotbay.packages.environment import Environments
from hotbay.packages.fetch import Fetcher
from hotbay.packages.layout import blob_path, write_layout
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange, host_platform
from hotbay.packages.pack import pack_command
from hotbay.packages.package_blobs import FetchLimits
from hotbay.packages.ref_changes import refs_of
from hotbay.packages.sources.source import BlobStream, Offer, Scan, Source
from hotbay.packages.tools import uv_binary
from hotbay.store.blobs import BlobStore
from hotbay.store.budget import DiskBudget
from hotbay.store.digests import digest_of
from hotbay.store.world.engine import Put
from hotbay.store.world.memory import MemoryWorld
from hotbay.store.world.records import ManifestRef

ROOT = Path(__file__).resolve().parents[3]
REV = 7
PIECE = 8 << 10


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def python() -> str:
    """The interpreter that environments are built for."""
    return sys.executable


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


class MemorySource:
    """A source in memory whose faults a test sets; a `Source`. `asked` are the bytes of each blob that were sent.

    `cut` ends a stream with an error after so many bytes, `stop` ends it as if that were all, `hang` keeps it open there,
    `drip` sends one byte at a time, as often as it says a second.
    """

    def __init__(self, name: str = "memory", *, resumes: bool = True) -> None:
        self.name = name
        self.dev = True
        self.blobs: dict[str, bytes] = {}
        self.validators: dict[str, str] = {}
        self.resumes = resumes
        self.is_down = False
        self.cut: int | None = None
        self.stop: int | None = None
        self.hang: int | None = None
        self.drip: float | None = None
        self.sent: dict[str, int] = {}
        self.opened: list[tuple[str, int, str | None]] = []
        self.hanging = anyio.Event()
        self.files: dict[str, Path] = {}

    def add(self, manifest: Manifest, layout: Path) -> None:
        """Have a package's blobs."""
        for blob in manifest.blobs:
            self.blobs[blob.digest] = blob_path(layout, blob.digest).read_bytes()

    async def scan(self) -> Scan:
        return Scan()

    async def wait(self) -> None:
        await anyio.sleep_forever()

    @asynccontextmanager
    async def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AsyncIterator[BlobStream]:
        self.opened.append((blob.digest, start, validator))
        if self.is_down or blob.digest not in self.blobs:
            raise PackageError("FETCH_FAILED", "no answer", details={"retryable": True})
        known = self.validators.get(blob.digest)
        begin = start if self.resumes and (validator is None or validator == known) else 0
        yield BlobStream(begin, self._chunks(blob.digest, begin), known)

    async def _chunks(self, digest: str, begin: int) -> AsyncIterator[bytes]:
        content = self.blobs[digest]
        ends = [end for end in (self.cut, self.stop, self.hang) if end is not None]
        for at in range(begin, min([len(content), *ends]), 1 if self.drip else PIECE):
            if self.drip:
                await anyio.sleep(1 / self.drip)
            piece = content[at : min([at + (1 if self.drip else PIECE), len(content), *ends])]
            self.sent[digest] = self.sent.get(digest, 0) + len(piece)
            yield piece
        if self.cut is not None:
            raise PackageError("FETCH_FAILED", "connection lost", details={"retryable": True})
        if self.hang is not None:
            self.hanging.set()
            await anyio.sleep_forever()

    def local_path(self, location: str, blob: Blob) -> str | None:
        path = self.files.get(blob.digest)
        return None if path is None else str(path)

    async def close(self) -> None:
        pass


@dataclass
class Fetching:
    """A fetcher with what it works on. `watch` shows it a source's offers as a watcher would."""

    store: BlobStore
    environments: Environments
    world: MemoryWorld
    sources: dict[str, Source]
    limit_bytes: int | None = None

    @property
    def budget(self) -> DiskBudget:
        return DiskBudget(self.store, self.environments.present, limit_bytes=self.limit_bytes)

    def fetcher(self, *, in_place: tuple[str, ...] = (), **limits: float) -> Fetcher:
        return Fetcher(
            self.store,
            self.environments,
            self.world,
            self.sources,
            limits=FetchLimits(**limits),  # type: ignore[arg-type]
            interpreter_of=lambda _: sys.executable,
            wall=lambda: 7.0,
            in_place=in_place,
            check_room=self.budget.check_room,
        )

    async def know(self, manifest: Manifest, source: Source, location: str = "") -> ManifestRef:
        """Put the ref into the world, as a watcher does."""
        self.sources[source.name] = source
        (ref,) = refs_of([Offer(manifest, source.name, location)], known={}).values()
        await self.world.transact(lambda _: [Put(ref)])
        return ref


@pytest.fixture
async def fetching(store: BlobStore, tmp_path: Path, anyio_backend: object) -> Fetching:
    return Fetching(store, Environments(tmp_path / "state" / "environments"), MemoryWorld(), {})


@pytest.fixture
def memory_source() -> type[MemorySource]:
    return MemorySource


@pytest.fixture
def write_plugin(tmp_path: Path) -> Callable[..., Manifest]:
    """write_plugin(out, id, rev, files, others): a layout of tiny wheels that install; `others` are (name, files)."""

    def write(
        out: Path,
        *,
        id: str = "sample",  # noqa: A002 - the manifest's own word
        rev: int = 1,
        files: Mapping[str, bytes] | None = None,
        others: tuple[tuple[str, Mapping[str, bytes]], ...] = (),
        entrypoint: str = "sample:plugin",
        modes: Mapping[str, int] | None = None,
    ) -> Manifest:
        own = files if files is not None else {"sample/__init__.py": f"plugin = {rev}\n".encode()}
        folder = tmp_path / "tiny-wheels"
        folder.mkdir(exist_ok=True)
        wheels = {}
        for name, content in ((id.replace("-", "_"), own), *others):
            path = folder / f"{name}-{rev}.0-py3-none-any.whl"
            path.write_bytes(tiny_wheel(name, f"{rev}.0", content, modes or {}))
            wheels[path.name] = path
        manifest = Manifest(
            id=id,
            publisher="tests",
            rev=rev,
            version=f"{rev}.0.0",
            platform=host_platform(),
            entrypoint=entrypoint,
            types=("sample-scorer",),
            protocol=ProtocolRange(first=1, last=1),
            blobs=tuple(
                Blob(name=name, digest=digest_of(path.read_bytes()), size=path.stat().st_size)
                for name, path in sorted(wheels.items())
            ),
        )
        write_layout(out, manifest, wheels)
        return manifest

    return write


def tiny_wheel(name: str, version: str, files: Mapping[str, bytes], modes: Mapping[str, int]) -> bytes:
    """A pure wheel, stored and not deflated, equal for equal arguments."""
    own = f"{name}-{version}.dist-info"
    content = dict(files)
    content[f"{own}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    content[f"{own}/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
        for path, data in content.items()
    ]
    content[f"{own}/RECORD"] = "\n".join([*rows, f"{own}/RECORD,,", ""]).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, data in content.items():
            info = zipfile.ZipInfo(path)
            info.external_attr = (0o100000 | modes.get(path, 0o644)) << 16
            archive.writestr(info, data)
    return buffer.getvalue()


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """full_disk(size): no file can grow beyond it meanwhile; stands for a disk without room."""

    @contextmanager
    def limited(size: int) -> Iterator[None]:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    return limited
