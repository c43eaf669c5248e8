"""Reading HTTP answers out of a buffer: framing, limits, and that it does not matter how bytes come."""

from contextlib import suppress

import httptools
import pytest
from hotbay.datalayer.fetching.buffers import Buffers
from hotbay.datalayer.fetching.http_answer import (
    CHUNK_BYTES,
    FREE_CHUNKS,
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_INTERIM_HEADS,
    MAX_TRAILERS,
    Answer,
    AnswerError,
    AnswerReader,
)
from hypothesis import given
from hypothesis import strategies as st

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


def feed(reader: AnswerReader, data: bytes, sizes: list[int] | None = None) -> Answer | None:
    """Give it the bytes in pieces of these sizes, over and over."""
    position, sizes = 0, sizes or [len(data) or 1]
    answer = None
    turn = 0
    while position < len(data):
        space = reader.space()
        count = min(len(space), sizes[turn % len(sizes)], len(data) - position)
        space[:count] = data[position : position + count]
        position += count
        turn += 1
        answer = reader.received(count)
        if answer is not None:
            assert position == len(data) or turn, "the rest is another answer's"
            break
    return answer


def read(data: bytes, sizes: list[int] | None = None) -> Answer:
    answer = feed(AnswerReader(Buffers()), data, sizes)
    assert answer is not None
    return answer


def reason(data: bytes) -> str:
    with pytest.raises(AnswerError) as caught:
        feed(AnswerReader(Buffers()), data)
    return caught.value.reason


def test_status_body_and_what_describes_it_are_read() -> None:
    answer = read(OK + b"content-LENGTH: 3\r\nContent-Encoding: GZIP\r\nContent-Type:  Text/Plain \r\n\r\nabc")
    assert (answer.status, bytes(answer.body)) == (200, b"abc")
    assert (answer.encoding, answer.content_type) == (b"gzip", b"text/plain")
    assert (answer.framed, answer.reusable) == (True, True)


def test_the_byte_before_a_body_is_a_line_feed() -> None:
    for data in (OK + b"Content-Length: 3\r\n\r\nabc", CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"):
        body = read(data).body
        assert body.buffer[body.start - 1 : body.start] == b"\n"


@pytest.mark.parametrize(
    ("head", "reusable"),
    [
        (OK, True),
        (OK + b"Connection: keep-alive\r\n", True),
        (OK + b"Connection: x, Close\r\n", False),
        (OK + b"Connection: x\r\nConnection: close\r\n", False),
        (b"HTTP/1.0 200 OK\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n", True),
    ],
)
def test_the_connection_is_kept_as_the_answer_says(head: bytes, reusable: bool) -> None:
    assert read(head + b"Content-Length: 0\r\n\r\n").reusable is reusable


def test_bytes_beyond_the_answer_end_the_connection() -> None:
    assert not read(OK + b"Content-Length: 1\r\n\r\nab").reusable
    assert not read(CHUNKED + b"0\r\n\r\nx").reusable


def test_interim_answers_are_passed_over() -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nContent-Length: 9\r\n\r\n" + OK
    assert bytes(read(data + b"Content-Length: 2\r\n\r\nab", [3]).body) == b"ab"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_needs_no_length(status: int) -> None:
    assert read(b"HTTP/1.1 %d x\r\n\r\n" % status).status == status


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"\0",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200OK\r\n\r\n",
        OK + b"Content-Length: x\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: +1\r\n\r\n",
        OK + b"Content-Length:\r\n\r\n",
        OK + b"Content-Length : 1\r\n\r\nx",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: identity\r\n\r\n",
        OK + b"X: a\0b\r\n\r\n",
        CHUNKED + b"x\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"1\r\nabc\r\n",
        CHUNKED + b"1" * 1025,
    ],
)
def test_what_is_not_clear_is_no_answer(data: bytes) -> None:
    assert reason(data) == "not_http"


