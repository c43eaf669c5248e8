"""Rules of data in pieces, credits and state (protocol: Data, State)."""

from collections.abc import Mapping
from typing import Final

from hotbay_sdk.protocol import ErrorReceived, FrameType, Method, Value, encode_frame
from hotbay_sdk.protocol.values import Encoder

from hotbay.conformance.calls import Shape
from hotbay.conformance.frame_rules import pong
from hotbay.conformance.link import Answer, Link
from hotbay.conformance.peer import LONG_US, Conversation, Peer, reply
from hotbay.conformance.stage import Rule, Stage
from hotbay.conformance.verdict import BrokenRuleError, InapplicableError, expect

__all__ = ["RULES"]

BUDGET_BYTES: Final = 1 << 26
REF: Final = "stateful"
GARBAGE: Final = b"\xff" * 200_000


async def state_comes_as_credit_allows(stage: Stage) -> None:
    talk = await stage.talk()
    await _make_stateful(talk)
    await _exported(talk)


async def _make_stateful(talk: Conversation) -> tuple[list[Value], Mapping[str, object]]:
    """Handle and entry of a ref whose type has state. Raises `InapplicableError` where no type has any."""
    type_name = _stateful_type(talk)
    handle, entry = talk.entry(type_name, REF)
    _, errors = await talk.configure([entry])
    if errors:
        raise InapplicableError(f"type {type_name} needs parameters: {errors[0]!r:.200}")
    return handle, entry


def _stateful_type(talk: Conversation) -> str:
    for declaration in talk.declared:
        if declaration.state_versions:
            return declaration.type
    raise InapplicableError("no type of this package declares state_versions")


async def _exported(talk: Conversation) -> bytes:
    """The state of all refs; first without any credit, and then with."""
    link = talk.peer.control
    stream, frame = link.connection.start_call(Method.EXPORT_STATE, [BUDGET_BYTES, None], deadline_us=LONG_US)
    await link.write(frame)
    # More than its first credit would be a violation, which the link notes.
    await link.unasked()
    result = reply(await link.answer_with_data(stream), "export_state")
    expect(stream in link.data_ended, "export_state was answered before END")
    refs = result.get("refs") if isinstance(result, dict) else None
    outcome = refs.get(REF) if isinstance(refs, dict) else None
    expect(outcome == "exported", f"export_state says {outcome!r} of a ref with state, expected 'exported'")
    return bytes(link.data.get(stream, b""))


async def control_overtakes_data(stage: Stage) -> None:
    talk = await stage.talk()
    await _make_stateful(talk)
    link = talk.peer.control
    stream, frame = link.connection.start_call(Method.EXPORT_STATE, [BUDGET_BYTES, None], deadline_us=LONG_US)
    await link.write(frame)
    await link.unasked()
    await link.write(link.connection.send_ping(1))
    await pong(link, 1, "while data waits for credit")
    await link.answer_with_data(stream)


async def a_cancelled_export_has_one_answer(stage: Stage) -> None:
    talk = await stage.talk()
    await _make_stateful(talk)
    link = talk.peer.control
    stream, frame = link.connection.start_call(Method.EXPORT_STATE, [BUDGET_BYTES, None], deadline_us=LONG_US)
    await link.write(frame)
    await link.unasked()
    await link.write(link.connection.cancel(stream, "conformance"))
    await link.answer_with_data(stream)
    await talk.still_serves()
    await link.unasked()


async def state_is_taken_over(stage: Stage) -> None:
    before = await stage.talk()
    await _make_stateful(before)
    state = await _exported(before)
    talk, answer = await _with_state(stage, state)
    reply(answer, "import_state")
    handle, outcome = await _outcome(talk)
    expect(outcome == "imported", f"configure says {outcome!r} of the state of handle {handle}, expected 'imported'")
    await talk.still_serves()


async def bad_state_is_a_cold_start(stage: Stage) -> None:
    _stateful_type(await stage.shared())
    talk, _ = await _with_state(stage, GARBAGE)
    _, outcome = await _outcome(talk)
    expect(outcome != "imported", "state that cannot be read was imported")
    await talk.still_serves()


async def _with_state(stage: Stage, state: bytes) -> tuple[Conversation, Answer]:
    """A process that was given a predecessor's state between WELCOME and READY, and its answer."""
    peer: Peer = await stage.peer()
    await peer.hello()
    link = peer.control
    stream, frame = link.connection.start_call(Method.IMPORT_STATE, [], deadline_us=LONG_US)
    await link.write(peer.welcome(state=True) + frame)
    await _send(link, stream, state)
    answer = await link.answer(stream, peer.patience.ready_s)
    return Conversation(peer, await peer.ready(), stage.parameters), answer


async def _send(link: Link, stream: int, data: bytes) -> None:
    """All of it, as the peer gives credit, then END."""
    position = 0
    while position < len(data) and link.connection.data.sending(stream):
        piece = data[position : position + link.connection.data.room(stream)]
        if piece:
            await link.write(link.connection.data.send(stream, piece))
            position += len(piece)
        else:
            await link.credit()
    if link.connection.data.sending(stream):
        await link.write(link.connection.data.send_end(stream))


async def _outcome(talk: Conversation) -> tuple[list[Value], Value]:
    """Make the ref whose state it is; its handle, and what configure says of the state."""
    handle, entry = talk.entry(_stateful_type(talk), REF)
    answer = await talk.control_call(Method.CONFIGURE, [{"create": [entry], "drop": []}])
    result = reply(answer, "configure")
    if not isinstance(result, dict) or result.get("errors"):
        raise BrokenRuleError("a ref with a predecessor's state could not be made")
    outcomes = result.get("state")
    return handle, outcomes.get(str(handle[1])) if isinstance(outcomes, dict) else None


async def what_is_over_is_dropped(stage: Stage) -> None:
    talk = await stage.shared()
    link = talk.peer.control
    stream, frame = link.connection.start_call(Method.CHECK_READY, [], deadline_us=LONG_US)
    await link.write(frame)
    answer = await link.answer(stream)
    expect(not isinstance(answer, ErrorReceived), "check_ready failed")
    pack = Encoder().pack
    await link.write(encode_frame(FrameType.DATA, stream, pack(bytes(1000))))
    await link.write(encode_frame(FrameType.END, stream, pack(None)))
    await link.write(encode_frame(FrameType.CREDIT, stream, pack(1000)))
    await talk.ask(await talk.probe(), Shape())
    await talk.still_serves()


RULES: Final = (
    Rule(
        "streams.export",
        "state comes in pieces, never beyond its credit, and ends before the answer",
        state_comes_as_credit_allows,
    ),
    Rule("streams.control", "PING is answered while data waits for credit", control_overtakes_data),
    Rule("streams.cancel", "a cancelled export gets one answer, credit or not", a_cancelled_export_has_one_answer),
    Rule("streams.import", "a successor takes over the state that was exported", state_is_taken_over),
    Rule("streams.cold", "state that cannot be read is a cold start", bad_state_is_a_cold_start),
    Rule("streams.over", "data and credit of a call that is over are dropped", what_is_over_is_dropped),
)
