"""Model servers that refuse, close, break off, stall or talk nonsense."""

import asyncio
import socket
from dataclasses import replace

import orjson
import pytest
from hotbay.datalayer.endpoint import EndpointMetadata
from hotbay.datalayer.health.patience import Awaited
from hotbay.datalayer.health.reports import Attempt
from hotbay.gateway.limits import GatewayLimits
from hotbay.gateway.outcome import Outcome
from hotbay.scheduling.decision import Rejected

pytestmark = pytest.mark.anyio

DEADLINE_S = 5.0


def unused_endpoint(name):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return EndpointMetadata(f"default/{name}", name, "127.0.0.1", probe.getsockname()[1])


async def test_refused_connection_goes_to_the_next_fallback(start):
    bay = await start()
    bay.router.endpoints.insert(0, unused_endpoint("dead"))
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert answer.status == 200
    assert answer.headers["x-gateway-destination-endpoint"] == bay.servers[0].endpoint.authority
    assert await bay.ends.next() == ("default/s0", Outcome.FINISHED, True)
    assert bay.ledger.starts == bay.ledger.ends == 2


async def test_router_is_told_of_what_was_sent_and_not_of_endpoints_that_could_not_be_reached(start):
    """Who learns from where requests go learns nothing false of an endpoint that never got one."""
    bay = await start()
    dead = [unused_endpoint(f"dead{number}") for number in range(2)]
    choices = iter([dead[0], dead[1], bay.servers[0].endpoint])
    bay.router.chooses = lambda request: next(choices)
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 200
    assert len(bay.router.requests) == 3
    assert bay.router.sent_to == [(bay.router.requests[0].id, "default/s0")]


async def test_refused_connections_of_all_candidates_are_502_with_a_reason(start):
    bay = await start()
    bay.router.endpoints[:] = [unused_endpoint(f"dead{number}") for number in range(5)]
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (502, "upstream-connect-failed")
    assert answer.headers["x-hotbay-reason"] == "upstream-connect-failed"
    assert answer.headers["x-llm-d-request-dropped-reason"] == "upstream-connect-failed"
    assert bay.metrics.upstream_connects == 3
    assert (await bay.ends.next())[1:] == (Outcome.UPSTREAM_ERROR, False)
    assert bay.router.sent_to == []


async def test_scheme_that_is_not_spoken_is_502(start):
    bay = await start()
    bay.router.endpoints[:] = [replace(bay.servers[0].endpoint, scheme="https")]
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (502, "upstream-scheme-unsupported")
    assert bay.servers[0].connects == 0


async def test_kept_connection_closed_without_a_byte_is_tried_once_on_a_fresh_one(start):
    async def behaviour(request, stream):
        if len(bay.servers[0].requests) == 2:
            return False
        await stream.json({"n": len(bay.servers[0].requests)})
        return True

    bay = await start(behaviour)
    client = await bay.client()
    for expected in (1, 3):
        await client.chat()
        assert (await client.answer()).json() == {"n": expected}
    assert bay.metrics.upstream_retries == 1
    assert bay.servers[0].connects == 2
    assert bay.ledger.starts == bay.ledger.ends == 2
    assert bay.router.sent_to == [(request.id, "default/s0") for request in bay.router.requests]


async def test_kept_connection_is_retried_only_once(start):
    async def behaviour(request, stream):
        if len(bay.servers[0].requests) > 1:
            return False
        await stream.json({})
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    await client.answer()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (502, "upstream-closed")
    assert len(bay.servers[0].requests) == 3


def reset(stream):
    """End the connection as a process that dies does."""
    stream.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    stream.writer.transport.abort()


async def dead(request, stream):
    reset(stream)
    return False


async def test_f15_reset_before_a_byte_goes_to_two_others_and_never_to_the_same(start):
    bay = await start(dead, dead, dead, "openai")
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (502, "upstream-closed")
    assert [len(server.requests) for server in bay.servers] == [1, 1, 1, 0]
    # Each of them got it.
    assert [endpoint_id for _, endpoint_id in bay.router.sent_to] == ["default/s0", "default/s1", "default/s2"]
    assert await bay.ends.next() == ("default/s2", Outcome.UPSTREAM_ERROR, False)
    assert bay.ledger.starts == bay.ledger.ends == 3
    assert bay.attempts.told == [(f"default/s{number}", Attempt.UNREACHABLE) for number in range(3)]


