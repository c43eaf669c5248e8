"""Requests and responses come out the same however their bytes are split; limits hold on both sides."""

import contextlib

import pytest
from hotbay.gateway.request_reader import Phase, RequestReader
from hotbay.gateway.response_reader import ResponseError, ResponseReader
from hypothesis import given, settings
from hypothesis import strategies as st

HEADER_LIMIT, BODY_LIMIT = 4096, 2048

tokens = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-", min_size=1, max_size=12).map(str.encode)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(str.encode)
SPECIAL = {b"content-length", b"transfer-encoding", b"host", b"connection", b"upgrade", b"expect", b"proxy-connection"}
OFFERED = SPECIAL | {b"http2-settings"}
headers = st.lists(st.tuples(tokens, values).filter(lambda header: header[0].lower() not in SPECIAL), max_size=6)
bodies = st.binary(max_size=400)


@st.composite
def framed_bodies(draw, *, closing_allowed=False):
    """(header line, bytes on the wire, body) of a message with a length, with chunks, or without a body."""
    body = draw(bodies)
    kind = draw(st.sampled_from(["length", "chunked"]))
    if kind == "length":
        return b"Content-Length: %d\r\n" % len(body), body, body
    cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=4)))
    parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    wire = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
    return b"Transfer-Encoding: chunked\r\n", wire + b"0\r\nx-trailer: t\r\n\r\n", body


@st.composite
def requests(draw):
    """(bytes on the wire, what should be read)."""
    method = draw(st.sampled_from([b"POST", b"GET", b"PUT"]))
    target = b"/" + draw(tokens)
    extra = draw(headers)
    framing, wire, body = draw(framed_bodies())
    head = b"".join(b"%b: %b\r\n" % header for header in extra)
    data = b"%b %b HTTP/1.1\r\nHost: h\r\n%b%b\r\n%b" % (method, target, head, framing, wire)
    return data, (method, target, [(name.lower(), value) for name, value in extra], body)


def split(data, cuts):
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def read_requests(pieces):
    reader = RequestReader(HEADER_LIMIT, BODY_LIMIT)
    return [request for piece in pieces for request in reader.feed(piece)], reader


def essence(request):
    own = [header for header in request.headers if header[0] not in SPECIAL]
    return request.method, request.target, own, request.body


@settings(max_examples=40)
@given(st.lists(requests(), min_size=1, max_size=4), st.lists(st.integers(0, 10_000), max_size=30))
def test_pipelined_requests_are_read_the_same_at_any_split(sent, cuts):
    data = b"".join(wire for wire, _ in sent)
    read, reader = read_requests(split(data, cuts))
    assert reader.failure is None
    assert [essence(request) for request in read] == [wanted for _, wanted in sent]
    assert reader.phase is Phase.BETWEEN
    assert reader.pending_bytes == 0


def offering(wire, offer):
    """The request with an offer to speak another protocol, as Java's HttpClient makes it with its first one."""
    return wire.replace(b"\r\nHost: h\r\n", b"\r\nHost: h\r\n" + offer, 1)


