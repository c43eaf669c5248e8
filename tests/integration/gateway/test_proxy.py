"""What a client sees when everything works: whole answers, streams, models, headers, kept connections."""

import asyncio
import re
import socket

import openai
import pytest
from hotbay.gateway.limits import GatewayLimits

pytestmark = pytest.mark.anyio

CHAT = [{"role": "user", "content": "hello"}]
DEADLINE_S = 5.0


async def test_openai_client_chats_completes_streams_and_lists_models(start):
    bay = await start("openai", "openai")
    async with openai.AsyncOpenAI(base_url=f"{bay.url}/v1", api_key="k", max_retries=0) as client:
        whole = await client.chat.completions.create(model="m", messages=CHAT)
        stream = await client.chat.completions.create(model="m", messages=CHAT, stream=True)
        words = [chunk.choices[0].delta.content async for chunk in stream]
        completion = await client.completions.create(model="m", prompt="hello")
        models = await client.models.list()
    assert whole.choices[0].message.content == "hi"
    assert words == ["one", " two", " three", None]
    assert completion.choices[0].text == "hi"
    assert [model.id for model in models.data] == ["m"]
    assert bay.ledger.starts == bay.ledger.ends == 3


async def test_stream_is_relayed_chunk_by_chunk_without_waiting(start):
    more = asyncio.Queue()

    async def behaviour(request, stream):
        await stream.begin_sse()
        while (data := await more.get()) is not None:
            await stream.chunk(data)
        await stream.write(b"0\r\n\r\n")
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    status, headers, _ = await client.head()
    assert status == 200
    assert headers["transfer-encoding"] == "chunked"
    assert "content-length" not in headers
    for data in (b"data: 1\n\n", "data: 世界🌍\n\n".encode(), b"x", b"data: [DONE]\n\n"):
        more.put_nowait(data)
        assert await client.chunk() == data
    more.put_nowait(None)
    assert await client.chunk() == b""


async def test_stream_split_at_every_byte_arrives_identical(start):
    body = 'data: {"t":"世界🌍"}\n\ndata: {"usage":{"n":3}}\n\ndata: [DONE]\n\n'.encode()

    async def behaviour(request, stream):
        await stream.begin_sse()
        for at in range(len(body)):
            await stream.chunk(body[at : at + 1])
        await stream.write(b"0\r\n\r\n")
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    assert (await client.answer()).body == body


async def test_headers_are_rewritten_both_ways(start):
    async def behaviour(request, stream):
        await stream.write(
            b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\nX-Kept: 2\r\n"
            b"X-Gateway-Destination-Endpoint: forged\r\nX-Request-Id: theirs\r\nKeep-Alive: timeout=5\r\n\r\nok"
        )
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(
        headers=b"Connection: X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nX-Request-Id: abc-1\r\nAuthorization: Bearer k\r\n"
        b"x-gateway-destination-endpoint: evil\r\nx-llm-d-inference-fairness-id: team\r\nX-Forwarded-For: 10.0.0.1\r\n"
    )
    answer = await client.answer()
    sent = bay.servers[0].requests[0].headers
    authority = bay.servers[0].endpoint.authority
    assert answer.raw_head.startswith(b"HTTP/1.1 200 Fine\r\n")
    via = answer.headers.pop("via")
    assert re.fullmatch(r"1\.1 hotbay-[0-9a-f]{8}", via)
    assert sent["via"] == via
    assert answer.headers == {
        "x-kept": "2",
        "content-length": "2",
        "x-request-id": "abc-1",
        "x-gateway-destination-endpoint": authority,
    }
    assert sent["host"] == authority
    assert sent["authorization"] == "Bearer k"
    assert sent["x-request-id"] == "abc-1"
    assert sent["x-forwarded-for"] == "10.0.0.1, 127.0.0.1"
    assert not {"connection", "x-mine", "te", "x-llm-d-inference-fairness-id"} & set(sent)
    assert sent["x-gateway-destination-endpoint"] == authority
    assert bay.router.requests[0].fairness_id == "team"
    assert "x-gateway-destination-endpoint" not in bay.router.requests[0].headers


@pytest.mark.parametrize("given", [b"with space", b'a"b', b"x" * 129, b"\x1b[31m", b"\xff"])
async def test_request_id_that_could_forge_a_log_line_is_replaced(start, given):
    bay = await start()
    client = await bay.client()
    await client.chat(headers=b"X-Request-Id: " + given.replace(b"\x1b", b"%") + b"\r\n")
    answer = await client.answer()
    chosen = answer.headers["x-request-id"]
    assert chosen.encode("latin-1") != given
    assert bay.servers[0].requests[0].headers["x-request-id"] == chosen


async def test_body_is_forwarded_byte_for_byte(start):
    bay = await start()
    client = await bay.client()
    body = '{ "model":"m",  "messages":[{"role":"user","content":"\\u4e16 🌍"}] }'.encode()
    await client.post("/v1/chat/completions", body)
    assert (await client.answer()).status == 200
    assert bay.servers[0].requests[0].body == body


