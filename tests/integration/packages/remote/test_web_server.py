"""The misbehaving server does what it is told, seen without the code that is tested with it."""

import asyncio
from pathlib import Path

import anyio
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.process]

CONTENT = b"0123456789"


@pytest.fixture(autouse=True)
def served(web) -> Path:
    file = web.root / "file"
    file.write_bytes(CONTENT)
    return file


async def ask(web, *headers: str) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    try:
        writer.write("\r\n".join(("GET /file HTTP/1.1", "Host: x", *headers, "", "")).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        named = dict(line.split(": ", 1) for line in head[1:] if line)
        body = b""
        while len(body) < int(named["Content-Length"]) and (chunk := await reader.read(100)):
            body += chunk
    finally:
        writer.transport.abort()
    return int(head[0].split(" ")[1]), named, body


async def test_a_file_is_served_whole_with_its_tag(web) -> None:
    status, headers, body = await ask(web)

    assert (status, body) == (200, CONTENT)
    assert headers["ETag"].startswith('"')


async def test_a_range_is_served_under_its_condition_only(web) -> None:
    _, headers, _ = await ask(web)

    assert (await ask(web, "Range: bytes=4-", f"If-Range: {headers['ETag']}"))[::2] == (206, b"456789")
    assert (await ask(web, "Range: bytes=4-", 'If-Range: "other"'))[::2] == (200, CONTENT)
    assert (await ask(web, "Range: bytes=10-"))[::2] == (416, b"")
    assert web.sent_of("/file") == 26


async def test_an_answer_is_cut_as_told(web, reply) -> None:
    web.rule("/file", reply(base=True, cut_after=3))

    status, headers, body = await ask(web)

    assert (status, headers["Content-Length"], body) == (200, "10", b"012")


async def test_an_answer_drips_as_told(web, reply) -> None:
    web.rule("/file", reply(base=True, drips=True))

    with anyio.move_on_after(0.1) as waiting:
        await ask(web)

    assert waiting.cancelled_caught
    assert web.sent_of("/file") == 1


async def test_an_answer_is_replaced_as_told(web, reply) -> None:
    web.rule("/file", reply(503, body=b"later"))

    assert (await ask(web))[::2] == (503, b"later")
