"""What the router is told of a request's end: once, whether its endpoint failed, and whether an answer began."""

import asyncio
import socket

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata

pytestmark = pytest.mark.anyio

CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
DEADLINE_S = 5.0


@pytest.mark.parametrize(
    ("status", "failed"),
    [("200 OK", False), ("404 Not Found", False), ("429 Busy", False), ("499 Odd", False), ("500 Broken", True)],
)
async def test_answer_below_500_is_no_failure_of_its_endpoint(start, status, failed):
    async def behaviour(request, stream):
        await stream.json({}, status)
        return True

    bay = await start(behaviour)
    client = await bay.client()
    for _ in range(2):
        await client.chat()
        await client.answer()
    assert bay.router.ends == [("s0", failed, True)] * 2


async def test_endpoint_that_cannot_be_reached_or_closes_failed_without_a_first_byte(start):
    async def behaviour(request, stream):
        return False

    bay = await start(behaviour)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = EndpointMetadata("default/dead", "dead", "127.0.0.1", probe.getsockname()[1])
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 502
    bay.router.endpoints[:] = [dead]
    await client.chat()
    assert (await client.answer()).status == 502
    assert bay.router.ends == [("s0", True, False), ("dead", True, False)]


async def test_client_that_leaves_is_no_failure_of_the_endpoint(start):
    closed = asyncio.Event()

    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        await stream.closed_by_peer()
        closed.set()
        return False

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    await client.head()
    await client.chunk()
    client.close()
    async with asyncio.timeout(DEADLINE_S):
        await closed.wait()
    await bay.until(lambda: bay.router.ends == [("s0", False, True)])


async def test_stream_that_breaks_off_failed_after_its_first_byte(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        return False

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    await client.head()
    await client.chunk()
    await bay.until(lambda: bay.router.ends == [("s0", True, True)])


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [("finished", False), ("client-disconnect", False), ("upstream-error", True), ("timeout", True)],
)
async def test_settled_pick_tells_its_outcome_and_an_expired_one_nothing(start, outcome, failed):
    bay = await start()
    client = await bay.client()
    await client.post("/pick", CHAT)
    pick = (await client.answer()).json()
    assert bay.router.ends == []
    await client.post(f"/pick/{pick['id']}/done", {"outcome": outcome})
    assert (await client.answer()).status == 200
    assert bay.router.ends == [("s0", failed, False)]
    await client.post("/pick", CHAT)
    await client.answer()
    bay.gateway._dispatcher.expire(float("inf"))
    assert len(bay.router.ends) == 1


async def test_refused_request_and_page_without_a_decision_have_no_end(start):
    bay = await start()
    client = await bay.client()
    await client.send(b"GET /v1/models HTTP/1.1\r\nHost: g\r\n\r\n")
    await client.answer()
    assert bay.router.ends == []
