"""A link's conversation between two real ends."""

import contextlib
from collections.abc import Callable

import pytest
from hotbay_sdk.protocol import (
    MAX_FRAME_BYTES,
    CallError,
    CallLimitError,
    CallMeta,
    CallReceived,
    CallRefused,
    CancelReceived,
    Connection,
    ErrorCode,
    ErrorReceived,
    Executed,
    FrameSkipped,
    FrameType,
    GoAwayReceived,
    HandshakeReceived,
    LateAnswerDropped,
    LinkState,
    LocalProtocolError,
    LogReceived,
    Method,
    NoticeReceived,
    PingReceived,
    PongReceived,
    ReplyReceived,
    Role,
    StrayAnswer,
    ValueRefusedError,
    ViolationFound,
    encode_frame,
)
from hotbay_sdk.protocol.control import MAX_STREAM
from hotbay_sdk.protocol.frames import FLAG_CRITICAL, HEADER, MAGIC
from hotbay_sdk.protocol.messages import CONTROL_FRAME_BYTES, FRAME_LIMITS, HOST_CALL_BYTES
from hotbay_sdk.protocol.values import Encoder, Value

Pair = tuple[Connection, Connection]
Connect = Callable[..., Pair]

NIL = b"\xc0"


def violation(events: list[object]) -> ViolationFound:
    last = events[-1]
    assert isinstance(last, ViolationFound)
    return last


def call(host: Connection, *args: object, **options: int) -> tuple[int, bytes]:
    return host.start_call(Method.RUN, args, deadline_us=50_000, **options)


# -- calls -----------------------------------------------------------------------------------------


