"""Data of calls: it arrives whole and in order, within its credits, whatever is lost, cut or cancelled on the way."""

from random import Random

import pytest
from hotbay_sdk.protocol import (
    CallError,
    Connection,
    CreditReceived,
    DataDropped,
    DataEnded,
    DataReceived,
    ErrorCode,
    ErrorReceived,
    Event,
    FrameType,
    LinkState,
    LocalProtocolError,
    Method,
    ReplyReceived,
    Role,
    ViolationFound,
    encode_frame,
)
from hotbay_sdk.protocol.frames import FLAG_LAST
from hotbay_sdk.protocol.messages import PIECE_BYTES
from hotbay_sdk.protocol.streams import LINK_CREDIT_BYTES, STREAM_CREDIT_BYTES
from hotbay_sdk.protocol.values import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

pack = Encoder().pack


def begun(method: Method, count: int = 1) -> tuple[Connection, Connection, list[int]]:
    """(sender, receiver, streams) of calls whose data flows from the first to the second."""
    host, plugin = Connection(Role.HOST), Connection(Role.PLUGIN)
    streams = []
    for _ in range(count):
        stream, data = host.start_call(method, [], deadline_us=1)
        plugin.feed(data)
        streams.append(stream)
    return (host, plugin, streams) if method is Method.IMPORT_STATE else (plugin, host, streams)


def data_frame(stream: int, piece: bytes, flags: int = 0) -> bytes:
    return encode_frame(FrameType.DATA, stream, pack(piece), flags)


def the_violation(events: list[Event]) -> str:
    assert isinstance(events[-1], ViolationFound)
    return events[-1].message


@pytest.mark.parametrize("method", [Method.IMPORT_STATE, Method.EXPORT_STATE])
def test_data_goes_with_its_call_and_ends_before_the_answer(method: Method) -> None:
    sender, receiver, (stream,) = begun(method)
    assert receiver.feed(sender.data.send(stream, b"abc") + sender.data.send_end(stream)) == [
        DataReceived(stream, b"abc"),
        DataEnded(stream),
    ]
    host, plugin = (sender, receiver) if method is Method.IMPORT_STATE else (receiver, sender)
    assert host.feed(plugin.send_reply(stream, {})) == [ReplyReceived(stream, {})]
    assert not any([*host.table_sizes.values(), *plugin.table_sizes.values()])


def test_last_flag_on_data_ends_it_as_well() -> None:
    _, receiver, (stream,) = begun(Method.EXPORT_STATE)
    assert receiver.feed(data_frame(stream, b"abc", FLAG_LAST)) == [DataReceived(stream, b"abc"), DataEnded(stream)]


def test_credit_of_a_stream_holds_on_both_sides() -> None:
    sender, receiver, (stream,) = begun(Method.EXPORT_STATE)
    assert sender.data.room(stream) == STREAM_CREDIT_BYTES
    receiver.feed(sender.data.send(stream, b"x" * STREAM_CREDIT_BYTES))
    assert sender.data.room(stream) == 0
    with pytest.raises(LocalProtocolError, match="the room is 0"):
        sender.data.send(stream, b"x")
    assert "the credit is 0" in the_violation(receiver.feed(data_frame(stream, b"x")))
    assert receiver.state is LinkState.BROKEN


def test_credit_of_the_link_bounds_all_streams_together() -> None:
    streams_count = LINK_CREDIT_BYTES // STREAM_CREDIT_BYTES + 1
    sender, receiver, streams = begun(Method.EXPORT_STATE, streams_count)
    for stream in streams[:-1]:
        receiver.feed(sender.data.send(stream, b"x" * STREAM_CREDIT_BYTES))
    assert sender.data.room(streams[-1]) == 0
    assert "the credit is 0" in the_violation(receiver.feed(data_frame(streams[-1], b"x")))


@pytest.mark.parametrize(("size", "taken"), [(PIECE_BYTES, True), (PIECE_BYTES + 1, False)])
def test_a_piece_is_bounded_on_both_sides(size: int, taken: bool) -> None:
    _, receiver, (stream,) = begun(Method.EXPORT_STATE)
    (event,) = receiver.feed(data_frame(stream, b"x" * size))
    assert isinstance(event, DataReceived if taken else ViolationFound)


def test_credit_comes_back_at_half_and_only_for_what_was_consumed() -> None:
    sender, receiver, (stream,) = begun(Method.EXPORT_STATE)
    half = STREAM_CREDIT_BYTES // 2
    receiver.feed(sender.data.send(stream, b"x" * STREAM_CREDIT_BYTES))
    assert receiver.data.consumed(stream, half - 1) == b""
    assert sender.feed(receiver.data.consumed(stream, 1)) == [CreditReceived(stream)]
    assert sender.data.room(stream) == half


def test_no_data_follows_the_end() -> None:
    sender, receiver, (stream,) = begun(Method.EXPORT_STATE)
    receiver.feed(sender.data.send_end(stream))
    assert not sender.data.sending(stream)
    with pytest.raises(LocalProtocolError):
        sender.data.send(stream, b"x")
    # A peer that sends all the same has its bytes dropped and counted.
    assert receiver.feed(data_frame(stream, b"x")) == [DataDropped(stream, 1)]


