"""Tokens of an answer, read from the end of its body: best effort, bounded, and not forged by what a model writes."""

import orjson
import pytest
from hotbay.gateway.usage import TAIL_BYTES, BodyTail
from hotbay.scheduling.response_facts import Usage
from hypothesis import given
from hypothesis import strategies as st


def usage(*parts):
    tail = BodyTail()
    for part in parts:
        tail.add(part)
    return tail.usage()


def event(value):
    return b"data: " + orjson.dumps(value) + b"\n\n"


OPENAI = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (OPENAI, Usage(7, 3, 4)),
        ({"prompt_tokens": 7, "prompt_tokens_details": None}, Usage(7, 0, 0)),
        ({"input_tokens": 7, "output_tokens": 3, "input_tokens_details": {"cached_tokens": 4}}, Usage(7, 3, 4)),
        ({"input_tokens": 7, "output_tokens": 3, "cache_read_input_tokens": 4}, Usage(7, 3, 4)),
        ({"prompt_tokens": "7", "completion_tokens": True}, Usage(0, 0, 0)),
        ({"prompt_tokens": -1, "completion_tokens": 2**60}, Usage(0, 0, 0)),
        ({"prompt_tokens": 7, "prompt_tokens_details": "none"}, Usage(7, 0, 0)),
        ({}, None),
        ({"total": 5}, None),
        ("many", None),
        (None, None),
        ([1], None),
    ],
)
def test_s47_usage_is_best_effort(given, found):
    assert usage(orjson.dumps({"choices": [], "usage": given, "more": 1})) == found


def test_last_event_of_a_stream_counts():
    first = event({"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})
    last = event({"choices": [], "usage": OPENAI})
    assert usage(first, last, b"data: [DONE]\n\n") == Usage(7, 3, 4)
    assert usage(first, event({"usage": None}), b"data: [DONE]\n\n") == Usage(7, 1, 0)


def test_usage_of_a_response_that_ends_a_stream():
    body = {"type": "response.completed", "response": {"output": [], "usage": {"input_tokens": 5, "output_tokens": 2}}}
    assert usage(b"event: response.completed\n" + event(body)) == Usage(5, 2, 0)


def test_model_cannot_write_a_usage_of_its_own():
    text = '", "usage": {"prompt_tokens": 999}, "usage":{"prompt_tokens":999}'
    honest = {"choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": 1}}
    assert usage(orjson.dumps(honest)) == Usage(1, 0, 0)
    assert usage(orjson.dumps({"choices": [{"message": {"content": text}}]})) is None


def test_body_that_is_longer_than_the_tail_is_read_from_its_end():
    long = {"choices": [{"text": "x" * (4 * TAIL_BYTES)}], "usage": OPENAI}
    assert usage(orjson.dumps(long)) == Usage(7, 3, 4)
    assert usage(orjson.dumps({"usage": OPENAI, "choices": [{"text": "x" * TAIL_BYTES}]})) is None


@given(st.lists(st.binary(max_size=TAIL_BYTES // 4), max_size=20))
def test_tail_is_bounded_and_holds_what_came_last(parts):
    tail = BodyTail()
    for part in parts:
        tail.add(part)
    kept = b"".join(tail._parts)
    body = b"".join(parts)
    assert body.endswith(kept)
    assert min(len(body), TAIL_BYTES) <= len(kept) <= TAIL_BYTES + TAIL_BYTES // 4
    tail.usage()


@pytest.mark.parametrize(
    "odd",
    [b'"usage":{' * 3000, b'"usage":{"a":' + b"[" * 12000, b'"usage":{"prompt_tokens":' + b"9" * 9000, b"\xff\xfe"],
)
def test_broken_end_has_no_usage(odd):
    assert usage(odd) is None


def test_many_parts_are_no_longer_than_the_tail():
    tail = BodyTail()
    for _ in range(50):
        tail.add(b"x" * 4096)
    tail.add(b'{"usage":{"prompt_tokens":3}}')
    assert TAIL_BYTES <= sum(map(len, tail._parts)) < TAIL_BYTES + 4096
    assert tail.usage() == Usage(3, 0, 0)
