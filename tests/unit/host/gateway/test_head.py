"""Heads that leave the gateway: what passes, what is added, exactly one framing."""

import pytest
from hotbay.gateway.head import (
    Framing,
    nominated,
    passed_before,
    request_head,
    response_framing,
    response_head,
    text_headers,
)
from hotbay.gateway.request_reader import RequestReader
from hotbay.gateway.response_reader import ResponseReader
from hypothesis import given, settings
from hypothesis import strategies as st

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=16).map(str.encode)
values = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20).map(str.encode)
HOP = [b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"proxy-connection"]
CONTROL = [b"x-gateway-destination-endpoint", b"x-llm-d-inference-objective", b"x-hotbay-path", b"expect", b"host"]
any_headers = st.lists(st.tuples(names | st.sampled_from(HOP + CONTROL + [b"content-length"]), values), max_size=10)


def build_request(headers, body_bytes=3):
    return request_head(
        b"POST",
        b"/p?q=1",
        headers,
        authority="h:1",
        request_id="r-1",
        peer="10.0.0.9",
        via=b"hotbay-1",
        body_bytes=body_bytes,
    )


def build_response(headers, framing, *, length=None, keep_alive=True, http_1_0=False):
    return response_head(
        200,
        b"OK",
        headers,
        framing=framing,
        length=length,
        keep_alive=keep_alive,
        http_1_0=http_1_0,
        request_id="r-1",
        destination="h:1",
        via=b"hotbay-1",
    )


@settings(max_examples=40)
@given(any_headers)
def test_request_head_is_one_request_with_one_framing(headers):
    reader = RequestReader(100_000, 100)
    (read,) = reader.feed(build_request(headers) + b"abc")
    assert (read.method, read.target, read.body) == (b"POST", b"/p?q=1", b"abc")
    names_out = [name for name, _ in read.headers]
    assert names_out.count(b"content-length") == names_out.count(b"host") == names_out.count(b"x-request-id") == 1
    assert not {*HOP, *CONTROL} - {b"host"} & set(names_out)
    dropped = {b"content-length", b"x-request-id", b"x-forwarded-for", b"via", *HOP, *CONTROL} | nominated(headers)
    kept = [
        (n, v) for n, v in headers if n not in dropped and not n.startswith((b"x-gateway-", b"x-llm-d-", b"x-hotbay-"))
    ]
    added = {b"content-length", b"host", b"x-request-id", b"x-forwarded-for", b"via"}
    assert [header for header in read.headers if header[0] not in added] == kept


@settings(max_examples=40)
@given(any_headers, st.sampled_from([Framing.LENGTH, Framing.CHUNKED]))
def test_response_head_is_one_response_with_one_framing(headers, framing):
    reader = ResponseReader(100_000)
    reader.feed(build_response(headers, framing, length=3 if framing is Framing.LENGTH else None))
    reader.feed(b"abc" if framing is Framing.LENGTH else b"3\r\nabc\r\n0\r\n\r\n")
    assert reader.ended
    assert reader.keep_alive
    assert reader.parts == [b"abc"]
    out = [name for name, _ in reader.headers]
    assert out.count(b"content-length") + out.count(b"transfer-encoding") == 1
    assert dict(reader.headers)[b"x-gateway-destination-endpoint"] == b"h:1"
    assert out.count(b"x-gateway-destination-endpoint") == out.count(b"x-request-id") == 1


def test_headers_that_connection_names_are_dropped_but_never_the_framing():
    headers = [(b"connection", b"X-A, close,content-length"), (b"connection", b"x-b"), (b"x-a", b"1"), (b"x-b", b"2")]
    assert nominated(headers) == {b"x-a", b"close", b"x-b"}
    head = build_request([*headers, (b"x-c", b"3")])
    assert b"x-a" not in head
    assert b"x-b" not in head
    assert b"x-c: 3\r\n" in head


def test_request_without_a_body_has_no_length():
    assert b"content-length" not in build_request([], body_bytes=None)
    assert b"content-length: 0\r\n" in build_request([], body_bytes=0)


