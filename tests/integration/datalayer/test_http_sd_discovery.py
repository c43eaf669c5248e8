"""HTTP service discovery against a web server whose answers a test changes; and one document that Prometheus reads, too."""

import asyncio
import base64
import logging
import shutil
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest
from hotbay.config.data_parameters import Tls
from hotbay.config.discovery_fields import Credentials
from hotbay.config.discovery_parameters import HttpSdDiscovery
from hotbay.datalayer.discovery import http_sd
from hotbay.datalayer.discovery.discovery import Discovery
from hotbay.datalayer.discovery.endpoint_documents import EndpointFile
from hotbay.datalayer.discovery.http_sd import MAX_BODY_BYTES
from hotbay.datalayer.discovery.plans import discovery_plan
from hotbay.datalayer.discovery.service_documents import read_service_document
from hotbay.datalayer.endpoint import Delete, EndpointEvent, Upsert
from hotbay.datalayer.fetching.credentials import MAX_SECRET_BYTES
from hotbay.datalayer.store import EndpointStore
from hotbay.errors import InputError
from hotbay.observe.background import Background

from tests.integration.datalayer.conftest import Told

pytestmark = pytest.mark.anyio

WAIT_S = 15.0
INTERVAL_S = 0.05


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    """The loop that the host runs on."""
    return "asyncio", {"use_uvloop": True}


def groups(*targets: str, **labels: str) -> bytes:
    return orjson.dumps([{"targets": targets, "labels": labels}])


