"""What requests count in tokens at the endpoints that they are sent to, and whose headers go along with them."""

import asyncio
import socket

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.scheduling.decision import Picked

pytestmark = pytest.mark.anyio

CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": True}


def dead() -> EndpointMetadata:
    """An endpoint at which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return EndpointMetadata("default/dead", "dead", "127.0.0.1", probe.getsockname()[1])


@pytest.mark.parametrize(("releases", "left"), [(False, 100), (True, 60)], ids=["end", "first-token"])
async def test_prompt_counts_to_the_end_or_until_the_answer_begins(start, releases, left):
    begin, finish = asyncio.Event(), asyncio.Event()

    async def behaviour(request, stream):
        await begin.wait()
        await stream.begin_sse()
        await stream.event("one")
        await finish.wait()
        await stream.event("two")
        await stream.end_sse()
        return True

    bay = await start(behaviour)
    at = bay.servers[0].endpoint
    bay.router.decision = lambda: Picked(at, tokens=100, answer_tokens=60, releases_tokens=releases)
    client = await bay.client()
    await client.chat(stream=True)
    await bay.servers[0].arrived.get()
    assert (bay.ledger.in_flight[at.id], bay.ledger.tokens[at.id]) == (1, 100)
    begin.set()
    await client.head()
    await client.chunk()
    assert (bay.ledger.in_flight[at.id], bay.ledger.tokens[at.id]) == (1, left)
    finish.set()
    while await client.chunk():
        pass
    await bay.ends.next()
    assert (bay.ledger.in_flight[at.id], bay.ledger.tokens[at.id]) == (0, 0)


async def test_client_that_leaves_takes_along_what_is_left_of_its_tokens(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour)
    at = bay.servers[0].endpoint
    bay.router.decision = lambda: Picked(at, tokens=100, answer_tokens=60, releases_tokens=True)
    client = await bay.client()
    await client.chat(stream=True)
    await client.head()
    await client.chunk()
    client.close()
    await bay.ends.next()
    assert (bay.ledger.in_flight[at.id], bay.ledger.tokens[at.id]) == (0, 0)


async def test_fallback_counts_what_it_has_not_cached(start):
    arrived: list[int] = []

    async def behaviour(request, stream):
        arrived.append(bay.ledger.tokens["default/s0"])
        await stream.json({})
        return True

    bay = await start(behaviour)
    bay.router.decision = lambda: Picked(dead(), (bay.servers[0].endpoint,), tokens=4, tokens_elsewhere=(36,))
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 200
    assert arrived == [36]
    assert bay.ledger.tokens.total() == 0


async def test_pick_counts_its_tokens_until_it_is_settled_at_the_endpoint_that_is_there(start):
    bay = await start("openai", "openai")
    gone, there = (server.endpoint for server in bay.servers)
    bay.take_away(gone.name)
    bay.router.decision = lambda: Picked(gone, (there,), tokens=4, tokens_elsewhere=(36,), releases_tokens=True)
    client = await bay.client()
    await client.post("/pick", CHAT)
    pick = (await client.answer()).json()
    assert dict(bay.ledger.tokens) == {there.id: 36}
    await client.post(f"/pick/{pick['id']}/done", {})
    assert (await client.answer()).status == 200
    assert bay.ledger.tokens.total() == bay.ledger.in_flight.total() == 0


# -- headers that hold for one endpoint --------------------------------------------------------------


def naming(first: EndpointMetadata, *others: EndpointMetadata) -> Picked:
    """A decision whose headers name the endpoint that it is for, as a session's do."""
    token = {"x-session-token": first.name}
    return Picked(first, others, request_headers={"x-to": first.name}, response_headers=token)


async def test_s40_token_of_an_answer_names_the_endpoint_that_gave_it(start):
    bay = await start("openai")
    there, away = bay.servers[0].endpoint, dead()
    decisions = iter([naming(away, there), naming(there)])
    bay.router.decision = lambda: next(decisions)
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.headers["x-session-token"]) == (200, "s0")
    assert bay.servers[0].requests[0].headers["x-to"] == "s0"
    assert [request.avoid for request in bay.router.requests] == [frozenset(), {"default/dead"}]


async def test_s40_pick_of_an_endpoint_that_went_is_decided_again_where_headers_name_it(start):
    bay = await start("openai", "openai")
    gone, there = (server.endpoint for server in bay.servers)
    bay.take_away(gone.name)
    decisions = iter([naming(gone, there), naming(there, gone)])
    bay.router.decision = lambda: next(decisions)
    client = await bay.client()
    await client.post("/pick", CHAT)
    pick = (await client.answer()).json()
    assert (pick["endpoint"], pick["fallbacks"]) == (there.authority, [])
    assert [request.avoid for request in bay.router.requests] == [frozenset(), {gone.id}]
    await client.post(f"/pick/{pick['id']}/done", {})
    await client.answer()


async def test_headers_that_are_only_taken_away_are_taken_away_at_the_fallback_as_well(start):
    bay = await start("openai")
    bay.router.decision = lambda: Picked(dead(), (bay.servers[0].endpoint,), request_headers={"x-to": None})
    client = await bay.client()
    await client.chat(headers=b"x-to: mine\r\nx-kv-cache-source-host-port: 10.0.0.1:1\r\n")
    assert (await client.answer()).status == 200
    assert len(bay.router.requests) == 1
    assert {"x-to", "x-kv-cache-source-host-port"}.isdisjoint(bay.servers[0].requests[0].headers)
