"""A peer that sends what nobody asked for, or makes reading dear: it is counted, bounded and at last cut off."""

import asyncio
import tracemalloc
from collections.abc import Callable

import pytest
from hotbay_sdk.protocol import Connection, FrameType, Method, Role, encode_frame
from hotbay_sdk.protocol.messages import FRAME_LIMITS, HOST_CALL_BYTES
from hotbay_sdk.protocol.values import Encoder

NIL = b"\xc0"
MIB = 1024 * 1024


def test_r13_ten_stray_answers_are_survived_and_counted(with_peer: Callable) -> None:
    async def body(peer) -> None:
        told: asyncio.Future = asyncio.get_running_loop().create_future()
        stream = peer.client.start_call(Method.RUN, [], deadline_s=10, done=told.set_result)
        peer.read()
        answer = peer.connection.send_reply(stream, "right")
        strays = b"".join(encode_frame(FrameType.RESP, n, NIL) for n in (0, 999, *range(2, 9)))
        peer.write(strays + answer + answer)
        assert await asyncio.wait_for(told, 10) == "right"
        assert (peer.client.stray_answers, peer.lost) == (10, [])

    with_peer(body)


def test_r13_a_thousand_stray_answers_end_the_link(with_peer: Callable) -> None:
    async def body(peer) -> None:
        peer.write(encode_frame(FrameType.RESP, 999, NIL) * 1000)
        fault = await peer.gone()
        assert (fault.code, "never made" in fault.message) == ("PROTOCOL_VIOLATION", True)

    with_peer(body)


def test_r03_deeply_nested_reply_fails_its_call_and_the_next_is_answered(with_peer: Callable) -> None:
    async def body(peer) -> None:
        loop = asyncio.get_running_loop()
        first, second = loop.create_future(), loop.create_future()
        stream = peer.client.start_call(Method.RUN, [], deadline_s=10, done=first.set_result)
        peer.read()
        frame = encode_frame(FrameType.RESP, stream, b"\x91" * 100_000 + NIL)
        await loop.run_in_executor(None, peer.write, frame)
        assert (await asyncio.wait_for(first, 10)).code == "BAD_RESULT"
        stream = peer.client.start_call(Method.RUN, [], deadline_s=10, done=second.set_result)
        peer.read()
        peer.write(peer.connection.send_reply(stream, "works"))
        assert await asyncio.wait_for(second, 10) == "works"
        assert peer.lost == []

    with_peer(body)


@pytest.mark.parametrize("kind", [FrameType.PONG, FrameType.LOG, FrameType.GOAWAY, FrameType.CANCEL, FrameType.REQ])
def test_frame_of_empty_maps_costs_little_to_read(kind: FrameType) -> None:
    """A megabyte of empty maps would be 77 MB of objects; what a plugin may send at once is far below."""
    limit = FRAME_LIMITS.get(kind, HOST_CALL_BYTES)
    count = limit - 5
    body = b"\xdd" + count.to_bytes(4, "big") + b"\x80" * count
    assert len(body) == limit
    host = Connection(Role.HOST)
    tracemalloc.start()
    host.feed(encode_frame(kind, 2 if kind is FrameType.REQ else 0, body))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * MIB


@pytest.mark.parametrize("kind", [FrameType.PONG, FrameType.LOG, FrameType.READY, FrameType.EVENT])
def test_flood_of_frames_is_cut_off(with_peer: Callable, kind: FrameType) -> None:
    async def body(peer) -> None:
        value = {FrameType.PONG: [1, {}], FrameType.EVENT: [1, 0, None, None, 0, 0, 0]}.get(kind, {})
        frames = encode_frame(kind, 0, Encoder().pack(value)) * 500
        loop = asyncio.get_running_loop()
        while not peer.lost:
            await loop.run_in_executor(None, peer.write_control, frames)
        assert (await peer.gone()).code == "PROTOCOL_VIOLATION"

    with_peer(body)