class Pool:
    """A store that an HTTP service discovery fills."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 10.0,
        tls: Tls | None = None,
        credentials: Credentials | None = None,
        directory: Path = Path(),
    ) -> None:
        parameters = HttpSdDiscovery(url, INTERVAL_S, timeout_s, "default", tls or Tls(), credentials)
        self.store = EndpointStore()
        plan = discovery_plan("d", parameters, directory)
        self.discovery = Discovery(self.store, plans=[plan], background=Background(), draw=lambda: 0.0)
        self.events: list[EndpointEvent] = []
        self._news = anyio.Event()
        self.store.subscribe(self._hear)

    def _hear(self, event: EndpointEvent) -> None:
        self.events.append(event)
        self._news.set()
        self._news = anyio.Event()

    @property
    def names(self) -> list[str]:
        return sorted(one.name for one in self.store.endpoints())

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(WAIT_S):
            while not condition():
                await self._news.wait()

    async def complains(self, text: str) -> None:
        """Return when a problem of discovery says so."""
        told = Told()
        with anyio.fail_after(WAIT_S):
            while not any(text in str(problem) for problem in self.discovery.problems):
                await told.next()

    @asynccontextmanager
    async def running(self, *, ready: bool = True) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            await tasks.start(self.discovery.run)
            if ready:
                with anyio.fail_after(WAIT_S):
                    await self.discovery.ready.wait()
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def pool(server: Any) -> Pool:
    return Pool(f"http://127.0.0.1:{server.port}/targets?token=secret")


async def test_targets_come_and_go_upserts_first(server: Any, pool: Pool) -> None:
    server.respond = server.page(groups("10.0.0.1:8000", "[fd00::1]:8000", role="decode"))
    async with pool.running():
        assert pool.names == ["10.0.0.1:8000", "[fd00::1]:8000"]
        assert {one.labels["role"] for one in pool.store.endpoints()} == {"decode"}
        request = server.requests[0]
        assert request.startswith(b"GET /targets?token=secret HTTP/1.1\r\n")
        assert b"x-prometheus-refresh-interval-seconds: 0.05\r\n" in request.lower()
        server.respond = server.page(groups("10.0.0.2:8000", "[fd00::1]:8000", role="decode"))
        await pool.until(lambda: len(pool.events) == 4)
        assert [type(event) for event in pool.events[2:]] == [Upsert, Delete]
        assert server.connections == 1


async def test_documents_are_read_beside_the_loop(server: Any, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def read(body: bytes, **options: Any) -> EndpointFile:
        threads.append(threading.get_ident())
        return read_service_document(body, **options)

    monkeypatch.setattr(http_sd, "read_service_document", read)
    server.respond = server.page(groups("a:1"))
    async with pool.running():
        assert pool.names == ["a:1"]
    assert threads
    assert threading.get_ident() not in threads


async def test_an_empty_list_is_ready_and_empties_the_feed(server: Any, pool: Pool) -> None:
    server.respond = server.page(b"[]")
    async with pool.running():
        assert pool.names == []
        server.respond = server.page(groups("a:1"))
        await pool.until(lambda: pool.names == ["a:1"])
        server.respond = server.page(b"[]")
        await pool.until(lambda: pool.names == [])
        assert pool.discovery.problems == ()


async def test_a_document_that_has_not_changed_is_not_sent_again(server: Any, pool: Pool) -> None:
    server.respond = server.page(groups("a:1", "?"), headers='ETag: "v1"\r\n')
    async with pool.running():
        server.respond = server.raw(b'HTTP/1.1 304 Not Modified\r\nETag: "v1"\r\n\r\n')
        await server.answered(3)
        assert all(b'\r\nif-none-match: "v1"\r\n' in request.lower() for request in server.requests[-2:])
        assert pool.names == ["a:1"]
        # What is wrong with the document that holds is still wrong with it.
        assert [problem.path for problem in pool.discovery.problems] == ["[0].targets[1]"]
        server.respond = server.page(groups("b:1"), headers='ETag: "v2"\r\n')
        await pool.until(lambda: pool.names == ["b:1"])
        await server.answered(2)
        assert b'\r\nif-none-match: "v2"\r\n' in server.requests[-1].lower()


MOVED = b"http://secret:secret@other/x?token=secret"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "expected 200, found 503"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "expected 200, found 304"),
        (b"HTTP/1.1 302 Found\r\nLocation: " + MOVED + b"\r\nContent-Length: 0\r\n\r\n", "configure http://other/x if"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[secret\r\nContent-Length: 0\r\n\r\n", "configure what it names if"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n[]", "content encoding"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[]", "/targets: "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "no JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "a list of groups"),
        (b"nonsense\r\n\r\n", "/targets: "),
        (b"", "/targets: "),
    ],
    ids=["503", "304", "redirect", "no-url", "gzip", "cut", "html", "object", "no-http", "closed"],
)
async def test_what_is_no_document_keeps_what_was_there_and_is_told(
    server: Any, pool: Pool, answer: bytes, told: str
) -> None:
    server.respond = server.raw(answer, keep=False)
    async with pool.running(ready=False):
        await pool.complains(told)
        assert not pool.discovery.ready.is_set()
        server.respond = server.page(groups("a:1"))
        with anyio.fail_after(WAIT_S):
            await pool.discovery.ready.wait()
        server.respond = server.raw(answer, keep=False)
        await pool.complains(told)
        assert (pool.names, pool.discovery.ready.is_set()) == (["a:1"], True)
        assert "secret" not in str(pool.discovery.problems)
        server.respond = server.page(groups("b:1"))
        await pool.until(lambda: pool.names == ["b:1"])
        assert pool.discovery.problems == ()


@pytest.mark.parametrize("too_many", [0, 1])
async def test_a_body_may_have_its_most_bytes_and_not_one_more(server: Any, pool: Pool, too_many: int) -> None:
    body = groups("a:1")
    server.respond = server.page(body + b" " * (MAX_BODY_BYTES - len(body) + too_many))
    async with pool.running(ready=not too_many):
        if too_many:
            await pool.complains(f"expected at most {MAX_BODY_BYTES} bytes")
        assert pool.names == ([] if too_many else ["a:1"])


async def test_a_server_that_does_not_answer_is_told(server: Any) -> None:
    pool = Pool(f"http://127.0.0.1:{server.port}/targets", timeout_s=0.3)
    server.respond = server.page(groups("a:1"))

    async def silence(_writer: asyncio.StreamWriter) -> bool:
        await anyio.sleep_forever()
        return False

    async with pool.running():
        server.respond = silence
        await pool.complains("no whole answer within 0.3 s")
        assert pool.names == ["a:1"]
        await server.stop()
        await pool.complains("/targets: ")
        assert pool.names == ["a:1"]


async def test_a_refused_target_keeps_its_last_good_form(server: Any, pool: Pool) -> None:
    server.respond = server.page(groups("a:1", "b:1", role="decode"))
    async with pool.running():
        server.respond = server.page(orjson.dumps([{"targets": ["a:1"], "labels": {"role": 4}}, {"targets": ["c:1"]}]))
        await pool.until(lambda: pool.names == ["a:1", "c:1"])
        assert [one.labels.get("role") for one in pool.store.endpoints() if one.name == "a:1"] == ["decode"]
        assert [problem.path for problem in pool.discovery.problems] == ["[0].labels.role"]


# -- TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that nobody trusts, with its key in the same file; it may stand for a client, too."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return make_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


def make_certificate(made: Path) -> Path:
    """Write a certificate for 127.0.0.1 and its key."""
    command = [
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", str(made), "-keyout", f"{made}.key",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    made.write_text(made.read_text() + Path(f"{made}.key").read_text())
    return made


def other_certificate(folder: Path) -> Path:
    """Another one of the same form."""
    return make_certificate(folder / "other.pem")


@pytest.fixture
async def secure_port(server: Any, certificate: Path) -> AsyncIterator[int]:
    """A port of the server that asks for TLS and for a client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=context)
    server.respond = server.page(groups("a:1"))
    yield listener.sockets[0].getsockname()[1]
    listener.close()
    for writer in tuple(server.open):
        writer.transport.abort()
    await listener.wait_closed()


