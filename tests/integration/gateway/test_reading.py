"""Paths, parsers and models as clients see them."""

import asyncio

import orjson
import pytest
from hotbay.gateway.limits import GatewayLimits
from hotbay.models.rules import Objective, Rewrite, Rule, Target, make_rules
from hotbay.scheduling.decision import Rejected
from hotbay_sdk.protocol.verdicts import Parsed

pytestmark = pytest.mark.anyio
DEADLINE_S = 5.0
CHAT = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


async def echo(request, stream):
    """Answers whatever it is."""
    await stream.json({"line": request.line})
    return True


def rewrites(model, target, **objectives):
    rule = Rule((model,), (Target(target),))
    return make_rules([Objective(*one) for one in objectives.items()], [Rewrite("r", 0.0, (rule,))])


@pytest.mark.parametrize(
    "path", ["/v1/responses", "/v1/messages", "/tokenize", "/v1/rerank", "/prefix/v1/embeddings?a=1"]
)
async def test_path_of_every_parser_is_forwarded_as_it_is(start, path):
    bay = await start(echo)
    client = await bay.client()
    await client.post(path, {**CHAT, "input": "x", "query": "q", "prompt": "p"})
    assert (await client.answer()).json() == {"line": f"POST {path} HTTP/1.1"}
    assert bay.router.requests[0].path == path.partition("?")[0]
    assert bay.metrics.requests.get("inference", "200") == 1


async def test_path_that_nobody_claims_passes_through_with_any_body(start):
    bay = await start(echo)
    client = await bay.client()
    await client.post("/v1/audio/transcriptions", b"\x00\xff--boundary")
    assert (await client.answer()).status == 200
    assert bay.servers[0].requests[0].body == b"\x00\xff--boundary"
    assert (bay.router.requests[0].model, bay.metrics.requests.get("passthrough", "200")) == ("", 1)


async def test_without_a_fallback_an_unclaimed_path_is_400(start):
    bay = await start(echo)
    bay.parsers.parsers = (("", "openai-parser"),)
    client = await bay.client()
    for path, status in [("/v1/chat/completions", 200), ("/v1/messages", 400), ("/anything", 400)]:
        await client.post(path, CHAT)
        answer = await client.answer()
        assert (path, answer.status) == (path, status)
    assert answer.code == "unclaimed-path"
    await client.post("/pick", CHAT, b"x-hotbay-path: /anything\r\n")
    assert (await client.answer()).code == "unclaimed-path"


async def test_target_that_is_no_path_takes_it_from_its_header(start):
    bay = await start(echo)
    client = await bay.client()
    body = orjson.dumps(CHAT)
    head = b"POST * HTTP/1.1\r\nHost: g\r\nX-Original-Path: /v1/chat/completions?a=1\r\nContent-Length: %d\r\n\r\n"
    await client.send(head % len(body) + body)
    assert (await client.answer()).json() == {"line": "POST /v1/chat/completions?a=1 HTTP/1.1"}


async def test_package_s_parser_says_what_the_body_is(start):
    bay = await start(echo)
    bay.parsers.parsers = (("/odd", "mine"), ("", "openai-parser"))
    seen = []

    def parses(path, headers, body):
        seen.append((path, headers["x-a"], body))
        return Parsed("m", "p", stream=True, max_tokens=3)

    bay.parsers.parses = parses
    client = await bay.client()
    await client.post("/v9/odd", b"<xml/>", b"X-A: 1\r\n")
    assert (await client.answer()).status == 200
    assert seen == [("/v9/odd", "1", b"<xml/>")]
    request = bay.router.requests[0]
    assert (request.model, request.prompt_text(), request.stream, request.max_tokens) == ("m", "p", True, 3)
    assert bay.servers[0].requests[0].body == b"<xml/>"


async def test_package_s_parser_may_answer_later_or_deny(start):
    bay = await start(echo)
    bay.parsers.parsers = (("/odd", "mine"),)
    bay.parsers.parses = lambda path, headers, body: None
    client = await bay.client()
    await client.post("/odd", b"1")
    await bay.until(lambda: len(bay.parsers.waiting) == 1)
    assert bay.router.requests == []
    bay.parsers.waiting.pop()(Parsed("m"))
    assert (await client.answer()).status == 200
    await client.post("/odd", b"2")
    await bay.until(lambda: len(bay.parsers.waiting) == 1)
    bay.parsers.waiting.pop()(Rejected(403, "no-licence", "not yours"))
    answer = await client.answer()
    assert (answer.status, answer.code, answer.headers["x-llm-d-request-dropped-reason"]) == (
        403,
        "no-licence",
        "no-licence",
    )


async def test_parser_that_never_answers_is_504_and_what_it_says_then_is_nobody_s(start):
    bay = await start(echo, limits=GatewayLimits(tick_s=0.02, first_byte_s=0.1))
    bay.parsers.parsers = (("/odd", "mine"),)
    bay.parsers.parses = lambda path, headers, body: None
    client = await bay.client()
    await client.post("/odd", b"1")
    assert (await client.answer()).code == "parser-timeout"
    bay.parsers.waiting.pop()(Parsed("m"))
    assert bay.router.requests == []


