"""Which headers plugins may set."""

import pytest
from hotbay.gateway.head import Framing, request_head, response_head
from hotbay.gateway.header_edits import header_edits
from hotbay.gateway.request_reader import RequestReader
from hotbay.gateway.response_reader import ResponseReader
from hypothesis import given
from hypothesis import strategies as st

FORBIDDEN = [
    *(
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "proxy-authorization",
        "proxy-connection",
    ),
    *(
        "host",
        "content-length",
        "authorization",
        "cookie",
        "set-cookie",
        "via",
        "x-request-id",
        "x-forwarded-for",
        "expect",
    ),
    "x-gateway-destination-endpoint",
]


def edited(edits):
    refused = []
    return header_edits(edits, refused.append), refused


@pytest.mark.parametrize("name", FORBIDDEN)
def test_header_of_the_gateway_or_the_client_is_refused(name):
    assert edited({name: "x"}) == ({}, ["name"])
    assert edited({name.upper(): None}) == ({}, ["name"])


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ü", "a\r\nb"])
def test_what_is_no_name_is_refused(name):
    assert edited({name: "x"}) == ({}, ["name"])


@pytest.mark.parametrize("value", ["a\r\nb: c", "\x00", "a\x7f", " x", "x" * 8193])
def test_what_is_no_value_is_refused(value):
    assert edited({"x-a": value}) == ({}, ["value"])


def test_other_headers_are_set_and_taken_away():
    edits = {"X-Prefiller-Host-Port": "10.0.0.1:80", "accept": None, "x-u": "ü", "x-w": "世", "x-l": "x" * 8192}
    expected = {
        b"x-prefiller-host-port": b"10.0.0.1:80",
        b"accept": None,
        b"x-u": "ü".encode("latin-1"),
        b"x-w": "世".encode(),
        b"x-l": b"x" * 8192,
    }
    assert edited(edits) == (expected, [])


def head_of(headers, edits):
    return request_head(
        b"POST", b"/", headers, authority="h:1", request_id="r", peer="p", via=b"v", body_bytes=0, edits=edits
    )


def test_edit_replaces_every_header_of_its_name():
    (request,) = RequestReader(9999, 9).feed(
        head_of([(b"x-a", b"1"), (b"x-a", b"2"), (b"x-b", b"3")], {b"x-a": b"new", b"x-b": None})
    )
    assert [header for header in request.headers if header[0] in (b"x-a", b"x-b")] == [(b"x-a", b"new")]


@pytest.mark.parametrize("name", [b"x-prefiller-host-port", b"x-encoder-hosts-ports", b"x-data-parallel-host-port"])
def test_client_cannot_say_where_a_sidecar_has_work_done(name):
    assert name not in head_of([(name, b"169.254.169.254:80")], {})
    assert name + b": 10.0.0.1:80" in head_of([(name, b"evil")], {name: b"10.0.0.1:80"})


@given(st.dictionaries(st.text(max_size=20), st.none() | st.text(max_size=20), max_size=5))
def test_whatever_is_edited_both_heads_are_one_message(edits):
    allowed = header_edits(edits, lambda why: None)
    (request,) = RequestReader(99_999, 9).feed(head_of([(b"x-a", b"1")], allowed))
    assert [name for name, _ in request.headers].count(b"host") == 1
    reader = ResponseReader(99_999)
    reader.feed(
        response_head(
            200, b"OK", [], framing=Framing.LENGTH, length=0, keep_alive=True, http_1_0=False, request_id="r",
            destination="h:1", via=b"v", edits=allowed,
        )
    )  # fmt: skip
    assert reader.ended
