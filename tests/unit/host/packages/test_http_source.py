"""A web folder in memory: whatever is served, a look ends with offers, problems or an error of the fault tree."""

from pathlib import Path

import anyio
import httpx
import pytest
from hotbay.errors import InputError, PackageError
from hotbay.packages.layout import blob_path, write_layout
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange
from hotbay.packages.oci import INDEX_MEDIA_TYPE, descriptor, index_bytes, parse_index
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.http import HttpSource
from hotbay.packages.sources.source import Scan
from hotbay.store.digests import digest_of, hex_of
from hypothesis import given
from hypothesis import strategies as st

NAME = "sample-1.0-py3-none-any.whl"


class MemorySite(httpx.AsyncBaseTransport):
    """Serves the bytes of `files` by path, with status 200."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asks: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asks.append(request.url.path)
        content = self.files.get(request.url.path)
        status = 404 if content is None else 200
        return httpx.Response(status, stream=httpx.ByteStream(content or b""))


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    blob = Blob(name=NAME, digest=digest_of(b"content"), size=7)
    return Manifest(
        id="sample",
        publisher="tests",
        rev=1,
        version="1.0.0",
        platform="python-cp311-linux-x86_64",
        entrypoint="sample:plugin",
        types=("sample-scorer",),
        protocol=ProtocolRange(first=1, last=1),
        blobs=(blob,),
    )


@pytest.fixture(scope="module")
def files(manifest: Manifest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A good site, by path; not to be changed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / NAME).write_bytes(b"content")
    write_layout(folder / "layout", manifest, {NAME: folder / NAME})
    found = [path for path in (folder / "layout").rglob("*") if path.is_file()]
    return {f"/{path.relative_to(folder / 'layout')}": path.read_bytes() for path in found}


def scanned(files: dict[str, bytes]) -> Scan:
    async def run() -> Scan:
        source = HttpSource("remote", "https://site.example", transport=MemorySite(files))
        try:
            return await source.scan()
        finally:
            await source.close()

    return anyio.run(run)


@given(data=st.data())
def test_any_file_of_any_bytes_gives_offers_problems_or_a_package_error(
    data: st.DataObject, files: dict[str, bytes], manifest: Manifest
) -> None:
    path = data.draw(st.sampled_from(sorted(files)))
    good = files[path]
    at = data.draw(st.integers(0, len(good) - 1))
    bad = data.draw(
        st.one_of(
            st.none(),
            st.binary(max_size=40),
            st.just(good[:at]),
            st.binary(max_size=3).map(lambda b: good[:at] + b + good[at + 1 :]),
        )
    )
    changed = {name: content for name, content in files.items() if name != path} | ({} if bad is None else {path: bad})

    try:
        scan = scanned(changed)
    except PackageError:
        return
    assert [offer.manifest for offer in scan.offers] in ([manifest], [])


def test_an_index_behind_the_index_is_followed_once(files: dict[str, bytes], manifest: Manifest) -> None:
    entries = parse_index(files["/index.json"], origin="here")
    inner = index_bytes(entries)
    outer = index_bytes([descriptor(INDEX_MEDIA_TYPE, digest_of(inner), len(inner))])
    twice = index_bytes([descriptor(INDEX_MEDIA_TYPE, digest_of(outer), len(outer))])
    blobs = {f"/blobs/sha256/{hex_of(digest_of(content))}": content for content in (inner, outer)}

    assert [offer.manifest for offer in scanned(files | blobs | {"/index.json": outer}).offers] == [manifest]
    assert scanned(files | blobs | {"/index.json": twice}) == Scan()


def test_a_document_that_says_to_be_too_large_is_not_asked_for(files: dict[str, bytes]) -> None:
    [entry] = parse_index(files["/index.json"], origin="here")
    index = index_bytes([descriptor(entry.media_type, entry.digest, (1 << 20) + 1)])

    [problem] = scanned(files | {"/index.json": index}).problems

    assert "more than 1048576 bytes" in problem.message


def test_one_bad_package_hides_no_other(files: dict[str, bytes], manifest: Manifest) -> None:
    entries = parse_index(files["/index.json"], origin="here")
    gone = descriptor(entries[0].media_type, digest_of(b"gone"), 4)

    scan = scanned(files | {"/index.json": index_bytes([gone, *entries])})

    assert [offer.manifest for offer in scan.offers] == [manifest]
    assert ["HTTP 404" in problem.message for problem in scan.problems] == [True]


def test_layers_other_than_the_manifest_s_blobs_are_a_problem(files: dict[str, bytes], manifest: Manifest) -> None:
    [entry] = parse_index(files["/index.json"], origin="here")
    image = files[f"/{blob_path(Path(), entry.digest)}"].replace(NAME.encode(), b"other-1.0-py3-none-any.whl")
    index = index_bytes([descriptor(entry.media_type, digest_of(image), len(image))])

    scan = scanned(files | {"/index.json": index, f"/blobs/sha256/{hex_of(digest_of(image))}": image})

    assert scan.offers == ()
    assert [problem.code for problem in scan.problems] == ["INVALID_PACKAGE"]


@pytest.mark.parametrize(
    ("url", "rule"), [("ftp://x/", "http://"), ("https://u:p@x/", "user or password"), ("https://x/?a", "query")]
)
def test_an_address_that_cannot_be_used_is_the_operator_s(url: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        HttpSource("remote", url)


def test_secrets_are_not_sent_where_somebody_reads_along(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be https"):
        HttpSource("remote", "http://site.example", auth=Credentials("user", tmp_path / "password"))