@pytest.mark.parametrize(
    "offer",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAB\r\n",
        b"Connection: upgrade\r\nUpgrade: TLS/1.2, HTTP/3\r\n",
    ],
)
@settings(max_examples=40)
@given(
    sent=st.lists(st.tuples(requests(), st.booleans()), min_size=1, max_size=4),
    bodiless=st.booleans(),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
)
def test_offers_of_another_protocol_are_ignored_at_any_split(offer, sent, bodiless, cuts):
    wires = [offering(wire, offer) if offers else wire for (wire, _), offers in sent]
    wanted = [essence_wanted for (_, essence_wanted), _ in sent]
    if bodiless:
        wires.insert(0, offering(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n", offer))
        wanted.insert(0, (b"GET", b"/a", [], b""))
    read, reader = read_requests(split(b"".join(wires), cuts))
    assert reader.failure is None
    assert [(r.method, r.target, [h for h in r.headers if h[0] not in OFFERED], r.body) for r in read] == wanted
    assert all(request.keep_alive for request in read)
    assert reader.phase is Phase.BETWEEN


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c, WebSocket", b"h2c\r\nUpgrade: websocket"])
def test_an_upgrade_that_the_client_cannot_do_without_is_refused(upgrade):
    head = b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + b"\r\n\r\n"
    read, reader = read_requests([head])
    assert read == []
    assert reader.failure is not None
    assert reader.failure.status == 501


@settings(max_examples=40)
@given(requests())
def test_request_is_read_byte_by_byte(sent):
    data, wanted = sent
    read, reader = read_requests([data[at : at + 1] for at in range(len(data))])
    assert [essence(request) for request in read] == [wanted]
    assert reader.failure is None


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_no_bytes_make_the_request_reader_raise(pieces):
    read_requests(pieces)


@settings(max_examples=40)
@given(requests(), st.integers(0, 10_000), st.binary(min_size=1, max_size=3))
def test_no_damage_makes_the_request_reader_raise_or_forget_a_failure(sent, place, damage):
    data = bytearray(sent[0])
    place %= len(data)
    data[place : place + len(damage)] = damage
    reader = RequestReader(HEADER_LIMIT, BODY_LIMIT)
    reader.feed(bytes(data))
    failure = reader.failure
    assert reader.feed(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n") == [] or failure is None
    assert failure is None or reader.failure is failure


HEAD = b"POST / HTTP/1.1\r\nHost: h\r\n"


@pytest.mark.parametrize("size", [BODY_LIMIT - 1, BODY_LIMIT, BODY_LIMIT + 1])
@pytest.mark.parametrize("framing", ["length", "chunked", "single-byte-chunks"])
@pytest.mark.parametrize("piece", [1, 500, 100_000])
def test_body_limit_holds_whatever_the_framing(size, framing, piece):
    body = b"x" * size
    step = 1 if framing == "single-byte-chunks" else 700
    if framing == "length":
        data = HEAD + b"Content-Length: %d\r\n\r\n" % size + body
    else:
        chunks = [body[at : at + step] for at in range(0, size, step)]
        wire = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        data = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + wire + b"0\r\n\r\n"
    read, reader = read_requests([data[at : at + piece] for at in range(0, len(data), piece)])
    if size > BODY_LIMIT:
        assert reader.failure is not None
        assert (reader.failure.status, read) == (413, [])
        assert reader.pending_bytes <= BODY_LIMIT + piece
    else:
        assert [request.body for request in read] == [body]


@pytest.mark.parametrize("piece", [1, 1000, 100_000])
@pytest.mark.parametrize(("size", "passes"), [(HEADER_LIMIT - 20, True), (HEADER_LIMIT + 20, False)])
def test_header_limit_holds_at_any_split(size, passes, piece):
    data = HEAD + b"X: " + b"y" * (size - 20) + b"\r\n\r\n"
    read, reader = read_requests([data[at : at + piece] for at in range(0, len(data), piece)])
    assert len(read) == passes
    assert passes or reader.failure.status == 431


@pytest.mark.parametrize(
    "start",
    [
        HEAD + b"X: ",
        HEAD,
        b"GET /",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nT: ",
        HEAD + b"Content-Length: 1\r\n\r\nx" + HEAD + b"X: ",
    ],
)
def test_endless_line_is_refused_within_one_read_of_the_limit(start):
    reader = RequestReader(HEADER_LIMIT, BODY_LIMIT)
    reader.feed(start)
    fed = 0
    while reader.failure is None:
        reader.feed(b"y" * 100)
        fed += 100
        assert fed <= HEADER_LIMIT + 100
    assert reader.failure.status in (400, 431)


def test_keep_alive_is_asked_at_the_right_moment():
    for version, line, kept in [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: keep-alive\r\n", True),
    ]:
        read, _ = read_requests([b"GET / HTTP/%b\r\nHost: h\r\n%b\r\n" % (version, line)])
        assert [request.keep_alive for request in read] == [kept]


def test_data_after_connection_close_is_ignored():
    close = b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    read, reader = read_requests([close + b"GET /b HTTP/1.1\r\n\r\n", b"garbage"])
    assert [request.target for request in read] == [b"/a"]
    assert reader.failure is None


def test_requests_before_a_broken_one_are_kept():
    read, reader = read_requests([b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n\0\0"])
    assert [request.target for request in read] == [b"/a"]
    assert reader.failure.status == 400


def test_continue_is_expected_until_the_body_begins():
    reader = RequestReader(HEADER_LIMIT, BODY_LIMIT)
    reader.feed(HEAD + b"Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n")
    assert reader.expects_continue
    reader.feed(b"x")
    assert not reader.expects_continue


@pytest.mark.parametrize("head", [HEAD.replace(b"1.1", b"1.0"), HEAD])
def test_continue_is_not_expected_of_old_clients_or_without_a_body(head):
    reader = RequestReader(HEADER_LIMIT, BODY_LIMIT)
    reader.feed(head + b"Expect: 100-continue\r\n" + (b"Content-Length: 2\r\n" if b"1.0" in head else b"") + b"\r\n")
    assert not reader.expects_continue


def read_response(pieces):
    reader = ResponseReader(HEADER_LIMIT)
    body = []
    for piece in pieces:
        reader.feed(piece)
        body += reader.parts
        reader.parts.clear()
    return reader, b"".join(body)


@settings(max_examples=40)
@given(
    st.integers(200, 599).filter(lambda status: status not in (204, 304)),
    headers,
    framed_bodies(),
    st.booleans(),
    st.lists(st.integers(0, 10_000), max_size=30),
)
def test_response_is_read_the_same_at_any_split(status, extra, framed, interim, cuts):
    framing, wire, body = framed
    head = b"".join(b"%b: %b\r\n" % header for header in extra)
    data = b"HTTP/1.1 %d Why\r\n%b%b\r\n%b" % (status, head, framing, wire)
    if interim:
        data = b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + data
    reader, read = read_response(split(data, cuts))
    assert (reader.status, reader.reason, reader.ended, reader.keep_alive) == (status, b"Why", True, True)
    assert read == body
    assert [header for header in reader.headers if header[0] not in SPECIAL] == [(n.lower(), v) for n, v in extra]
    assert reader.length == (len(body) if b"Content-Length" in framing else None)


@given(st.lists(st.binary(max_size=200), max_size=6))
def test_bytes_of_an_upstream_raise_nothing_but_a_response_error(pieces):
    with contextlib.suppress(ResponseError):
        read_response(pieces)


def test_response_without_length_ends_with_the_connection():
    reader, body = read_response([b"HTTP/1.1 200 OK\r\n\r\nab", b"cd"])
    assert (body, reader.ended) == (b"abcd", False)
    assert reader.end_of_stream()
    assert not reader.keep_alive


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b"HTTP/1.1 200 OK\r\nX:", b""])
def test_response_that_breaks_off_is_not_ended_by_the_connection(data):
    reader, _ = read_response([data])
    assert not reader.end_of_stream()


@pytest.mark.parametrize("status", [204, 304])
def test_response_without_a_body_ends_with_its_head(status):
    reader, body = read_response([b"HTTP/1.1 %d X\r\n\r\n" % status])
    assert (reader.ended, body, reader.keep_alive) == (True, b"", True)


def test_second_response_makes_the_connection_untrusted_and_leaves_the_first():
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    reader, body = read_response([first + b"HTTP/1.1 500 No\r\nContent-Length: 3\r\nX: y\r\n\r\nbad"])
    assert (reader.status, body, reader.keep_alive, reader.length) == (200, b"ok", False, 2)
    assert reader.headers == [(b"content-length", b"2")]


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (HEADER_LIMIT + 1),
        b"SSH-2.0-x\r\n",
    ],
)
def test_what_is_no_plain_response_is_an_error(data):
    with pytest.raises(ResponseError):
        read_response([data])


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("fits", [True, False])
def test_header_limit_of_a_response_holds_at_any_split(piece, fits):
    padding = HEADER_LIMIT - 200 if fits else HEADER_LIMIT
    data = b"HTTP/1.1 200 OK\r\nx: %b\r\ncontent-length: 2\r\n\r\nok" % (b"a" * padding)
    pieces = [data[at : at + piece] for at in range(0, len(data), piece)]
    if fits:
        assert read_response(pieces)[1] == b"ok"
    else:
        with pytest.raises(ResponseError, match="header is larger"):
            read_response(pieces)


@pytest.mark.parametrize("status", [b"000", b"099"])
def test_status_below_100_is_an_error_and_not_waited_upon(status):
    with pytest.raises(ResponseError, match="its status is"):
        read_response([b"HTTP/1.1 %b Odd\r\ncontent-length: 2\r\n\r\nok" % status])
