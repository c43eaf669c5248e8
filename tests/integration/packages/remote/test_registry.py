"""A real registry: what was published there is offered, fetched, resumed; and nothing that was published is exchanged."""

import itertools
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from hotbay.errors import InputError, PackageError
from hotbay.packages.layout import blob_path, read_layout
from hotbay.packages.manifest import ARTIFACT_TYPE, Manifest
from hotbay.packages.oci import IMAGE_MEDIA_TYPE, INDEX_MEDIA_TYPE, descriptor
from hotbay.packages.publish import parse_target, publish
from hotbay.packages.sources.addresses import parse_reference
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.registry import RegistrySource
from hotbay.packages.sources.registry_client import RegistryClient
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of

pytestmark = [pytest.mark.anyio, pytest.mark.process]

BLOCK = 64 << 10
CONTENT = bytes(range(256)) * 1024
_numbers = itertools.count()


@pytest.fixture
def repository(registry) -> str:
    """A repository of this test's own."""
    return f"{registry.host}/plugins/sample{next(_numbers)}"


@pytest.fixture
def push() -> Callable[..., object]:
    async def run(layout: Path, target: str, **options: object) -> object:
        [published] = await publish(layout, parse_target(target), **options)
        return published

    return run


async def offered(reference: str, **options: object) -> list[Manifest]:
    source = RegistrySource("remote", reference, **options)
    try:
        scan = await source.scan()
        assert scan.problems == ()
        return [offer.manifest for offer in scan.offers]
    finally:
        await source.close()


async def test_what_was_published_is_offered_and_fetched(repository, write_sample, push, pull, store, tmp_path) -> None:
    manifest = write_sample(tmp_path / "p", contents=(CONTENT, b"small"), rev=7, version="1.2.3")

    published = await push(tmp_path / "p", repository)

    assert (published.names, published.was_there) == (("7", "1.2.3"), False)
    assert published.sent_bytes > len(CONTENT)
    source = RegistrySource("remote", repository, dev=True)
    scan = await source.scan()
    assert [(offer.manifest, offer.source, offer.dev) for offer in scan.offers] == [(manifest, "remote", True)]
    for blob in manifest.blobs:
        await pull(source, blob)
        assert store.has(blob.digest, size=blob.size)
    await source.close()


async def test_publishing_again_changes_and_sends_nothing(repository, write_sample, push, tmp_path) -> None:
    manifest = write_sample(tmp_path / "p")
    first = await push(tmp_path / "p", repository)

    again = await push(tmp_path / "p", repository)

    assert (again.was_there, again.sent_bytes, again.names) == (True, 0, first.names)
    assert await offered(repository) == [manifest]


async def test_a_revision_is_never_given_other_content(repository, write_sample, push, tmp_path) -> None:
    manifest = write_sample(tmp_path / "p", rev=3)
    other = write_sample(tmp_path / "q", rev=3, contents=(b"other",))
    await push(tmp_path / "p", repository)

    with pytest.raises(PackageError, match="rev 3") as caught:
        await push(tmp_path / "q", repository)

    assert caught.value.code == "DIGEST_CONFLICT"
    assert manifest.digest in caught.value.message
    assert other.digest in caught.value.message
    assert await offered(repository) == [manifest]


async def test_builds_for_two_platforms_share_a_revision(repository, write_sample, push, tmp_path) -> None:
    one = write_sample(tmp_path / "p", platform="python-cp311-linux-x86_64")
    two = write_sample(tmp_path / "q", platform="python-cp311-linux-aarch64", contents=(b"other",))

    for layout in ("p", "q", "p"):
        await push(tmp_path / layout, repository)

    assert await offered(f"{repository}:1") == [two, one]
    assert await offered(f"{repository}:1.0.0") == [two, one]


