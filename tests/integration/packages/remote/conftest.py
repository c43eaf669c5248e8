"""A web server that misbehaves as a test says, a real registry in two variants, and packages to serve from them."""

import asyncio
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import anyio
import bcrypt
import pytest
from hotbay.packages.fetch_blob import Pull, pull_blob
from hotbay.packages.layout import write_layout
from hotbay.packages.manifest import Blob, Manifest, ProtocolRange, host_platform
from hotbay.store.blobs import BlobStore
from hotbay.store.digests import digest_of

from tests.integration.packages.remote.token_service import ISSUER, SERVICE, TokenService, token_service

WAIT_S = 30.0
"""Deadline of waits for what takes well below a second on a machine of its own."""

# -- a web server ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]


@dataclass(frozen=True)
class Reply:
    """What to answer. The body's length is stated truly unless the headers say otherwise."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_after: int | None = None
    """Hang up after so many bytes of the body."""
    drips: bool = False
    """Send the body's first byte, then nothing until the test ends."""


Rule = Callable[[Request, Reply], Reply]


class WebFolder:
    """Serves the files below `root`, as a plain web server does: ranges, entity tags, conditions.

    `rule` changes every answer whose path ends with the text it was given for.
    """

    def __init__(self, root: Path, *, tls: ssl.SSLContext | None = None) -> None:
        self.root = root
        self.port = 0
        self.requests: list[Request] = []
        self.sent: dict[str, int] = {}
        self.rules: dict[str, Rule] = {}
        self._tls = tls
        self._ended = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def rule(self, path_end: str, rule: Rule) -> None:
        self.rules[path_end] = rule

    def sent_of(self, path_end: str) -> int:
        """Bytes of bodies that went out for this path."""
        return sum(count for path, count in self.sent.items() if path.endswith(path_end))

    def asked_for(self, path_end: str) -> list[Request]:
        return [request for request in self.requests if request.path.endswith(path_end)]

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Also what is killed: connections are reset."""
        self._ended.set()
        if self._listener is not None:
            self._listener.close()
            for writer in tuple(self._open):
                writer.transport.abort()
            await self._listener.wait_closed()
            self._listener = None
        self._ended = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ")
                headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:])}
                request = Request(method, path, headers)
                self.requests.append(request)
                reply = self._reply(request)
                for end, rule in self.rules.items():
                    if path.endswith(end):
                        reply = rule(request, reply)
                if not await self._send(writer, request, reply):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    def _reply(self, request: Request) -> Reply:
        file = self.root / request.path.partition("?")[0].lstrip("/")
        if not file.is_file():
            return Reply(404, body=b"not found")
        content = file.read_bytes()
        tag = f'"{digest_of(content)[7:23]}"'
        headers = {"ETag": tag, "Accept-Ranges": "bytes"}
        if request.headers.get("if-none-match") == tag:
            return Reply(304, headers)
        asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
        if asked is None or request.headers.get("if-range", tag) != tag:
            return Reply(200, headers, content)
        start = int(asked[1])
        if start >= len(content):
            return Reply(416, {**headers, "Content-Range": f"bytes */{len(content)}"})
        headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        return Reply(206, headers, content[start:])

    async def _send(self, writer: asyncio.StreamWriter, request: Request, reply: Reply) -> bool:
        headers = {"Content-Length": str(len(reply.body)), **reply.headers}
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} Status\r\n{lines}\r\n".encode())
        body = b"" if request.method == "HEAD" or reply.status == 304 else reply.body
        body = body[:1] if reply.drips else body[: reply.cut_after]
        writer.write(body)
        self.sent[request.path] = self.sent.get(request.path, 0) + len(body)
        await writer.drain()
        if reply.drips:
            await self._ended.wait()
        if reply.cut_after is not None:
            # Closed in order, so that what was written before does arrive.
            writer.close()
        return not reply.drips and reply.cut_after is None


@pytest.fixture
async def start_web(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[WebFolder]]]:
    """start_web(root, tls=None): a running server; all end with the test."""
    started: list[WebFolder] = []

    async def start(root: Path | None = None, *, tls: ssl.SSLContext | None = None) -> WebFolder:
        root = tmp_path / "site" if root is None else root
        root.mkdir(exist_ok=True)
        started.append(WebFolder(root, tls=tls))
        await started[-1].start()
        return started[-1]

    yield start
    for server in started:
        await server.stop()


@pytest.fixture
async def web(start_web: Callable[..., Awaitable[WebFolder]]) -> WebFolder:
    return await start_web()


@pytest.fixture
def reply() -> Callable[..., Rule]:
    """reply(status, …): a rule that answers with exactly this, whatever was asked; reply(base=True, …) changes the answer."""

    def make(status: int = 200, *, base: bool = False, **changes: object) -> Rule:
        if base:
            return lambda _request, given: replace(given, **changes)
        return lambda _request, _given: Reply(status, **changes)

    return make


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody trusts, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    made = (folder / "cert.pem", folder / "key.pem")
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made[0]), "-keyout", str(made[1]),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return made


@pytest.fixture(scope="session")
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


# -- a real registry ------------------------------------------------------------------------------

USER, PASSWORD = "publisher", "correct horse"


@dataclass(frozen=True)
class Registry:
    """`host` is what a reference begins with."""

    host: str
    user: str | None = None
    password_file: Path | None = None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _run_registry(folder: Path, auth: dict[str, object] | None = None) -> Iterator[str]:
    binary = shutil.which("docker-registry")
    if binary is None:
        pytest.skip("docker-registry is not installed (Debian: docker-registry)")
    for attempt in range(3):
        port = _free_port()
        config: dict[str, object] = {
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
            "http": {"addr": f"127.0.0.1:{port}", "secret": "of these tests"},
        }
        if auth is not None:
            config["auth"] = auth
        # JSON is YAML.
        (folder / "config.yml").write_text(json.dumps(config))
        command = [binary, "serve", str(folder / "config.yml")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        assert process.stderr is not None
        lines = iter(process.stderr.readline, b"")
        try:
            if not any(b"listening on" in line for line in lines):
                assert attempt < 2, "the registry does not start"
                continue
            drain = threading.Thread(target=lambda lines=lines: [None for _ in lines], daemon=True)
            drain.start()
            yield f"127.0.0.1:{port}"
            return
        finally:
            process.terminate()
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stderr.close()


@pytest.fixture(scope="session")
def registry_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the open registry keeps its files."""
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="session")
def registry(registry_data: Path) -> Iterator[Registry]:
    """Debian's registry, open to everybody. Repositories are the tests' to name apart."""
    for host in _run_registry(registry_data):
        yield Registry(host)


