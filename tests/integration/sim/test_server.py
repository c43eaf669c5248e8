"""A simulated server over HTTP: every route, streams, disconnects, and time that is turned by hand."""

import asyncio
import json
import re

import httpx
import pytest
from hotbay.errors import CapacityError
from hotbay.sim.clock import ManualClock
from hotbay.sim.config import LoraModule, SimConfig
from hotbay.sim.sequences import EngineLimits
from hotbay.sim.server import SimServer
from hotbay.sim.timing import Timing
from openai import AsyncOpenAI

pytestmark = pytest.mark.anyio

DEADLINE_S = 30.0
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello " * 40}], "max_tokens": 4}
SLOW = SimConfig(model="tiny", timing=Timing(base_s=1.0), limits=EngineLimits(max_num_seqs=1))
GAUGE = 'vllm:{}{{engine="0",model_name="tiny"}} '


class Raw:
    """A connection whose bytes a test writes and reads."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server: SimServer) -> "Raw":
        return cls(*await asyncio.open_connection(server.host, server.port))

    def send(self, method: str, path: str, payload: object = None, *, headers: str = "") -> None:
        body = b"" if payload is None else json.dumps(payload).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: sim\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)

    async def until(self, end: bytes) -> bytes:
        return await asyncio.wait_for(self.reader.readuntil(end), DEADLINE_S)

    async def answer(self) -> tuple[bytes, bytes]:
        """Head and body of an answer of known length."""
        head = await self.until(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return head, await asyncio.wait_for(self.reader.readexactly(length), DEADLINE_S)

    async def page(self) -> str:
        self.send("GET", "/metrics")
        return (await self.answer())[1].decode()

    async def close(self) -> None:
        self.writer.close()


async def test_answers_what_every_vllm_server_answers(start, client):
    server = await start(SimConfig(model="tiny", loras=(LoraModule("l1", "/l1"),)))
    http = client(server)
    for path in ("/health", "/ping"):
        answer = await http.get(path)
        assert (answer.status_code, answer.content) == (200, b"")
    assert (await http.get("/version")).json() == {"version": "0.32.0"}
    assert (await http.get("/load")).json() == {"server_load": 0}
    assert [model["id"] for model in (await http.get("/v1/models")).json()["data"]] == ["tiny", "l1"]
    told = (await http.post("/tokenize", json={"model": "tiny", "prompt": "hello world!"})).json()
    assert (told["count"], len(told["tokens"]), told["max_model_len"]) == (3, 3, 8192)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nowhere", b"", 404),
        ("PUT", "/health", b"", 405),
        ("GET", "/v1/chat/completions", b"", 405),
        ("POST", "/tokenize", b"{", 400),
        ("POST", "/tokenize", b"{}", 400),
        ("POST", "/tokenize", b'{"model": "no", "prompt": "x"}', 404),
        ("POST", "/v1/completions", b'{"model": "no", "prompt": "x"}', 404),
        ("POST", "/v1/completions", b"{", 400),
    ],
)
async def test_errors_have_the_form_of_the_real_servers(start, client, method, path, body, status):
    answer = await client(await start()).request(method, path, content=body)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == status


async def test_whole_answer_and_stream_say_the_same(start):
    server = await start(SimConfig(model="tiny", mode="echo", tells_cached_tokens=True))
    openai = AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=httpx.AsyncClient(trust_env=False)
    )
    async with openai:
        messages = [{"role": "user", "content": "How äre yöu? " * 20}]
        whole = await openai.chat.completions.create(model="tiny", messages=messages)
        stream = await openai.chat.completions.create(
            model="tiny", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == messages[0]["content"]
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 75
    assert (whole.usage.prompt_tokens_details.cached_tokens, whole.usage.prompt_tokens) == (0, 76)
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens == 64


async def test_adapters_come_and_go(start, client):
    server = await start(SimConfig(model="tiny", limits=EngineLimits(max_loras=2, max_cpu_loras=2)))
    http = client(server)
    load = {"lora_name": "l1", "lora_path": "/adapters/l1"}
    assert "lora_requests_info" not in (await http.get("/metrics")).text
    assert (await http.post("/v1/completions", json={"model": "l1", "prompt": "x"})).status_code == 404
    answer = await http.post("/v1/load_lora_adapter", json=load)
    assert (answer.status_code, answer.text) == (200, "Success: LoRA adapter 'l1' added successfully.")
    assert (await http.post("/v1/load_lora_adapter", json=load)).status_code == 400
    assert (await http.post("/v1/load_lora_adapter", json={"lora_name": "l2"})).status_code == 400
    answer = await http.post("/v1/completions", json={"model": "l1", "prompt": "x", "max_tokens": 1})
    assert (answer.status_code, answer.json()["model"]) == (200, "l1")
    page = (await http.get("/metrics")).text
    assert 'vllm:lora_requests_info{max_lora="2",running_lora_adapters="l1",waiting_lora_adapters=""} 1.' in page
    unload = {"lora_name": "l1"}
    assert (await http.post("/v1/unload_lora_adapter", json=unload)).status_code == 200
    assert (await http.post("/v1/unload_lora_adapter", json=unload)).status_code == 404
    assert (await http.post("/v1/completions", json={"model": "l1", "prompt": "x"})).status_code == 404


async def test_tokens_come_as_time_goes_by(start):
    clock = ManualClock()
    server = await start(SLOW, clock=clock)
    raw, other = await Raw.to(server), await Raw.to(server)
    raw.send("POST", "/v1/completions", {"prompt": "abcdefgh", "max_tokens": 2, "stream": True})
    await raw.until(b"\r\n\r\n")
    assert GAUGE.format("num_requests_running") + "1.0" in await other.page()
    clock.advance(0.9)
    assert "generation_tokens_total" in await other.page()
    assert server.engine.statistics.generation_tokens == 0
    clock.advance(0.2)
    await raw.until(b'"finish_reason":null')
    clock.advance(1.0)
    await raw.until(b'"finish_reason":"length"')
    await raw.until(b"0\r\n\r\n")
    assert GAUGE.format("num_requests_running") + "0.0" in await other.page()
    assert server.engine.statistics.latency_s.sum == pytest.approx(2.0)
    await raw.close()
    await other.close()


async def test_request_waits_for_its_turn_and_a_client_that_leaves_takes_it_along(start):
    clock = ManualClock()
    server = await start(SLOW, clock=clock)
    first, second, other = [await Raw.to(server) for _ in range(3)]
    for raw in (first, second):
        raw.send("POST", "/v1/chat/completions", CHAT | {"stream": True})
        await raw.until(b"\r\n\r\n")
    page = await other.page()
    assert GAUGE.format("num_requests_running") + "1.0" in page
    assert GAUGE.format("num_requests_waiting") + "1.0" in page
    await first.close()
    async with asyncio.timeout(DEADLINE_S):
        while server.load > 1:
            await other.page()
    assert server.engine.statistics.finished["abort"] == 1
    for _ in range(6):
        clock.advance(1.0)
    await second.until(b"0\r\n\r\n")
    assert server.engine.pool.used_count == 0
    await second.close()
    await other.close()


async def test_requests_sent_ahead_are_answered_in_their_order(start):
    server = await start()
    raw = await Raw.to(server)
    for tokens in (3, 1, 2):
        raw.send("POST", "/v1/completions", {"prompt": "x", "max_tokens": tokens})
    raw.send("GET", "/version")
    answers = [json.loads((await raw.answer())[1]) for _ in range(4)]
    assert [answer["usage"]["completion_tokens"] for answer in answers[:3]] == [3, 1, 2]
    assert answers[3] == {"version": "0.32.0"}
    await raw.close()


class HurriedClock(ManualClock):
    """A step passes each time that anybody looks at it."""

    def now(self) -> float:
        self._now += 1.0
        return self._now


async def test_answer_that_ends_lets_the_next_request_in_and_nobody_loses_a_token(start):
    """What a client sent ahead begins in the middle of telling the others, when their next token may be due already."""
    clock = HurriedClock()
    server = await start(SimConfig(model="tiny", timing=Timing(base_s=1.0)), clock=clock)
    first, second = await Raw.to(server), await Raw.to(server)
    for raw, tokens in ((first, 5), (second, 6)):
        raw.send("POST", "/v1/completions", {"prompt": "x", "max_tokens": tokens, "stream": True})
        raw.send("POST", "/v1/completions", {"prompt": "x", "max_tokens": tokens, "stream": True})
        await raw.until(b"\r\n\r\n")
    for _ in range(100):
        clock.advance(1.0)
    for raw, tokens in ((first, 5), (second, 6)):
        texts = re.findall(rb'"text":"(.*?)"', await raw.until(b"0\r\n\r\n"))
        assert len(b"".join(texts)) == 4 * tokens
        await raw.close()


async def test_connection_closes_where_the_client_wants_it(start):
    raw = await Raw.to(await start())
    raw.send(
        "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "stream": True}, headers="Connection: close\r\n"
    )
    data = await asyncio.wait_for(raw.reader.read(), DEADLINE_S)
    assert b"connection: close" in data
    assert data.endswith(b"0\r\n\r\n")
    await raw.close()


async def test_what_is_no_http_is_refused_and_the_connection_closed(start):
    raw = await Raw.to(await start())
    raw.writer.write(b"\x16\x03\x01 hello\r\n\r\n")
    data = await asyncio.wait_for(raw.reader.read(), DEADLINE_S)
    assert data.startswith(b"HTTP/1.1 400 ")
    await raw.close()


async def test_body_that_waits_to_be_asked_for_is_asked_for(start):
    raw = await Raw.to(await start())
    body = json.dumps({"prompt": "x", "max_tokens": 1}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: sim\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
    raw.writer.write(head.encode())
    assert await raw.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    raw.writer.write(body)
    assert (await raw.answer())[0].startswith(b"HTTP/1.1 200 ")
    await raw.close()


async def test_queue_of_bounded_length_refuses_one_more(start):
    server = await start(
        SimConfig(model="tiny", timing=Timing(base_s=1.0), limits=EngineLimits(max_num_seqs=1), max_waiting=1),
        clock=ManualClock(),
    )
    held = [await Raw.to(server) for _ in range(2)]
    for raw in held:
        raw.send("POST", "/v1/completions", {"prompt": "x", "stream": True})
        await raw.until(b"\r\n\r\n")
    raw = await Raw.to(server)
    raw.send("POST", "/v1/completions", {"prompt": "x"})
    assert (await raw.answer())[0].startswith(b"HTTP/1.1 429 ")
    assert 'vllm:admission_rejections_total{model_name="tiny",reason="max_num_queued_reqs"} 1.0' in await raw.page()
    for each in (*held, raw):
        await each.close()


async def test_failures_are_injected_into_completions_only(start, client):
    http = client(await start(SimConfig(model="tiny", failure_rate=100.0, failure_types=("rate_limit",))))
    answer = await http.post("/v1/chat/completions", json=CHAT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert (await http.get("/v1/models")).status_code == 200


async def test_prefiller_that_a_request_names_is_remembered(start, client):
    server = await start(SimConfig(model="tiny", pod="decode-1"))
    http = client(server)
    headers = {"x-prefiller-host-port": "10.0.0.7:8000", "x-request-id": "r-1"}
    answer = await http.post("/v1/chat/completions", json=CHAT, headers=headers)
    assert (answer.json()["id"], answer.headers["x-inference-pod"]) == ("chatcmpl-r-1", "decode-1")
    await http.post("/v1/chat/completions", json=CHAT)
    assert [seen.prefiller for seen in server.seen] == ["10.0.0.7:8000", ""]
    assert server.seen[0].id == "chatcmpl-r-1"


async def test_many_servers_answer_in_one_loop(start, client):
    servers = [await start(SimConfig(model="tiny", seed=number)) for number in range(8)]
    answers = await asyncio.gather(
        *(client(server).post("/v1/chat/completions", json=CHAT) for server in servers for _ in range(5))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["choices"][0]["message"]["content"] for answer in answers}) == 40


async def test_port_that_is_taken_is_said(start):
    server = await start()
    with pytest.raises(CapacityError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        await SimServer(SimConfig()).start(port=server.port)


async def test_server_that_closes_cuts_who_is_connected(start):
    server = await start(SLOW, clock=ManualClock())
    raw = await Raw.to(server)
    raw.send("POST", "/v1/completions", {"prompt": "x", "stream": True})
    await raw.until(b"\r\n\r\n")
    await server.close()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await raw.until(b"0\r\n\r\n")
    await server.close()
    await raw.close()
