"""Rules of frames (protocol: Frames): cuts, noise, versions, lengths, unknown types."""

import struct
from typing import Final

from hotbay_sdk.protocol import (
    HEADER_BYTES,
    MAGIC,
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    FrameType,
    encode_frame,
)
from hotbay_sdk.protocol.events import PongReceived
from hotbay_sdk.protocol.frames import FLAG_CRITICAL

from hotbay.conformance.calls import UNKNOWN_METHOD, Probe, Shape
from hotbay.conformance.link import Link
from hotbay.conformance.peer import LONG_US, Conversation
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import BrokenRuleError, expect

__all__ = ["RULES"]

FRAMES_IN_A_CUT: Final = 3
NOISE: Final = (b"thirteen text", b"\xdc", b"\xc1")
"""Text, which msgpack would read as integers; a header that would swallow what follows; a byte that msgpack lacks."""
UNKNOWN_TYPES: Final = (64, 250)
LARGE_BYTES: Final = MAX_FRAME_BYTES - 1024


async def cut_calls_anywhere(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    cut = 0
    while True:
        streams, data = _calls(talk, probe)
        # Bodies grow with the epochs in them, so the length is taken anew each time.
        whole = cut >= len(data)
        pieces = [bytes([byte]) for byte in data] if whole else [data[:cut], data[cut:]]
        try:
            await talk.peer.calls.write_taken(pieces)
            for stream in streams:
                probe.check(await talk.peer.calls.answer(stream), Shape())
        except BrokenRuleError as error:
            raise BrokenRuleError(
                f"three calls {'a byte at a time' if whole else f'cut at byte {cut}'}: {error}"
            ) from error
        if whole:
            return
        cut += 1


def _calls(talk: Conversation, probe: Probe) -> tuple[list[int], bytes]:
    """Three calls, as streams and bytes."""
    made = [talk.call(probe, Shape()) for _ in range(FRAMES_IN_A_CUT)]
    return [stream for stream, _ in made], b"".join(frame for _, frame in made)


async def cut_control_anywhere(stage: Stage) -> None:
    talk = await stage.shared()
    link = talk.peer.control
    length = FRAMES_IN_A_CUT * len(link.connection.send_ping(1))
    for cut in (*range(length), None):
        data = b"".join(link.connection.send_ping(token) for token in range(FRAMES_IN_A_CUT))
        pieces = [data[:cut], data[cut:]] if cut is not None else [bytes([byte]) for byte in data]
        await link.write_taken(pieces)
        for token in range(FRAMES_IN_A_CUT):
            await pong(link, token, f"three PINGs cut at byte {cut}")


async def pong(link: Link, token: int, what: str) -> PongReceived:
    """The next event, which must be the PONG of this token."""
    event = await link.event()
    expect(isinstance(event, PongReceived), f"{what}: expected PONG, found {type(event).__name__}")
    assert isinstance(event, PongReceived)
    expect(event.token == token, f"{what}: expected PONG {token}, found PONG {event.token}")
    return event


async def noise_ends_the_call_link(stage: Stage) -> None:
    for noise in NOISE:
        talk = await stage.talk()
        probe = await talk.probe()
        before, first = talk.call(probe, Shape())
        after, second = talk.call(probe, Shape())
        link = talk.peer.calls
        await link.write(first)
        probe.check(await link.answer(before), Shape())
        await link.write_last(noise + second)
        await talk.peer.gives_up(link)
        answered = [frame for frame in link.frames if frame.stream == after]
        expect(not answered, f"a call behind {noise!r} was answered: the noise went unnoticed")


async def noise_ends_the_control_link(stage: Stage) -> None:
    for noise in NOISE:
        talk = await stage.talk()
        link = talk.peer.control
        await link.write(link.connection.send_ping(1))
        await pong(link, 1, "before the noise")
        await link.write_last(noise + link.connection.send_ping(2))
        await talk.peer.gives_up(link)
        pongs = [frame for frame in link.frames if frame.type == FrameType.PONG]
        expect(len(pongs) == 1, f"a PING behind {noise!r} was answered: the noise went unnoticed")


async def other_versions_end_the_link(stage: Stage) -> None:
    talk = await stage.talk()
    frame = bytearray(talk.peer.control.connection.send_ping(1))
    frame[3] = PROTOCOL_VERSION + 1
    await talk.peer.control.write_last(bytes(frame))
    await talk.peer.gives_up(talk.peer.control)


async def the_hard_cap_is_judged_by_the_header(stage: Stage) -> None:
    talk = await stage.talk()
    header = struct.pack(">BBBBII", MAGIC, FrameType.REQ, 0, PROTOCOL_VERSION, 1, MAX_FRAME_BYTES + 1)
    assert len(header) == HEADER_BYTES
    await talk.peer.calls.write_last(header)
    await talk.peer.gives_up(talk.peer.calls)


async def a_large_call_is_answered(stage: Stage) -> None:
    talk = await stage.shared()
    link = talk.peer.calls
    stream, frame = link.connection.start_call(
        UNKNOWN_METHOD, [bytes(LARGE_BYTES)], deadline_us=LONG_US, reply_limit_bytes=1 << 20
    )
    await link.write(frame)
    await link.answer(stream)
    await talk.still_serves()


async def unknown_types_are_skipped(stage: Stage) -> None:
    talk = await stage.shared()
    for link in talk.peer.links:
        for kind in UNKNOWN_TYPES:
            for body in (b"", b"\xc1 is no msgpack", bytes(70_000)):
                await link.write(encode_frame(kind, 0, body))
    await talk.still_serves()


async def critical_types_end_the_link(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.peer.control.write_last(encode_frame(UNKNOWN_TYPES[0], 0, b"\xc0", FLAG_CRITICAL))
    await talk.peer.gives_up(talk.peer.control)


RULES: Final = (
    Rule("frames.cut-calls", "calls may be cut at every byte, and come a byte at a time", cut_calls_anywhere),
    Rule("frames.cut-control", "control frames may be cut at every byte", cut_control_anywhere),
    Rule("frames.noise-calls", "noise between frames ends the call link at once", noise_ends_the_call_link),
    Rule("frames.noise-control", "noise between frames ends the control link at once", noise_ends_the_control_link),
    Rule("frames.version", "a frame of another version ends the link", other_versions_end_the_link),
    Rule(
        "frames.cap", "a length over 16 MiB ends the link before the body comes", the_hard_cap_is_judged_by_the_header
    ),
    Rule("frames.large", "a call just below the cap is answered", a_large_call_is_answered),
    Rule("frames.unknown", "frames of unknown types are skipped", unknown_types_are_skipped),
    Rule("frames.critical", "a critical frame of an unknown type ends the link", critical_types_end_the_link),
)