async def test_changed_parsers_hold_from_the_next_request_on(start):
    bay = await start(echo)
    client = await bay.client()
    for parsers, status in [((("", "openai-parser"),), 400), ((("", "passthrough-parser"),), 200)]:
        bay.parsers.parsers = parsers
        await client.post("/x", CHAT)
        assert (await client.answer()).status == status


async def test_rewritten_model_is_asked_for_and_nothing_else_of_the_body_changes(start):
    bay = await start(echo)
    bay.models = rewrites("m", "m-v2")
    body = b'{ "model": "m", "n": 12345678901234567890123, "messages": [{"role":"user","content":"\\u00fc"}] }'
    client = await bay.client()
    await client.post("/v1/chat/completions", body)
    assert (await client.answer()).status == 200
    assert bay.servers[0].requests[0].body == body.replace(b'"m"', b'"m-v2"')
    request = bay.router.requests[0]
    assert (request.model, request.target_model) == ("m", "m-v2")
    assert bay.metrics.model_rewrites.get("m", "m-v2", "applied") == 1


async def test_rewritten_model_is_in_every_try(start):
    async def silent(request, stream):
        return False

    bay = await start(silent, echo)
    bay.models = rewrites("m", "m-v2")
    bay.router.chooses = lambda request: bay.servers[1 if request.avoid else 0].endpoint
    client = await bay.client()
    await client.chat()
    assert (await client.answer()).status == 200
    assert [server.requests[0].json()["model"] for server in bay.servers] == ["m-v2", "m-v2"]
    assert {request.target_model for request in bay.router.requests} == {"m-v2"}


@pytest.mark.parametrize("header", [b"x-llm-d-model-name-rewrite", b"x-gateway-model-name-rewrite"])
async def test_header_names_the_target_and_beats_the_rules(start, header):
    bay = await start(echo)
    bay.models = rewrites("m", "m-v2")
    client = await bay.client()
    await client.chat(headers=header + b": adapter\r\n")
    await client.answer()
    assert bay.servers[0].requests[0].json()["model"] == "adapter"
    assert header.decode() not in bay.servers[0].requests[0].headers


@pytest.mark.parametrize(
    ("header", "priority", "unknown"),
    [
        (b"", 0, 0),
        (b"x-llm-d-inference-objective: gold\r\n", 10, 0),
        (b"x-gateway-inference-objective: shed\r\n", -5, 0),
        (b"x-llm-d-inference-objective: other\r\n", 0, 1),
    ],
)
async def test_objective_gives_the_priority(start, header, priority, unknown):
    bay = await start(echo)
    bay.models = rewrites("a", "b", gold=10, shed=-5)
    client = await bay.client()
    await client.chat(headers=header)
    await client.answer()
    assert bay.router.requests[0].priority == priority
    assert bay.metrics.unknown_objectives.total() == unknown


async def test_body_without_the_name_goes_on_under_its_own(start):
    bay = await start(echo)
    bay.models = rewrites("m", "m-v2")
    bay.parsers.parsers = (("/odd", "mine"),)
    bay.parsers.parses = lambda path, headers, body: Parsed("m", "p")
    client = await bay.client()
    await client.post("/odd", b"<m/>")
    await client.answer()
    assert (bay.servers[0].requests[0].body, bay.router.requests[0].target_model) == (b"<m/>", "m")
    assert bay.metrics.model_rewrites.get("m", "m-v2", "impossible") == 1


async def test_flow_is_the_header_s_then_the_attribute_s_then_the_default(start):
    bay = await start(echo)
    client = await bay.client()
    await client.chat(headers=b"x-llm-d-inference-fairness-id: team\r\n")
    await client.answer()
    await client.chat()
    await client.answer()
    named, unnamed = bay.router.requests
    assert (named.flow_id, unnamed.flow_id) == ("team", "default-flow")
    unnamed.attributes["agent-identity"] = "agent"
    named.attributes["agent-identity"] = "agent"
    assert (named.flow_id, unnamed.flow_id) == ("team", "agent")


async def test_s46_names_that_clients_choose_are_a_bounded_number_of_short_labels(start):
    bay = await start(echo)
    client = await bay.client()
    for number in range(300):
        name = b"%d-%b" % (number, b"x" * 1000)
        await client.chat(
            headers=b"x-llm-d-model-name-rewrite: %b\r\nx-llm-d-inference-objective: %b\r\n" % (name, name)
        )
        async with asyncio.timeout(DEADLINE_S):
            assert (await client.answer()).status == 200
    # The rest of the ten thousand of the repro: what a request does to the metrics, without the request.
    for number in range(300, 10_000):
        bay.metrics.model_rewrite(f"{number}-{'y' * 1000}", f"{number}-{'x' * 1000}", "applied")
        bay.metrics.unknown_objective(f"{number}-{'x' * 1000}")
    assert len(list(bay.metrics.unknown_objectives.items())) == 101
    assert len(list(bay.metrics.model_rewrites.items())) == 1001
    page = bay.metrics.render()
    assert b"other" in page
    assert len(page) < 1_000_000
