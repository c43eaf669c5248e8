"""A gateway that drains gives idle client connections to the one that follows it: no request crosses with a close."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.request_reader import Phase
from hotbay.passing import PassingOn, passed_on

pytestmark = pytest.mark.anyio

DEADLINE_S = 10.0
MORE_THAN_A_SOCKET_HOLDS = 2000
GET = b"GET /health HTTP/1.1\r\nHost: g\r\n\r\n"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[anyio.abc.UNIXSocketStream, anyio.abc.UNIXSocketStream]]:
    """Both ends of one connection over a socket file."""
    path = str(tmp_path / "s")
    async with await anyio.create_unix_listener(path) as listener:
        near = await anyio.connect_unix(path)
        far = await listener.accept()
        async with near, far:
            yield near, far


@pytest.fixture
def start_named(start) -> Callable[[str], Awaitable[object]]:
    """Start a gateway whose model server answers with a name, and ticks seldom."""

    async def make(name: str):
        async def behaviour(request, stream):
            await stream.json({"choices": [{"message": {"content": name}}]})
            return True

        return await start(behaviour, limits=GatewayLimits(tick_s=0.02, drain_idle_s=0.02))

    return make


class Keeper:
    """Takes connections, and keeps them."""

    def __init__(self) -> None:
        self.kept: list[socket.socket] = []
        self.is_open = True

    def put(self, connection: socket.socket) -> bool:
        self.kept.append(connection)
        return True


async def content(client) -> str:
    return (await client.answer()).json()["choices"][0]["message"]["content"]


async def kept(bay, name: str):
    """A client that had one answer, and keeps its connection."""
    client = await bay.client()
    await client.chat()
    assert await content(client) == name
    return client


async def test_kept_connections_change_gateways_between_two_requests(start_named, pair):
    old, new = await start_named("old"), await start_named("new")
    idle, fresh, half = await kept(old, "old"), await old.client(), await old.client()
    await half.send(GET[:10])
    await old.until(lambda: any(each._reader.phase is Phase.HEAD for each in old.gateway._connections))
    passing = PassingOn(pair[0])
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(passing.run())
        taking = tasks.create_task(new.gateway.take_over(passed_on(pair[1])))
        draining = tasks.create_task(old.gateway.drain(2 * DEADLINE_S, taker=passing))
        await new.until(lambda: new.metrics.client_connections == 2)
        for client in (idle, fresh):
            await client.chat()
            assert await content(client) == "new"
        # What has begun is answered where it began, and goes on elsewhere.
        await half.send(GET[10:])
        answer = await half.answer()
        assert answer.status == 200
        assert "connection" not in answer.headers
        await half.chat()
        assert await content(half) == "new"
        assert await draining is True
        await passing.finish(DEADLINE_S)
        assert passing.count == 3
        await pair[0].aclose()
        await taking


async def test_what_arrives_on_the_way_is_answered_by_the_successor(start_named, pair):
    old, new = await start_named("old"), await start_named("new")
    client = await kept(old, "old")
    passing = PassingOn(pair[0])
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        assert await old.gateway.drain(2 * DEADLINE_S, taker=passing) is True
        # It belongs to nobody who reads: the bytes wait in the socket.
        await client.chat()
        tasks.create_task(passing.run())
        taking = tasks.create_task(new.gateway.take_over(passed_on(pair[1])))
        assert await content(client) == "new"
        await passing.finish(DEADLINE_S)
        await pair[0].aclose()
        await taking


async def test_a_successor_that_is_gone_takes_nothing(start_named, pair):
    old = await start_named("old")
    client = await kept(old, "old")
    passing = PassingOn(pair[0])
    await pair[1].aclose()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(passing.run())
        first, second = socket.socketpair()
        second.close()
        assert passing.put(first)
        await running
        assert not passing.put(second)
        assert await old.gateway.drain(2 * DEADLINE_S, taker=passing) is True
        assert await client.rest() == b""


async def test_a_successor_that_reads_nothing_holds_nobody_up(pair):
    passing = PassingOn(pair[0])
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(passing.run())
        for _ in range(MORE_THAN_A_SOCKET_HOLDS):
            assert passing.put(socket.socket())
        await passing.finish(0.05)
        assert not running.done()
        running.cancel()
    assert passing.count < MORE_THAN_A_SOCKET_HOLDS


async def test_one_too_many_is_ended_without_a_word_to_it(start, start_named, pair, caplog):
    old, new = await start_named("old"), await start(limits=GatewayLimits(tick_s=0.02, connections=1))
    await new.client()
    await new.until(lambda: new.metrics.client_connections == 1)
    client = await kept(old, "old")
    passing = PassingOn(pair[0])
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(passing.run())
        taking = tasks.create_task(new.gateway.take_over(passed_on(pair[1])))
        assert await old.gateway.drain(2 * DEADLINE_S, taker=passing) is True
        assert await client.rest() == b""
        await passing.finish(DEADLINE_S)
        await pair[0].aclose()
        await taking
    assert caplog.text.count("clients_refused connected=2 limit=1") == 1


async def test_what_comes_to_a_gateway_that_drains_goes_on_to_the_next(start_named, pair):
    old, new = await start_named("old"), await start_named("new")
    client = await kept(old, "old")
    # A gateway in between drains already: what it is given, it gives on.
    keeper = Keeper()
    passing = PassingOn(pair[0])
    between = await start_named("between")
    busy = await between.client()
    await busy.send(GET[:10])
    await between.until(lambda: any(each._reader.phase is Phase.HEAD for each in between.gateway._connections))
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(passing.run())
        draining = tasks.create_task(between.gateway.drain(2 * DEADLINE_S, taker=keeper))
        taking = tasks.create_task(between.gateway.take_over(passed_on(pair[1])))
        assert await old.gateway.drain(2 * DEADLINE_S, taker=passing) is True
        await between.until(lambda: len(keeper.kept) == 1)
        await passing.finish(DEADLINE_S)
        await pair[0].aclose()
        await taking
        busy.close()
        await draining

    async def given():
        yield keeper.kept.pop()

    await new.gateway.take_over(given())
    await client.chat()
    assert await content(client) == "new"


async def test_a_gateway_that_gives_way_goes_on_giving_what_still_comes_from_the_one_before(start_named, pair):
    old, between, new = await start_named("old"), await start_named("between"), await start_named("new")
    client = await old.client()
    await client.send(GET[:10])
    await old.until(lambda: any(each._reader.phase is Phase.HEAD for each in old.gateway._connections))
    passing, keeper = PassingOn(pair[0]), Keeper()
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(passing.run())
        taking = tasks.create_task(between.gateway.take_over(passed_on(pair[1])))
        leaving = tasks.create_task(old.gateway.drain(2 * DEADLINE_S, taker=passing))
        await between.until(lambda: not between.gateway._intake.is_set())
        draining = tasks.create_task(between.gateway.drain(2 * DEADLINE_S, taker=keeper))
        # It has nobody, and the one before has one more, which it will answer first.
        await client.send(GET[10:])
        assert (await client.answer()).status == 200
        assert await leaving is True
        await between.until(lambda: len(keeper.kept) == 1)
        assert not draining.done()
        await passing.finish(DEADLINE_S)
        await pair[0].aclose()
        await taking
        assert await draining is True

    async def given():
        yield keeper.kept.pop()

    await new.gateway.take_over(given())
    await client.chat()
    assert await content(client) == "new"


async def test_a_gateway_without_a_successor_waits_for_nobody_who_gives(start_named, pair):
    between = await start_named("between")
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(between.gateway.take_over(passed_on(pair[1])))
        await between.until(lambda: not between.gateway._intake.is_set())
        assert await between.gateway.drain(2 * DEADLINE_S) is True
        await pair[0].aclose()
        await taking


async def test_a_client_whose_connection_nobody_takes_any_more_is_told_that_it_ends(start_named, pair):
    old = await start_named("old")
    client = await kept(old, "old")
    await client.send(GET[:10])
    await old.until(lambda: any(each._reader.phase is Phase.HEAD for each in old.gateway._connections))
    passing = PassingOn(pair[0])
    async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(passing.run())
        draining = tasks.create_task(old.gateway.drain(2 * DEADLINE_S, taker=passing))
        assert passing.is_open
        # Nothing is sent: that the successor is gone is seen all the same.
        await pair[1].aclose()
        await old.until(lambda: not passing.is_open)
        await client.send(GET[10:])
        assert (await client.answer()).headers["connection"] == "close"
        assert await client.rest() == b""
        assert await draining is True
        await passing.finish(DEADLINE_S)
        await running


async def test_connections_that_a_process_has_no_descriptor_for_are_told_in_the_log(pair, caplog):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as given:
        await pair[0].send_fds(b"c", [given.fileno()])
        await pair[0].aclose()
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            with anyio.fail_after(DEADLINE_S):
                received = [each async for each in passed_on(pair[1])]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert received == []
    assert "connections_lost count=1: raise the limit of open files" in caplog.text
