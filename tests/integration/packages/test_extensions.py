"""Extensions of the host: installed beside it, checked before they count, and never the host's fault."""

import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import pytest
from hotbay.errors import InputError, PackageError
from hotbay.extend import GROUP, Extensions, SourceRequest, hookimpl, load_extensions
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.ref_watch import RefWatcher
from hotbay.packages.sources.source import BlobStream, Offer, Scan, Source
from hotbay.packages.tools import run_tool, uv_binary
from hotbay.store.world.records import ManifestRef

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]
Fetching = Any


@pytest.fixture
async def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anyio_backend: object) -> Path:
    """The sample extension, built into a wheel, installed into a folder of its own, and on the path."""
    project = shutil.copytree(ROOT / "tests" / "data" / "extensions" / "source-sample", tmp_path / "source-sample")
    build = ["build", "--wheel", "--quiet", "--offline", "--no-build-isolation", "--python", sys.executable]
    done = await run_tool([uv_binary(), *build, "--out-dir", str(tmp_path / "dist"), str(project)], timeout_s=60)
    assert done.code == 0, done.output
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    target = tmp_path / "site"
    install = [
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--python",
        sys.executable,
        "--target",
        str(target),
    ]
    done = await run_tool([uv_binary(), *install, str(wheel)], timeout_s=60)
    assert done.code == 0, done.output
    monkeypatch.syspath_prepend(str(target))
    monkeypatch.delitem(sys.modules, "hotbay_source_sample", raising=False)
    return target


def request(**options: str) -> SourceRequest:
    return SourceRequest("archive", dev=True, options=options, poll_s=3600.0)


async def test_installed_extension_adds_a_source_that_packages_are_fetched_from(
    installed: Path, tmp_path: Path, write_plugin: Callable[..., Manifest], fetching: Fetching
) -> None:
    manifest = write_plugin(tmp_path / "p")
    archive = Path(shutil.make_archive(str(tmp_path / "packages"), "zip", tmp_path / "p"))
    (own,) = distributions(path=[str(installed)])
    assert [point.group for point in own.entry_points] == [GROUP]
    extensions = load_extensions()
    assert [(kind, origin) for kind, (_, origin) in extensions.sources.items()] == [
        ("zip-archive", "hotbay-source-sample 1.0.0 (zip-source)")
    ]
    source = extensions.make_source("zip-archive", request(file=str(archive)))
    watcher = RefWatcher(
        source, fetching.world, fetch="once", now=anyio.current_time, wall=lambda: 0.0, random=lambda: 0.0
    )
    with anyio.fail_after(30):
        await watcher.run()
    (ref,) = fetching.world.view.all(ManifestRef)
    assert (ref.digest, ref.source) == (manifest.digest, "archive")
    fetching.sources["archive"] = source
    site = await fetching.fetcher().fetch(ref)
    assert (site / "sample" / "__init__.py").read_text() == "plugin = 1\n"
    await anyio.Path(archive).unlink()
    with pytest.raises(PackageError, match="No such file"):
        await source.scan()
    await source.close()


async def test_options_that_are_wrong_are_the_operators_to_correct(installed: Path) -> None:
    with pytest.raises(InputError, match="source archive: options are wrong"):
        load_extensions().make_source("zip-archive", request(folder="x"))


class Module(ModuleType):
    """A module with these names in it."""

    def __init__(self, **names: object) -> None:
        super().__init__("made")
        vars(self).update(names)


class Point(EntryPoint):
    """An entry point whose object is at hand."""

    what: object

    @classmethod
    def of(cls, name: str, what: object) -> "Point":
        point = cls(name, "made", GROUP)
        vars(point)["what"] = what
        return point

    def load(self) -> object:
        if isinstance(self.what, Exception):
            raise self.what
        return self.what


def adding(sources: object) -> Module:
    @hookimpl
    def hotbay_sources() -> object:
        if isinstance(sources, Exception):
            raise sources
        return sources

    return Module(hotbay_sources=hotbay_sources)


