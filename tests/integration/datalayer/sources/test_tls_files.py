"""Files of TLS that change while they are in use, against real servers: taken over when they are good, and told when not."""

import json
import shutil
import ssl
import threading
from pathlib import Path

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from hotbay.config.data_parameters import MetricsSource, Tls
from hotbay.config.data_types import BUILTIN_FORMS
from hotbay.config.data_uses import SourceUse
from hotbay.config.documents import MAX_BYTES
from hotbay.datalayer.fetching.tls import LOOK_S, ClientTls
from hotbay.datalayer.scraping.metrics_source import MetricsPoller
from hotbay.datalayer.source import SourceError
from hotbay.datalayer.sources.builtin import make_source
from hotbay.datalayer.sources.http import Where
from hotbay.datalayer.sources.models import ModelsPage, ModelsSource, ServedModel

pytestmark = pytest.mark.anyio

MODELS = json.dumps({"data": [{"id": "base"}]}).encode()
FOUND = ModelsPage((ServedModel("base"),))
WAIT_S = 10.0


@pytest.fixture(scope="session")
def other(tmp_path_factory, authority):
    """Another authority of the same name."""
    return type(authority)(tmp_path_factory.mktemp("other"))


def server_context(authority, *, clients_of=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", "IP:127.0.0.1"))
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cafile=clients_of.ca)
    return context


async def served(serve, context):
    server = await serve(context)
    server.page("/v1/models", MODELS)
    return server


def followed(folder: Path, **files: str) -> tuple[ClientTls, ModelsSource]:
    tls = ClientTls(Tls(**files), folder, sleep=lambda _s: None)
    return tls, ModelsSource("models", Where("/v1/models", None, tls))


async def is_refused(made, endpoint):
    with pytest.raises(SourceError):
        await made.poll(endpoint)
    return True


async def test_another_authority_counts_once_its_file_is_there_and_kept_connections_are_made_anew(
    serve, authority, other, tmp_path
):
    first, second = await served(serve, server_context(authority)), await served(serve, server_context(other))
    shutil.copy(authority.ca, tmp_path / "ca.pem")
    tls, made = followed(tmp_path, ca_cert_path="ca.pem")
    a, b = first.endpoint("a"), second.endpoint("b")
    assert [await made.poll(a) for _ in range(3)] == [FOUND] * 3
    assert first.connections == 1
    assert await is_refused(made, b)
    # As a secret's volume does: another file takes the name.
    shutil.copy(other.ca, tmp_path / "new.pem")
    (tmp_path / "new.pem").rename(tmp_path / "ca.pem")
    await tls.look()
    assert await made.poll(b) == FOUND
    assert await is_refused(made, a), "what the authority before proved counts no more"
    assert tls.problems == ()
    made.forget(a.id)
    made.forget(b.id)


async def test_a_bad_file_keeps_the_last_good_one_and_is_told_once(serve, authority, other, tmp_path, caplog):
    server = await served(serve, server_context(authority))
    ca = tmp_path / "ca.pem"
    shutil.copy(authority.ca, ca)
    tls, made = followed(tmp_path, ca_cert_path="ca.pem")
    for content in ("no certificate\n", None):
        context = tls.context
        ca.unlink() if content is None else ca.write_text(content)
        for _ in range(2):
            await tls.look()
        made.forget("n/a")
        assert await made.poll(server.endpoint()) == FOUND
        assert tls.context is context
        (problem,) = made.problems
        assert (problem.place.file, problem.code) == (str(ca), "CONFIG_INVALID")
        assert "stays in force" in problem.hint
    told = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert [message.startswith("tls_files_refused last_good=kept: ") for message in told] == [True, True]
    shutil.copy(authority.ca, ca)
    await tls.look()
    assert (tls.problems, await made.poll(server.endpoint())) == ((), FOUND)
    made.forget("n/a")


async def test_a_clients_certificate_and_key_are_renewed_one_after_the_other(serve, authority, other, tmp_path):
    server = await served(serve, server_context(authority, clients_of=other))
    for issued in authority.issue("client", "DNS:client"):
        shutil.copy(issued, tmp_path)
    other.issue("client", "DNS:client")
    files = {"client_cert_path": "client.pem", "client_key_path": "client.key"}
    tls, made = followed(tmp_path, insecure_skip_verify=True, **files)
    assert await is_refused(made, server.endpoint())
    shutil.copy(other.folder / "client.pem", tmp_path / "client.pem")
    await tls.look()
    assert await is_refused(made, server.endpoint())
    assert [problem.place.file for problem in tls.problems] == [str(tmp_path / "client.pem")]
    shutil.copy(other.folder / "client.key", tmp_path / "client.key")
    await tls.look()
    assert await made.poll(server.endpoint()) == FOUND
    assert tls.problems == ()
    made.forget("n/a")


