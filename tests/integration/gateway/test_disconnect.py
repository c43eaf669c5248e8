"""A client that leaves: the upstream stops, the count goes down, the end is told once."""

import asyncio

import pytest
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome

pytestmark = pytest.mark.anyio

# Field failure F01 allows a second; a wait is given five times as long.
F01_DEADLINE_S = 5.0


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("leave_after", ["nothing", "head", "chunk"])
@pytest.mark.parametrize("abort", [True, False], ids=["reset", "close"])
async def test_f01_client_that_leaves_frees_its_upstream(start, stream, leave_after, abort):
    closed = asyncio.Event()

    async def behaviour(request, connection):
        if leave_after != "nothing" and stream:
            await connection.begin_sse()
        elif leave_after != "nothing":
            await connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        if leave_after == "chunk":
            await (connection.event("one") if stream else connection.write(b"one"))
        await connection.closed_by_peer()
        closed.set()
        return False

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=stream)
    async with asyncio.timeout(F01_DEADLINE_S):
        await bay.servers[0].arrived.get()
    assert bay.ledger.in_flight["default/s0"] == 1
    if leave_after != "nothing":
        await client.head()
    if leave_after == "chunk":
        await (client.chunk() if stream else client.reader.readexactly(3))
    client.writer.transport.abort() if abort else client.close()

    async with asyncio.timeout(F01_DEADLINE_S):
        await closed.wait()
    assert await bay.ends.next() == ("default/s0", Outcome.CLIENT_DISCONNECT, leave_after != "nothing")
    assert bay.ends.outcomes.empty()
    assert bay.ledger.in_flight["default/s0"] == 0
    assert bay.ledger.starts == bay.ledger.ends == 1
    assert bay.metrics.outcomes.get("client-disconnect") == 1


async def test_f01_client_that_leaves_while_decided_starts_nothing(start):
    bay = await start()
    bay.router.held = asyncio.Queue()
    client = await bay.client()
    await client.chat()
    async with asyncio.timeout(F01_DEADLINE_S):
        done = await bay.router.held.get()
    client.close()
    await bay.until(lambda: bay.metrics.client_connections == 0)
    assert bay.router.cancelled == [bay.router.requests[0].id]
    done(bay.router.decision())
    assert bay.ledger.starts == 0
    assert bay.servers[0].connects == 0
    assert bay.ends.outcomes.empty()


async def test_f01_client_that_leaves_while_connecting_settles_and_keeps_the_connection_for_others(start):
    bay = await start()
    bay.router.held = asyncio.Queue()
    client = await bay.client()
    await client.chat()
    async with asyncio.timeout(F01_DEADLINE_S):
        done = await bay.router.held.get()
    done(bay.router.decision())
    # The connection attempt is a task that has not run yet: the client is gone before it ends.
    next(iter(bay.gateway._connections)).connection_lost(None)
    assert await bay.ends.next() == ("default/s0", Outcome.CLIENT_DISCONNECT, False)
    assert bay.ledger.in_flight["default/s0"] == 0
    await bay.until(lambda: bay.gateway.pool.idle_count == 1)
    assert bay.servers[0].requests == []


async def test_client_that_leaves_with_requests_waiting_is_not_served_further(start):
    async def behaviour(request, connection):
        await connection.closed_by_peer()
        return False

    bay = await start(behaviour)
    client = await bay.client()
    for _ in range(3):
        await client.chat()
    async with asyncio.timeout(F01_DEADLINE_S):
        await bay.servers[0].arrived.get()
    client.close()
    assert await bay.ends.next() == ("default/s0", Outcome.CLIENT_DISCONNECT, False)
    await bay.servers[0].wait_open(0)
    assert bay.ledger.starts == bay.ledger.ends == 1


async def test_client_that_reads_nothing_holds_the_upstream_back_and_is_cut_off(start):
    written = 0
    stuck = asyncio.Event()
    closed = asyncio.Event()

    async def behaviour(request, connection):
        nonlocal written
        await connection.begin_sse()
        block = b"x" * 65536
        try:
            while True:
                try:
                    async with asyncio.timeout(0.2):
                        await connection.chunk(block)
                except TimeoutError:
                    stuck.set()
                    await connection.writer.drain()
                written += len(block)
        except ConnectionError:
            closed.set()
        return False

    bay = await start(behaviour, limits=GatewayLimits(tick_s=0.02, idle_s=0.8))
    client = await bay.client()
    client.writer.transport.pause_reading()
    await client.chat(stream=True)
    async with asyncio.timeout(3 * F01_DEADLINE_S):
        await stuck.wait()
        # What kernels buffer for two loopback connections, and no more: the gateway itself keeps a fraction of it.
        assert written < 64 * 1024 * 1024
        await closed.wait()
    assert await bay.ends.next() == ("default/s0", Outcome.CLIENT_DISCONNECT, True)


async def test_client_that_reads_slowly_gets_everything(start):
    total = 32 * 1024 * 1024

    async def behaviour(request, connection):
        await connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total // 65536):
            await connection.write(b"x" * 65536)
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    await client.head()
    client.writer.transport.pause_reading()
    await bay.until(lambda: any(each.write_paused for each in bay.gateway._connections))
    unsent = max(each._transport.get_write_buffer_size() for each in bay.gateway._connections)
    assert unsent < 1024 * 1024
    client.writer.transport.resume_reading()
    async with asyncio.timeout(3 * F01_DEADLINE_S):
        received = 0
        while received < total:
            received += len(await client.reader.read(1 << 20))
    assert received == total
    assert (await bay.ends.next())[1] is Outcome.FINISHED
