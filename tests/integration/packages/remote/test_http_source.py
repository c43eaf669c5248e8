"""A web folder over real sockets: what is offered, and what becomes of a blob when the server does not play along."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hotbay.errors import PackageError
from hotbay.packages.layout import blob_path
from hotbay.packages.manifest import Manifest
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.http import HttpSource
from hotbay.packages.sources.web import Limits
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of

pytestmark = [pytest.mark.anyio, pytest.mark.process]

BLOCK = 64 << 10
CONTENT = bytes(range(256)) * 1024
PAGE = b"<!DOCTYPE html><html><body>Please sign in</body></html>"
SHORT = Limits(stall_s=0.2)


@pytest.fixture
def manifest(web, write_sample: Callable[..., Manifest]) -> Manifest:
    """A package of one blob of 256 KiB, at the server's root."""
    web.root.rmdir()
    return write_sample(web.root, contents=(CONTENT,))


@pytest.fixture
async def source(web, manifest: Manifest):
    source = HttpSource("remote", web.url)
    yield source
    await source.close()


async def refused(pull, source: HttpSource, manifest: Manifest) -> PackageError:
    with pytest.raises(PackageError) as caught:
        await pull(source, manifest.blobs[0])
    return caught.value


async def test_the_packages_of_a_web_folder_are_offered(source: HttpSource, web, manifest: Manifest) -> None:
    scan = await source.scan()

    assert [offer.manifest for offer in scan.offers] == [manifest]
    assert (scan.offers[0].source, scan.offers[0].dev, scan.problems) == ("remote", False, ())


async def test_an_unchanged_index_costs_one_request_without_a_body(source: HttpSource, web) -> None:
    first = await source.scan()
    before = len(web.requests), web.sent_of("/index.json")

    assert await source.scan() == first
    assert (len(web.requests), web.sent_of("/index.json")) == (before[0] + 1, before[1])


async def test_a_new_package_is_seen_and_a_withdrawn_one_goes(source, web, manifest, write_sample, tmp_path) -> None:
    await source.scan()
    other = write_sample(tmp_path / "other", rev=2)
    for blob in (tmp_path / "other" / "blobs" / "sha256").iterdir():
        (web.root / "blobs" / "sha256" / blob.name).write_bytes(blob.read_bytes())
    (web.root / "index.json").write_bytes((tmp_path / "other" / "index.json").read_bytes())

    assert [offer.manifest for offer in (await source.scan()).offers] == [other]

    (web.root / "index.json").write_bytes(b'{"schemaVersion":2,"manifests":[]}')

    assert (await source.scan()).offers == ()


async def test_a_blob_is_fetched(source: HttpSource, manifest: Manifest, store: BlobStore, pull) -> None:
    await pull(source, manifest.blobs[0])

    assert store.path(manifest.blobs[0].digest).read_bytes() == CONTENT


async def test_p01_other_bytes_of_the_right_length_name_both_digests(source, web, manifest, store, pull, reply) -> None:
    other = CONTENT[:-1] + b"?"
    web.rule(manifest.blobs[0].digest[7:], reply(base=True, body=other))

    error = await refused(pull, source, manifest)

    assert error.code == "DIGEST_MISMATCH"
    assert manifest.blobs[0].digest in error.message
    assert digest_of(other) in error.message
    assert not store.has(manifest.blobs[0].digest)


async def test_p01_a_page_in_place_of_a_blob_is_no_blob(source, web, manifest, store, pull, reply) -> None:
    web.rule(manifest.blobs[0].digest[7:], reply(200, headers={"Content-Type": "text/html"}, body=PAGE))

    assert (await refused(pull, source, manifest)).code == "LENGTH_MISMATCH"

    web.rules.clear()
    await pull(source, manifest.blobs[0])
    assert store.has(manifest.blobs[0].digest)


@pytest.mark.parametrize("name", ["oci-layout", "index.json"])
async def test_p01_a_page_in_place_of_the_index_is_a_failure_of_the_source(source, web, name: str, reply) -> None:
    web.rule(name, reply(200, headers={"Content-Type": "text/html"}, body=PAGE))

    with pytest.raises(PackageError, match=name) as caught:
        await source.scan()

    assert caught.value.code == "FETCH_FAILED"


