"""Sources that fetch from a real server: TLS in its forms, compression, and answers that do not count."""

import gzip
import json
import ssl

import pytest
from hotbay.config.data_parameters import MetricsSource, Tls
from hotbay.config.data_types import BUILTIN_FORMS
from hotbay.config.data_uses import SourceUse
from hotbay.datalayer.fetching.tls import client_context
from hotbay.datalayer.source import SourceError
from hotbay.datalayer.sources.builtin import make_source
from hotbay.datalayer.sources.models import ModelsPage, ServedModel
from hotbay.errors import InputError

pytestmark = pytest.mark.anyio

MODELS = json.dumps({"data": [{"id": "base"}]}).encode()
FOUND = ModelsPage((ServedModel("base"),))


def source(authority, *, scheme="https", **tls):
    parameters = MetricsSource("/v1/models", None, 1.0, scheme, Tls(**tls))
    use = SourceUse("models", "models-data-source", BUILTIN_FORMS["models-data-source"], parameters)
    return make_source(use, directory=authority.folder, interval_s=1.0)


def server_context(authority, name="server", subject="IP:127.0.0.1", *, clients=False):
    certificate, key = authority.issue(name, subject)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cafile=authority.ca)
    return context


async def poll(server, made):
    try:
        return await made.poll(server.endpoint())
    finally:
        made.forget("n/a")


async def refused(server, made):
    with pytest.raises(SourceError) as caught:
        await poll(server, made)
    return caught.value.reason


async def test_a_server_of_the_given_authority_is_trusted_and_no_other(serve, authority):
    server = await serve(server_context(authority))
    server.page("/v1/models", MODELS)
    assert await poll(server, source(authority, ca_cert_path="ca.pem")) == FOUND
    assert await poll(server, source(authority, ca_cert_path=str(authority.ca))) == FOUND
    assert await refused(server, source(authority)) == "tls"


async def test_a_certificate_for_another_address_is_refused(serve, authority):
    server = await serve(server_context(authority, "other", "IP:127.0.0.2"))
    server.page("/v1/models", MODELS)
    assert await refused(server, source(authority, ca_cert_path="ca.pem")) == "tls"
    assert server.asked == []


async def test_proving_the_server_can_be_left_out(serve, authority):
    server = await serve(server_context(authority, "other", "IP:127.0.0.2"))
    server.page("/v1/models", MODELS)
    assert await poll(server, source(authority, insecure_skip_verify=True)) == FOUND


async def test_a_server_that_asks_for_a_client_certificate_gets_it(serve, authority):
    server = await serve(server_context(authority, clients=True))
    server.page("/v1/models", MODELS)
    authority.issue("client", "DNS:client")
    shown = {"client_cert_path": "client.pem", "client_key_path": "client.key"}
    assert await poll(server, source(authority, ca_cert_path="ca.pem", **shown)) == FOUND
    assert await refused(server, source(authority, ca_cert_path="ca.pem")) in {"tls", "closed", "truncated"}
    assert server.asked == ["/v1/models"]


async def test_http_to_a_server_that_speaks_tls_is_a_failure(serve, authority):
    server = await serve(server_context(authority))
    server.page("/v1/models", MODELS)
    assert await refused(server, source(authority, scheme="http")) in {"closed", "not_http", "truncated"}


@pytest.mark.parametrize("missing", ["ca_cert_path", "client_cert_path", "client_key_path"])
def test_a_file_that_cannot_be_used_is_told_with_its_name(authority, missing):
    authority.issue("client", "DNS:client")
    files = {"ca_cert_path": "ca.pem", "client_cert_path": "client.pem", "client_key_path": "client.key"}
    context = client_context(Tls(**files), authority.folder)
    assert [dict(part[0] for part in found["subject"]) for found in context.get_ca_certs()] == [
        {"commonName": "test authority"}
    ]
    with pytest.raises(InputError) as caught:
        client_context(Tls(**files | {missing: "nothing.pem"}), authority.folder)
    assert caught.value.problems[0].place.file == str(authority.folder / "nothing.pem")


def test_a_file_that_is_no_certificate_is_refused(authority):
    (authority.folder / "text.pem").write_text("not a certificate\n")
    for files in ({"ca_cert_path": "text.pem"}, {"client_cert_path": "text.pem", "client_key_path": "ca.key"}):
        with pytest.raises(InputError, match="PEM"):
            client_context(Tls(**files), authority.folder)


async def test_a_compressed_answer_is_read(serve, authority):
    server = await serve()
    server.page("/v1/models", gzip.compress(MODELS), headers="Content-Encoding: gzip\r\n")
    assert await poll(server, source(authority, scheme="http")) == FOUND


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (MODELS, "Location: /elsewhere\r\n", "302 Found", "status"),
        (MODELS, "", "503 Service Unavailable", "status"),
        (b" " * ((4 << 20) + 1), "", "200 OK", "too_large"),
        (gzip.compress(b" " * (64 << 20)), "Content-Encoding: gzip\r\n", "200 OK", "too_large"),
        (gzip.compress(MODELS)[:-9], "Content-Encoding: gzip\r\n", "200 OK", "truncated"),
        (b"<html></html>", "", "200 OK", "not_models"),
    ],
    ids=["redirect", "503", "large", "bomb", "cut", "html"],
)
async def test_an_answer_that_does_not_count_is_a_failure(serve, authority, body, headers, status, reason):
    server = await serve()
    server.page("/v1/models", body, status=status, headers=headers)
    server.page("/elsewhere", MODELS)
    assert await refused(server, source(authority, scheme="http")) == reason
    assert server.asked == ["/v1/models"]
