"""Both loops give results in the order of the requests, and what was not answered has failed and ends nothing."""

import asyncio

import orjson
import pytest

from benchmarks.routing.replay import ask_in_turn, cache_tokens, replay
from benchmarks.routing.trace import Sent

PAGE = b'vllm:prefix_cache_queries_total{a="b"} 40.0\nvllm:prefix_cache_hits_total{a="b"} 10.0\nother 3\n'


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """200 with two events; `refuse` gets 503, `drop` nothing, `hang` waits for its client to go, GET the page of metrics."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    if head.startswith("GET"):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + PAGE)
    else:
        length = int(head.lower().partition("content-length:")[2].split()[0])
        prompt = orjson.loads(await reader.readexactly(length))["prompt"]
        if prompt == "hang":
            await reader.read()
        elif prompt == "refuse":
            writer.write(b"HTTP/1.1 503 no\r\n\r\n{}")
        elif prompt != "drop":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\ndata: [DONE]\n\n")
    writer.close()
    await writer.wait_closed()


async def with_server(work):
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        return await work(server.sockets[0].getsockname()[1])


def statuses(prompts: list[str], *, closed: bool) -> list[int]:
    sent = [Sent(0.0, prompt, 1) for prompt in prompts]
    found = asyncio.run(with_server(lambda port: ask_in_turn(port, sent, 2) if closed else replay(port, sent, 10.0)))
    assert all((answer.status == 200) is (0 <= answer.ttft_s <= answer.end_s) for answer in found)
    return [answer.status for answer in found]


def test_open_loop_gives_every_request_its_own_result():
    assert statuses(["a", "drop", "b", "refuse", "c"], closed=False) == [200, 0, 200, 0, 200]


def test_closed_loop_gives_every_request_its_own_result():
    assert statuses(["a", "drop", "b", "refuse", "c"], closed=True) == [200, 0, 200, 0, 200]


def test_tokens_of_caches_are_added_over_the_servers():
    assert asyncio.run(with_server(lambda port: cache_tokens([port, port]))) == (80.0, 20.0)


@pytest.mark.parametrize("closed", [False, True])
def test_a_request_that_is_never_answered_fails_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch, closed: bool):
    monkeypatch.setattr("benchmarks.routing.replay.END_WITHIN_S", 1.0)

    assert statuses(["a", "hang", "b"], closed=closed) == [200, 0, 200]
