"""What plugins hear of responses: heads, bodies and always one end; and of requests that ended without a first byte."""

import asyncio
import socket

import orjson
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.gateway.limits import GatewayLimits
from hotbay.scheduling.decision import Picked, Rejected
from hotbay.scheduling.response_facts import ResponseFacts, ResponseWants, Usage
from hotbay_sdk.protocol.verdicts import Parsed

pytestmark = pytest.mark.anyio
DEADLINE_S = 5.0
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


def hear(bay, **wants):
    bay.hearer.hears_responses = ResponseWants(
        **{"headers": None, "body": True, "chunks": False, "usage": False, **wants}
    )
    return bay.hearer


def dead(name="dead"):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return EndpointMetadata(f"default/{name}", name, "127.0.0.1", probe.getsockname()[1])


async def test_answer_is_told_with_its_end_and_its_usage(start):
    body = orjson.dumps({"choices": [], "usage": USAGE})

    async def behaviour(request, stream):
        await stream.write(
            b"HTTP/1.1 200 OK\r\nX-Kept: 1\r\nX-Other: 2\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        return True

    bay = await start(behaviour)
    hearer = hear(bay, headers=frozenset({"x-kept", "x-absent"}), usage=True)
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).body == body
    assert hearer.heads == [("default/s0", 200, {"x-kept": "1"})]
    ((endpoint_id, facts),) = hearer.told
    assert endpoint_id == "default/s0"
    assert facts.elapsed_us >= facts.ttft_us > 0
    assert facts._replace(ttft_us=None, elapsed_us=0) == ResponseFacts(
        200, len(body), 1, Usage(7, 3, 4), end=True, cause="natural", first_byte=True
    )


