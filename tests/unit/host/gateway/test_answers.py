"""Answers of the gateway's own: shape, reasons, framing."""

import orjson
import pytest
from hotbay.gateway.answers import Answer, Refusal, serialise, typed_refusal


@pytest.mark.parametrize(
    ("status", "kind", "with_reason", "retry_later"),
    [
        (400, "invalid_request_error", False, False),
        (404, "not_found_error", False, False),
        (408, "timeout_error", False, False),
        (413, "invalid_request_error", False, False),
        (429, "rate_limit_error", True, True),
        (500, "server_error", True, False),
        (502, "server_error", True, False),
        (503, "server_error", True, True),
        (504, "server_error", True, False),
    ],
)
def test_refusal_has_the_shape_of_the_api(status, kind, with_reason, retry_later):
    answer = Refusal(status, "some-code", "Some text.").answer()
    assert orjson.loads(answer.body) == {
        "error": {"message": "Some text.", "type": kind, "param": None, "code": "some-code"}
    }
    headers = dict(answer.headers)
    assert (headers.get(b"x-hotbay-reason") == b"some-code") is with_reason
    assert (headers.get(b"x-llm-d-request-dropped-reason") == b"some-code") is with_reason
    assert (b"retry-after" in headers) is retry_later


def framed(**options):
    defaults = {"keep_alive": True, "http_1_0": False, "head_only": False, "request_id": "r"}
    return serialise(Answer(200, b"body", b"text/plain", [(b"x", b"y")]), **{**defaults, **options})


def test_serialised_answer():
    assert framed() == (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\nx-request-id: r\r\nx: y\r\n\r\nbody"
    )


def test_head_keeps_the_length_and_drops_the_body():
    assert framed(head_only=True).endswith(b"x: y\r\n\r\n")
    assert b"content-length: 4\r\n" in framed(head_only=True)


def test_connection_is_announced():
    assert b"connection: close\r\n" in framed(keep_alive=False)
    assert b"connection: keep-alive\r\n" in framed(http_1_0=True)
    assert b"connection" not in framed()


def test_unknown_status_still_makes_a_status_line():
    data = serialise(Answer(599, b""), keep_alive=True, http_1_0=False, head_only=False, request_id="")
    assert data.startswith(b"HTTP/1.1 599 Status\r\n")
    assert b"x-request-id" not in data


def test_reason_of_a_router_cannot_add_a_header():
    answer = Refusal(503, "a\r\nx-evil: 1", "Text.").answer()
    assert b"\r" not in dict(answer.headers)[b"x-hotbay-reason"]


@pytest.mark.parametrize(
    ("status", "message"),
    [(412, "inference error: PreconditionFailed - no"), (499, "no"), (429, "inference error: ResourceExhausted - no")],
)
def test_typed_refusal_has_the_reference_s_words_and_its_reason(status, message):
    answer = typed_refusal(status, "why", "no").answer()
    assert orjson.loads(answer.body)["error"]["message"] == message
    assert dict(answer.headers)[b"x-llm-d-request-dropped-reason"] == dict(answer.headers)[b"x-hotbay-reason"] == b"why"
