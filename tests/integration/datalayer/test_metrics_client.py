"""Fetching pages over real sockets: framing, limits, keep-alive."""

import asyncio
import gzip
import socket
import time
import zlib
from contextlib import ExitStack, suppress

import anyio
import pytest
from hotbay.datalayer.fetching.metrics_client import MAX_BODY_BYTES, MetricsClient, MetricsFetchError

pytestmark = pytest.mark.anyio

BODY = b"a 1\n"


def client_of(server) -> MetricsClient:
    return MetricsClient("127.0.0.1", server.port, authority=f"127.0.0.1:{server.port}")


async def fetch(server, budget_s: float = 5.0) -> bytes:
    client = client_of(server)
    try:
        return (await client.fetch(budget_s)).body
    finally:
        client.close()


async def failure(server, budget_s: float = 5.0) -> str:
    with pytest.raises(MetricsFetchError) as caught:
        await fetch(server, budget_s)
    return caught.value.reason


async def test_many_fetches_share_one_connection(server) -> None:
    client = client_of(server)
    for _ in range(50):
        assert (await client.fetch(5.0)).body == b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"
    client.close()
    assert (client.connects, server.connections) == (1, 1)
    head = server.requests[0].decode()
    assert head.startswith("GET /metrics HTTP/1.1\r\n")
    assert f"\r\nHost: 127.0.0.1:{server.port}\r\n" in head


async def test_an_answer_that_says_close_is_followed_by_a_new_connection(server) -> None:
    server.respond = server.page(BODY, headers="Connection: close\r\n", keep=False)
    client = client_of(server)
    for _ in range(3):
        assert (await client.fetch(5.0)).body == BODY
    client.close()
    assert client.connects == 3


async def test_a_connection_that_was_closed_while_idle_is_replaced(server) -> None:
    server.respond = server.page(BODY, keep=False)
    client = client_of(server)
    for _ in range(3):
        assert (await client.fetch(5.0)).body == BODY
    client.close()
    assert client.connects == 3


async def test_a_connection_closed_on_a_repeated_request_is_retried_once_on_a_new_one(server) -> None:
    good = server.respond
    client = client_of(server)
    await client.fetch(5.0)

    async def hang_up(_: asyncio.StreamWriter) -> bool:
        server.respond = good
        return False

    server.respond = hang_up
    assert await client.fetch(5.0)
    assert client.connects == 2
    server.respond = server.raw(b"", keep=False)
    with pytest.raises(MetricsFetchError, match="without an answer"):
        await client.fetch(5.0)
    assert client.connects == 3
    client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"a 1\n" * 75,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na 1\na 12",
        b"HTTP/1.1 200 OK\r\nConte",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(BODY * 99)[:-12],
    ],
    ids=["length", "chunked", "inside-a-number", "head", "gzip"],
)
async def test_m01_a_cut_page_is_discarded_whole(server, answer: bytes) -> None:
    server.respond = server.raw(answer, keep=False)
    assert await failure(server) == "truncated"