async def test_f15_reset_before_a_byte_is_answered_by_another(start):
    bay = await start(dead, "openai")
    client = await bay.client()
    await client.chat(stream=True)
    assert (await client.answer()).status == 200
    assert [len(server.requests) for server in bay.servers] == [1, 1]
    assert bay.attempts.told == [("default/s0", Attempt.UNREACHABLE), ("default/s1", Attempt.ANSWERED)]
    (ttft_s,) = bay.attempts.ttfts_s
    assert ttft_s >= 0


@pytest.mark.parametrize("how", ["refuses", "resets"])
async def test_f15_without_fallbacks_the_router_is_asked_again_without_those_that_were_tried(start, how):
    bay = await start(dead, "openai")
    gone = unused_endpoint("gone") if how == "refuses" else bay.servers[0].endpoint
    good = bay.servers[1].endpoint
    bay.router.chooses = lambda request: good if gone.id in request.avoid else gone
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert answer.status == 200
    assert answer.headers["x-gateway-destination-endpoint"] == good.authority
    assert [request.avoid for request in bay.router.requests] == [frozenset(), {gone.id}]
    assert bay.router.ends == [("s1", False, True)]
    assert bay.ledger.starts == bay.ledger.ends == 2


@pytest.mark.parametrize("again", ["rejects", "repeats"])
async def test_f15_first_failure_is_told_when_there_is_nobody_else(start, again):
    bay = await start(dead)
    endpoint, busy = bay.servers[0].endpoint, Rejected(429, "rejected-saturated", "Busy.")
    bay.router.chooses = lambda request: busy if request.avoid and again == "rejects" else endpoint
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (502, "upstream-closed")
    assert len(bay.servers[0].requests) == 1


