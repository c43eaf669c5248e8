"""The bytes of answers, whole and streamed."""

from random import Random

import orjson
import pytest
from hotbay.sim.answering import StreamedAnswer, WholeAnswer
from hotbay.sim.answers import models_body
from hotbay.sim.asking import Asked, read_request
from hotbay.sim.config import LoraModule, SimConfig


def asked(*, is_chat: bool, **options: object) -> Asked:
    prompt = {"messages": [{"role": "user", "content": "abcdefgh"}]} if is_chat else {"prompt": "abcdefgh"}
    config = SimConfig(model="tiny", mode="echo")
    found = read_request(orjson.dumps(prompt | options), config, {}, Random(1), is_chat=is_chat)
    assert isinstance(found, Asked)
    return found


def streamed(request: Asked, *, interval: int = 1, tells: bool = True) -> StreamedAnswer:
    return StreamedAnswer(
        request, id="x-1", created=7, headers=b"", interval=interval, tells_cached_tokens=tells, is_kept=True
    )


def events(data: bytes) -> list[object]:
    """Events of a chunked body."""
    body = b""
    while data:
        size, _, rest = data.partition(b"\r\n")
        body += rest[: int(size, 16)]
        data = rest[int(size, 16) + 2 :]
    assert body.endswith(b"\n\n") or not body
    found = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    return [event.decode() if event == b"[DONE]" else orjson.loads(event) for event in found]


def test_stream_of_a_chat_begins_with_the_role_and_ends_with_the_reason():
    answer = streamed(asked(is_chat=True))
    role, first = events(answer.put(1, "", 0))
    assert (role["id"], role["object"], role["created"], role["model"]) == ("x-1", "chat.completion.chunk", 7, "tiny")
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert first["choices"][0]["delta"] == {"content": "abcd"}
    assert first["choices"][0]["finish_reason"] is None
    last, done = events(answer.put(1, "stop", 0))
    assert last["choices"][0]["delta"] == {"content": "efgh"}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert done == "[DONE]"
    assert "usage" not in last


def test_stream_of_a_completion_has_texts():
    answer = streamed(asked(is_chat=False))
    (first,) = events(answer.put(1, "", 0))
    last, _ = events(answer.put(1, "stop", 0))
    assert first["object"] == "text_completion"
    assert [event["choices"][0]["text"] for event in (first, last)] == ["abcd", "efgh"]


@pytest.mark.parametrize("tells", [True, False])
def test_usage_follows_the_last_token_where_it_is_asked_for(tells):
    answer = streamed(asked(is_chat=False, stream_options={"include_usage": True}), tells=tells)
    answer.put(1, "", 0)
    *_, usage, _ = events(answer.put(1, "stop", 1))
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 2,
        "total_tokens": 4,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 1} if tells else None,
    }


def test_usage_is_in_every_event_where_that_is_asked_for():
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer = streamed(asked(is_chat=True, stream_options=options))
    found = events(answer.put(1, "", 0))
    assert [event["usage"]["completion_tokens"] for event in found] == [1, 1]


def test_tokens_after_the_first_come_by_the_interval_and_the_last_ones_with_the_reason():
    answer = streamed(asked(is_chat=False, max_tokens=8, ignore_eos=True), interval=3)
    texts = [events(answer.put(1, "length" if number == 8 else "", 0)) for number in range(1, 9)]
    sizes = [len(found[0]["choices"][0]["text"]) // 4 if found else 0 for found in texts]
    assert sizes == [1, 0, 0, 3, 0, 0, 3, 1]


def test_stream_begins_before_its_first_token():
    head = streamed(asked(is_chat=True)).begin()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")
    assert b"content-type: text/event-stream" in head
    assert b"transfer-encoding: chunked" in head


@pytest.mark.parametrize(("is_chat", "object_"), [(True, "chat.completion"), (False, "text_completion")])
def test_whole_answer_comes_with_the_last_token(is_chat, object_):
    request = asked(is_chat=is_chat)
    answer = WholeAnswer(request, id="x-1", created=7, headers=b"x-a: b\r\n", tells_cached_tokens=True, is_kept=False)
    assert answer.begin() == answer.put(1, "", 0) == b""
    head, _, body = answer.put(1, "stop", 0).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert b"x-a: b\r\n" in head
    assert b"connection: close" in head
    told = orjson.loads(body)
    (choice,) = told["choices"]
    assert (told["object"], choice["finish_reason"]) == (object_, "stop")
    assert (choice["message"]["content"] if is_chat else choice["text"]) == "abcdefgh"
    assert told["usage"]["completion_tokens"] == 2


def test_models_are_the_names_and_the_adapters_whose_parent_they_are():
    config = SimConfig(model="/m", served_model_names=("a", "b"), loras=(LoraModule("l", "/p"),))
    told = orjson.loads(models_body(config, {"l": "/p"}, 7))["data"]
    assert [(model["id"], model["root"], model["parent"], model["max_model_len"]) for model in told] == [
        ("a", "/m", None, 8192),
        ("b", "/m", None, 8192),
        ("l", "/p", "a", None),
    ]