async def test_p01_a_page_in_place_of_a_manifest_is_a_problem_that_names_both_digests(
    source, web, manifest, reply
) -> None:
    web.rule(manifest.digest[7:], reply(200, body=PAGE))

    scan = await source.scan()

    assert scan.offers == ()
    [problem] = scan.problems
    assert problem.code == "LENGTH_MISMATCH"
    assert manifest.digest in problem.message
    assert digest_of(PAGE) in problem.message
    assert "a web page" in problem.message
    web.rules.clear()
    assert [offer.manifest for offer in (await source.scan()).offers] == [manifest]


async def test_a_server_that_fails_for_one_document_makes_nothing_withdrawn(source, web, manifest, reply) -> None:
    web.rule(manifest.digest[7:], reply(503, body=b"busy"))

    with pytest.raises(PackageError, match="HTTP 503: busy") as caught:
        await source.scan()

    assert caught.value.details["retryable"] is True


@pytest.mark.parametrize("block", range(1, len(CONTENT) // BLOCK))
async def test_hb10_a_download_cut_after_any_block_is_resumed_there(
    source, web, manifest, store, pull, reply, block
) -> None:
    blob = manifest.blobs[0]
    web.rule(blob.digest[7:], reply(base=True, cut_after=block * BLOCK))

    error = await refused(pull, source, manifest)

    assert (error.code, error.details["retryable"]) == ("FETCH_FAILED", True)
    assert not store.has(blob.digest)
    web.rules.clear()
    await pull(source, blob)
    assert store.path(blob.digest).read_bytes() == CONTENT
    resumed = web.asked_for(blob.digest[7:])[-1]
    assert resumed.headers["range"] == f"bytes={block * BLOCK}-"
    assert resumed.headers["if-range"]
    assert web.sent_of(blob.digest[7:]) == len(CONTENT)


async def test_hb10_a_server_that_is_killed_and_comes_back_is_resumed(
    source, web, manifest, store, pull, reply
) -> None:
    blob = manifest.blobs[0]
    await source.scan()
    web.rule(blob.digest[7:], reply(base=True, cut_after=BLOCK))
    await refused(pull, source, manifest)
    await web.stop()

    assert (await refused(pull, source, manifest)).details["retryable"] is True

    web.rules.clear()
    await web.start()
    await pull(source, blob)
    assert store.path(blob.digest).read_bytes() == CONTENT
    assert web.sent_of(blob.digest[7:]) == len(CONTENT)


async def test_a_server_without_ranges_starts_over(source, web, manifest, store, pull, reply) -> None:
    blob = manifest.blobs[0]
    web.rule(blob.digest[7:], reply(200, body=CONTENT, cut_after=BLOCK))
    await refused(pull, source, manifest)
    web.rule(blob.digest[7:], reply(200, body=CONTENT))

    await pull(source, blob)

    assert store.path(blob.digest).read_bytes() == CONTENT


async def test_a_blob_that_was_exchanged_between_two_attempts_starts_over(
    source, web, manifest, store, pull, reply
) -> None:
    blob = manifest.blobs[0]
    wrong = b"!" * len(CONTENT)
    web.rule(blob.digest[7:], reply(200, headers={"ETag": '"wrong"'}, body=wrong, cut_after=BLOCK))
    await refused(pull, source, manifest)
    web.rules.clear()

    await pull(source, blob)

    assert store.path(blob.digest).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Range": "bytes 200000-262143/262144"},
        {"Content-Range": "pages 1-2/3"},
        {"Content-Range": "bytes 9-3/262144"},
        {"Content-Range": f"bytes {BLOCK}-262143/262144", "ETag": '"other"'},
    ],
    ids=["no range", "a later range", "another unit", "backwards", "another tag"],
)
async def test_a_partial_answer_of_no_use_is_asked_for_whole(
    source, web, manifest, store, pull, reply, headers
) -> None:
    blob = manifest.blobs[0]
    web.rule(blob.digest[7:], reply(base=True, cut_after=BLOCK))
    await refused(pull, source, manifest)
    good = web._reply
    web.rule(
        blob.digest[7:],
        lambda request, given: (
            reply(206, headers=headers, body=b"junk")(request, given) if "range" in request.headers else good(request)
        ),
    )

    await pull(source, blob)

    assert store.path(blob.digest).read_bytes() == CONTENT


async def test_a_range_that_cannot_be_satisfied_is_asked_for_whole(source, web, manifest, reply) -> None:
    blob = manifest.blobs[0]
    good = web._reply
    web.rule(
        blob.digest[7:],
        lambda request, given: reply(416)(request, given) if "range" in request.headers else good(request),
    )

    async with source.open_blob("", blob, start=BLOCK) as stream:
        assert stream.start == 0
        assert b"".join([chunk async for chunk in stream.chunks]) == CONTENT