async def test_f15_reset_after_the_first_chunk_is_not_tried_again(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        async with asyncio.timeout(DEADLINE_S):
            await relayed.wait()
        reset(stream)
        return False

    relayed = asyncio.Event()
    bay = await start(behaviour, "openai")
    client = await bay.client()
    await client.chat(stream=True)
    await client.head()
    await client.chunk()
    relayed.set()
    assert not (await client.rest()).endswith(b"0\r\n\r\n")
    assert bay.servers[1].requests == []
    assert bay.attempts.told == [("default/s0", Attempt.ANSWERED), ("default/s0", Attempt.BROKEN)]


async def test_f15_answer_of_503_passes_through_and_counts_against_the_endpoint(start):
    async def behaviour(request, stream):
        await stream.json({"error": {"message": "busy"}}, "503 Service Unavailable")
        return True

    bay = await start(behaviour, "openai")
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 503
    assert bay.servers[1].requests == []
    assert bay.attempts.told == [("default/s0", Attempt.FAILED)]


@pytest.mark.parametrize(
    ("status", "body", "counts"),
    [("200 OK", {}, True), ("399 Odd", {}, True), ("400 Bad Request", {}, False), ("429 Busy", {}, False)],
)
async def test_only_a_stream_that_began_says_how_fast_first_tokens_come(start, status, body, counts):
    async def behaviour(request, stream):
        await stream.json(body, status)
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    assert (await client.answer()).status == int(status[:3])
    assert bay.attempts.told == [("default/s0", Attempt.ANSWERED)]
    assert len(bay.attempts.ttfts_s) == counts
    assert bay.metrics.ttft_s.count == counts


async def test_stream_without_a_byte_of_a_body_says_nothing_of_first_tokens(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.write(b"0\r\n\r\n")
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    assert (await client.answer()).body == b""
    assert (bay.attempts.told, bay.attempts.ttfts_s) == ([("default/s0", Attempt.ANSWERED)], [])


@pytest.mark.parametrize(("stream", "awaited"), [(True, Awaited.TOKEN), (False, Awaited.WHOLE)])
async def test_client_that_leaves_tells_how_long_it_waited_without_a_byte(start, stream, awaited):
    async def behaviour(request, stream):
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=stream)
    await bay.servers[0].arrived.get()
    client.writer.close()
    await bay.ends.next()
    assert bay.attempts.told == [("default/s0", Attempt.SILENT)]
    ((told, pieces, waited_s),) = bay.attempts.silences
    assert (told, pieces) == (awaited, 0)
    assert waited_s >= 0


async def test_client_that_leaves_in_a_stream_tells_no_silence(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    await client.head()
    await client.chunk()
    client.writer.close()
    await bay.ends.next()
    assert bay.attempts.told == [("default/s0", Attempt.ANSWERED)]
    assert (bay.attempts.silences, bay.attempts.pieces("default/s0")) == ([], 1)


async def test_head_without_a_body_is_no_first_byte(start):
    """Servers send the head of a stream before they begin to work, so one that hangs sends it, too."""

    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour, limits=GatewayLimits(tick_s=0.02, first_byte_s=0.05))
    client = await bay.client()
    await client.chat(stream=True)
    await client.head()
    assert not (await client.rest()).endswith(b"0\r\n\r\n")
    assert (await bay.ends.next())[1] is Outcome.TIMEOUT
    assert bay.attempts.told == [("default/s0", Attempt.LATE)]
    assert bay.attempts.silences[0][0] is Awaited.TOKEN


async def test_client_that_leaves_while_another_endpoint_is_chosen_ends_it(start):
    bay = await start(dead)
    asked = asyncio.Event()
    endpoint = bay.servers[0].endpoint

    def chooses(request):
        if request.avoid:
            asked.set()
            return None
        return endpoint

    bay.router.chooses = chooses
    client = await bay.client()
    await client.chat()
    async with asyncio.timeout(DEADLINE_S):
        await asked.wait()
    client.writer.close()
    assert (await bay.ends.next())[1] is Outcome.CLIENT_DISCONNECT
    assert bay.router.cancelled == [bay.router.requests[0].id]
    assert bay.ledger.starts == bay.ledger.ends == 1


async def test_kept_connection_that_closes_after_a_byte_is_not_retried(start):
    async def behaviour(request, stream):
        if len(bay.servers[0].requests) > 1:
            await stream.write(b"H")
            return False
        await stream.json({})
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    await client.answer()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (502, "upstream-closed")
    assert len(bay.servers[0].requests) == 2


@pytest.mark.parametrize("framing", ["chunked", "length"])
async def test_upstream_that_dies_mid_answer_ends_as_a_broken_answer(start, framing):
    async def behaviour(request, stream):
        if framing == "chunked":
            await stream.begin_sse()
            await stream.event("one")
        else:
            await stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
        return False

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat(stream=True)
    status, _, _ = await client.head()
    rest = await client.rest()
    assert status == 200
    assert not rest.endswith(b"0\r\n\r\n")
    assert await bay.ends.next() == ("default/s0", Outcome.UPSTREAM_ERROR, True)
    assert bay.metrics.upstream_retries == 0


async def test_upstream_reset_in_an_answer_without_length_is_not_taken_for_its_end(start):
    async def behaviour(request, stream):
        await stream.write(b"HTTP/1.1 200 OK\r\n\r\npart")
        async with asyncio.timeout(DEADLINE_S):
            await relayed.wait()
        stream.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        stream.writer.transport.abort()
        return False

    relayed = asyncio.Event()
    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    await client.head()
    assert await client.chunk() == b"part"
    relayed.set()
    assert await client.rest() == b""
    assert (await bay.ends.next())[1] is Outcome.UPSTREAM_ERROR


@pytest.mark.parametrize(
    "raw",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxx",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
    ids=["garbage", "two-lengths", "length-and-chunks", "coding", "upgrade", "huge-head"],
)
async def test_upstream_that_speaks_no_http_is_502(start, raw):
    async def behaviour(request, stream):
        await stream.write(raw)
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (502, "upstream-bad-response")
    await bay.servers[0].wait_open(0)


async def test_bytes_after_the_answer_end_the_connections_use(start):
    async def behaviour(request, stream):
        await stream.write(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        )
        return True

    bay = await start(behaviour)
    client = await bay.client()
    for _ in range(3):
        await client.chat()
        assert (await client.answer()).body == b"ok"
    assert bay.servers[0].connects == 3


async def test_bytes_on_an_idle_connection_end_its_use(start):
    async def behaviour(request, stream):
        await stream.json({"n": len(bay.servers[0].requests)})
        if len(bay.servers[0].requests) == 1:
            await sent.wait()
            await stream.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            await stream.closed_by_peer()
        return True

    sent = asyncio.Event()
    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    await client.answer()
    sent.set()
    await bay.servers[0].wait_open(0)
    await client.chat()
    assert (await client.answer()).json() == {"n": 2}


async def test_upstream_errors_pass_through_unchanged(start):
    async def behaviour(request, stream):
        await stream.json({"error": {"message": "no such model", "code": 404}}, "404 Not Found")
        return True

    bay = await start(behaviour)
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert answer.status == 404
    assert answer.json() == {"error": {"message": "no such model", "code": 404}}
    assert (await bay.ends.next())[1] is Outcome.FINISHED


async def test_first_byte_that_does_not_come_is_504_and_frees_the_upstream(start):
    async def behaviour(request, stream):
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour, limits=GatewayLimits(tick_s=0.02, first_byte_s=0.05))
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (504, "upstream-first-byte-timeout")
    assert await bay.ends.next() == ("default/s0", Outcome.TIMEOUT, False)
    assert bay.attempts.told == [("default/s0", Attempt.LATE)]
    await bay.servers[0].wait_open(0)