async def test_a_server_is_proved_and_a_client_shows_itself(secure_port: int, certificate: Path) -> None:
    name = certificate.name
    url = f"https://127.0.0.1:{secure_port}/targets"
    for pool in (
        Pool(url, directory=certificate.parent, tls=Tls(False, name, name, name)),
        Pool(url, directory=certificate.parent, tls=Tls(True, "", name, name)),
    ):
        async with pool.running():
            assert pool.names == ["a:1"]
    distrusts = Pool(url, directory=certificate.parent, tls=Tls(False, "", name, name))
    async with distrusts.running(ready=False):
        await distrusts.complains("CERTIFICATE_VERIFY_FAILED")
        assert distrusts.names == []


async def test_a_certificate_that_is_not_there_is_refused_before_anything_runs(tmp_path: Path) -> None:
    pool = Pool("https://127.0.0.1:1/targets", directory=tmp_path, tls=Tls(ca_cert_path="ca.pem"))
    with pytest.raises(InputError, match=r"ca\.pem"):
        await pool.discovery.check()


async def test_an_authority_that_changes_counts_at_the_next_look_and_a_bad_file_is_told(
    secure_port: int, certificate: Path, tmp_path: Path, server: Any
) -> None:
    both, ca = tmp_path / "both.pem", tmp_path / "ca.pem"
    for file in (both, ca):
        shutil.copy(certificate, file)
    tls = Tls(False, ca.name, both.name, both.name)
    pool = Pool(f"https://127.0.0.1:{secure_port}/targets", directory=tmp_path, tls=tls)
    async with pool.running():
        ca.write_text("no certificate\n")
        await pool.complains("ca.pem")
        server.respond = server.page(groups("b:1"))
        await pool.until(lambda: pool.names == ["b:1"])
        # Good again, and not what the server has.
        shutil.copy(other_certificate(tmp_path), ca)
        await pool.complains("CERTIFICATE_VERIFY_FAILED")
        assert not any("ca.pem" in str(problem) for problem in pool.discovery.problems)
        shutil.copy(certificate, ca)
        server.respond = server.page(groups("c:1"))
        await pool.until(lambda: pool.names == ["c:1"])
        assert pool.discovery.problems == ()


# -- credentials -------------------------------------------------------------------------------------


def shown(server: Any) -> list[str]:
    """What the requests showed, one after the other and each once."""
    found: list[str] = []
    for request in server.requests:
        lines = [
            line.partition(b": ")[2].decode()
            for line in request.split(b"\r\n")
            if line[:14].lower() == b"authorization:"
        ]
        if lines != found[-1:]:
            found += lines or [""]
    return found