def test_forwarding_headers_grow_by_this_hop():
    head = build_request([(b"x-forwarded-for", b"1.1.1.1"), (b"via", b"1.0 a"), (b"x-forwarded-for", b"2.2.2.2")])
    assert b"x-forwarded-for: 1.1.1.1, 2.2.2.2, 10.0.0.9\r\n" in head
    assert b"via: 1.0 a, 1.1 hotbay-1\r\n" in head
    assert b"via: 1.1 hotbay-1\r\n" in build_response([], Framing.LENGTH, length=0)


@pytest.mark.parametrize(
    ("values", "passed"),
    [
        ([], False),
        ([b"1.1 hotbay-1"], True),
        ([b"1.0 a, HTTP/1.1 hotbay-1 (a proxy), 2 b"], True),
        ([b"1.0 a", b"1.1\thotbay-1"], True),
        ([b"1.1 hotbay-2, 1.1 hotbay-10"], False),
        ([b"1.1 a (hotbay-1)", b"hotbay-1", b"", b",", b"1.1"], False),
    ],
)
def test_a_request_that_was_here_before_is_known_by_this_gateways_name(values, passed):
    assert passed_before([(b"via", value) for value in values], b"hotbay-1") is passed
    assert not passed_before([(b"x-via", value) for value in values], b"hotbay-1")


def test_what_a_request_passed_is_not_hidden_from_the_next_hop():
    assert b"via: 1.0 a, 1.1 hotbay-1\r\n" in build_request([(b"connection", b"Via"), (b"via", b"1.0 a")])


@pytest.mark.parametrize(
    ("status", "length", "http_1_0", "framing"),
    [
        (200, 5, False, Framing.LENGTH),
        (200, 5, True, Framing.LENGTH),
        (200, None, False, Framing.CHUNKED),
        (200, None, True, Framing.CLOSE),
        (204, None, False, Framing.NONE),
        (304, 5, True, Framing.NONE),
    ],
)
def test_framing(status, length, http_1_0, framing):
    assert response_framing(status, length, http_1_0=http_1_0) is framing


@pytest.mark.parametrize(
    ("keep_alive", "http_1_0", "line"),
    [
        (True, False, None),
        (False, False, b"connection: close\r\n"),
        (True, True, b"connection: keep-alive\r\n"),
        (False, True, b"connection: close\r\n"),
    ],
)
def test_connection_header_says_what_happens_next(keep_alive, http_1_0, line):
    head = build_response([], Framing.LENGTH, length=1, keep_alive=keep_alive, http_1_0=http_1_0)
    assert (line in head) if line else (b"connection:" not in head)


def test_scheduler_sees_joined_text_headers_without_routing_ones():
    headers = [
        (b"a", b"1"),
        (b"a", b"2"),
        (b"cookie", b"x=1"),
        (b"cookie", b"y=2"),
        (b"b", b"\xff"),
        (b"x-gateway-destination-endpoint", b"evil"),
        (b"x-gateway-destination-endpoint-subset", b"evil"),
    ]
    assert text_headers(headers) == {"a": "1, 2", "cookie": "x=1; y=2", "b": "\xff"}


@pytest.mark.parametrize(
    "name", [b"x-llm-d-request-dropped-reason", b"x-hotbay-reason", b"x-gateway-destination-endpoint-served"]
)
def test_f11_an_upstream_forges_no_word_of_the_router(name):
    assert b"forged" not in build_response([(name, b"forged"), (b"x-a", b"1")], Framing.CHUNKED)


def test_edits_and_destinations_stand_in_both_heads():
    request = request_head(
        b"POST", b"/", [(b"x-a", b"1")], authority="h:1", request_id="r", peer="p", via=b"v", body_bytes=0,
        destinations="h:1,h:2", edits={b"x-b": b"2", b"x-a": None},
    )  # fmt: skip
    assert b"x-gateway-destination-endpoint: h:1,h:2\r\n" in request
    assert b"x-b: 2\r\n" in request
    assert b"x-a" not in request
    response = response_head(
        200, b"OK", [(b"x-a", b"1"), (b"x-c", b"3")], framing=Framing.NONE, length=None, keep_alive=True, http_1_0=False,
        request_id="r", destination="h:1", via=b"v", edits={b"x-a": b"new"},
    )  # fmt: skip
    assert b"x-a: new\r\n" in response
    assert response.count(b"x-a") == response.count(b"x-c: 3") == 1
