"""`/pick`: a decision without a proxy, counted until it is settled."""

import asyncio

import pytest
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.limits import GatewayLimits
from hotbay.scheduling.decision import Rejected

pytestmark = pytest.mark.anyio

CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
DEADLINE_S = 5.0


async def test_pick_names_the_endpoint_and_is_settled_once(start):
    bay = await start("openai", "openai")
    client = await bay.client()
    await client.post("/pick", CHAT)
    answer = await client.answer()
    first, second = (server.endpoint.authority for server in bay.servers)
    pick = answer.json()
    assert answer.status == 200
    assert {key: pick[key] for key in ("endpoint", "fallbacks", "profile", "model")} == {
        "endpoint": first,
        "fallbacks": [second],
        "profile": "default",
        "model": "m",
    }
    assert answer.headers["x-gateway-destination-endpoint"] == f"{first},{second}"
    assert bay.ledger.in_flight["default/s0"] == 1
    assert bay.servers[0].connects == 0
    assert bay.router.sent_to == [(bay.router.requests[0].id, "default/s0")]

    await client.post(f"/pick/{pick['id']}/done", {"outcome": "client-disconnect"})
    assert (await client.answer()).status == 200
    assert bay.ledger.in_flight["default/s0"] == 0
    await client.post(f"/pick/{pick['id']}/done", b"")
    answer = await client.answer()
    assert (answer.status, answer.code) == (404, "unknown-pick")
    assert bay.metrics.outcomes.get("client-disconnect") == 1


async def test_pick_that_nobody_settles_expires_and_is_counted(start):
    bay = await start(limits=GatewayLimits(tick_s=0.02, pick_s=0.05))
    client = await bay.client()
    for _ in range(3):
        await client.post("/pick", CHAT)
        assert (await client.answer()).status == 200
    await bay.until(lambda: bay.gateway.unsettled_picks == 0)
    assert bay.metrics.picks_expired == 3
    assert bay.ledger.in_flight["default/s0"] == 0
    assert bay.attempts.told == [("default/s0", Attempt.UNUSED)] * 3


@pytest.mark.parametrize(
    ("outcome", "attempt"),
    [
        ("finished", Attempt.ANSWERED),
        ("client-disconnect", Attempt.UNTOLD),
        ("upstream-error", Attempt.FAILED),
        ("timeout", Attempt.FAILED),
    ],
)
async def test_outcome_of_a_pick_says_how_its_endpoint_did_and_never_that_it_was_silent(start, outcome, attempt):
    """How long was waited is not told, and what the endpoint sends to those who picked it does not pass here."""
    bay = await start()
    client = await bay.client()
    await client.post("/pick", CHAT)
    pick = (await client.answer()).json()
    await client.post(f"/pick/{pick['id']}/done", {"outcome": outcome})
    assert (await client.answer()).status == 200
    assert bay.attempts.told == [("default/s0", attempt)]
    assert bay.attempts.silences == []


async def test_pick_takes_the_path_from_its_header(start):
    bay = await start()
    client = await bay.client()
    await client.post("/pick", {"model": "m", "prompt": "x"}, b"x-hotbay-path: /v1/completions?a=1\r\n")
    assert (await client.answer()).status == 200
    assert bay.router.requests[0].path == "/v1/completions"
    await client.post("/pick", CHAT, b"x-hotbay-path: elsewhere\r\n")
    answer = await client.answer()
    assert (answer.status, answer.code) == (400, "unknown-path")


async def test_pick_is_refused_as_the_proxy_refuses(start):
    bay = await start()
    client = await bay.client()
    await client.post("/pick", {"model": "m"})
    assert (await client.answer()).code == "missing-messages"
    bay.router.rejection = Rejected(503, "rejected-no-endpoints", "None.")
    await client.post("/pick", CHAT)
    answer = await client.answer()
    assert (answer.status, answer.headers["x-hotbay-reason"]) == (503, "rejected-no-endpoints")
    assert bay.ledger.starts == 0


async def test_picks_are_bounded(start):
    bay = await start(limits=GatewayLimits(tick_s=0.02, picks=1))
    client = await bay.client()
    await client.post("/pick", CHAT)
    assert (await client.answer()).status == 200
    await client.post("/pick", CHAT)
    answer = await client.answer()
    assert (answer.status, answer.code) == (503, "too-many-picks")


@pytest.mark.parametrize("body", [b'{"outcome":"great"}', b"[]"])
async def test_unknown_outcome_settles_nothing(start, body):
    bay = await start()
    client = await bay.client()
    await client.post("/pick", CHAT)
    pick = (await client.answer()).json()
    await client.post(f"/pick/{pick['id']}/done", body)
    answer = await client.answer()
    assert (answer.status, answer.code) == (400, "unknown-outcome")
    assert bay.gateway.unsettled_picks == 1


async def test_pick_of_a_client_that_left_is_not_counted(start):
    bay = await start()
    bay.router.held = asyncio.Queue()
    client = await bay.client()
    await client.post("/pick", CHAT)
    async with asyncio.timeout(DEADLINE_S):
        done = await bay.router.held.get()
    client.close()
    await bay.until(lambda: bay.metrics.client_connections == 0)
    assert bay.router.cancelled == [bay.router.requests[0].id]
    done(bay.router.decision())
    assert bay.ledger.starts == 0
    assert bay.gateway.unsettled_picks == 0


async def test_pick_without_a_decision_is_504(start):
    bay = await start(limits=GatewayLimits(tick_s=0.02, first_byte_s=0.05))
    bay.router.held = asyncio.Queue()
    client = await bay.client()
    await client.post("/pick", CHAT)
    answer = await client.answer()
    assert (answer.status, answer.code) == (504, "decision-timeout")
    bay.router.held.get_nowait()(bay.router.decision())
    assert bay.ledger.starts == 0
