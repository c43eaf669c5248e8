"""Connections that do not come about: their time is their own, and another endpoint is tried then."""

import asyncio
import socket
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.resolving.resolver import Resolver

pytestmark = pytest.mark.anyio

DEADLINE_S = 5.0


@contextmanager
def never_accepting():
    """An endpoint whose packets are lost: its backlog is full, and the kernel drops further attempts."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            blocker = stack.enter_context(socket.socket())
            blocker.setblocking(False)
            blocker.connect_ex(full.getsockname())
        yield EndpointMetadata("default/full", "full", *full.getsockname())


async def test_connection_that_is_never_accepted_is_504(start):
    bay = await start(limits=GatewayLimits(tick_s=0.02, connect_s=0.05))
    with never_accepting() as endpoint:
        bay.router.endpoints[:] = [endpoint]
        client = await bay.client()
        await client.chat()
        answer = await client.answer()
    assert (answer.status, answer.code) == (504, "upstream-connect-timeout")
    assert (await bay.ends.next())[1] is Outcome.TIMEOUT


async def test_client_that_leaves_while_a_connection_is_awaited_tells_so(start):
    """Clients may give up before a connection does: packets that are lost would never be noticed."""
    bay = await start()
    with never_accepting() as endpoint:
        bay.router.endpoints[:] = [endpoint]
        client = await bay.client()
        await client.chat()
        async with asyncio.timeout(DEADLINE_S):
            while not bay.ledger.starts:  # noqa: ASYNC110 - gives way to the loop, sleeps no time
                await asyncio.sleep(0)
        client.writer.close()
        assert (await bay.ends.next())[1] is Outcome.CLIENT_DISCONNECT
    assert bay.attempts.told == [("default/full", Attempt.SILENT)]
    assert bay.attempts.silences[0][0] is Awaited.CONNECTION


@pytest.mark.parametrize("first_byte_s", [0.05, 30.0])
async def test_connection_has_its_own_time_whatever_an_answer_has(start, first_byte_s):
    """An answer may be awaited for a shorter time than a connection: other endpoints are tried all the same."""
    bay = await start(limits=GatewayLimits(tick_s=0.02, connect_s=0.3, first_byte_s=first_byte_s))
    with never_accepting() as endpoint:
        bay.router.endpoints.insert(0, endpoint)
        client = await bay.client()
        await client.chat()
        answer = await client.answer()
    assert answer.status == 200
    assert answer.headers["x-gateway-destination-endpoint"] == bay.servers[0].endpoint.authority
    assert bay.attempts.told == [("default/full", Attempt.UNREACHABLE), ("default/s0", Attempt.ANSWERED)]
    assert bay.attempts.silences == []


async def test_decision_after_a_connection_that_did_not_come_about_has_its_own_time(start):
    bay = await start(limits=GatewayLimits(tick_s=0.02, connect_s=0.05, first_byte_s=30.0))
    decisions = asyncio.Queue()
    with never_accepting() as endpoint:
        bay.router.endpoints[:] = [endpoint]
        client, other = await bay.client(), await bay.client()
        await client.chat()
        await bay.until(lambda: bay.ledger.starts == 1)
        bay.router.held = decisions
        async with asyncio.timeout(DEADLINE_S):
            done = await decisions.get()
        bay.router.held = None
        # The whole time of another connection passes meanwhile.
        bay.router.chooses = lambda request: endpoint
        await other.chat()
        assert (await other.answer()).code == "upstream-connect-timeout"
    bay.router.chooses = None
    bay.router.endpoints[:] = [bay.servers[0].endpoint]
    done(bay.router.decision())
    assert (await client.answer()).status == 200


class Stubborn(Resolver):
    """Its lookups end when a test says so, and not when they are given up."""

    def __init__(self):
        super().__init__()
        self.may_end = asyncio.Event()

    async def addresses(self, host):
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                continue
        return ("127.0.0.1",)


async def test_connection_that_does_not_end_in_its_time_is_given_up(start):
    resolver = Stubborn()
    bay = await start(limits=GatewayLimits(tick_s=0.02, connect_s=0.05, first_byte_s=0.02), resolver=resolver)
    bay.router.endpoints[:] = [replace(bay.servers[0].endpoint, address="model.test")]
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    resolver.may_end.set()
    assert (answer.status, answer.code) == (504, "upstream-connect-timeout")
    assert (await bay.ends.next())[1:] == (Outcome.TIMEOUT, False)
    assert bay.attempts.told == [("default/s0", Attempt.UNREACHABLE)]
