"""S20: endpoints that go, move or are cordoned between a decision and its dispatch. They get nothing."""

from dataclasses import replace

import pytest
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.choice import MAX_CANDIDATES
from hotbay.scheduling.decision import Rejected

pytestmark = pytest.mark.anyio


def untouched(server) -> bool:
    return (server.connects, server.requests) == (0, [])


async def test_s20_endpoint_that_went_since_the_decision_is_passed_over_for_a_fallback(start):
    bay = await start("openai", "openai")
    bay.take_away("s0")
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert answer.status == 200
    assert answer.headers["x-gateway-destination-endpoint"] == bay.servers[1].endpoint.authority
    assert untouched(bay.servers[0])
    assert len(bay.router.requests) == 1
    assert (bay.ledger.starts, bay.attempts.told[0][0]) == (1, "default/s1")


async def test_s20_decision_for_one_that_went_is_made_again_without_it(start):
    bay = await start("openai", "openai")
    first, second = (server.endpoint for server in bay.servers)
    bay.router.chooses = lambda request: second if first.id in request.avoid else first
    bay.take_away("s0")
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 200
    assert untouched(bay.servers[0])
    assert [request.avoid for request in bay.router.requests] == [frozenset(), {first.id}]
    assert bay.ledger.in_flight["default/s0"] == 0


async def test_s20_without_any_other_it_is_503(start):
    bay = await start("openai")
    first = bay.servers[0].endpoint
    nobody = Rejected(503, "rejected-no-endpoints", "no endpoint is known that may take requests")
    bay.router.chooses = lambda request: nobody if request.avoid else first
    bay.take_away("s0")
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "rejected-no-endpoints")
    assert untouched(bay.servers[0])
    assert bay.ledger.starts == 0


async def test_s20_pool_that_goes_faster_than_it_is_decided_for_is_503_after_a_bounded_number_of_decisions(start):
    bay = await start("openai")
    bay.router.chooses = lambda request: replace(bay.servers[0].endpoint, id=f"default/{len(bay.router.requests)}")
    bay.look = lambda one: None
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "rejected-no-endpoints")
    assert len(bay.router.requests) == MAX_CANDIDATES
    assert untouched(bay.servers[0])


async def test_s20_endpoint_that_goes_while_it_is_dialled_gets_no_request(start):
    bay = await start("openai", "openai")
    looks: list[str] = []

    def look(one):
        looks.append(one.name)
        return None if one.name == "s0" and looks.count("s0") > 1 else one

    bay.look = look
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert answer.headers["x-gateway-destination-endpoint"] == bay.servers[1].endpoint.authority
    assert bay.servers[0].requests == []
    assert (bay.ledger.starts, bay.ledger.ends) == (2, 2)
    assert bay.attempts.told == [("default/s0", Attempt.UNUSED), ("default/s1", Attempt.ANSWERED)]


async def test_s20_request_on_a_kept_connection_that_ended_is_not_sent_again_to_one_that_went(start):
    async def goes(request, stream):
        if len(bay.servers[0].requests) == 1:
            await stream.json({})
            return True
        bay.take_away("s0")
        return False

    bay = await start(goes, "openai")
    client = await bay.client()
    bay.router.chooses = lambda request: bay.servers[bool(request.avoid)].endpoint
    for destination in bay.servers:
        await client.chat()
        answer = await client.answer()
        assert answer.headers["x-gateway-destination-endpoint"] == destination.endpoint.authority
    assert bay.servers[0].connects == 1


async def test_s20_endpoint_that_moved_is_sent_to_where_it_is(start):
    bay = await start("openai", "openai")
    elsewhere = bay.servers[1].endpoint
    bay.look = lambda one: replace(one, port=elsewhere.port)
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert answer.headers["x-gateway-destination-endpoint"] == elsewhere.authority
    assert untouched(bay.servers[0])


async def test_s20_endpoint_that_moves_while_it_is_dialled_is_dialled_where_it_is(start):
    bay = await start("openai", "openai")
    bay.router.endpoints[:] = [bay.servers[0].endpoint]
    elsewhere = bay.servers[1].endpoint
    looks: list[str] = []

    def look(one):
        looks.append(one.name)
        return replace(one, port=elsewhere.port) if len(looks) > 1 else one

    bay.look = look
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).headers["x-gateway-destination-endpoint"] == elsewhere.authority
    assert bay.servers[0].requests == []


async def test_s20_request_that_fails_at_one_is_not_sent_to_a_fallback_that_went(start):
    async def dead(request, stream):
        bay.take_away("s1")
        return False

    bay = await start(dead, "openai", "openai")
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert answer.headers["x-gateway-destination-endpoint"] == bay.servers[2].endpoint.authority
    assert untouched(bay.servers[1])


async def test_s20_list_of_models_is_not_asked_of_one_that_went(start):
    bay = await start("openai", "openai")
    bay.take_away("s0")
    client = await bay.client()
    for _ in range(4):
        await client.send(b"GET /v1/models HTTP/1.1\r\nHost: gw\r\n\r\n")
        assert (await client.answer()).status == 200
    assert untouched(bay.servers[0])
    bay.take_away("s0", "s1")
    await client.send(b"GET /v1/models HTTP/1.1\r\nHost: gw\r\n\r\n")
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "rejected-no-endpoints")


CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


async def test_s20_pick_does_not_name_one_that_went(start):
    bay = await start("openai", "openai", "openai")
    bay.take_away("s0")
    client = await bay.client()
    await client.post("/pick", CHAT)
    pick = (await client.answer()).json()
    second, third = (server.endpoint.authority for server in bay.servers[1:])
    assert (pick["endpoint"], pick["fallbacks"]) == (second, [third])
    assert bay.ledger.in_flight == {"default/s1": 1}


async def test_s20_pick_of_ones_that_went_is_made_again_and_is_503_without_any_other(start):
    bay = await start("openai", "openai")
    first, second = (server.endpoint for server in bay.servers)
    bay.router.chooses = lambda request: second if first.id in request.avoid else first
    bay.take_away("s0")
    client = await bay.client()
    await client.post("/pick", CHAT)
    assert (await client.answer()).json()["endpoint"] == second.authority
    bay.take_away("s0", "s1")
    await client.post("/pick", CHAT)
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "rejected-no-endpoints")
    assert bay.ledger.starts == 1
