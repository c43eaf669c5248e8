"""Whatever arrives, `feed` answers with events, the last of them a violation if need be."""

import itertools

from hotbay_sdk.protocol import (
    CallError,
    Connection,
    ErrorCode,
    Event,
    FrameType,
    LinkState,
    Method,
    Role,
    ViolationFound,
    encode_frame,
)
from hypothesis import given
from hypothesis import strategies as st

roles = st.sampled_from(list(Role))


def an_end(role: Role) -> Connection:
    """An end with one call pending, one cancelled and one received."""
    end = Connection(role, max_outstanding=8)
    peer = Connection(Role.PLUGIN if role is Role.HOST else Role.HOST)
    end.start_call(Method.RUN, [], deadline_us=1)
    cancelled, _ = end.start_call(Method.RUN, [], deadline_us=1)
    end.cancel(cancelled, "")
    _, data = peer.start_call(Method.CHECK_READY, [], deadline_us=1)
    end.feed(data)
    return end


def conversation(sender: Role) -> bytes:
    """One valid frame of every kind that `sender` may send to `an_end` of the other role."""
    end = Connection(sender)
    peer = Connection(Role.PLUGIN if sender is Role.HOST else Role.HOST)
    for _ in range(2):
        _, data = peer.start_call(Method.RUN, [], deadline_us=1)
        end.feed(data)
    first = 2 if sender is Role.HOST else 1
    end.start_call(Method.RUN, [], deadline_us=1)
    stream, call = end.start_call(Method.CONFIGURE, [{"create": []}], deadline_us=1, trace="t", tenant="n")
    return b"".join(
        [
            end.send_handshake(FrameType.READY, {"types": [{"type": "a", "points": ["score"]}], "sdk": "1"}),
            end.send_reply(first, [None, b"\x00" * 40, []]),
            end.send_error(first + 2, CallError(ErrorCode.PLUGIN_ERROR, "text", details={"a": [1, 2.5, None]})),
            call,
            end.cancel(stream, "why"),
            end.send_notice(Method.PRE_REQUEST, [["x"]]),
            end.send_ping(1),
            end.send_pong(1, {"rss": 1}),
            end.send_log({"level": "info"}),
            encode_frame(77, 0, b"later"),
            end.send_goaway("RECYCLE", "bye"),
        ]
    )


CONVERSATIONS = {role: conversation(Role.PLUGIN if role is Role.HOST else Role.HOST) for role in Role}


def check(end: Connection, events: list[Event]) -> None:
    """At most one violation, the last event, if and only if the link is broken."""
    violations = [event for event in events if isinstance(event, ViolationFound)]
    if end.state is LinkState.OPEN:
        assert violations == []
    else:
        assert end.state is LinkState.BROKEN
        assert violations == events[-1:]
        assert end.feed(b"\xf5") == []


@given(roles, st.binary(max_size=200))
def test_random_bytes(role: Role, data: bytes) -> None:
    end = an_end(role)
    check(end, end.feed(data))


@given(roles, st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), max_size=4), st.integers(0, 2**16))
def test_valid_streams_with_bytes_changed(role: Role, changes: list[tuple[int, int]], split: int) -> None:
    data = bytearray(CONVERSATIONS[role])
    for place, byte in changes:
        data[place % len(data)] = byte
    middle = split % len(data)
    end = an_end(role)
    check(end, end.feed(data[:middle]) + end.feed(data[middle:]))


@given(roles, st.lists(st.integers(0, 2**16), max_size=6))
def test_any_split_of_a_valid_stream_gives_the_same_events(role: Role, offsets: list[int]) -> None:
    data = CONVERSATIONS[role]
    ends = [0, *sorted(offset % len(data) for offset in offsets), len(data)]
    parts = [data[start:end] for start, end in itertools.pairwise(ends)]
    whole, pieces = an_end(role), an_end(role)
    expected = whole.feed(data)
    assert [event for part in parts for event in pieces.feed(part)] == expected
    assert whole.state is LinkState.OPEN
    assert whole.table_sizes == pieces.table_sizes


def test_a_valid_stream_byte_by_byte_gives_the_same_events() -> None:
    for role, data in CONVERSATIONS.items():
        pieces = an_end(role)
        events = [event for byte in data for event in pieces.feed(bytes([byte]))]
        assert events == an_end(role).feed(data)
        assert len({type(event) for event in events}) >= 10


hostile_bodies = st.one_of(
    st.binary(max_size=40),
    st.integers(1, 2000).map(lambda levels: b"\x91" * levels + b"\xc0"),
    st.integers(1, 1000).map(lambda levels: b"\x81\xa0" * levels + b"\xc0"),
    st.tuples(st.sampled_from([b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"]), st.integers(0, 2**32 - 1)).map(
        lambda pair: pair[0] + pair[1].to_bytes(4, "big") + b"\x01" * 20
    ),
    st.tuples(st.integers(0xC7, 0xD8), st.binary(max_size=30)).map(lambda pair: bytes([pair[0]]) + pair[1]),
    st.binary(max_size=10).map(lambda raw: b"\x97\x03\x01\xc0\xc0\x00\x00" + raw),
    st.binary(max_size=20).map(lambda raw: b"\x81\xa4code" + raw),
    st.binary(max_size=10).map(lambda raw: bytes([0xA0 + len(raw)]) + raw),
    st.integers(0, 127).map(lambda key: bytes([0x81, key, 0xC0])),
    st.integers(1, 4000).map(lambda count: b"\xdc" + count.to_bytes(2, "big") + b"\x80" * count),
)


@given(roles, st.integers(0, 20), st.integers(0, 7), st.integers(0, 255), hostile_bodies)
def test_valid_frames_with_hostile_bodies(role: Role, kind: int, stream: int, flags: int, body: bytes) -> None:
    end = an_end(role)
    check(end, end.feed(encode_frame(kind, stream, body, flags)))