async def test_stream_is_told_as_it_comes_and_its_last_chunk_read(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        for word in ("a", "b"):
            await stream.event(word)
        await stream.chunk(b"data: " + orjson.dumps({"choices": [], "usage": USAGE}) + b"\n\n")
        await stream.end_sse()
        return True

    bay = await start(behaviour)
    hearer = hear(bay, chunks=True, usage=True)
    client = await bay.client()
    await client.chat(stream=True)
    body = (await client.answer()).body
    told = [facts for _, facts in hearer.told]
    assert [facts.end for facts in told] == [False] * (len(told) - 1) + [True]
    assert [facts.cause for facts in told] == [None] * (len(told) - 1) + ["natural"]
    assert [facts.bytes for facts in told] == sorted(facts.bytes for facts in told)
    assert (told[-1].bytes, told[-1].chunks) == (len(body), 5)
    assert (told[0].usage, told[-1].usage.cached_tokens) == (None, 4)
    assert hearer.heads == []


@pytest.mark.parametrize("wants", [{}, {"body": True}], ids=["nobody", "ends-only"])
async def test_nothing_is_read_that_nobody_wants(start, wants):
    bay = await start()
    if wants:
        hear(bay)
    client = await bay.client()
    await client.chat()
    await client.answer()
    assert bay.hearer.heads == []
    assert [facts.usage for _, facts in bay.hearer.told] == [None] * len(wants)


async def test_compressed_answer_has_no_usage(start):
    async def behaviour(request, stream):
        body = orjson.dumps({"usage": USAGE})
        await stream.write(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        return True

    bay = await start(behaviour)
    hearer = hear(bay, usage=True)
    client = await bay.client()
    await client.chat()
    await client.answer()
    assert hearer.ends[0][1].usage is None


async def test_request_without_a_decision_is_nobody_s(start):
    bay = await start()
    hearer = hear(bay, headers=frozenset(), chunks=True)
    bay.router.rejection = Rejected(429, "rejected-saturated", "busy")
    client = await bay.client()
    await client.chat()
    await client.answer()
    await client.send(b"GET /v1/models HTTP/1.1\r\nHost: g\r\n\r\n")
    await client.answer()
    assert (hearer.told, hearer.heads, hearer.withdrawn) == ([], [], [])


@pytest.mark.parametrize(
    ("leave_after", "first_byte"), [("sent", False), ("head", False), ("chunk", True)], ids=["sent", "head", "chunk"]
)
async def test_client_that_leaves_ends_it_and_withdraws_what_gave_no_byte(start, leave_after, first_byte):
    async def behaviour(request, stream):
        if leave_after != "sent":
            await stream.begin_sse()
        if leave_after == "chunk":
            await stream.event("one")
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour)
    hearer = hear(bay)
    client = await bay.client()
    await client.chat(stream=True)
    async with asyncio.timeout(DEADLINE_S):
        await bay.servers[0].arrived.get()
    if leave_after != "sent":
        await client.head()
    if leave_after == "chunk":
        await client.chunk()
    client.close()
    await bay.until(lambda: len(hearer.ends) == 1)
    facts = hearer.ends[0][1]
    assert (facts.cause, facts.first_byte, facts.ttft_us is not None) == (
        "client-disconnect", first_byte, first_byte,
    )  # fmt: skip
    request_id = bay.router.requests[0].id
    assert hearer.withdrawn == ([] if first_byte else [(request_id, "default/s0")])


async def test_client_that_leaves_while_a_decided_request_connects_ends_it_and_withdraws_nothing(start):
    bay = await start()
    hearer = hear(bay)
    bay.router.held = asyncio.Queue()
    client = await bay.client()
    await client.chat()
    async with asyncio.timeout(DEADLINE_S):
        done = await bay.router.held.get()
    done(bay.router.decision())
    next(iter(bay.gateway._connections)).connection_lost(None)
    assert [(endpoint, facts.cause) for endpoint, facts in hearer.ends] == [("default/s0", "client-disconnect")]
    assert hearer.withdrawn == []


async def test_endpoint_that_gave_no_byte_is_withdrawn_from_and_the_other_one_ends_it(start):
    async def silent(request, stream):
        return False

    bay = await start(silent, "openai")
    hearer = hear(bay)
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 200
    request_id = bay.router.requests[0].id
    assert hearer.withdrawn == [(request_id, "default/s0")]
    ends = [(endpoint, facts.cause, facts.first_byte) for endpoint, facts in hearer.ends]
    assert ends == [("default/s0", "error", False), ("default/s1", "natural", True)]


@pytest.mark.parametrize("again", ["picked", "refused"])
async def test_endpoint_of_an_earlier_decision_ends_as_it_was_decided(start, again):
    async def silent(request, stream):
        return False

    bay = await start(silent, "openai")
    hearer = hear(bay)
    nobody = Rejected(503, "rejected-no-endpoints", "none")
    first, second = (server.endpoint for server in bay.servers)
    bay.router.chooses = lambda request: (second if again == "picked" else nobody) if request.avoid else first
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == (200 if again == "picked" else 502)
    ends = [(endpoint, facts.cause) for endpoint, facts in hearer.ends]
    assert ends == [("default/s0", "error"), ("default/s1", "natural")][: 2 if again == "picked" else 1]
    assert hearer.withdrawn == [(bay.router.requests[0].id, "default/s0")]


@pytest.mark.parametrize("how", ["unreachable", "refused-again", "timeout", "broken"])
async def test_failure_after_a_decision_ends_it_with_an_error(start, how):
    async def behaviour(request, stream):
        if how == "broken":
            await stream.begin_sse()
            await stream.event("one")
            return False
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour, limits=GatewayLimits(tick_s=0.02, first_byte_s=0.2))
    hearer = hear(bay)
    if how == "unreachable":
        bay.router.endpoints[:] = [dead()]
    elif how == "refused-again":
        first = dead()
        nobody = Rejected(503, "rejected-no-endpoints", "none")
        bay.router.chooses = lambda request: nobody if request.avoid else first
    client = await bay.client()
    await client.chat(stream=True)
    await client.rest() if how == "broken" else await client.answer()
    await bay.until(lambda: len(hearer.ends) == 1)
    assert hearer.ends[0][1].cause == "error"
    assert len(hearer.withdrawn) == (1 if how == "timeout" else 0)


async def test_decision_that_is_rejected_after_all_its_endpoints_went_ends_with_an_error(start):
    bay = await start()
    hearer = hear(bay)
    nobody = Rejected(503, "rejected-no-endpoints", "none")
    bay.router.chooses = lambda request: nobody if request.avoid else bay.servers[0].endpoint
    bay.take_away("s0")
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 503
    assert [(endpoint, facts.cause, facts.status) for endpoint, facts in hearer.ends] == [("default/s0", "error", 0)]


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        ("finished", "natural"),
        ("client-disconnect", "client-disconnect"),
        ("timeout", "error"),
        (None, "client-disconnect"),
    ],
)
async def test_pick_ends_when_it_is_settled_or_expires(start, outcome, cause):
    bay = await start()
    hearer = hear(bay)
    client = await bay.client()
    await client.post("/pick", {**CHAT, "messages": [{"role": "user", "content": "x" * 10_000}]})
    pick = (await client.answer()).json()
    assert hearer.told == []
    if outcome is None:
        bay.gateway._dispatcher.expire(float("inf"))
    else:
        await client.post(f"/pick/{pick['id']}/done", {"outcome": outcome})
        await client.answer()
    assert [(endpoint, facts.cause) for endpoint, facts in hearer.ends] == [("default/s0", cause)]


