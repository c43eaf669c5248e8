"""The gateway's own pages, its log lines, and how it stops."""

import asyncio
import logging

import pytest
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.gateway.request_reader import Phase

pytestmark = pytest.mark.anyio

DEADLINE_S = 5.0


async def get(client, path, headers=b""):
    await client.send(b"GET %b HTTP/1.1\r\nHost: g\r\n%b\r\n" % (path.encode(), headers))
    return await client.answer()


async def test_pages(start):
    bay = await start()
    client = await bay.client()
    assert (await get(client, "/health")).body == b"ok\n"
    assert (await get(client, "/readyz")).json() == {"ready": True, "reasons": []}
    bay.reasons.append("no plan")
    not_ready = await get(client, "/readyz")
    assert (not_ready.status, not_ready.json()) == (503, {"ready": False, "reasons": ["no plan"]})
    assert (await get(client, "/livez")).body == b"ok\n"
    # What names files and sources is for the operator's socket alone.
    assert (await get(client, "/status")).status == 404
    await client.chat()
    await client.answer()
    page = (await get(client, "/metrics")).body.decode()
    assert 'hotbay_requests_total{route="chat",status="200"} 1.0' in page
    assert "hotbay_upstream_connects_total 1.0" in page


async def test_models_without_endpoints_is_503_and_goes_on_to_the_next_when_refused(start):
    bay = await start()
    client = await bay.client()
    assert (await get(client, "/v1/models")).status == 200
    bay.router.endpoints.clear()
    answer = await get(client, "/v1/models")
    assert (answer.status, answer.code) == (503, "rejected-no-endpoints")
    assert bay.ledger.starts == 0


async def test_every_request_leaves_one_line_with_its_id_and_none_of_its_prompt(start, caplog):
    caplog.set_level(logging.DEBUG)
    bay = await start()
    client = await bay.client()
    canary = "canary-7f3a"
    await client.chat(headers=b"x-request-id: r-1\r\n", messages=[{"role": "user", "content": canary}])
    await client.answer()
    await get(client, f"/nowhere-{canary}", b"x-request-id: r-2\r\n")
    lines = [record for record in caplog.records if record.name == "hotbay.access"]
    assert [record.request_id for record in lines] == ["r-1", "r-2"]
    assert "route=chat status=200 outcome=finished" in lines[0].getMessage()
    assert "route=unknown status=404" in lines[1].getMessage()
    assert canary not in caplog.text


async def test_drain_lets_answers_end_closes_idle_connections_and_says_not_ready(start):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def behaviour(request, stream):
        await stream.begin_sse()
        begun.set()
        await go_on.wait()
        await stream.end_sse()
        return True

    bay = await start(behaviour)
    idle, busy, watcher = await bay.client(), await bay.client(), await bay.client()
    await busy.chat(stream=True)
    # A request that has begun keeps its connection while the gateway drains.
    await watcher.send(b"GET /readyz HTTP/1.1\r\n")
    async with asyncio.timeout(DEADLINE_S):
        await begun.wait()
    await bay.until(lambda: any(each._reader.phase is Phase.HEAD for each in bay.gateway._connections))
    async with asyncio.TaskGroup() as tasks:
        draining = tasks.create_task(bay.gateway.drain(2 * DEADLINE_S))
        assert await idle.rest() == b""
        await watcher.send(b"Host: g\r\n\r\n")
        ready = await watcher.answer()
        assert (ready.status, ready.json()["reasons"]) == (503, ["draining"])
        assert ready.headers["connection"] == "close"
        newcomer = await bay.client()
        assert (await get(newcomer, "/health")).headers["connection"] == "close"
        assert not draining.done()
        go_on.set()
        answer = await busy.answer()
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert await busy.rest() == b""
        for client in (watcher, busy, newcomer):
            client.close()
    assert draining.result() is True
    with pytest.raises(ConnectionError):
        await bay.client()


async def test_drain_gives_up_at_the_end_of_its_window(start):
    async def behaviour(request, stream):
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour, limits=GatewayLimits(tick_s=0.02))
    client = await bay.client()
    await client.chat()
    async with asyncio.timeout(DEADLINE_S):
        await bay.servers[0].arrived.get()
    assert await bay.gateway.drain(0.05) is False
    assert await client.rest() == b""
    assert (await bay.ends.next())[1] is Outcome.TIMEOUT
    await bay.servers[0].wait_open(0)


async def test_pipelined_pages_hold_up_nobody_else(start):
    bay = await start(limits=GatewayLimits(pipelined_requests=2000))
    greedy, other = await bay.client(), await bay.client()
    await get(other, "/health")
    await greedy.send(b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n" * 1000)
    await greedy.answer()
    assert (await get(other, "/health")).status == 200
    # Well before the thousandth page, however the two connections' bytes came in.
    page = (await get(other, "/metrics")).body.decode()
    (served,) = [line for line in page.splitlines() if line.startswith('hotbay_requests_total{route="metrics"')]
    assert float(served.split()[-1]) < 500
    for _ in range(999):
        assert (await greedy.answer()).status == 200


async def test_requests_that_come_at_once_beyond_the_limit_are_refused(start):
    bay = await start(limits=GatewayLimits(pipelined_requests=8))
    client = await bay.client()
    await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n" * 100)
    assert (await client.answer()).status == 200
    refused = await client.answer()
    assert (refused.status, refused.code) == (429, "pipelined-too-far")


async def test_pipelined_requests_are_answered_when_the_gateway_drains(start):
    bay = await start()
    client = await bay.client()
    await client.send(b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n" * 5)
    assert (await client.answer()).status == 200
    for connection in list(bay.gateway._connections):
        connection.close_when_idle()
    for _ in range(4):
        assert (await client.answer()).status == 200