def test_data_of_a_cancelled_call_is_dropped_and_its_credit_given_back() -> None:
    sender, receiver, (stream,) = begun(Method.EXPORT_STATE)
    receiver.cancel(stream, "enough")
    sent = 0
    while sender.data.room(stream):
        (dropped,) = receiver.feed(sender.data.send(stream, b"x" * sender.data.room(stream)))
        assert isinstance(dropped, DataDropped)
        sent += dropped.length
        sender.feed(receiver.data.consumed(dropped.stream, dropped.length))
    assert sent == STREAM_CREDIT_BYTES
    # Of a stream that is over there is no more credit, but the link's is whole again after half of it.
    for _ in range(LINK_CREDIT_BYTES // STREAM_CREDIT_BYTES):
        receiver.data.consumed(stream, 0)
    receiver.feed(sender.send_error(stream, CallError(ErrorCode.CANCELLED, "")))
    assert not any([*sender.table_sizes.values(), *receiver.table_sizes.values()])


def test_cancelled_sender_stops() -> None:
    sender, _, (stream,) = begun(Method.IMPORT_STATE)
    sender.cancel(stream, "too late")
    assert (sender.data.room(stream), sender.data.sending(stream)) == (0, False)


def test_answer_ends_the_data_of_both_directions() -> None:
    host, plugin, (stream,) = begun(Method.IMPORT_STATE)
    (event,) = host.feed(plugin.send_error(stream, CallError(ErrorCode.RESOURCE_EXHAUSTED, "")))
    assert isinstance(event, ErrorReceived)
    assert host.data.room(stream) == 0
    assert plugin.feed(data_frame(stream, b"late")) == [DataDropped(stream, 4)]


def test_credit_beyond_what_can_be_counted_is_a_violation() -> None:
    sender, _, (stream,) = begun(Method.EXPORT_STATE)
    assert sender.feed(encode_frame(FrameType.CREDIT, stream, pack(2**31 - 1 - STREAM_CREDIT_BYTES))) == [
        CreditReceived(stream)
    ]
    assert "credit of" in the_violation(sender.feed(encode_frame(FrameType.CREDIT, stream, pack(1))))


def test_credit_for_a_stream_that_is_over_is_dropped() -> None:
    sender, _, (stream,) = begun(Method.EXPORT_STATE)
    sender.data.send_end(stream)
    assert sender.feed(encode_frame(FrameType.CREDIT, stream, pack(9))) == [CreditReceived(stream)]
    assert sender.data.room(stream) == 0


@pytest.mark.parametrize("body", [None, "text", 3, [b"x"]])
def test_a_piece_that_is_no_bytes_is_a_violation(body: object) -> None:
    _, receiver, (stream,) = begun(Method.EXPORT_STATE)
    assert "bytes" in the_violation(receiver.feed(encode_frame(FrameType.DATA, stream, pack(body))))


@settings(max_examples=60)
@given(
    st.sampled_from([Method.IMPORT_STATE, Method.EXPORT_STATE]),
    st.lists(st.integers(0, 300_000), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_any_data_arrives_whole_however_it_is_cut_and_whenever_it_is_consumed(
    method: Method, sizes: list[int], seed: int
) -> None:
    # Drawn by hypothesis itself, so many choices would be too many.
    random = Random(seed)
    sender, receiver, streams = begun(method, len(sizes))
    whole = {stream: random.randbytes(size) for stream, size in zip(streams, sizes, strict=True)}
    sent = dict.fromkeys(streams, 0)
    got = {stream: bytearray() for stream in streams}
    unconsumed: list[tuple[int, int]] = []
    ended: set[int] = set()
    steps = 0
    while len(ended) < len(streams):
        steps += 1
        assert steps < 2000, "somebody waits for ever"
        stream = random.choice(streams)
        wire = b""
        room = sender.data.room(stream)
        if room and sent[stream] < len(whole[stream]):
            piece = whole[stream][sent[stream] : sent[stream] + random.randint(1, room)]
            sent[stream] += len(piece)
            wire = sender.data.send(stream, piece)
        elif sent[stream] == len(whole[stream]) and sender.data.sending(stream):
            wire = sender.data.send_end(stream)
        middle = random.randint(0, len(wire))
        for event in receiver.feed(wire[:middle]) + receiver.feed(wire[middle:]):
            if isinstance(event, DataReceived):
                got[event.stream] += event.data
                unconsumed.append((event.stream, len(event.data)))
            else:
                assert isinstance(event, DataEnded), event
                ended.add(event.stream)
        while unconsumed and (random.random() < 0.7 or not any(map(sender.data.room, streams))):
            sender.feed(receiver.data.consumed(*unconsumed.pop(0)))
    assert got == whole
    assert (sender.state, receiver.state) == (LinkState.OPEN, LinkState.OPEN)
