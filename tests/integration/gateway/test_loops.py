"""Requests that come back to the gateway that sent them on, by itself or by others; and chains of gateways, which are fine."""

import re

import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.gateway.limits import GatewayLimits

pytestmark = pytest.mark.anyio

# Without an end of its own a request in a circle takes one connection after the other.
FEW = GatewayLimits(tick_s=0.02, connections=20)


def leads_to(bay, other):
    """From now on the only endpoint of `bay` is the gateway `other`."""
    endpoint = EndpointMetadata("default/gateway", "gateway", *other.address)
    bay.router.chooses = lambda _request: endpoint
    bay.router.endpoints[:] = [endpoint]


async def test_a_request_that_comes_back_is_answered_with_508_and_goes_no_further(start):
    bay = await start(limits=FEW)
    leads_to(bay, bay)
    client = await bay.client()
    await client.chat(stream=True)
    answer = await client.answer()
    assert (answer.status, answer.code) == (508, "loop-detected")
    assert "an endpoint of this gateway leads to the gateway itself" in answer.json()["error"]["message"]
    assert (len(bay.router.requests), bay.servers[0].requests) == (1, [])
    assert b'hotbay_rejections_total{reason="loop-detected"} 1.0' in bay.metrics.render()


async def test_a_list_of_models_that_comes_back_is_refused_too(start):
    bay = await start(limits=FEW)
    leads_to(bay, bay)
    client = await bay.client()
    await client.send(b"GET /v1/models HTTP/1.1\r\nHost: gw\r\n\r\n")
    answer = await client.answer()
    assert (answer.status, answer.code) == (508, "loop-detected")
    # Pages of the gateway's own lead nowhere.
    await client.send(b"GET /livez HTTP/1.1\r\nHost: gw\r\nVia: %b\r\n\r\n" % answer.headers["via"].encode())
    assert (await client.answer()).status == 200


async def test_a_circle_of_two_gateways_ends_where_it_closes(start):
    first, second = await start(limits=FEW), await start(limits=FEW)
    leads_to(first, second)
    leads_to(second, first)
    client = await first.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (508, "loop-detected")
    assert (len(first.router.requests), len(second.router.requests)) == (1, 1)


async def test_a_chain_of_gateways_is_no_loop(start):
    first, second = await start(), await start()
    leads_to(first, second)
    client = await first.client()
    await client.chat()
    assert (await client.answer()).status == 200
    (request,) = second.servers[0].requests
    names = re.fullmatch(r"1\.1 (hotbay-[0-9a-f]{8}), 1\.1 (hotbay-[0-9a-f]{8})", request.headers["via"])
    assert names is not None
    assert names[1] != names[2]