@pytest.mark.parametrize("start", [0, BLOCK])
@pytest.mark.parametrize(("status", "is_retryable"), [(404, False), (403, False), (429, True), (503, True)])
async def test_a_status_says_whether_trying_again_may_help(
    source, web, manifest, reply, start, status, is_retryable
) -> None:
    web.rule(manifest.blobs[0].digest[7:], reply(status))

    with pytest.raises(PackageError, match=f"HTTP {status}") as caught:
        async with source.open_blob("", manifest.blobs[0], start=start):
            pass

    assert (caught.value.code, caught.value.details["retryable"]) == ("FETCH_FAILED", is_retryable)


async def test_an_earlier_range_than_was_asked_for_is_used_from_where_it_starts(
    source, web, manifest, pull, reply
) -> None:
    blob = manifest.blobs[0]
    web.rule(blob.digest[7:], reply(206, headers={"Content-Range": "bytes 5-262143/262144"}, body=CONTENT[5:]))

    async with source.open_blob("", blob, start=10) as stream:
        assert stream.start == 5
        assert b"".join([chunk async for chunk in stream.chunks]) == CONTENT[5:]


async def test_a_range_of_other_content_than_was_read_before_is_not_asked_for(source, web, manifest) -> None:
    blob = manifest.blobs[0]

    async with source.open_blob("", blob, start=BLOCK, validator='"of other content"') as stream:
        assert stream.start == 0
    assert web.requests[0].headers["if-range"] == '"of other content"'


async def test_a_weak_tag_is_no_condition_but_is_compared(source, web, manifest) -> None:
    blob = manifest.blobs[0]
    async with source.open_blob("", blob) as stream:
        tag = stream.validator

    async with source.open_blob("", blob, start=BLOCK, validator=f"W/{tag}") as stream:
        assert stream.start == BLOCK
    async with source.open_blob("", blob, start=BLOCK, validator='W/"other"') as stream:
        assert stream.start == 0
    assert all("if-range" not in request.headers for request in web.requests)


async def test_nothing_is_asked_for_where_nothing_is_left(source, web, manifest) -> None:
    blob = manifest.blobs[0]

    async with source.open_blob("", blob, start=blob.size) as stream:
        assert stream.start == blob.size
        assert [chunk async for chunk in stream.chunks] == []
    assert web.requests == []


async def test_a_compressed_answer_is_refused(source, web, manifest, pull, reply) -> None:
    web.rule(manifest.blobs[0].digest[7:], reply(200, headers={"Content-Encoding": "gzip"}, body=b"\x1f\x8b"))

    assert "compressed" in (await refused(pull, source, manifest)).message
    assert web.requests[-1].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(("name", "limit"), [("oci-layout", 4096), ("index.json", 1 << 20)])
async def test_a_document_may_be_as_long_as_its_limit(source, web, reply, name: str, limit: int) -> None:
    content = (web.root / name).read_bytes()
    web.rule(name, reply(200, body=content.ljust(limit)))
    assert len((await source.scan()).offers) == 1

    web.rule(name, reply(200, body=content.ljust(limit + 1)))
    other = HttpSource("remote", web.url)
    with pytest.raises(PackageError, match=f"{name}: more than {limit} bytes"):
        await other.scan()
    await other.close()


@pytest.mark.parametrize("name", ["oci-layout", "index.json"])
@pytest.mark.parametrize(
    ("limits", "message"),
    [(SHORT, "nothing came in time"), (Limits(document_s=0.2), "no whole answer within 0.2 s")],
    ids=["by each wait", "as a whole"],
)
async def test_a_document_that_drips_is_given_up(web, manifest, reply, name: str, limits: Limits, message: str) -> None:
    web.rule(name, reply(base=True, drips=True))
    source = HttpSource("remote", web.url, limits=limits)

    with pytest.raises(PackageError, match=message) as caught:
        await source.scan()

    assert (caught.value.code, caught.value.details["retryable"]) == ("FETCH_FAILED", True)
    await source.close()


async def test_a_blob_that_stalls_is_given_up(web, manifest, pull, reply) -> None:
    web.rule(manifest.blobs[0].digest[7:], reply(base=True, drips=True))
    source = HttpSource("remote", web.url, limits=SHORT)

    assert "nothing came in time" in (await refused(pull, source, manifest)).message
    await source.close()