async def test_chunked_request_reaches_the_upstream_with_a_length(start):
    bay = await start()
    client = await bay.client()
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'
    framed = b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body)))
    await client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n")
    await client.send(framed + b"0\r\nX-Trailer: t\r\n\r\n")
    assert (await client.answer()).status == 200
    received = bay.servers[0].requests[0]
    assert received.body == body
    assert received.headers["content-length"] == str(len(body))
    assert not {"transfer-encoding", "x-trailer"} & set(received.headers)


async def test_connections_on_both_sides_are_kept_for_many_requests(start):
    bay = await start()
    client = await bay.client()
    for number in range(60):
        await client.chat(stream=number % 2 == 0)
        assert (await client.answer()).status == 200
    assert bay.metrics.upstream_connects == bay.servers[0].connects == 1
    assert bay.metrics.upstream_retries == 0


async def test_upstream_that_closes_after_every_stream_costs_no_request(start):
    bay = await start("llamacpp")
    client = await bay.client()
    for number in range(60):
        await client.chat(stream=number % 3 != 0)
        answer = await client.answer()
        assert answer.status == 200
        assert answer.body.endswith(b"data: [DONE]\n\n") or answer.json()
    assert bay.ledger.starts == bay.ledger.ends == 60
    assert bay.metrics.upstream_connects <= 42


async def test_idle_upstream_connection_that_closes_is_noticed(start):
    bay = await start("llamacpp")
    client = await bay.client()
    await client.chat(stream=True)
    await client.answer()
    await bay.servers[0].wait_open(0)
    await bay.until(lambda: bay.gateway.pool.open_count == 0)
    assert bay.gateway.pool.idle_count == 0


async def test_pool_keeps_no_more_connections_than_allowed(start):
    from_all = asyncio.Barrier(4)

    async def behaviour(request, stream):
        await from_all.wait()
        await stream.json({})
        return True

    bay = await start(behaviour, limits=_limits(idle_per_endpoint=2))
    clients = [await bay.client() for _ in range(4)]
    for client in clients:
        await client.chat()
    for client in clients:
        assert (await client.answer()).status == 200
    await bay.servers[0].wait_open(2)
    assert bay.gateway.pool.idle_count == 2


async def test_idle_upstream_connections_are_closed_when_old(start):
    bay = await start(limits=_limits(idle_upstream_s=0.05))
    client = await bay.client()
    await client.chat()
    await client.answer()
    await bay.servers[0].wait_open(0)
    await client.chat()
    assert (await client.answer()).status == 200


async def test_http_1_0_client_gets_a_stream_that_ends_with_the_connection(start):
    bay = await start()
    client = await bay.client()
    body = b'{"model":"m","messages":[{"role":"user","content":"x"}],"stream":true}'
    await client.send(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    answer = await client.answer()
    assert "transfer-encoding" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert answer.body.startswith(b"data: {")


async def test_upstream_without_length_is_reframed(start):
    async def behaviour(request, stream):
        await stream.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the end")
        return False

    bay = await start(behaviour)
    client = await bay.client()
    for _ in range(2):
        await client.chat()
        answer = await client.answer()
        assert answer.headers["transfer-encoding"] == "chunked"
        assert answer.body == b"until the end"


async def test_interim_and_empty_responses_are_understood(start):
    async def behaviour(request, stream):
        await stream.write(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n")
        return True

    bay = await start(behaviour)
    client = await bay.client()
    for _ in range(2):
        await client.chat()
        answer = await client.answer()
        assert answer.status == 204
        assert not {"content-length", "transfer-encoding", "link"} & set(answer.headers)
    assert bay.servers[0].connects == 1


async def test_absolute_target_is_served(start):
    bay = await start()
    client = await bay.client()
    await client.post("http://elsewhere/v1/chat/completions?x=1", {"model": "m", "messages": CHAT})
    assert (await client.answer()).status == 200
    assert bay.servers[0].requests[0].line == "POST /v1/chat/completions?x=1 HTTP/1.1"


async def test_pipelined_requests_are_answered_in_order(start):
    bay = await start()
    client = await bay.client()
    await client.chat(stream=True)
    await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\nGET /nowhere HTTP/1.1\r\nHost: g\r\n\r\n")
    await client.chat()
    answers = [await client.answer() for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 404, 200]
    assert answers[1].body == b"ok\n"


async def test_head_of_a_forwarded_page_has_no_body(start):
    bay = await start()
    client = await bay.client()
    await client.send(b"HEAD /v1/models HTTP/1.1\r\nHost: g\r\n\r\n")
    status, headers, _ = await client.head()
    assert status == 200
    assert int(headers["content-length"]) > 0
    await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n")
    assert (await client.answer()).body == b"ok\n"
    assert bay.servers[0].requests[0].line == "GET /v1/models HTTP/1.1"
    assert bay.ledger.starts == 0


async def test_nagle_is_off_on_both_sides(start):
    seen = asyncio.Event()
    leave = asyncio.Event()

    async def behaviour(request, stream):
        seen.set()
        await leave.wait()
        await stream.json({})
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    async with asyncio.timeout(DEADLINE_S):
        await seen.wait()
    ours = [each._transport for each in bay.gateway._connections] + [each.transport for each in bay.gateway.pool._open]
    assert len(ours) == 2
    for transport in ours:
        assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    leave.set()
    assert (await client.answer()).status == 200


def _limits(**values):
    return GatewayLimits(tick_s=0.02, **values)
