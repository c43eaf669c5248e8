"""Sends the requests of a study, and measures when their first tokens come.

`replay` is an open loop: a request is sent when it is due, whatever became of those before it. Its clock is the simulated one: times
are multiplied by how much faster than the machine the servers live. `ask_in_turn` is a closed one, for real servers: how fast the
machine is decides how long it takes, and not how much waits.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from benchmarks.routing.fleet import MODEL
from benchmarks.routing.trace import Sent

__all__ = ["Replayed", "ask_in_turn", "cache_tokens", "replay"]

END_WITHIN_S: Final = 60.0
"""After the last request was due: what has not ended then has failed."""
_PATH: Final = b"/v1/completions"


@dataclass(frozen=True, slots=True)
class Replayed:
    """One request as its client saw it, in simulated seconds from when it was due; `status` 0: no answer came."""

    status: int
    ttft_s: float
    end_s: float


_LOST: Final = Replayed(0, float("nan"), float("nan"))
_BROKEN: Final = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)


async def replay(port: int, requests: Sequence[Sent], speed: float) -> list[Replayed]:
    """Send all of them to a router on the loopback; results in the order of `requests`."""
    loop = asyncio.get_running_loop()
    start_s = loop.time() + 0.1
    end_s = start_s + requests[-1].due_s / speed + END_WITHIN_S

    async def one(sent: Sent) -> Replayed:
        due_s = start_s + sent.due_s / speed
        await asyncio.sleep(due_s - loop.time())
        try:
            async with asyncio.timeout_at(end_s):
                return await _ask(port, sent, due_s, speed)
        # A timeout is an OSError.
        except _BROKEN:
            return _LOST

    return list(await asyncio.gather(*map(one, requests)))


async def ask_in_turn(port: int, requests: Sequence[Sent], in_flight: int) -> list[Replayed]:
    """Send all of them to a router on the loopback, so many at a time, in their order; times count from the sending."""
    clock = asyncio.get_running_loop().time
    waiting: Iterator[tuple[int, Sent]] = iter(enumerate(requests))
    found: dict[int, Replayed] = {}

    async def work() -> None:
        for number, sent in waiting:
            try:
                async with asyncio.timeout(END_WITHIN_S):
                    found[number] = await _ask(port, sent, clock(), 1.0)
            except _BROKEN:
                found[number] = _LOST

    await asyncio.gather(*(work() for _ in range(in_flight)))
    return [found[number] for number in range(len(requests))]


async def _ask(port: int, sent: Sent, due_s: float, speed: float) -> Replayed:
    clock = asyncio.get_running_loop().time
    fields = {"model": MODEL, "prompt": sent.prompt, "max_tokens": sent.output_tokens}
    body = orjson.dumps({**fields, "ignore_eos": True, "stream": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = b"host: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
        writer.write(b"POST %b HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n%b" % (_PATH, head, len(body), body))
        status = int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])
        await reader.readuntil(b"data:")
        first_s = clock()
        await reader.read()
        while not reader.at_eof():
            await reader.read(65536)
    finally:
        writer.close()
    return Replayed(status, (first_s - due_s) * speed, (clock() - due_s) * speed)


async def cache_tokens(ports: Sequence[int]) -> tuple[float, float]:
    """Tokens that were looked up in the servers' prefix caches, and those of them that were found, over all servers."""
    pages = await asyncio.gather(*map(_page, ports))
    names = (b"vllm:prefix_cache_queries_total{", b"vllm:prefix_cache_hits_total{")
    looked, found = (
        sum(float(line.rsplit(b" ", 1)[1]) for page in pages for line in page.splitlines() if line.startswith(name))
        for name in names
    )
    return looked, found


async def _page(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
        return await reader.read()
    finally:
        writer.close()