async def test_stalled_blobs_hold_up_nobody_else(web, manifest, write_sample, pull, reply, tmp_path, store) -> None:
    """More of them than an HTTP client usually has connections."""
    source = HttpSource("remote", web.url)
    web.rule(manifest.blobs[0].digest[7:], reply(base=True, drips=True))
    stalled = [source.open_blob("", manifest.blobs[0]) for _ in range(120)]
    for stream in stalled:
        await stream.__aenter__()
    other = write_sample(tmp_path / "other", contents=(b"another blob",)).blobs[0]
    blob_path(web.root, other.digest).write_bytes(b"another blob")

    await pull(source, other)

    assert store.has(other.digest)
    for stream in stalled:
        await stream.__aexit__(None, None, None)
    await source.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed(source, web, manifest, start_web, reply, status, pull, store, tmp_path) -> None:
    other = await start_web(tmp_path / "other")
    blob_path(web.root, manifest.blobs[0].digest).rename(other.root / "moved")
    web.rule(manifest.blobs[0].digest[7:], reply(status, headers={"Location": f"{other.url}/moved?signature=secret"}))

    await pull(source, manifest.blobs[0])

    assert store.has(manifest.blobs[0].digest)
    assert other.requests[0].path == "/moved?signature=secret"


async def test_a_redirect_in_a_circle_is_left_after_five_turns(source, web, manifest, reply, pull) -> None:
    web.rule("", reply(302, headers={"Location": "/around"}))

    error = await refused(pull, source, manifest)

    assert "more than 5 redirects" in error.message
    assert len(web.requests) == 6


async def test_no_secret_follows_a_redirect_to_another_server(web, manifest, start_web, reply, tmp_path, pull) -> None:
    (tmp_path / "token").write_text("of-this-server\n")
    other = await start_web(tmp_path / "other")
    blob_path(web.root, manifest.blobs[0].digest).rename(other.root / "moved")
    web.rule(manifest.blobs[0].digest[7:], reply(302, headers={"Location": f"{other.url}/moved"}))
    source = HttpSource("remote", web.url, auth=Credentials(token_file=tmp_path / "token"))

    await pull(source, manifest.blobs[0])

    assert web.requests[0].headers["authorization"] == "Bearer of-this-server"
    assert "authorization" not in other.requests[0].headers
    await source.close()


async def test_a_password_that_was_exchanged_is_read_again(web, manifest, reply, tmp_path) -> None:
    secret = tmp_path / "password"
    secret.write_text("old")
    web.rule(
        "",
        lambda request, given: (
            given
            if request.headers.get("authorization") == "Basic dXNlcjpuZXc="
            else reply(401, headers={"WWW-Authenticate": 'Basic realm="x"'})(request, given)
        ),
    )
    source = HttpSource("remote", web.url, auth=Credentials("user", secret))

    with pytest.raises(PackageError, match="HTTP 401") as caught:
        await source.scan()
    assert caught.value.hint == "Correct the credentials."

    secret.write_text("new\n")
    assert len((await source.scan()).offers) == 1
    await source.close()


async def test_tls_needs_an_authority_that_is_trusted(
    start_web, server_tls, certificate, write_sample, tmp_path
) -> None:
    manifest = write_sample(tmp_path / "layout")
    web = await start_web(tmp_path / "layout", tls=server_tls)
    distrusting, trusting = HttpSource("a", web.url), HttpSource("b", web.url, ca_file=certificate[0])

    with pytest.raises(PackageError, match="certificate") as caught:
        await distrusting.scan()
    assert "`ca_file`" in caught.value.hint
    assert [offer.manifest for offer in (await trusting.scan()).offers] == [manifest]
    await distrusting.close()
    await trusting.close()


async def test_https_is_never_left_for_http(start_web, server_tls, certificate, reply, tmp_path) -> None:
    plain, secure = await start_web(tmp_path / "a"), await start_web(tmp_path / "b", tls=server_tls)
    secure.rule("oci-layout", reply(302, headers={"Location": f"{plain.url}/oci-layout"}))
    source = HttpSource("remote", secure.url, ca_file=certificate[0])

    with pytest.raises(PackageError, match="is not https"):
        await source.scan()

    assert plain.requests == []
    await source.close()


async def test_nobody_listening_is_an_outage(tmp_path: Path) -> None:
    source = HttpSource("remote", "http://127.0.0.1:9")

    with pytest.raises(PackageError) as caught:
        await source.scan()

    assert (caught.value.code, caught.value.details["retryable"]) == ("FETCH_FAILED", True)
    await source.close()
    await source.close()