async def test_s21_streams_of_a_removed_endpoint_end_as_they_would_and_are_told(start):
    go_on = asyncio.Event()

    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        await go_on.wait()
        await stream.end_sse()
        return True

    bay = await start(behaviour, "openai")
    hearer = hear(bay)
    bay.router.chooses = lambda request: (
        bay.servers[0].endpoint if len(bay.router.requests) <= 5 else bay.servers[1].endpoint
    )
    clients = [await bay.client() for _ in range(5)]
    for client in clients:
        await client.chat(stream=True)
        await client.head()
        await client.chunk()
    bay.take_away("s0")
    later = await bay.client()
    await later.chat()
    assert (await later.answer()).headers["x-gateway-destination-endpoint"] == bay.servers[1].endpoint.authority
    go_on.set()
    for client in clients:
        async with asyncio.timeout(DEADLINE_S):
            while await client.chunk():
                pass
    assert sorted(facts.cause for endpoint, facts in hearer.ends if endpoint == "default/s0") == ["natural"] * 5


LOOPS = 167
"""Of each of the six stages: a thousand in all, as the repro says."""
STAGES = ["parsing", "deciding", "connecting", "sent", "head", "chunk"]


class Killed:
    """A client that asks and is killed once its request has come to a stage."""

    def __init__(self, bay, stage, arrived):
        self.bay, self.stage, self.arrived = bay, stage, arrived
        if stage == "parsing":
            bay.parsers.parsers = (("/chat/completions", "mine"),)
            bay.parsers.parses = lambda path, headers, body: None
        if stage in ("deciding", "connecting"):
            bay.router.held = asyncio.Queue()

    async def ask_and_die(self, number):
        bay = self.bay
        client = await bay.client()
        await client.chat(stream=True)
        async with asyncio.timeout(DEADLINE_S):
            if self.stage == "parsing":
                await bay.until(lambda: len(bay.parsers.waiting) == number)
            elif bay.router.held is None:
                await self.arrived.get()
            else:
                done = await bay.router.held.get()
        if self.stage == "connecting":
            done(bay.router.decision())
            next(iter(bay.gateway._connections)).connection_lost(None)
        client.writer.transport.abort()
        await bay.until(lambda: bay.metrics.client_connections == 0)
        if self.stage == "connecting":
            # The dial ends for others; the next one is to begin anew.
            await bay.until(lambda: bay.gateway.pool.idle_count == 1)
            bay.gateway.pool.sweep(float("inf"))


@pytest.mark.parametrize("stage", STAGES)
async def test_s17_client_killed_at_any_stage_leaves_nothing_in_flight(start, stage):
    arrived = asyncio.Queue[None]()

    async def behaviour(request, stream):
        if stage in ("head", "chunk"):
            await stream.begin_sse()
        if stage == "chunk":
            await stream.event("one")
        arrived.put_nowait(None)
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour)
    hearer, killed = hear(bay), Killed(bay, stage, arrived)
    for number in range(1, LOOPS + 1):
        await killed.ask_and_die(number)
    decided = 0 if stage in ("parsing", "deciding") else LOOPS
    assert not +bay.ledger.in_flight
    assert bay.metrics.requests_in_flight == 0
    assert len(hearer.ends) == decided
    assert len(hearer.withdrawn) == (LOOPS if stage in ("sent", "head") else 0)
    # What answers after all is nobody's.
    for late in bay.parsers.waiting:
        late(Parsed("m", "x"))
    assert bay.ledger.starts == decided