async def test_the_tag_of_a_version_leads_to_its_highest_revision(repository, write_sample, push, tmp_path) -> None:
    low = write_sample(tmp_path / "p", rev=1)
    high = write_sample(tmp_path / "q", rev=2, contents=(b"other",))
    await push(tmp_path / "q", repository)

    published = await push(tmp_path / "p", repository)

    assert published.names == ("1",)
    assert await offered(f"{repository}:1.0.0") == [high]
    assert await offered(repository) == [high, low]


async def test_a_named_tag_moves(repository, write_sample, push, tmp_path) -> None:
    low = write_sample(tmp_path / "p", rev=1)
    write_sample(tmp_path / "q", rev=2, contents=(b"other",))

    for layout in ("q", "p"):
        await push(tmp_path / layout, f"{repository}:stable")

    assert await offered(f"{repository}:stable") == [low]


async def test_a_repository_holds_one_plugin(repository, write_sample, push, tmp_path) -> None:
    write_sample(tmp_path / "p")
    write_sample(tmp_path / "q", id="other")
    await push(tmp_path / "p", repository)

    with pytest.raises(InputError, match="holds the plugin sample, not other"):
        await push(tmp_path / "q", repository)


async def test_wheels_of_another_repository_are_not_sent_again(
    repository, registry, write_sample, push, tmp_path
) -> None:
    write_sample(tmp_path / "p", contents=(CONTENT,))
    write_sample(tmp_path / "q", contents=(CONTENT,), id="other")
    await push(tmp_path / "p", repository)
    name = repository.partition("/")[2]

    published = await push(tmp_path / "q", f"{repository}-other", mounts_from=name)

    assert published.sent_bytes < len(CONTENT)
    assert len(await offered(f"{repository}-other")) == 1


async def test_one_image_is_offered_by_its_digest(repository, write_sample, push, tmp_path) -> None:
    write_sample(tmp_path / "p", rev=1)
    high = write_sample(tmp_path / "q", rev=2, contents=(b"other",))
    for layout in ("p", "q"):
        await push(tmp_path / layout, repository)
    client = RegistryClient(parse_reference(repository))
    image = await client.resolve("2")
    await client.close()
    assert image is not None

    assert await offered(f"{repository}@{image.digest}") == [high]


async def test_what_is_no_plugin_is_passed_over(repository, write_sample, push, tmp_path) -> None:
    manifest = write_sample(tmp_path / "p")
    await push(tmp_path / "p", repository)
    client = RegistryClient(parse_reference(repository), pushes=True)

    async def nothing():
        yield b"{}"

    await client.upload(digest_of(b"{}"), 2, nothing)
    config = f'{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{digest_of(b"{}")}","size":2}}'
    image = f'{{"schemaVersion":2,"mediaType":"{IMAGE_MEDIA_TYPE}","config":{config},"layers":[]}}'.encode()
    for tag in ("latest", f"sha256-{'0' * 64}"):
        await client.put_document(tag, IMAGE_MEDIA_TYPE, image)
    index = f'{{"schemaVersion":2,"mediaType":"{INDEX_MEDIA_TYPE}","manifests":[]}}'.encode()
    await client.put_document("empty", INDEX_MEDIA_TYPE, index)
    await client.close()

    assert await offered(repository) == [manifest]


async def test_a_tag_that_leads_to_something_else_is_not_taken_over(repository, write_sample, push, tmp_path) -> None:
    write_sample(tmp_path / "p", rev=5)
    client = RegistryClient(parse_reference(repository), pushes=True)
    index = f'{{"schemaVersion":2,"mediaType":"{INDEX_MEDIA_TYPE}","manifests":[]}}'.encode()
    await client.put_document("5", INDEX_MEDIA_TYPE, index)
    await client.close()

    with pytest.raises(InputError, match="tag 5 leads to something that is no plugin"):
        await push(tmp_path / "p", repository)


@pytest.mark.parametrize("suffix", ["", ":none", f"@sha256:{'0' * 64}"])
async def test_what_is_not_there_is_a_failure_of_the_source(repository, suffix: str) -> None:
    with pytest.raises(PackageError) as caught:
        await offered(f"{repository}{suffix}")

    assert caught.value.code == "FETCH_FAILED"
    assert caught.value.details["status"] == 404