def test_a_length_that_is_said_twice_alike_is_clear() -> None:
    assert bytes(read(OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx").body) == b"x"


def test_a_body_may_have_its_largest_size_and_no_more() -> None:
    body = b"x" * MAX_BODY_BYTES
    assert len(read(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body, [1 << 20]).body) == MAX_BODY_BYTES
    assert reason(OK + b"Content-Length: %d\r\n\r\n" % (len(body) + 1)) == "too_large"
    assert reason(OK + b"Content-Length: %s\r\n\r\n" % (b"9" * 40)) == "too_large"
    assert len(read(CHUNKED + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n", [1 << 20]).body) == MAX_BODY_BYTES
    assert reason(CHUNKED + b"%x\r\n" % (len(body) + 1)) == "too_large"


def test_a_head_may_have_its_largest_size_and_no_more() -> None:
    room = MAX_HEAD_BYTES - len(OK + b"Content-Length: 0\r\nX: ")
    assert read(OK + b"Content-Length: 0\r\nX: " + b"x" * room + b"\r\n\r\n").status == 200
    assert reason(OK + b"Content-Length: 0\r\nX: " + b"x" * (room + 1) + b"\r\n\r\n") == "too_large"
    assert reason(OK + b"X: " + b"x" * MAX_HEAD_BYTES) == "too_large"


def test_an_endless_answer_of_interim_heads_or_trailers_ends_at_the_bound() -> None:
    assert reason(b"HTTP/1.1 100 Continue\r\n\r\n" * 200_000) == "too_large"
    assert reason(CHUNKED + b"0\r\n" + b"X: y\r\n" * 900_000) == "too_large"


def test_an_answer_may_follow_so_many_interim_ones_and_no_more() -> None:
    interim, end = b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 0\r\n\r\n"
    assert read(interim * MAX_INTERIM_HEADS + end).status == 200
    assert reason(interim * (MAX_INTERIM_HEADS + 1) + end) == "too_large"
    large = b"HTTP/1.1 103 Early\r\nX: " + b"x" * (MAX_HEAD_BYTES // 4) + b"\r\n\r\n"
    assert read(large * 3 + end).status == 200
    assert reason(large * 4 + end) == "too_large"


@pytest.mark.parametrize("sizes", [[1 << 20], [7]])
def test_an_answer_may_have_so_many_trailers_and_no_more(sizes: list[int]) -> None:
    body = CHUNKED + b"2\r\nab\r\n0\r\n"
    assert bytes(read(body + b"X: y\r\n" * MAX_TRAILERS + b"\r\n", sizes).body) == b"ab"
    assert reason(body + b"X: y\r\n" * (MAX_TRAILERS + 1) + b"\r\n") == "too_large"
    assert read(body + b"X: " + b"y" * (MAX_HEAD_BYTES - 7) + b"\r\n\r\n", sizes).status == 200
    assert reason(body + b"X: " + b"y" * MAX_HEAD_BYTES) == "too_large"


@pytest.mark.parametrize("size", [1, CHUNK_BYTES // 2])
def test_chunks_that_carry_next_to_nothing_may_be_so_many_and_no_more(size: int) -> None:
    chunk = b"%x\r\n%s\r\n" % (size, b"#" * size)
    most = next(it for it in range(FREE_CHUNKS, 1 << 20) if it + 1 > FREE_CHUNKS + (it + 1) * size // CHUNK_BYTES)
    assert len(read(CHUNKED + chunk * most + b"0\r\n\r\n", [1 << 16]).body) == most * size
    assert reason(CHUNKED + chunk * (most + 1) + b"0\r\n\r\n") == "too_large"


def test_chunks_that_carry_something_may_be_as_many_as_a_body_has_room_for() -> None:
    chunk = b"%x\r\n%s\r\n" % (CHUNK_BYTES, b"#" * CHUNK_BYTES)
    count = MAX_BODY_BYTES // CHUNK_BYTES - 2048
    assert len(read(CHUNKED + chunk * count + b"0\r\n\r\n", [1 << 16]).body) == count * CHUNK_BYTES


def test_the_end_of_the_connection_ends_a_body_that_nothing_else_ends() -> None:
    reader = AnswerReader(Buffers())
    assert feed(reader, OK + b"\r\nabc") is None
    answer = reader.ended()
    assert (bytes(answer.body), answer.framed, answer.reusable) == (b"abc", False, False)
    for data in (b"HTTP/1.1 200 O", OK + b"Content-Length: 4\r\n\r\nabc", CHUNKED + b"3\r\nabc\r\n"):
        reader = AnswerReader(Buffers())
        feed(reader, data)
        with pytest.raises(AnswerError, match="in the middle"):
            reader.ended()


def test_answers_follow_each_other_in_lent_buffers() -> None:
    buffers = Buffers()
    reader = AnswerReader(buffers)
    first = feed(reader, OK + b"Content-Length: 1\r\n\r\na")
    assert first is not None
    assert bytes(first.body) == b"a"
    lent = first.body.buffer
    reader.release()
    assert buffers.take() is lent
    reader.begin()
    second = feed(reader, OK + b"Content-Length: 2\r\n\r\nbc")
    assert second is not None
    assert bytes(second.body) == b"bc"


class Told:
    """What httptools says of an answer."""

    def __init__(self) -> None:
        self.body = b""
        self.whole = False

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.whole = True


bodies = st.binary(max_size=200)


@given(
    bodies, st.booleans(), st.lists(st.integers(1, 40), min_size=1, max_size=5), st.lists(st.integers(1, 9), max_size=9)
)
def test_however_bytes_come_the_body_is_what_httptools_reads(
    body: bytes, chunked: bool, sizes: list[int], chunks: list[int]
) -> None:
    data = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    if chunked:
        parts, rest = [], body
        for size in chunks:
            parts.append(rest[:size])
            rest = rest[size:]
        framed = b"".join(b"%x;ext=1\r\n%b\r\n" % (len(part), part) for part in (*parts, rest) if part)
        data = CHUNKED + framed + b"0\r\nTrailer: x\r\n\r\n"
    told = Told()
    httptools.HttpResponseParser(told).feed_data(data)
    answer = read(data, sizes)
    assert told.whole
    assert bytes(answer.body) == told.body == body
    assert answer.reusable
    for end in range(len(data)):
        assert feed(AnswerReader(Buffers()), data[:end]) is None, "no part of it is whole"


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_no_bytes_raise_anything_but_the_modules_own_error(data: bytes, sizes: list[int]) -> None:
    for whole in (data, OK + data, CHUNKED + data, OK + b"Content-Length: 5\r\n" + data):
        with suppress(AnswerError):
            feed(AnswerReader(Buffers()), whole, sizes)