async def test_a_file_that_is_being_written_is_not_taken(authority, tmp_path):
    ca = tmp_path / "ca.pem"
    shutil.copy(authority.ca, ca)

    def write_on(_s: float) -> None:
        ca.write_text(ca.read_text() + "\n")

    tls = ClientTls(Tls(ca_cert_path="ca.pem"), tmp_path, sleep=write_on)
    context = tls.context
    ca.write_text("half\n")
    await tls.look()
    assert (tls.context, tls.problems) == (context, ())


async def test_files_are_looked_at_seldom_and_never_where_there_are_none(authority, tmp_path):
    ca = tmp_path / "ca.pem"
    shutil.copy(authority.ca, ca)
    looks: list[str] = []

    async def others() -> None:
        # They go on meanwhile, and do not look.
        for _ in range(3):
            await tls.look_if_due(now)

    def settle(_s: float) -> None:
        looks.append("")
        anyio.from_thread.run(others, token=token)

    token = anyio.lowlevel.current_token()
    tls = ClientTls(Tls(ca_cert_path="ca.pem"), tmp_path, sleep=settle)
    for now, count in ((0.0, 1), (LOOK_S - 0.1, 1), (LOOK_S, 2)):
        shutil.copy(authority.ca, ca)
        ca.write_text(ca.read_text() + f"# {now}\n")
        await tls.look_if_due(now)
        assert len(looks) == count
    await ClientTls(Tls(), tmp_path, sleep=settle).look_if_due(1e9)
    assert len(looks) == 2


class Hanging(ClientTls):
    """Its disk answers once; then when it is told to."""

    def __init__(self, *args: object) -> None:
        self.let_go, self.threads = threading.Event(), set[threading.Thread]()
        self.let_go.set()
        super().__init__(*args)
        self.let_go.clear()

    def _digests(self) -> tuple[str, ...]:
        self.threads.add(threading.current_thread())
        assert self.let_go.wait(WAIT_S)
        return super()._digests()


@pytest.fixture
def hanging(authority, tmp_path):
    shutil.copy(authority.ca, tmp_path / "ca.pem")
    tls = Hanging(Tls(ca_cert_path="ca.pem"), tmp_path)
    yield tls
    tls.let_go.set()


async def test_a_disk_that_hangs_fails_no_poll_and_is_asked_by_one_thread_that_nobody_waits_for(
    serve, authority, other, tmp_path, hanging
):
    server = await served(serve, server_context(authority))
    made = ModelsSource("models", Where("/v1/models", None, hanging))
    shutil.copy(other.ca, tmp_path / "ca.pem")
    with anyio.fail_after(WAIT_S / 2):
        for _ in range(3):
            assert await made.poll(server.endpoint()) == FOUND
            await hanging.look(0.01)
            await hanging.look_if_due(1e9, 0.01)
    (thread,) = hanging.threads - {threading.current_thread()}
    assert thread.daemon, "a process that ends does not wait for it"
    assert server.connections == 1
    context = hanging.context
    hanging.let_go.set()
    with anyio.fail_after(WAIT_S):
        while hanging.context is context:
            await anyio.lowlevel.checkpoint()
    assert await is_refused(made, server.endpoint())
    made.forget("n/a")


async def test_who_is_cancelled_while_the_disk_hangs_is_gone_at_once_and_the_look_counts_all_the_same(
    other, tmp_path, hanging
):
    context = hanging.context
    shutil.copy(other.ca, tmp_path / "ca.pem")
    with anyio.fail_after(WAIT_S / 2):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hanging.look_if_due, 0.0)
            while hanging.threads == {threading.current_thread()}:
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
    hanging.let_go.set()
    with anyio.fail_after(WAIT_S):
        while hanging.context is context:
            await anyio.lowlevel.checkpoint()


async def test_what_is_behind_the_first_mebibyte_of_a_file_counts(authority, other, tmp_path):
    ca = tmp_path / "ca.pem"
    start = authority.ca.read_text() + "# authorities\n" * (MAX_BYTES // 8)
    ca.write_text(start)
    tls, _ = followed(tmp_path, ca_cert_path="ca.pem")
    context = tls.context
    ca.write_text(start + other.ca.read_text())
    await tls.look()
    assert tls.context is not context
    assert tls.problems == ()


async def test_metrics_are_fetched_by_the_files_as_they_are(serve, authority, other, tmp_path):
    server = await serve(server_context(other))
    server.page("/metrics", b"vllm:num_requests_waiting 2\n")
    ca = tmp_path / "ca.pem"
    shutil.copy(authority.ca, ca)
    parameters = MetricsSource("/metrics", None, 1.0, "https", Tls(ca_cert_path="ca.pem"))
    use = SourceUse("metrics", "metrics-data-source", BUILTIN_FORMS["metrics-data-source"], parameters)
    made = make_source(use, directory=tmp_path, interval_s=1.0)
    assert isinstance(made, MetricsPoller)
    # Its first poll looks at the files by itself.
    shutil.copy(other.ca, ca)
    assert (await made.poll(server.endpoint())).metrics.waiting == 2
    assert made.problems == ()
    made.close()
