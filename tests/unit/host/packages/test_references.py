"""Documents that stand for packages which lie elsewhere."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hotbay.errors import PackageError
from hotbay.packages.manifest import Blob, Manifest
from hotbay.packages.sources.folder import DirectorySource
from hotbay.packages.sources.source import BlobStream, Offer, Scan

PackageFactory = Callable[..., Manifest]
HEAD = "apiVersion: hotbay/v1alpha1\nkind: PackageRef\n"


class Far:
    """A source elsewhere, in memory."""

    name = "far"
    dev = False

    def __init__(self) -> None:
        self.offers: tuple[Offer, ...] = ()
        self.is_down = False
        self.bell = anyio.Event()
        self.closed = 0

    async def scan(self) -> Scan:
        if self.is_down:
            raise PackageError("FETCH_FAILED", "no answer")
        return Scan(self.offers)

    async def wait(self) -> None:
        await self.bell.wait()

    def open_blob(
        self, location: str, blob: Blob, *, start: int = 0, validator: str | None = None
    ) -> AbstractAsyncContextManager[BlobStream]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[BlobStream]:
            async def chunks() -> AsyncIterator[bytes]:
                yield f"{location} {blob.name}"[start:].encode()

            yield BlobStream(start, chunks(), validator)

        return opened()

    def local_path(self, location: str, blob: Blob) -> str | None:
        return f"/{location}/{blob.name}"

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "watched").mkdir()
    return tmp_path / "watched"


def look(source: DirectorySource) -> Scan:
    return anyio.run(source.scan)


def test_layout_counts_from_the_document(make_package: PackageFactory, folder: Path) -> None:
    manifest = make_package(folder.parent / "elsewhere" / "p")
    (folder / "p.yaml").write_text(f"{HEAD}id: sample\nlayout: ../elsewhere/p\ndigest: {manifest.digest}\n")
    scan = look(DirectorySource(folder, "local"))
    assert scan == Scan((Offer(manifest, "local", str(folder / "../elsewhere/p")),))


def test_package_that_is_not_the_one_named_is_not_offered(make_package: PackageFactory, folder: Path) -> None:
    found = make_package(folder.parent / "elsewhere" / "p")
    other = make_package(folder.parent / "other", rev=2)
    (folder / "p.yaml").write_text(f"{HEAD}id: sample\nlayout: ../elsewhere/p\ndigest: {other.digest}\n")
    (folder / "q.yaml").write_text(f"{HEAD}id: another\nlayout: ../elsewhere/p\n")
    scan = look(DirectorySource(folder, "local"))
    assert scan.offers == ()
    assert [(p.code, p.found) for p in scan.problems] == [("DIGEST_MISMATCH", f"sample {found.digest}")] * 2
    assert scan.problems[0].expected == f"sample {other.digest}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "p.yaml:1:1: CONFIG_INVALID: apiVersion: Field required"),
        (f"{HEAD}id: sample\n", "exactly one of layout, url and registry"),
        (f"{HEAD}id: sample\nlayout: a\nurl: http://b\n", "exactly one of layout, url and registry"),
        (f"{HEAD}id: Sample\nlayout: a\n", "p.yaml:3:5: CONFIG_INVALID: id: may hold lower-case letters"),
        (f"{HEAD}id: sample\nlayout: a\ndigest: md5:0\n", "p.yaml:5:9: CONFIG_INVALID: digest"),
        (f"{HEAD}id: sample\nlayout: a\nextra: 1\n", "p.yaml:5:8: CONFIG_INVALID: extra"),
        (f"{HEAD}id: sample\nid: sample\nlayout: a\n", "p.yaml:4:1: DUPLICATE_KEY"),
        ("kind: PackageRef\napiVersion: v2\nid: sample\nlayout: a\n", "CONFIG_INVALID: apiVersion"),
        ("a: [", "CONFIG_INVALID"),
    ],
)
def test_document_that_is_wrong_is_a_problem_at_its_place(
    make_package: PackageFactory, folder: Path, text: str, problem: str
) -> None:
    make_package(folder / "good")
    (folder / "p.yaml").write_text(text)
    scan = look(DirectorySource(folder, "local"))
    assert len(scan.offers) == 1
    assert any(problem in str(found) for found in scan.problems), [str(found) for found in scan.problems]


def test_reference_by_address_without_anybody_to_follow_it_is_a_problem(folder: Path) -> None:
    (folder / "p.yaml").write_text(f"{HEAD}id: sample\nregistry: example.org/p:1\n")
    (problem,) = look(DirectorySource(folder, "local")).problems
    assert "p.yaml: references by registry are not possible here" in problem.message


@pytest.mark.anyio
async def test_package_elsewhere_is_offered_under_this_source_and_fetched_from_there(
    make_package: PackageFactory, folder: Path
) -> None:
    manifest, other = make_package(folder.parent / "p"), make_package(folder.parent / "q", id="other")
    far, made = Far(), list[tuple[str, str]]()

    def make(kind: str, address: str) -> Far:
        made.append((kind, address))
        return far

    far.offers = (Offer(manifest, "far", "there"), Offer(other, "far", "there"))
    (folder / "p.yaml").write_text(f"{HEAD}id: sample\nurl: https://example.org/p\n")
    source = DirectorySource(folder, "local", dev=True, elsewhere=make)
    (offer,) = (await source.scan()).offers
    assert (offer.manifest, offer.source, offer.dev) == (manifest, "local", True)
    assert made == [("url", "https://example.org/p")]
    # After a restart the place is fetched from before anything was looked at.
    again = DirectorySource(folder, "local", elsewhere=make)
    async with again.open_blob(offer.location, manifest.blobs[0], start=6, validator="v") as stream:
        assert [chunk async for chunk in stream.chunks] == [manifest.blobs[0].name.encode()]
        assert (stream.start, stream.validator) == (6, "v")
    assert again.local_path(offer.location, manifest.blobs[0]) == f"/there/{manifest.blobs[0].name}"
    await source.close()
    await source.close()
    assert far.closed == 1


@pytest.mark.anyio
async def test_place_that_is_out_of_reach_keeps_offering_and_a_withdrawal_does_not(
    make_package: PackageFactory, folder: Path
) -> None:
    manifest = make_package(folder.parent / "p")
    far = Far()
    far.offers = (Offer(manifest, "far", "there"),)
    (folder / "p.yaml").write_text(f"{HEAD}id: sample\nurl: https://example.org/p\n")
    source = DirectorySource(folder, "local", elsewhere=lambda *_: far)
    before = await source.scan()
    far.is_down = True
    during = await source.scan()
    assert during.offers == before.offers
    assert [problem.message for problem in during.problems] == ["p.yaml: no answer"]
    far.is_down, far.offers = False, ()
    after = await source.scan()
    assert after.offers == ()
    assert "offers no sample" in after.problems[0].message


@pytest.mark.anyio
@pytest.mark.timeout(60)
async def test_wait_ends_when_a_place_elsewhere_rings(make_package: PackageFactory, folder: Path) -> None:
    far = Far()
    far.offers = (Offer(make_package(folder.parent / "p"), "far", "there"),)
    (folder / "p.yaml").write_text(f"{HEAD}id: sample\nurl: https://example.org/p\n")
    source = DirectorySource(folder, "local", elsewhere=lambda *_: far, resync_s=3600.0)
    await source.scan()
    ended = anyio.Event()

    async def wait() -> None:
        await source.wait()
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with anyio.fail_after(30):
            far.bell.set()
            await ended.wait()


@pytest.mark.anyio
async def test_place_that_no_document_names_is_closed_when_nobody_reads_of_it_any_more(
    make_package: PackageFactory, folder: Path
) -> None:
    """A document of each version names an address of its own: what was opened for it goes with it."""
    manifest = make_package(folder.parent / "p")
    made: dict[str, Far] = {}

    def make(_kind: str, address: str) -> Far:
        far = made[address] = Far()
        far.offers = (Offer(manifest, "far", "there"),)
        return far

    source = DirectorySource(folder, "local", elsewhere=make)
    for version in ("one", "two"):
        (folder / "p.yaml").write_text(f"{HEAD}id: sample\nurl: https://example.org/{version}\n")
        (offer,) = (await source.scan()).offers
        if version == "one":
            reading = source.open_blob(offer.location, manifest.blobs[0])
            await reading.__aenter__()
    assert [made[f"https://example.org/{name}"].closed for name in ("one", "two")] == [0, 0]
    await reading.__aexit__(None, None, None)
    await source.scan()
    assert [made[f"https://example.org/{name}"].closed for name in ("one", "two")] == [1, 0]
    await source.close()
    assert made["https://example.org/two"].closed == 1