async def test_a_damaged_blob_is_refused_by_the_registry_and_the_tag_stays_away(
    repository, write_sample, tmp_path
) -> None:
    manifest = write_sample(tmp_path / "p")
    client = RegistryClient(parse_reference(repository), pushes=True)

    async def other():
        yield b"CONTENT"

    with pytest.raises(PackageError, match="DIGEST_INVALID"):
        await client.upload(manifest.blobs[0].digest, 7, other)
    assert await client.resolve("1") is None
    await client.close()


@pytest.mark.parametrize("block", range(1, len(CONTENT) // BLOCK))
async def test_hb10_a_download_killed_after_any_block_is_resumed(
    repository, write_sample, push, store, tmp_path, block
) -> None:
    [blob] = write_sample(tmp_path / "p", contents=(CONTENT,)).blobs
    await push(tmp_path / "p", repository)
    received: list[int] = []

    for attempt in range(2):
        source = RegistrySource("remote", repository)
        with store.part(blob.digest, blob.size) as part:
            async with source.open_blob("", blob, start=part.offset, validator=part.validator) as stream:
                assert stream.start == part.offset == attempt * block * BLOCK
                if attempt == 0:
                    part.restart(stream.validator)
                async for chunk in stream.chunks:
                    taken = chunk if attempt else chunk[: block * BLOCK - part.offset]
                    part.write(taken)
                    received.append(len(taken))
                    if not attempt and part.offset == block * BLOCK:
                        break
            await source.close()
            if attempt:
                part.finish()
        assert store.has(blob.digest) is bool(attempt)

    assert sum(received) == len(CONTENT)
    assert store.path(blob.digest).read_bytes() == CONTENT


async def test_p01_a_blob_that_the_registry_lost_to_the_disk_is_refused(
    registry_data, repository, write_sample, push, pull, store: BlobStore, tmp_path
) -> None:
    [blob] = write_sample(tmp_path / "p", contents=(CONTENT[:-1] + b"x",)).blobs
    await push(tmp_path / "p", repository)
    other = CONTENT[:-1] + b"?"
    [data] = registry_data.glob(f"data/docker/registry/v2/blobs/sha256/*/{blob.digest[7:]}/data")
    data.write_bytes(other)
    source = RegistrySource("remote", repository)

    with pytest.raises(PackageError) as caught:
        await pull(source, blob)

    assert caught.value.code == "DIGEST_MISMATCH"
    assert blob.digest in caught.value.message
    assert digest_of(other) in caught.value.message
    assert not store.has(blob.digest)
    await source.close()


@pytest.fixture
def refused_without(push, tmp_path) -> Callable[..., Awaitable[Credentials]]:
    """refused_without(registry, target): nobody and a wrong password publish nothing there; gives the right one."""

    async def run(registry: Any, target: str) -> Credentials:
        wrong = tmp_path / "wrong"
        wrong.write_text("guess")
        for auth in (None, Credentials(registry.user, wrong)):
            with pytest.raises(PackageError, match="HTTP 401") as caught:
                await push(tmp_path / "p", target, auth=auth)
            assert caught.value.hint == "Correct the credentials."
        return Credentials(registry.user, registry.password_file)

    return run


@pytest.fixture
def fetched_from(pull, store) -> Callable[..., Awaitable[None]]:
    """fetched_from(target, manifest, auth): its first blob comes from there."""

    async def run(target: str, manifest: Manifest, auth: Credentials) -> None:
        source = RegistrySource("remote", target, auth=auth)
        await pull(source, manifest.blobs[0])
        assert store.has(manifest.blobs[0].digest)
        await source.close()

    return run


async def test_a_locked_registry_takes_the_right_password_only(
    locked_registry, write_sample, push, refused_without, fetched_from, tmp_path
) -> None:
    manifest, target = write_sample(tmp_path / "p"), f"{locked_registry.host}/plugins/sample"
    good = await refused_without(locked_registry, target)
    await push(tmp_path / "p", target, auth=good)

    assert await offered(target, auth=good) == [manifest]
    with pytest.raises(PackageError, match="HTTP 401"):
        await offered(target)
    await fetched_from(target, manifest, good)


async def test_a_registry_with_a_token_service_takes_its_tokens_only(
    token_registry, write_sample, push, refused_without, fetched_from, tmp_path
) -> None:
    registry, service = token_registry
    manifest, target = write_sample(tmp_path / "p"), f"{registry.host}/plugins/sample"
    good = await refused_without(registry, target)
    assert service.given == 0
    await push(tmp_path / "p", target, auth=good)
    assert set(service.asked) == {"repository:plugins/sample:pull,push"}

    service.asked.clear()
    assert await offered(target, auth=good) == [manifest]
    assert set(service.asked) == {"repository:plugins/sample:pull"}
    await fetched_from(target, manifest, good)


async def test_only_what_is_new_is_read_again(repository, write_sample, push, tmp_path) -> None:
    asked: list[tuple[str, str]] = []

    class Counting(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            asked.append((request.method, request.url.path.rpartition("/")[2]))
            return await super().handle_async_request(request)

    write_sample(tmp_path / "p", rev=1)
    write_sample(tmp_path / "q", rev=2, version="2.0.0", contents=(b"other",))
    await push(tmp_path / "p", repository)
    source = RegistrySource("remote", repository, transport=Counting())
    await source.scan()
    asked.clear()

    first = await source.scan()
    assert sorted(asked) == [("GET", "list"), ("HEAD", "1"), ("HEAD", "1.0.0")]
    asked.clear()
    await push(tmp_path / "q", repository)
    second = await source.scan()

    assert [offer.manifest.rev for offer in (*first.offers, *second.offers)] == [1, 2, 1]
    assert len([method for method, _ in asked if method == "GET"]) == 3
    await source.close()


async def test_image_tools_can_carry_a_package_away_and_back(repository, write_sample, push, tmp_path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed (Debian: skopeo)")
    manifest = write_sample(tmp_path / "p", contents=(CONTENT, b"small"))
    await push(tmp_path / "p", repository)

    async def skopeo(*arguments: str) -> None:
        command = [
            "skopeo",
            "copy",
            "--insecure-policy",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
            *arguments,
        ]
        await anyio.to_thread.run_sync(
            lambda: subprocess.run(command, check=True, capture_output=True, timeout=60, cwd=tmp_path)
        )

    await skopeo(f"docker://{repository}:1", f"oci:{tmp_path}/away")
    await skopeo(f"oci:{tmp_path}/away", f"docker://{repository}-back:copied")

    assert read_layout(tmp_path / "away") == (manifest,)
    assert blob_path(tmp_path / "away", manifest.blobs[0].digest).read_bytes() == CONTENT
    assert await offered(f"{repository}-back") == [manifest]


async def test_a_platform_that_another_tool_left_is_kept(repository, write_sample, push, tmp_path) -> None:
    """The tag of a revision leads to an index that was not written here."""
    one = write_sample(tmp_path / "p", platform="python-cp311-linux-x86_64")
    two = write_sample(tmp_path / "q", platform="python-cp311-linux-aarch64", contents=(b"other",))
    await push(tmp_path / "p", f"{repository}:first")
    client = RegistryClient(parse_reference(repository), pushes=True)
    image = await client.resolve("first")
    assert image is not None
    entry = descriptor(IMAGE_MEDIA_TYPE, image.digest, image.size, ARTIFACT_TYPE)
    index = (
        f'{{ "schemaVersion": 2, "mediaType": "{INDEX_MEDIA_TYPE}",'
        f' "manifests": [{entry.model_dump_json(by_alias=True, exclude_defaults=True)}] }}'
    )
    await client.put_document("1", INDEX_MEDIA_TYPE, index.encode())
    await client.close()

    await push(tmp_path / "q", repository)

    assert await offered(f"{repository}:1") == [two, one]