def test_a_call_reaches_the_peer_with_its_meta_and_arguments(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = host.start_call(
        Method.PICK, [1, "a", [b"b"]], deadline_us=7, trace="t", tenant="n", attempt=2, parent=3, epoch=4
    )
    assert plugin.feed(data) == [
        CallReceived(stream, CallMeta(Method.PICK, 7, "t", "n", 2, 3, 4), [1, "a", [b"b"]]),
    ]
    assert plugin.serving == 1


def test_a_reply_settles_its_call_whatever_the_order(connect: Connect) -> None:
    host, plugin = connect()
    first, one = call(host)
    second, two = call(host)
    plugin.feed(one + two)
    answers = plugin.send_reply(second, "second") + plugin.send_reply(first, "first")
    assert host.feed(answers) == [ReplyReceived(second, "second"), ReplyReceived(first, "first")]
    assert not any([*host.table_sizes.values(), *plugin.table_sizes.values()])


def test_an_error_settles_its_call_and_keeps_its_fields(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = call(host)
    plugin.feed(data)
    error = CallError(
        ErrorCode.STALE_HANDLE, "old", retryable=True, executed=Executed.NO, details={"a": 1}, traceback="tb"
    )
    assert host.feed(plugin.send_error(stream, error)) == [ErrorReceived(stream, error)]
    assert host.outstanding == 0


def test_an_error_on_stream_0_is_a_failure_to_start(connect: Connect) -> None:
    host, plugin = connect()
    error = CallError(ErrorCode.START_FAILED, "no module", executed=Executed.NO)
    assert host.feed(plugin.send_error(0, error)) == [ErrorReceived(0, error)]
    assert host.state is LinkState.OPEN


def test_a_plugin_may_call_its_host(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = plugin.start_call(Method.CHECK_READY, [], deadline_us=1)
    assert stream == 2
    (received,) = host.feed(data)
    assert isinstance(received, CallReceived)
    assert plugin.feed(host.send_reply(stream, 5)) == [ReplyReceived(stream, 5)]


def test_a_notice_is_owed_no_answer(connect: Connect) -> None:
    host, plugin = connect()
    (notice,) = plugin.feed(host.send_notice(Method.PRE_REQUEST, ["x"], epoch=9))
    assert notice == NoticeReceived(CallMeta(Method.PRE_REQUEST, 0, None, None, 0, 0, 9), ["x"])
    assert plugin.serving == host.outstanding == 0


def test_a_second_answer_is_a_bug_of_this_end(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = call(host)
    plugin.feed(data)
    plugin.send_reply(stream, None)
    for answer in (
        lambda: plugin.send_reply(stream, None),
        lambda: plugin.send_error(stream, CallError(ErrorCode.PLUGIN_ERROR, "")),
    ):
        with pytest.raises(LocalProtocolError, match="not being served"):
            answer()


@pytest.mark.parametrize("reply", [True, False])
def test_r13_first_answer_counts_and_stray_ones_are_told(connect: Connect, reply: bool) -> None:
    host, plugin = connect()
    stream, data = call(host)
    plugin.feed(data)
    answer = plugin.send_reply(stream, 1) if reply else plugin.send_error(stream, CallError(ErrorCode.CRASHED, ""))
    stray = [encode_frame(FrameType.RESP, number, NIL) for number in (0, 998, 999)]
    (first, *others) = host.feed(b"".join([answer, answer, *stray]))
    assert isinstance(first, ReplyReceived if reply else ErrorReceived)
    assert others == [StrayAnswer(stream), StrayAnswer(0), StrayAnswer(998), StrayAnswer(999)]
    assert host.state is LinkState.OPEN
    assert host.feed(plugin.send_ping(1)) == [PingReceived(1)]


def test_events_before_a_violation_are_not_lost(connect: Connect) -> None:
    host, plugin = connect()
    assert host.feed(plugin.send_ping(1) + b"print") == [
        PingReceived(1),
        ViolationFound(ErrorCode.PROTOCOL_VIOLATION, "byte 0x70 where a frame should begin with 0xf5"),
    ]


@pytest.mark.parametrize("deadline_us", [0, -1])
def test_a_call_without_a_deadline_is_refused_by_its_sender(connect: Connect, deadline_us: int) -> None:
    host, _ = connect()
    with pytest.raises(LocalProtocolError):
        host.start_call(Method.RUN, [], deadline_us=deadline_us)
    assert host.outstanding == 0


def test_a_call_whose_argument_cannot_cross_changes_nothing(connect: Connect) -> None:
    host, plugin = connect()
    for argument in (object(), 2**64, b"x" * MAX_FRAME_BYTES):
        with pytest.raises(ValueRefusedError):
            call(host, argument)
    assert host.outstanding == 0
    assert call(host)[0] == 1
    assert plugin.serving == 0


def test_an_error_whose_details_cannot_cross_leaves_the_call_answerable(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = call(host)
    plugin.feed(data)
    with pytest.raises(ValueRefusedError):
        plugin.send_error(stream, CallError(ErrorCode.PLUGIN_ERROR, "", details={"set": {1}}))  # type: ignore[dict-item]  # the point
    assert host.feed(plugin.send_reply(stream, 1)) == [ReplyReceived(stream, 1)]


# -- ids -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [0, 2, 1, MAX_STREAM + 2])
def test_a_call_with_an_id_that_is_not_its_callers_next_is_a_violation(connect: Connect, stream: int) -> None:
    host, plugin = connect()
    _, data = call(host)
    plugin.feed(data)
    assert "stream id" in violation(plugin.feed(encode_frame(FrameType.REQ, stream, data[12:]))).message


def test_ids_end_before_they_wrap(connect: Connect) -> None:
    host, plugin = connect()
    host._next_stream = MAX_STREAM
    stream, data = call(host)
    assert stream == MAX_STREAM
    (received,) = plugin.feed(data)
    assert isinstance(received, CallReceived)
    with pytest.raises(CallLimitError, match="used up"):
        call(host)
    assert host.outstanding == 1


@pytest.mark.parametrize("first", [1, MAX_STREAM - 2])
def test_r10_the_late_answer_of_a_cancelled_call_never_answers_a_newer_one(connect: Connect, first: int) -> None:
    host, plugin = connect()
    host._next_stream = first
    older, data = call(host)
    plugin.feed(data)
    plugin.feed(host.cancel(older, "deadline"))
    newer, data = call(host)
    plugin.feed(data)
    assert newer != older
    late, answer = plugin.send_reply(older, "older"), plugin.send_reply(newer, "newer")
    assert host.feed(late + answer) == [LateAnswerDropped(older), ReplyReceived(newer, "newer")]
    assert host.late_answers == 1
    assert host.outstanding == 0


def test_r11_calls_that_time_out_are_bounded_and_the_excess_refused(connect: Connect) -> None:
    host, _ = connect()
    limit, refused = 1024, 0
    for _ in range(100_000):
        try:
            stream, _data = call(host)
        except CallLimitError:
            refused += 1
        else:
            assert host.cancel(stream, "deadline")
    assert refused == 100_000 - limit
    assert host.outstanding == limit
    assert host.pending == ()
    assert host.close() == ()
    assert not any(host.table_sizes.values())


@pytest.mark.parametrize("cancelled", [True, False])
def test_the_limit_of_calls_counts_cancelled_ones_and_answers_free_it(connect: Connect, cancelled: bool) -> None:
    host, plugin = connect(max_outstanding=2)
    streams = []
    for _ in range(2):
        stream, data = call(host)
        streams.append(stream)
        plugin.feed(data)
    if cancelled:
        plugin.feed(host.cancel(streams[0], ""))
    with pytest.raises(CallLimitError, match="2 calls"):
        call(host)
    host.feed(plugin.send_reply(streams[0], None))
    assert call(host)[0] == 5


# -- cancels ---------------------------------------------------------------------------------------


def test_a_cancel_is_told_and_the_call_is_still_answered(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = call(host)
    plugin.feed(data)
    assert plugin.feed(host.cancel(stream, "gone")) == [CancelReceived(stream, "gone")]
    answer = plugin.send_error(stream, CallError(ErrorCode.CANCELLED, ""))
    assert host.feed(answer) == [LateAnswerDropped(stream)]


def test_a_second_cancel_says_nothing(connect: Connect) -> None:
    host, _ = connect()
    stream, _data = call(host)
    assert host.cancel(stream, "a")
    assert host.cancel(stream, "b") == b""
    assert host.cancel(99, "never made") == b""


def test_a_cancel_that_crosses_its_answer_says_nothing(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = call(host)
    plugin.feed(data)
    answer = plugin.send_reply(stream, 1)
    assert plugin.feed(host.cancel(stream, "late")) == []
    assert host.feed(answer) == [LateAnswerDropped(stream)]
    assert not any([*host.table_sizes.values(), *plugin.table_sizes.values()])


def test_a_cancel_that_overtakes_its_call_is_told_after_it(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = call(host)
    assert plugin.feed(host.cancel(stream, "early")) == []
    assert plugin.feed(data)[1:] == [CancelReceived(stream, "early")]
    assert plugin.table_sizes["early_cancels"] == 0


def test_a_cancel_whose_call_can_no_longer_come_is_forgotten(connect: Connect) -> None:
    host, plugin = connect()
    never_sent, _ = call(host)
    plugin.feed(host.cancel(never_sent, "queue was full"))
    _, data = call(host)
    (received,) = plugin.feed(data)
    assert isinstance(received, CallReceived)
    assert plugin.table_sizes["early_cancels"] == 0


@pytest.mark.parametrize("stream", [0, 2, MAX_STREAM + 2])
def test_a_cancel_of_a_call_that_the_peer_cannot_make_is_a_violation(connect: Connect, stream: int) -> None:
    _, plugin = connect()
    assert "never make" in violation(plugin.feed(encode_frame(FrameType.CANCEL, stream, NIL))).message


def test_early_cancels_are_bounded(connect: Connect) -> None:
    _, plugin = connect(max_outstanding=3)
    for stream in (1, 3, 5):
        assert plugin.feed(encode_frame(FrameType.CANCEL, stream, NIL)) == []
    assert "more than 3 cancels" in violation(plugin.feed(encode_frame(FrameType.CANCEL, 7, NIL))).message


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body_bytes", "taken"), [(100, True), (101, False)])
def test_the_reply_limit_of_a_call_holds_on_both_sides(connect: Connect, body_bytes: int, taken: bool) -> None:
    host, plugin = connect()
    stream, data = call(host, reply_limit_bytes=100)
    plugin.feed(data)
    result = b"x" * (body_bytes - 2)
    (event,) = host.feed(plugin.send_reply(stream, result))
    if taken:
        assert event == ReplyReceived(stream, result)
    else:
        assert isinstance(event, ErrorReceived)
        assert event.error.code is ErrorCode.FRAME_TOO_LARGE
        assert "101" in event.error.message
    assert host.state is LinkState.OPEN
    assert host.outstanding == 0


def test_an_oversized_late_answer_is_skipped_and_counted(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = call(host, reply_limit_bytes=10)
    plugin.feed(data)
    host.cancel(stream, "")
    assert host.feed(plugin.send_reply(stream, b"x" * 50) + plugin.send_ping(1)) == [
        LateAnswerDropped(stream),
        PingReceived(1),
    ]


def test_a_reply_to_nobody_is_skipped_and_nothing_of_it_is_kept(connect: Connect) -> None:
    host, _ = connect()
    assert host.feed(HEADER.pack(MAGIC, FrameType.RESP, 0, 1, 1, 1_000_000)) == [StrayAnswer(1)]
    host.feed(b"x" * 999_999)
    assert host._reader._buffer == b""
    assert host.mid_frame


def test_a_call_over_its_limit_is_skipped_and_answered_with_an_error(connect: Connect) -> None:
    host, plugin = connect()
    stream, data = plugin.start_call(Method.STORAGE_PUT, [b"x" * HOST_CALL_BYTES], deadline_us=1)
    (event,) = host.feed(data)
    assert isinstance(event, CallRefused)
    assert event.error.code is ErrorCode.FRAME_TOO_LARGE
    assert host.serving == 1
    assert plugin.feed(host.send_error(event.stream, event.error)) == [ErrorReceived(stream, event.error)]
    assert not any([*host.table_sizes.values(), *plugin.table_sizes.values()])


def test_a_plugin_takes_a_long_prompt_from_its_host(connect: Connect) -> None:
    host, plugin = connect()
    _, data = call(host, b"x" * (MAX_FRAME_BYTES - 100))
    (event,) = plugin.feed(data)
    assert isinstance(event, CallReceived)


def test_r01_a_length_near_4_gib_breaks_the_link_at_once(connect: Connect) -> None:
    host, _ = connect()
    found = violation(host.feed(HEADER.pack(MAGIC, FrameType.RESP, 0, 1, 1, 0xFFFFFFFF) + b"0123456789"))
    assert found.code is ErrorCode.FRAME_TOO_LARGE
    assert not host.mid_frame


# -- control frames --------------------------------------------------------------------------------


def test_control_frames_cross(connect: Connect) -> None:
    host, plugin = connect()
    assert plugin.feed(host.send_ping(7)) == [PingReceived(7)]
    assert host.feed(plugin.send_pong(7, {"in_flight": 1})) == [PongReceived(7, {"in_flight": 1})]
    assert host.feed(plugin.send_log({"level": "info"})) == [LogReceived({"level": "info"})]
    body: dict[str, Value] = {"a": 1}
    assert plugin.feed(host.send_handshake(FrameType.WELCOME, body)) == [HandshakeReceived(FrameType.WELCOME, body)]
    _, data = call(host)
    plugin.feed(data)
    assert host.feed(plugin.send_goaway("RECYCLE", "m" * 5000)) == [GoAwayReceived(1, "RECYCLE", "m" * 4096)]


def test_only_handshake_frames_are_sent_as_such(connect: Connect) -> None:
    host, _ = connect()
    with pytest.raises(LocalProtocolError):
        host.send_handshake(FrameType.REQ, {})


@pytest.mark.parametrize("body_bytes", [0, CONTROL_FRAME_BYTES, CONTROL_FRAME_BYTES + 1])
@pytest.mark.parametrize("critical", [True, False])
def test_an_unknown_frame_is_skipped_unless_critical(connect: Connect, body_bytes: int, critical: bool) -> None:
    host, plugin = connect()
    # What a later version puts into its frames is not ours to judge: 0xc1 is no msgpack at all.
    data = encode_frame(99, 5, b"\xc1" * body_bytes, FLAG_CRITICAL if critical else 0)
    events = host.feed(data + plugin.send_ping(1))
    if critical:
        assert "critical frame" in violation(events).message
    else:
        assert events == [FrameSkipped(99, body_bytes), PingReceived(1)]


@pytest.mark.parametrize("kind", [FrameType.DATA, FrameType.END, FrameType.CREDIT])
@pytest.mark.parametrize("body", [NIL, b"\xc4" * (CONTROL_FRAME_BYTES + 1)], ids=["small", "oversized"])
def test_data_without_a_stream_is_a_violation(connect: Connect, kind: FrameType, body: bytes) -> None:
    host, _ = connect()
    violation(host.feed(encode_frame(kind, 1, body)))


@pytest.mark.parametrize(("kind", "limit"), sorted(FRAME_LIMITS.items()))
def test_frames_that_never_need_much_are_bounded_on_both_sides(connect: Connect, kind: FrameType, limit: int) -> None:
    for size in (limit, limit + 1):
        host, _ = connect()
        # 0xc1 is no msgpack: what is taken to be decoded is a violation, or an answer that cannot be read.
        events = host.feed(encode_frame(kind, 999, b"\xc1" * size))
        told = str(events[-1])
        assert (f"the limit is {limit}" in told) is (size > limit and kind in REFUSED_BEYOND_THE_LIMIT)
        assert (type(events[-1]) is FrameSkipped) is (
            size > limit and kind not in REFUSED_BEYOND_THE_LIMIT | {FrameType.ERR}
        )


REFUSED_BEYOND_THE_LIMIT = {
    FrameType.ARMED,
    FrameType.GO,
    FrameType.HELLO,
    FrameType.DATA,
    FrameType.END,
    FrameType.CREDIT,
}


# -- bodies that are no values -----------------------------------------------------------------------


@pytest.mark.parametrize("depth", [33, 1000, 100_000])
def test_r03_deeply_nested_reply_fails_its_call_alone(connect: Connect, depth: int) -> None:
    host, plugin = connect()
    stream, data = call(host)
    other, more = call(host)
    plugin.feed(data + more)
    deep = b"\x91" * depth + NIL
    (event,) = host.feed(encode_frame(FrameType.RESP, stream, deep))
    assert isinstance(event, ErrorReceived)
    assert (event.stream, event.error.code) == (stream, ErrorCode.BAD_RESULT)
    assert host.feed(plugin.send_reply(other, 1)) == [ReplyReceived(other, 1)]
    assert host.state is LinkState.OPEN


@pytest.mark.parametrize("depth", [600, 100_000])
def test_r03_deeply_nested_call_is_refused_alone_by_either_end(connect: Connect, depth: int) -> None:
    host, plugin = connect()
    (event,) = host.feed(encode_frame(FrameType.REQ, 2, b"\x91" * depth + NIL))
    assert isinstance(event, CallRefused)
    assert event.error.code is ErrorCode.PROTOCOL_VIOLATION
    plugin.start_call(Method.NOW, [], deadline_us=1)
    (answer,) = plugin.feed(host.send_error(event.stream, event.error))
    assert isinstance(answer, ErrorReceived)
    assert (host.state, plugin.state) == (LinkState.OPEN, LinkState.OPEN)


@pytest.mark.parametrize("depth", [600, 100_000])
def test_r03_deeply_nested_argument_fails_its_call_alone(connect: Connect, depth: int) -> None:
    host, plugin = connect()
    nested: Value = None
    for _ in range(depth):
        nested = [nested]
    with pytest.raises(ValueRefusedError):
        plugin.start_call(Method.NOW, [nested], deadline_us=1)
    # A host that does not check what it passes on: its encoder refuses, or the plugin reads it.
    with contextlib.suppress(ValueRefusedError):
        (event,) = plugin.feed(call(host, nested)[1])
        assert isinstance(event, CallReceived | CallRefused)
    assert plugin.feed(host.send_ping(1)) == [PingReceived(1)]
    while nested is not None:
        (nested,) = nested  # type: ignore[misc]  # taken apart by hand: its collection would nest as deep


# -- how much at once ----------------------------------------------------------------------------------


def test_one_call_more_than_are_served_is_refused_and_the_next_after_an_answer_is_not() -> None:
    host, plugin = Connection(Role.HOST, max_incoming=3), Connection(Role.PLUGIN)
    for _ in range(3):
        (event,) = host.feed(plugin.start_call(Method.NOW, [], deadline_us=1)[1])
        assert isinstance(event, CallReceived)
    (refused,) = host.feed(plugin.start_call(Method.NOW, [], deadline_us=1)[1])
    assert isinstance(refused, CallRefused)
    assert (refused.error.code, refused.error.retryable) == (ErrorCode.RESOURCE_EXHAUSTED, True)
    plugin.feed(host.send_error(refused.stream, refused.error))
    plugin.feed(host.send_reply(2, 1.0))
    (event,) = host.feed(plugin.start_call(Method.NOW, [], deadline_us=1)[1])
    assert isinstance(event, CallReceived)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FrameType.PING, "token"),
        (FrameType.PING, True),
        (FrameType.CREDIT, 0),
        (FrameType.CREDIT, True),
        (FrameType.CREDIT, []),
        (FrameType.CREDIT, 2**31),
        (FrameType.PONG, 1),
        (FrameType.PONG, [1]),
        (FrameType.PONG, ["1", {}]),
        (FrameType.GOAWAY, []),
        (FrameType.GOAWAY, [1, 2, 3]),
        (FrameType.GOAWAY, [None, "", ""]),
        (FrameType.REQ, []),
        (FrameType.REQ, [3, 0, None, None, 0, 0, 0]),
        (FrameType.REQ, [3, -1, None, None, 0, 0, 0]),
        (FrameType.REQ, [True, 1, None, None, 0, 0, 0]),
        (FrameType.REQ, [3, 1.0, None, None, 0, 0, 0]),
        (FrameType.REQ, [3, 1, b"t", None, 0, 0, 0]),
        (FrameType.EVENT, [3, 1, None, None, 0, 0]),
        (FrameType.ERR, []),
        (FrameType.ERR, {"code": 1}),
        (FrameType.ERR, {"code": "CRASHED", "message": None}),
    ],
)
def test_a_body_of_the_wrong_shape_is_a_violation(connect: Connect, kind: FrameType, body: Value) -> None:
    host, _ = connect()
    call(host)
    stream = {FrameType.ERR: 1, FrameType.CREDIT: 0}.get(kind, 2)
    found = violation(host.feed(encode_frame(kind, stream, Encoder().pack(body))))
    assert found.code is ErrorCode.PROTOCOL_VIOLATION
    assert kind.name in found.message


def test_a_host_checks_the_values_of_every_frame_and_a_plugin_trusts_its_host() -> None:
    deep = b"\x91" * 40 + NIL
    assert "nested deeper" in violation(Connection(Role.HOST).feed(encode_frame(FrameType.LOG, 0, deep))).message
    (event,) = Connection(Role.PLUGIN).feed(encode_frame(FrameType.LOG, 0, deep))
    assert isinstance(event, LogReceived)


# -- end -------------------------------------------------------------------------------------------


def test_close_tells_who_still_waits_and_empties_every_table(connect: Connect) -> None:
    host, plugin = connect()
    waiting, data = call(host)
    cancelled, more = call(host)
    plugin.feed(data + more)
    plugin.feed(host.cancel(cancelled, ""))
    assert host.close() == (waiting,)
    assert host.close() == plugin.close() == ()
    assert not any([*host.table_sizes.values(), *plugin.table_sizes.values()])
    assert host.state is LinkState.CLOSED
    assert host.feed(plugin.send_ping(1)) == []
    with pytest.raises(LocalProtocolError, match="closed"):
        call(host)


def test_a_broken_link_stays_broken_after_close(connect: Connect) -> None:
    host, _ = connect()
    stream, _data = call(host)
    host.feed(b"noise")
    assert host.pending == (stream,)
    assert host.close() == (stream,)
    assert host.state is LinkState.BROKEN
