"""Rules of descriptors and of memory that a host shares (protocol: Descriptors, Shared snapshots, Output areas)."""

import socket
from typing import Final

import anyio
from hotbay_sdk.protocol import ErrorCode, ErrorReceived, FrameType, Method, Value, encode_frame
from hotbay_sdk.protocol.calls import ATTRIBUTE_PREFIX
from hotbay_sdk.protocol.frames import FLAG_DESCRIPTORS
from hotbay_sdk.protocol.values import Encoder

from hotbay.conformance.calls import Probe, Shape
from hotbay.conformance.frame_rules import pong
from hotbay.conformance.link import Answer
from hotbay.conformance.memory import UNWRITTEN, Memory, columns_area, scores_area
from hotbay.conformance.peer import LONG_US, Conversation, reply
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, expect

__all__ = ["RULES"]

ROWS: Final = Shape().rows
SCORES_BYTES: Final = 4 * Shape().requests * ROWS
AREA_BYTES: Final = 4096
AT: Final = 64
"""Where the region of a call begins in its area: what is before and behind it is another call's."""
_COUNTED: Final = frozenset({"endpoint.in_flight", "endpoint.in_flight_tokens"})


async def columns_are_read_out_of_memory(stage: Stage) -> None:
    talk, probe = await _reader(stage)
    epoch = talk.epoch()
    with columns_area(talk.epoch(), _columns(probe), [epoch], ROWS) as memory:
        await _share(talk, memory)
        view = _view(talk, probe, epoch, memory, 0)
        probe.check(await _ask(talk, probe, view), Shape())
        # What was copied of an epoch is held from then on.
        held = [*view[:3], None, None, *probe.view(Shape(), epoch)[5:]]
        probe.check(await _ask(talk, probe, held), Shape())


async def overwritten_slots_are_asked_for(stage: Stage) -> None:
    talk, probe = await _reader(stage)
    named, found = talk.epoch(), talk.epoch()
    with columns_area(talk.epoch(), _columns(probe), [found], ROWS) as memory:
        await _share(talk, memory)
        _is_missing(await _ask(talk, probe, _view(talk, probe, named, memory, 0)), "a slot with another stamp")


async def dropped_areas_are_asked_for(stage: Stage) -> None:
    talk, probe = await _reader(stage)
    before, after = talk.epoch(), talk.epoch()
    with columns_area(talk.epoch(), _columns(probe), [before, after], ROWS) as memory:
        await _share(talk, memory)
        probe.check(await _ask(talk, probe, _view(talk, probe, before, memory, 0)), Shape())
        await _drop(talk, memory)
        _is_missing(await _ask(talk, probe, _view(talk, probe, after, memory, 1)), "an area that was dropped")
    await talk.ask(probe, Shape())


async def _reader(stage: Stage) -> tuple[Conversation, Probe]:
    talk, probe = await _with_feature(stage, "shared_snapshots")
    if not probe.columns:
        raise InapplicableError("no type that is called reads columns of endpoints")
    return talk, probe


async def _with_feature(stage: Stage, feature: str) -> tuple[Conversation, Probe]:
    talk = await stage.shared()
    if feature not in talk.features:
        raise InapplicableError(f"HELLO does not name the feature {feature}")
    probe = await talk.probe()
    probe.needs_endpoints()
    return talk, probe


def _columns(probe: Probe) -> dict[str, bytes]:
    """The columns that the type reads out of one group, as an area holds them."""
    whole = probe.view(Shape(), 0)[4]
    assert isinstance(whole, dict)
    group = _group(probe.columns[0])
    return {name: column for name, column in whole.items() if _group(name) == group and isinstance(column, bytes)}


def _group(name: str) -> str:
    if name.startswith(ATTRIBUTE_PREFIX):
        return ".".join(name.split(".")[:2])
    return "in flight" if name in _COUNTED else "endpoint"


def _view(talk: Conversation, probe: Probe, epoch: int, memory: Memory, slot: int) -> list[Value]:
    """A view whose columns lie in a slot, which is told to have the stamp `epoch`."""
    whole = probe.view(Shape(), epoch)
    place: list[Value] = [memory.number, slot, epoch]
    return [*whole[:4], None, [place], *whole[6:]]


async def _ask(talk: Conversation, probe: Probe, view: Value, *more: Value) -> Answer:
    link = talk.peer.calls
    args = [*probe.arguments(Shape(), 0, view), *more]
    stream, frame = link.connection.start_call(
        probe.method, args, deadline_us=LONG_US, reply_limit_bytes=probe.reply_limit(Shape())
    )
    await link.write(frame)
    return await link.answer(stream)


def _is_missing(answer: Answer, what: str) -> None:
    if not isinstance(answer, ErrorReceived):
        raise BrokenRuleError(f"a view whose columns lie in {what} was served")
    code, found = answer.error.code, answer.error.details.get("missing")
    expect(code is ErrorCode.UNAVAILABLE, f"columns in {what}: expected UNAVAILABLE, found {code}")
    expect(found == "columns", f"columns in {what}: expected the details missing: columns, found {found!r}")