async def test_a_page_that_the_end_of_the_connection_ends_is_read(server) -> None:
    server.respond = server.raw(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\na 1\n", keep=False)
    assert await fetch(server) == BODY


async def test_a_chunked_page_after_an_interim_answer_is_read(server) -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\na \r\n2\r\n1\n\r\n0\r\n\r\n"
    server.respond = server.raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" + chunked)
    assert await fetch(server) == BODY


@pytest.mark.parametrize("status", ["401 Unauthorized", "404 Not Found", "500 Oops", "204 No Content", "302 Found"])
async def test_an_answer_other_than_200_is_an_error(server, status: str) -> None:
    server.respond = server.page(b"" if status.startswith("204") else BODY, status=status)
    assert await failure(server) == "status"


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", b"\0" * 64, b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
async def test_what_is_not_http_is_an_error(server, answer: bytes) -> None:
    server.respond = server.raw(answer)
    assert await failure(server) == "not_http"


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
async def test_m10_a_compressed_page_is_decoded(server, encoding: str) -> None:
    body = {"gzip": gzip.compress(BODY), "deflate": zlib.compress(BODY), "identity": BODY}[encoding]
    server.respond = server.page(body, headers=f"Content-Encoding: {encoding}\r\n")
    assert await fetch(server) == BODY


async def test_a_gzip_body_is_all_of_its_members(server) -> None:
    members = [gzip.compress(b"a %d\n" % number) for number in range(16)]
    server.respond = server.page(b"".join(members), headers="Content-Encoding: gzip\r\n")
    assert await fetch(server) == b"".join(b"a %d\n" % number for number in range(16))
    server.respond = server.page(b"".join((*members, members[0])), headers="Content-Encoding: gzip\r\n")
    assert await failure(server) == "encoding"
    server.respond = server.page(b"".join(members)[:-4], headers="Content-Encoding: gzip\r\n")
    assert await failure(server) == "truncated"
    server.respond = server.page(zlib.compress(BODY) + b"x", headers="Content-Encoding: deflate\r\n")
    assert await failure(server) == "encoding"


async def test_members_that_are_too_large_together_are_refused(server) -> None:
    half = gzip.compress(b"#" * (MAX_BODY_BYTES // 2 - 1) + b"\n")
    server.respond = server.page(half + half, headers="Content-Encoding: gzip\r\n")
    assert len(await fetch(server, 30.0)) == MAX_BODY_BYTES
    server.respond = server.page(half + half + gzip.compress(b"\n"), headers="Content-Encoding: gzip\r\n")
    assert await failure(server, 30.0) == "too_large"


async def test_connecting_has_to_fit_the_budget() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, ExitStack() as held:
        # Whoever comes when the queue of an overfull server is full gets no answer, as behind a wall that drops packets.
        for _ in range(8):
            one = held.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        client = MetricsClient(*listener.getsockname(), authority="a")
        with anyio.fail_after(8), pytest.raises(MetricsFetchError) as caught:
            await client.fetch(0.2)
        client.close()
    assert caught.value.reason == "connect_timeout"
    assert "within 0.2 s" in str(caught.value)


@pytest.mark.parametrize(("encoding", "body"), [("br", BODY), ("gzip", BODY)])
async def test_m10_an_encoding_that_cannot_be_undone_is_an_error(server, encoding: str, body: bytes) -> None:
    server.respond = server.page(body, headers=f"Content-Encoding: {encoding}\r\n")
    assert await failure(server) == "encoding"


async def test_m10_a_gzip_bomb_stops_at_the_cap(server) -> None:
    at_cap = gzip.compress(b"#" * (MAX_BODY_BYTES - 1) + b"\n")
    server.respond = server.page(at_cap, headers="Content-Encoding: gzip\r\n")
    assert len(await fetch(server)) == MAX_BODY_BYTES
    bomb = gzip.compress(b"#" * (8 * MAX_BODY_BYTES))
    server.respond = server.page(bomb, headers="Content-Encoding: gzip\r\n")
    assert await failure(server) == "too_large"


async def test_a_page_may_have_its_largest_size_and_no_more(server) -> None:
    server.respond = server.page(b"#" * (MAX_BODY_BYTES - 1) + b"\n")
    assert len(await fetch(server)) == MAX_BODY_BYTES
    server.respond = server.page(b"#" * MAX_BODY_BYTES + b"\n")
    assert await failure(server) == "too_large"


async def test_an_endless_page_stops_at_the_cap(server) -> None:
    async def endless(writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"# comment\n" * 1000)
                await writer.drain()
        return False

    server.respond = endless
    assert await failure(server, 30.0) == "too_large"


async def test_m04_a_trickling_answer_ends_at_the_budget(server) -> None:
    async def trickle(writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with suppress(ConnectionError):
            # uvloop raises at a write to a closed transport, where asyncio only warns.
            while not writer.is_closing():
                writer.write(b"#")
                await writer.drain()
                await asyncio.sleep(0.02)  # the slowness itself, not a wait for something
        return False

    server.respond = trickle
    began = time.monotonic()
    assert await failure(server, 0.2) == "timeout"
    assert time.monotonic() - began < 1.0


async def test_m04_a_server_that_accepts_and_never_answers_ends_at_the_budget_and_is_left(server) -> None:
    good = server.respond

    async def silent(_: asyncio.StreamWriter) -> bool:
        await anyio.sleep_forever()
        return False

    client = client_of(server)
    server.respond = silent
    with pytest.raises(MetricsFetchError) as caught:
        await client.fetch(0.05)
    assert caught.value.reason == "timeout"
    server.respond = good
    assert await client.fetch(5.0)
    assert client.connects == 2
    client.close()


async def test_bytes_that_nobody_asked_for_are_not_taken_for_the_next_answer(server) -> None:
    server.respond = server.raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 9\n"
    )
    client = client_of(server)
    for _ in range(3):
        assert (await client.fetch(5.0)).body == BODY
    client.close()


async def test_an_answer_that_nobody_asked_for_costs_the_connection(server) -> None:
    client = client_of(server)
    server.respond = server.page(BODY)
    await client.fetch(5.0)
    (writer,) = server.open
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\na 9\n")
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    assert (await client.fetch(5.0)).body == BODY
    assert client.connects == 2
    client.close()


async def test_a_refused_connection_is_an_error(server) -> None:
    client = MetricsClient("127.0.0.1", 1, authority="127.0.0.1:1")
    with pytest.raises(MetricsFetchError) as caught:
        await client.fetch(1.0)
    assert caught.value.reason == "connect"


async def test_a_host_name_that_cannot_be_one_is_an_error(server) -> None:
    client = MetricsClient("a" * 300 + ".test", 80, authority="x")
    with pytest.raises(MetricsFetchError) as caught:
        await client.fetch(1.0)
    assert caught.value.reason == "connect"
