"""Rules of cancelling (protocol: Calls). An answer is told from another's by the size of its batch."""

from typing import Final

from hotbay_sdk.protocol import FrameType, encode_frame
from hotbay_sdk.protocol.control import MAX_STREAM
from hotbay_sdk.protocol.values import Encoder

from hotbay.conformance.calls import Probe, Shape
from hotbay.conformance.peer import Conversation
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import expect

__all__ = ["RULES"]

RACES: Final = 100
FAR_AHEAD: Final = 2_000_001


async def strange_cancels_are_ignored(stage: Stage) -> None:
    talk = await stage.talk()
    probe = await talk.probe()
    link = talk.peer.calls
    stream, frame = talk.call(probe, Shape())
    await link.write(frame)
    probe.check(await link.answer(stream), Shape())
    for answered_or_unknown in (stream, stream, FAR_AHEAD):
        await link.write(cancel_frame(answered_or_unknown))
    await talk.still_serves()
    await link.unasked()


async def a_cancel_may_come_first(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    link = talk.peer.calls
    stream, frame = talk.call(probe, Shape())
    await link.write(cancel_frame(stream) + frame)
    await link.answer(stream)
    await talk.still_serves()
    await link.unasked()


async def cancelled_calls_have_one_answer(stage: Stage) -> None:
    talk = await stage.shared()
    probe = await talk.probe()
    link = talk.peer.calls
    for race in range(RACES):
        cancelled, first = talk.call(probe, Shape())
        kept_shape = Shape(requests=probe.batch(2))
        kept, second = talk.call(probe, kept_shape)
        cancel = link.connection.cancel(cancelled, "conformance")
        await link.write_taken(_interleaved(first, cancel, second, race))
        probe.check(await link.answer(kept), kept_shape)
        await link.answer(cancelled)
    await link.unasked()
    await _each_answered_once(talk, probe)


def _interleaved(first: bytes, cancel: bytes, second: bytes, race: int) -> list[bytes]:
    """The three frames in the orders that can occur, together, one by one, or with the cancel cut."""
    cut = race % len(cancel)
    return [
        [first + cancel + second],
        [first, cancel, second],
        [first, cancel[:cut], cancel[cut:], second],
        [first, second + cancel],
    ][race % 4]


async def _each_answered_once(talk: Conversation, probe: Probe) -> None:
    await talk.ask(probe, Shape())
    kinds = (FrameType.RESP, FrameType.ERR)
    streams = [frame.stream for frame in talk.peer.calls.frames if frame.type in kinds and frame.stream]
    expect(len(streams) == len(set(streams)), "a call was answered twice")


async def a_late_answer_is_nobody_elses(stage: Stage) -> None:
    talk = await stage.talk()
    probe = await talk.probe()
    link = talk.peer.calls
    # The last two ids that there are: nothing wraps around.
    link.connection.jump_to(MAX_STREAM - 2)
    before = link.connection.late_answers
    cancelled, first = talk.call(probe, Shape(rows=8))
    later = Shape(rows=64) if probe.sees_endpoints else Shape()
    stream, second = talk.call(probe, later)
    await link.write(first + link.connection.cancel(cancelled, "conformance") + second)
    await link.answer(cancelled)
    probe.check(await link.answer(stream), later)
    expect(link.connection.late_answers == before + 1, "the cancelled call's answer was not told from the other's")


def cancel_frame(stream: int) -> bytes:
    """A CANCEL as it is on the wire, of any call whatever."""
    return encode_frame(FrameType.CANCEL, stream, Encoder().pack("conformance"))


RULES: Final = (
    Rule("cancel.strange", "cancels of answered and of unknown calls change nothing", strange_cancels_are_ignored),
    Rule("cancel.first", "a cancel that overtakes its call leaves one answer", a_cancel_may_come_first),
    Rule(
        "cancel.race",
        "a cancelled call gets exactly one answer, wherever the cancel falls",
        cancelled_calls_have_one_answer,
    ),
    Rule("cancel.late", "a cancelled call's answer is never another's", a_late_answer_is_nobody_elses),
)