async def test_s17_upstream_reset_leaves_nothing_in_flight(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        stream.writer.transport.abort()
        return False

    bay = await start(behaviour)
    hearer = hear(bay)
    for count in range(1, 101):
        client = await bay.client()
        await client.chat(stream=True)
        await client.rest()
        client.close()
        await bay.until(lambda count=count: len(hearer.ends) == count)
    assert not +bay.ledger.in_flight
    assert {facts.cause for _, facts in hearer.ends} == {"error"}


async def test_headers_that_plugins_set_are_on_the_request_and_on_the_answer(start):
    bay = await start("openai", "openai")
    first, second = (server.endpoint for server in bay.servers)

    def decide(request, done):
        done(
            Picked(
                first,
                (second,),
                request_headers={"x-prefiller-host-port": "10.0.0.1:80", "x-mine": None, "authorization": "stolen"},
                response_headers={"x-session-token": "abc", "content-length": "1", "x-bad": "a\r\nb: c"},
            )
        )

    bay.router.decide = decide
    client = await bay.client()
    await client.chat(headers=b"X-Mine: 1\r\nAuthorization: Bearer k\r\nX-Prefiller-Host-Port: evil\r\n")
    answer = await client.answer()
    sent = bay.servers[0].requests[0].headers
    assert (sent["x-prefiller-host-port"], sent["authorization"]) == ("10.0.0.1:80", "Bearer k")
    assert "x-mine" not in sent
    # What plugins set is for the first one: for the second one it would be decided again.
    assert sent["x-gateway-destination-endpoint"] == first.authority
    assert (answer.status, answer.headers["x-session-token"]) == (200, "abc")
    assert not {"x-bad", "b"} & set(answer.headers)
    assert {why: bay.metrics.header_edits_refused.get(why) for why in ("name", "value")} == {"name": 2, "value": 1}


async def test_endpoint_is_reached_at_the_port_of_the_decision(start):
    bay = await start()
    endpoint = bay.servers[0].endpoint
    rank = EndpointMetadata(endpoint.id, endpoint.name, endpoint.address, 1)
    bay.router.decide = lambda request, done: done(Picked(rank, port=endpoint.port))
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.headers["x-gateway-destination-endpoint"]) == (200, endpoint.authority)
    await client.post("/pick", CHAT)
    assert (await client.answer()).json()["endpoint"] == endpoint.authority


async def test_pick_whose_endpoints_are_all_gone_ends_with_an_error(start):
    bay = await start()
    hearer = hear(bay)
    bay.router.chooses = lambda request: bay.servers[0].endpoint
    bay.take_away("s0")
    client = await bay.client()
    await client.post("/pick", CHAT)
    assert (await client.answer()).status == 503
    assert len(bay.router.requests) > 1, "it was decided again"
    assert [(endpoint, facts.cause, facts.status) for endpoint, facts in hearer.ends] == [("default/s0", "error", 0)]
    assert hearer.withdrawn == []


async def test_pick_that_is_decided_again_has_one_end_where_it_goes(start):
    bay = await start("openai", "openai")
    hearer = hear(bay)
    first, second = (server.endpoint for server in bay.servers)
    bay.router.chooses = lambda request: second if first.id in request.avoid else first
    bay.take_away("s0")
    client = await bay.client()
    await client.post("/pick", CHAT)
    pick = (await client.answer()).json()
    assert hearer.ends == []
    await client.post(f"/pick/{pick['id']}/done", {})
    await client.answer()
    assert [(endpoint, facts.cause) for endpoint, facts in hearer.ends] == [("default/s1", "natural")]


@pytest.mark.parametrize(("how", "cause"), [("leaves", "client-disconnect"), ("late", "error")])
async def test_pick_that_is_over_while_it_is_decided_again_has_its_end(start, how, cause):
    bay = await start(limits=GatewayLimits(tick_s=0.02, first_byte_s=0.2 if how == "late" else DEADLINE_S))
    hearer = hear(bay)
    bay.router.held = asyncio.Queue()
    bay.take_away("s0")
    client = await bay.client()
    await client.post("/pick", CHAT)
    async with asyncio.timeout(DEADLINE_S):
        (await bay.router.held.get())(bay.router.decision())
        await bay.router.held.get()
    if how == "leaves":
        next(iter(bay.gateway._connections)).connection_lost(None)
    else:
        assert (await client.answer()).status == 504
    assert [(endpoint, facts.cause) for endpoint, facts in hearer.ends] == [("default/s0", cause)]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_end_of_a_pick_has_what_its_listeners_read_of_the_prompt(start, path):
    bay = await start()
    hear(bay, fields=frozenset({"request.tokens_estimate", "request.prompt_hashes/16", "request.prompt"}))
    client = await bay.client()
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 4000}]}
    await client.post("/pick", body, b"x-hotbay-path: %b\r\n" % path.encode())
    pick = (await client.answer()).json()
    [request] = bay.router.requests
    assert request.body == b"", "it was let go"
    await client.post(f"/pick/{pick['id']}/done", {})
    await client.answer()
    assert request.tokens_estimate == 1001
    assert len(request.prompt_hashes(16)) == 8 * (4006 // 64)
    assert request.prompt_hashes(8) == b"", "nobody asked for these"