def no_source(_: SourceRequest) -> Source:
    raise AssertionError("not asked for")


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (ImportError("no module x"), "extension bad: it cannot be loaded: ImportError: no module x"),
        (adding(ValueError("oops")), "extension bad: hotbay_sources failed: ValueError: oops"),
        (adding(["a"]), "extension bad: hotbay_sources returned list"),
        (adding({"": no_source}), "extension bad: '' is no name of a kind"),
        (adding({"../x": no_source}), "extension bad: '../x' is no name of a kind"),
        (adding({"x": 1}), "extension bad: the factory of 'x' cannot be called"),
        (adding({"good": no_source}), "extension bad: good brings 'good' too|extension good: bad brings 'good' too"),
    ],
)
async def test_broken_extension_is_named_and_nothing_of_it_is_in_force(what: object, message: str) -> None:
    points = [Point.of("good", adding({"good": no_source})), Point.of("bad", what)]
    with pytest.raises(InputError, match=message):
        load_extensions(points)


async def test_hook_that_does_not_exist_or_fit_is_refused() -> None:
    @hookimpl
    def hotbay_sauces() -> None:
        pass

    @hookimpl
    def hotbay_sources(unknown: int) -> None:
        pass

    for module in (Module(hotbay_sauces=hotbay_sauces), Module(hotbay_sources=hotbay_sources)):
        with pytest.raises(InputError, match="extension bad: it cannot be loaded: PluginValidationError"):
            load_extensions([Point.of("bad", module)])


async def test_all_broken_extensions_are_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        load_extensions([Point.of("one", ImportError("1")), Point.of("two", adding(ValueError("2")))])
    assert len(caught.value.problems) == 2


async def test_kind_that_nobody_brings_names_those_that_are_there() -> None:
    extensions = load_extensions([Point.of("good", adding({"good": no_source}))])
    with pytest.raises(InputError, match=r"no extension provides .*'best'.*good \(good\)"):
        extensions.make_source("best", request())
    assert load_extensions([]) == Extensions({})


class Faulty:
    """A source that lies about its name and fails in every method when it is told to."""

    name = "liar"
    dev = False

    def __init__(self, offer: Offer) -> None:
        self.fails = False
        self.offer = offer

    def _do(self) -> None:
        if self.fails:
            raise ZeroDivisionError("oops")

    async def scan(self) -> Scan:
        self._do()
        return Scan((self.offer,))

    async def wait(self) -> None:
        self._do()

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[BlobStream]:
            async def chunks() -> AsyncIterator[bytes]:
                yield b"one"
                self._do()

            yield BlobStream(start, chunks(), validator)
            self._do()

        return opened()

    def local_path(self, location: str, blob: Blob) -> str | None:
        self._do()
        return location

    async def close(self) -> None:
        self._do()


async def read(source: Source, blob: Blob, error: Exception | None = None) -> None:
    async with source.open_blob("there", blob, start=2, validator="v") as stream:
        assert (stream.start, stream.validator) == (2, "v")
        assert [chunk async for chunk in stream.chunks] == [b"one"]
        if error is not None:
            raise error


async def test_whatever_an_extension_raises_is_its_own_failure(
    tmp_path: Path, write_plugin: Callable[..., Manifest], caplog: pytest.LogCaptureFixture
) -> None:
    manifest = write_plugin(tmp_path / "p")
    (blob,) = manifest.blobs
    faulty = Faulty(Offer(manifest, "liar", "there"))
    factories: Mapping[str, object] = {"faulty": lambda _: faulty, "none": lambda _: 1 / 0}
    extensions = load_extensions([Point.of("bad", adding(factories))])
    with pytest.raises(InputError, match="extension bad: its source 'none' cannot be made: ZeroDivisionError"):
        extensions.make_source("none", request())
    source = extensions.make_source("faulty", request())
    assert (source.name, source.dev) == ("archive", True)
    assert (await source.scan()).offers == (Offer(manifest, "archive", "there", dev=True),)
    assert source.local_path("there", blob) == "there"
    with pytest.raises(KeyError, match="the reader's own"):
        await read(source, blob, KeyError("the reader's own"))
    faulty.fails = True
    for failing in (source.scan, source.wait, source.close, source.scan):
        with pytest.raises(PackageError, match=r"of the extension bad failed: ZeroDivisionError\('oops'\)") as caught:
            await failing()
        assert caught.value.code == "FETCH_FAILED"
    with pytest.raises(PackageError, match="local_path of the extension bad failed"):
        source.local_path("there", blob)
    with pytest.raises(PackageError, match="read of the extension bad failed"):
        await read(source, blob)
    with pytest.raises(PackageError, match="open_blob of the extension bad failed"):
        async with source.open_blob("there", blob):
            pass
    assert caplog.text.count("method=scan") == 1, "the traceback is told once"