async def test_a_token_is_read_again_for_each_request_and_is_in_no_log(
    server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "token").write_text("s3cret-1\n")
    server.respond = server.page(groups("a:1"))
    pool = Pool(
        f"http://127.0.0.1:{server.port}/targets", credentials=Credentials("Bearer", "token"), directory=tmp_path
    )
    await pool.discovery.check()
    async with pool.running():
        (tmp_path / "new").write_text("s3cret-2")
        (tmp_path / "new").rename(tmp_path / "token")
        await server.answered(2)
        server.respond = server.raw(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        await pool.complains("expected 200, found 401")
        assert "`authorization` or `basicAuth`" in str(pool.discovery.problems)
    assert shown(server) == ["Bearer s3cret-1", "Bearer s3cret-2"]
    assert "s3cret" not in caplog.text + str(pool.discovery.problems)


async def test_a_user_shows_a_password(server: Any, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pass wörd\n")
    server.respond = server.page(groups("a:1"))
    credentials = Credentials("Basic", "password", "me")
    pool = Pool(f"http://127.0.0.1:{server.port}/targets", credentials=credentials, directory=tmp_path)
    async with pool.running():
        assert pool.names == ["a:1"]
    assert shown(server) == [f"Basic {base64.b64encode('me:pass wörd'.encode()).decode()}"]


async def test_credentials_do_not_follow_a_redirect(
    server: Any, start_server: Callable[[], Awaitable[Any]], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("s3cret")
    elsewhere = await start_server()
    elsewhere.respond = elsewhere.page(groups("b:1"))
    server.respond = server.raw(
        b"HTTP/1.1 307 Moved\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:%d/targets\r\n\r\n" % elsewhere.port
    )
    pool = Pool(
        f"http://127.0.0.1:{server.port}/targets", credentials=Credentials("Bearer", "token"), directory=tmp_path
    )
    async with pool.running(ready=False):
        await pool.complains("redirects are not followed")
        await server.answered(1)
    assert (elsewhere.connections, pool.names) == (0, [])


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "No such file"),
        (b"", "nothing"),
        (b" \n", "nothing"),
        (b"s3cret\nInjected: header\n", "several lines"),
        (b"s3cret\x7f", "cannot be printed"),
        ("s3crét".encode(), "other characters"),
        (b"\xff s3cret", "no UTF-8"),
        (b"s3cret" + b"x" * MAX_SECRET_BYTES, f"at most {MAX_SECRET_BYTES} bytes"),
    ],
    ids=["none", "empty", "blank", "lines", "control", "accent", "binary", "long"],
)
async def test_a_file_without_a_secret_is_told_with_its_name_and_nobody_is_asked(
    server: Any, tmp_path: Path, content: bytes | None, told: str
) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"x" * MAX_SECRET_BYTES)
    server.respond = server.page(groups("a:1"))
    pool = Pool(
        f"http://127.0.0.1:{server.port}/targets", credentials=Credentials("Bearer", "token"), directory=tmp_path
    )
    async with pool.running():
        file.unlink() if content is None else file.write_bytes(content)
        await pool.complains(told)
        (problem,) = pool.discovery.problems
        assert problem.place is not None
        assert (problem.place.file, pool.names) == (str(file), ["a:1"])
        assert "s3cr" not in str(problem)
        with pytest.raises(InputError, match=told):
            await pool.discovery.check()
        file.write_bytes(b"good")
        server.respond = server.page(groups("b:1"))
        await pool.until(lambda: pool.names == ["b:1"])
    assert shown(server) == [f"Bearer {'x' * MAX_SECRET_BYTES}", "Bearer good"]


# -- a foreign reader --------------------------------------------------------------------------------

PROMETHEUS = """
scrape_configs:
- job_name: engines
  http_sd_configs: [{{url: "http://127.0.0.1:{port}/targets", refresh_interval: 1s}}]
"""


@pytest.mark.process
async def test_prometheus_finds_the_same_targets_and_labels_in_the_same_document(
    server: Any, pool: Pool, tmp_path: Path
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    document = [
        {"targets": ["127.0.0.1:1", "127.0.0.1:2"], "labels": {"role": "decode", "__meta_rack": "4"}},
        {"targets": ["[::1]:3"]},
    ]
    server.respond = server.page(orjson.dumps(document), headers="Content-Type: application/json\r\n")
    config = tmp_path / "prometheus.yaml"
    config.write_text(PROMETHEUS.format(port=server.port))
    async with pool.running():
        with anyio.fail_after(WAIT_S):
            done = await anyio.run_process(
                [promtool, "check", "service-discovery", "--timeout=2s", str(config), "engines"]
            )
        ours = {(one.authority, *sorted(one.labels.items())) for one in pool.store.endpoints()}
    own = ("__address__", "__metrics_path__", "__scheme__", "__scrape_", "__meta_url", "job")
    found = set()
    for target in orjson.loads(done.stdout[done.stdout.index(b"[") :]):
        labels = target["discoveredLabels"]
        rest = {name: text for name, text in labels.items() if not name.startswith(own)}
        found.add((labels["__address__"], *sorted(rest.items())))
    assert found == ours
    assert len(found) == 3