@pytest.fixture(scope="session")
def locked_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """The same, for one user."""
    folder = tmp_path_factory.mktemp("locked")
    users = folder / "users"
    users.write_text(f"{USER}:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(rounds=4)).decode()}\n")
    secret = folder / "password"
    secret.write_text(f"{PASSWORD}\n")
    for host in _run_registry(folder, {"htpasswd": {"realm": "tests", "path": str(users)}}):
        yield Registry(host, USER, secret)


@pytest.fixture(scope="session")
def token_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, TokenService]]:
    """The same, which trusts the tokens of a service; the service knows one user."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tokens")
    secret = folder / "password"
    secret.write_text(f"{PASSWORD}\n")
    with token_service(folder, USER, PASSWORD) as (service, certificate):
        realm = f"http://127.0.0.1:{service.server_address[1]}/token"
        auth = {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(certificate)}
        for host in _run_registry(folder, {"token": auth}):
            yield Registry(host, USER, secret), service


# -- packages -------------------------------------------------------------------------------------


@pytest.fixture
def write_sample(tmp_path: Path) -> Callable[..., Manifest]:
    """write_sample(out, …): a layout whose wheels hold any bytes; enough for all but installing it."""

    def write(
        out: Path,
        *,
        contents: Sequence[bytes] = (b"content",),
        rev: int = 1,
        version: str = "1.0.0",
        platform: str = "",
        id: str = "sample",  # noqa: A002 - the manifest's own word
    ) -> Manifest:
        aside = tmp_path / f"wheels-of-{out.name}"
        aside.mkdir(parents=True, exist_ok=True)
        wheels = {f"part{n}-1.0-py3-none-any.whl": content for n, content in enumerate(contents)}
        for name, content in wheels.items():
            (aside / name).write_bytes(content)
        manifest = Manifest(
            id=id,
            publisher="tests",
            rev=rev,
            version=version,
            platform=platform or host_platform(),
            entrypoint="sample:plugin",
            types=("sample-scorer",),
            protocol=ProtocolRange(first=1, last=1),
            blobs=tuple(Blob(name=name, digest=digest_of(data), size=len(data)) for name, data in wheels.items()),
        )
        write_layout(out, manifest, {name: aside / name for name in wheels})
        return manifest

    return write


@pytest.fixture
def pull(store: BlobStore) -> Callable[..., Awaitable[None]]:
    """pull(source, blob): brings a blob into the store as the host does."""

    async def run(source: object, blob: Blob, received: Callable[[int], None] = lambda _: None) -> None:
        one = Pull(source, "", blob, min_rate_bytes_per_s=1.0, stall_s=WAIT_S, received=received)
        with anyio.fail_after(WAIT_S):
            await pull_blob(store, one, threads=anyio.CapacityLimiter(4))

    return run