async def _share(talk: Conversation, memory: Memory, *, writable: bool = False) -> None:
    link = talk.peer.control
    numbers: list[Value] = [memory.number]
    args: list[Value] = [numbers, [], numbers] if writable else [numbers, []]
    stream, frame = link.connection.start_call(Method.SHARE, args, deadline_us=LONG_US, descriptors=True)
    await link.write_passing(frame, [memory.descriptor])
    found = reply(await link.answer(stream), "share")
    expect(found is None, f"share: expected nil, found {found!r:.80}")


async def _drop(talk: Conversation, memory: Memory) -> None:
    reply(await talk.control_call(Method.SHARE, [[], [memory.number]]), "share")


async def scores_are_written_where_they_belong(stage: Stage) -> None:
    talk, probe = await _writer(stage)
    with scores_area(talk.epoch(), AREA_BYTES) as memory:
        await _share(talk, memory, writable=True)
        scores = await _scores(talk, probe, [memory.number, AT, SCORES_BYTES])
        written = bytes(memory.map[AT : AT + SCORES_BYTES])
        around = bytes(memory.map[:AT]) + bytes(memory.map[AT + SCORES_BYTES :])
        untouched = around == UNWRITTEN * (len(around) // len(UNWRITTEN))
        expect(untouched, f"a call wrote outside its region of {SCORES_BYTES} bytes at {AT}")
        if isinstance(scores, bytes):
            return
        expect(scores == SCORES_BYTES, f"run states {scores!r:.80} bytes of scores in its region, not {SCORES_BYTES}")
        blank = [at for at in range(0, SCORES_BYTES, 4) if written[at : at + 4] == UNWRITTEN]
        expect(not blank, f"run states that it wrote its scores, and nothing is at byte {blank[:1]} of its region")


async def scores_that_do_not_fit_are_answered(stage: Stage) -> None:
    talk, probe = await _writer(stage)
    with scores_area(talk.epoch(), AREA_BYTES) as memory:
        await _share(talk, memory, writable=True)
        await _answers_itself(talk, probe, [memory.number, AT, SCORES_BYTES + 4], "a region of another length")
        await _drop(talk, memory)
        await _answers_itself(talk, probe, [memory.number, AT, SCORES_BYTES], "an area that was dropped")


async def _writer(stage: Stage) -> tuple[Conversation, Probe]:
    talk, probe = await _with_feature(stage, "output_areas")
    if probe.point != "score":
        raise InapplicableError("no type of this package scores")
    return talk, probe


async def _scores(talk: Conversation, probe: Probe, region: list[Value]) -> Value:
    """What `run` says of its scores: themselves, or how many bytes it wrote."""
    result = reply(await _ask(talk, probe, probe.view(Shape(), talk.epoch()), region), "run")
    if not isinstance(result, list) or len(result) != 3:
        raise BrokenRuleError("run with a region: the result is no array of 3")
    return result[1]


async def _answers_itself(talk: Conversation, probe: Probe, region: list[Value], what: str) -> None:
    scores = await _scores(talk, probe, region)
    length = len(scores) if isinstance(scores, bytes) else scores
    good = isinstance(scores, bytes) and length == SCORES_BYTES
    expect(good, f"run with {what}: expected {SCORES_BYTES} bytes of scores in the answer, found {length!r:.80}")


async def a_flag_without_descriptors_ends_the_link(stage: Stage) -> None:
    talk = await stage.talk()
    await talk.peer.control.write_last(_flagged_ping(1))
    await talk.peer.gives_up(talk.peer.control)


async def descriptors_without_use_are_closed(stage: Stage) -> None:
    talk = await stage.talk()
    link = talk.peer.control
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            await link.write_passing(_flagged_ping(1), [theirs.fileno()])
        await pong(link, 1, "with a descriptor that nobody asked for")
        # Frames after it are read when it was dealt with.
        await link.write(link.connection.send_ping(2))
        await pong(link, 2, "after a descriptor that nobody asked for")
        ours.setblocking(False)
        with anyio.move_on_after(stage.patience.answer_s):
            await anyio.wait_readable(ours)
            return
    raise BrokenRuleError("a descriptor that the peer has no use for is still open")


def _flagged_ping(token: int) -> bytes:
    return encode_frame(FrameType.PING, 0, Encoder().pack(token), FLAG_DESCRIPTORS)


RULES: Final = (
    Rule("share.columns", "columns are read out of shared memory", columns_are_read_out_of_memory),
    Rule("share.stamp", "a slot with another stamp is asked for", overwritten_slots_are_asked_for),
    Rule("share.drop", "columns in an area that was dropped are asked for", dropped_areas_are_asked_for),
    Rule(
        "share.scores",
        "scores are written into the call's region, and nothing beside",
        scores_are_written_where_they_belong,
    ),
    Rule("share.length", "scores that do not fit their region are in the answer", scores_that_do_not_fit_are_answered),
    Rule(
        "share.flag",
        "a frame that is to carry descriptors and does not ends the link",
        a_flag_without_descriptors_ends_the_link,
    ),
    Rule("share.unused", "descriptors that nobody has a use for are closed", descriptors_without_use_are_closed),
)
