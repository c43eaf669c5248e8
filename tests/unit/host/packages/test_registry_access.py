"""A registry that hands out tokens, and one that answers with what registries leave out: in memory, behind the client."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
import pytest
from hotbay.errors import InputError, PackageError
from hotbay.packages.layout import blob_path
from hotbay.packages.sources.credentials import Credentials
from hotbay.packages.sources.registry import RegistrySource
from hotbay.packages.sources.registry_client import TAG_LIMIT_COUNT
from hotbay.packages.sources.web import Limits
from hotbay.store.digests import digest_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FakeRegistry(httpx.AsyncBaseTransport):
    """One repository `a/b` that serves a layout, with a token service beside it."""

    def __init__(self, layout: Path | None = None) -> None:
        self.layout = layout
        self.tags: object = ["1"]
        self.realm = ""
        self.tokens = 0
        self.revokes = 0
        self.token_asks: list[httpx.Request] = []
        self.asks: list[httpx.Request] = []
        self.head_digest: str | None = "true"
        self.get_digest: str | None = "true"
        self.page_links: dict[str, str] = {}
        self.token_answer: Callable[[], httpx.Response] | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await anyio.lowlevel.checkpoint()
        made = self._made(request)
        # As it comes from a network: not read yet.
        return httpx.Response(made.status_code, headers=made.headers, stream=httpx.ByteStream(made.content))

    def _made(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/token":
            self.token_asks.append(request)
            self.tokens += 1
            if self.token_answer is not None:
                return self.token_answer()
            return httpx.Response(200, json={"token": f"t{self.tokens}"})
        self.asks.append(request)
        if self.realm and request.headers.get("authorization") != f"Bearer t{self.tokens}":
            challenge = f'Bearer realm="{self.realm}",service="reg",scope="repository:else:pull,push,delete"'
            return httpx.Response(401, headers={"WWW-Authenticate": challenge})
        return self._answer(request)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        _, _, kind, name = request.url.path.removeprefix("/v2/").split("/")
        if kind == "tags":
            self.tokens += self.revokes
            link = self.page_links.get(request.url.query.decode())
            headers = {"Link": f'<{link}>; rel="next"'} if link else {}
            return httpx.Response(200, json={"name": "a/b", "tags": self.tags}, headers=headers)
        assert self.layout is not None
        if kind == "blobs":
            return httpx.Response(200, content=blob_path(self.layout, name).read_bytes())
        entry = json.loads((self.layout / "index.json").read_bytes())["manifests"][0]
        content = blob_path(self.layout, entry["digest"]).read_bytes()
        headers = {"Content-Type": entry["mediaType"], "Content-Length": str(len(content))}
        said = self.head_digest if request.method == "HEAD" else self.get_digest
        if said is not None:
            headers["Docker-Content-Digest"] = entry["digest"] if said == "true" else said
        if request.method == "HEAD":
            return httpx.Response(200, headers=headers)
        return httpx.Response(200, headers=headers, content=content)


@pytest.fixture
def fake(make_package, tmp_path: Path) -> FakeRegistry:
    make_package(tmp_path / "layout")
    return FakeRegistry(tmp_path / "layout")


async def scanned(fake: FakeRegistry, reference: str = "reg.example/a/b", **options: object) -> list[str]:
    source = RegistrySource("remote", reference, transport=fake, **options)
    try:
        scan = await source.scan()
        return [offer.manifest.id for offer in scan.offers] + [problem.code for problem in scan.problems]
    finally:
        await source.close()


async def test_a_token_is_asked_for_once_and_for_this_repository_alone(fake: FakeRegistry) -> None:
    fake.realm = "https://auth.example/token"

    assert await scanned(fake) == ["sample"]

    [ask] = fake.token_asks
    assert dict(ask.url.params) == {"service": "reg", "scope": "repository:a/b:pull"}
    assert "authorization" not in ask.headers


async def test_a_token_is_given_for_user_and_password(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.realm = "https://auth.example/token"
    (tmp_path / "password").write_text("word\n")

    assert await scanned(fake, auth=Credentials("user", tmp_path / "password")) == ["sample"]

    basic = "Basic " + base64.b64encode(b"user:word").decode()
    assert fake.token_asks[0].headers["authorization"] == basic
    assert all(ask.headers.get("authorization") != basic for ask in fake.asks)


async def test_a_token_that_is_no_longer_taken_is_replaced_once_for_all_who_wait(fake: FakeRegistry) -> None:
    fake.realm = "https://auth.example/token"
    fake.tags = [str(number) for number in range(20)]
    source = RegistrySource("remote", "reg.example/a/b", transport=fake)
    await source.scan()
    fake.revokes = 1

    assert len((await source.scan()).offers) == 1

    assert len(fake.token_asks) == 2
    await source.close()


@pytest.mark.parametrize(
    "realm",
    [
        "http://auth.example/token",
        "http://localhost/token",
        "/token",
        "ftp://auth.example/token",
        "https://u:p@x/token",
    ],
)
async def test_a_token_service_where_somebody_reads_along_is_not_asked(fake: FakeRegistry, realm: str) -> None:
    fake.realm = realm

    with pytest.raises(PackageError, match="token service"):
        await scanned(fake)
    assert fake.token_asks == []


async def test_a_registry_in_this_machine_may_have_its_token_service_there(fake: FakeRegistry) -> None:
    fake.realm = "http://localhost:99/token"

    assert await scanned(fake, "localhost:5000/a/b") == ["sample"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (httpx.Response(401, text="no"), "HTTP 401"),
        (httpx.Response(200, text="<html>"), "no token"),
        (httpx.Response(200, json={}), "no token came"),
        (httpx.Response(200, json={"token": "a\r\nb"}), "no token came"),
        (httpx.Response(302, headers={"Location": "https://other.example/token"}), "HTTP 302"),
    ],
    ids=["refused", "no json", "empty", "with a line's end", "redirected"],
)
async def test_a_token_service_that_gives_no_token(fake: FakeRegistry, answer: httpx.Response, message: str) -> None:
    fake.realm = "https://auth.example/token"
    fake.token_answer = lambda: answer

    with pytest.raises(PackageError, match=message):
        await scanned(fake)


async def test_a_given_token_is_used_as_it_is(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.realm = "https://auth.example/token"
    (tmp_path / "token").write_text("t0\n")

    assert await scanned(fake, auth=Credentials(token_file=tmp_path / "token")) == ["sample"]
    assert fake.token_asks == []


@pytest.mark.parametrize("content", [b"", b"\n", b"two\nlines", "ümlaut".encode(), b"\xff", b"x" * (1 << 15)])
async def test_a_token_file_that_holds_none_is_named(fake: FakeRegistry, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)

    with pytest.raises(PackageError, match="token") as caught:
        await scanned(fake, auth=Credentials(token_file=tmp_path / "token"))
    assert caught.value.code == "FETCH_FAILED"
    assert fake.asks == []


async def test_a_missing_password_file_is_named(fake: FakeRegistry, tmp_path: Path) -> None:
    fake.realm = "https://auth.example/token"

    with pytest.raises(PackageError, match="gone"):
        await scanned(fake, auth=Credentials("user", tmp_path / "gone"))


def test_secrets_are_not_sent_where_somebody_reads_along(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be https"):
        RegistrySource("remote", "http://reg.example/a/b", auth=Credentials("user", tmp_path / "x"))


@pytest.mark.parametrize("head_digest", [None, "sha512:0", "junk"])
async def test_a_registry_that_names_no_digest_is_read(fake: FakeRegistry, head_digest: str | None) -> None:
    fake.head_digest = head_digest

    assert await scanned(fake) == ["sample"]


@pytest.mark.parametrize("head_digest", [None, digest_of(b"something else")])
async def test_p01_a_document_that_is_not_of_the_digest_that_was_said_is_a_problem(
    fake: FakeRegistry, head_digest: str | None
) -> None:
    fake.head_digest, fake.get_digest = head_digest, digest_of(b"something else")

    assert await scanned(fake) == ["DIGEST_MISMATCH"]


@pytest.mark.parametrize("tags", [None, []])
async def test_a_repository_without_tags_offers_nothing(fake: FakeRegistry, tags: object) -> None:
    fake.tags = tags

    assert await scanned(fake) == []


@pytest.mark.parametrize("tags", ["1", [1], ["t" * 129], {"1": 2}])
async def test_a_list_of_tags_without_form_is_a_failure(fake: FakeRegistry, tags: object) -> None:
    fake.tags = tags

    with pytest.raises(PackageError, match="no list of tags"):
        await scanned(fake)


async def test_pages_of_tags_are_followed_on_this_registry_only(fake: FakeRegistry) -> None:
    fake.page_links = {"": "/v2/a/b/tags/list?last=1"}
    assert await scanned(fake) == ["sample"]
    assert [ask.url.query for ask in fake.asks[:2]] == [b"", b"last=1"]

    fake.page_links = {"": "https://other.example/v2/a/b/tags/list"}
    with pytest.raises(PackageError, match="another server"):
        await scanned(fake)


async def test_pages_without_end_are_left(fake: FakeRegistry) -> None:
    fake.page_links = {"": "?x", "x": "?x"}

    assert await scanned(fake) == ["sample"]
    assert len(fake.asks) < 110


@pytest.mark.parametrize(("count", "problems"), [(TAG_LIMIT_COUNT, 0), (TAG_LIMIT_COUNT + 1, 1)])
async def test_more_tags_than_the_limit_are_a_problem(fake: FakeRegistry, count: int, problems: int) -> None:
    fake.tags = [str(number) for number in range(count)]

    assert await scanned(fake) == ["sample"] + ["FETCH_FAILED"] * problems
    assert "/v2/a/b/manifests/0" in {ask.url.path for ask in fake.asks} or problems


async def test_a_look_that_takes_too_long_is_given_up() -> None:
    class Silent(FakeRegistry):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await anyio.Event().wait()
            return self._made(request)

    with pytest.raises(PackageError, match="did not end within"):
        await scanned(Silent(), limits=Limits(scan_s=0.05))


@pytest.mark.parametrize(
    ("reference", "rule"), [("reg.example", "HOST/NAME"), ("reg.example/UPPER", "repository"), ("x/a:-", "tag")]
)
def test_a_reference_that_cannot_be_used_is_the_operator_s(reference: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        RegistrySource("remote", reference)


def test_a_ca_file_that_cannot_be_used_is_the_operator_s(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("empty.pem", "gone.pem"):
        with pytest.raises(InputError, match="ca_file"):
            RegistrySource("remote", "reg.example/a", ca_file=tmp_path / name)