async def test_stream_that_falls_silent_is_broken_off(start):
    async def behaviour(request, stream):
        await stream.begin_sse()
        await stream.event("one")
        await stream.closed_by_peer()
        return False

    bay = await start(behaviour, limits=GatewayLimits(tick_s=0.02, idle_s=0.05))
    client = await bay.client()
    await client.chat(stream=True)
    await client.head()
    assert not (await client.rest()).endswith(b"0\r\n\r\n")
    assert await bay.ends.next() == ("default/s0", Outcome.TIMEOUT, True)


async def test_decision_that_never_comes_is_504(start):
    bay = await start(limits=GatewayLimits(tick_s=0.02, first_byte_s=0.05))
    bay.router.held = asyncio.Queue()
    client = await bay.client()
    await client.chat()
    answer = await client.answer()
    assert (answer.status, answer.code) == (504, "decision-timeout")
    assert bay.router.cancelled == [bay.router.requests[0].id]
    bay.router.held.get_nowait()(bay.router.decision())
    assert bay.ledger.starts == 0


@pytest.mark.parametrize(
    ("status", "reason", "kind", "word"),
    [
        (400, "denied", "invalid_request_error", "BadRequest"),
        (401, "denied", "invalid_request_error", "Unauthorized"),
        (403, "no-such-tenant", "invalid_request_error", "Forbidden"),
        (404, "denied", "not_found_error", "NotFound"),
        (412, "denied", "invalid_request_error", "PreconditionFailed"),
        (429, "rejected-saturated", "rate_limit_error", "ResourceExhausted"),
        (503, "rejected-no-endpoints", "server_error", "ServiceUnavailable"),
        (500, "scheduler-error", "server_error", "Internal"),
    ],
)
async def test_rejection_carries_its_reason_and_its_code(start, status, reason, kind, word):
    bay = await start()
    bay.router.rejection = Rejected(status, reason, "Not now.")
    client = await bay.client()
    for _ in range(2):
        await client.chat()
        answer = await client.answer()
        assert answer.status == status
        assert answer.headers["x-hotbay-reason"] == answer.headers["x-llm-d-request-dropped-reason"] == reason
        assert ("retry-after" in answer.headers) == (status in (429, 503))
        assert orjson.loads(answer.body) == {
            "error": {
                "message": f"inference error: {word} - Not now.",
                "type": kind,
                "param": None,
                "code": reason,
            }
        }
    assert bay.metrics.rejections.get(reason) == (2 if status == 429 or status >= 500 else 0)
    assert bay.ledger.starts == 0


async def test_name_that_no_resolver_takes_goes_to_the_next_fallback(start):
    bay = await start()
    bay.router.endpoints.insert(0, EndpointMetadata("default/odd", "odd", "a..b", 80))
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 200
    assert bay.ledger.starts == bay.ledger.ends == 2
