"""S47: odd but legal bodies of chats, at the case's own values: a request, or a 400 with a JSON error, and nothing else."""

import orjson
import pytest
from hotbay.gateway.answers import Refusal
from hotbay.gateway.inference import parse_inference
from hotbay.gateway.parsers.table import ParserTable
from hotbay.gateway.request_reader import WireRequest
from hotbay.scheduling.request import InferenceRequest

TABLE = ParserTable()
CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
ABSENT = object()


def parse(path, value):
    wire = WireRequest(b"POST", b"/", False, (), orjson.dumps(value), keep_alive=True, has_framing=True)
    return parse_inference(wire, path, "r", TABLE.find(path).form)


def chat(content):
    return {"model": "m", "messages": [{"role": "user", "content": content}]}


@pytest.mark.parametrize("model", [5, None, ABSENT, "", [], {"id": "m"}, True], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES])
def test_s47_model_that_is_none_is_a_400_in_json(path, model):
    body = {"messages": [{"role": "user", "content": "a"}], "prompt": "a"}
    refusal = parse(path, body if model is ABSENT else body | {"model": model})
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, "missing-model")
    error = orjson.loads(refusal.answer().body)["error"]
    assert (error["code"], error["type"]) == ("missing-model", "invalid_request_error")
    assert error["message"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "user\0a\0"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], None),
        ([{"type": "image_url", "image_url": {"url": "data:,x"}}], None),
        ([{"type": "text", "text": 5}, {"type": 7}, {}, "plain", None, 3], None),
        ([], None),
        (None, None),
        (5, None),
        ({"text": "a"}, None),
    ],
    ids=["text", "parts", "image", "odd-parts", "no-parts", "null", "number", "mapping"],
)
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_s47_content_of_any_form_is_a_request_with_some_prompt(path, content, text):
    made = parse(path, chat(content))
    assert isinstance(made, InferenceRequest)
    prompt = made.prompt_text()
    assert isinstance(prompt, str)
    assert text is None or prompt == text
    assert len(made.prompt_hashes(1)) == 8 * (len(prompt.encode()) // 4)
    assert made.tokens_estimate >= 0


def test_s47_parts_of_a_content_are_part_of_its_prompt():
    one, other = (parse(CHAT, chat([{"type": "text", "text": text}])).prompt_text() for text in ("a", "b"))
    assert one != other


@pytest.mark.parametrize(
    ("prompt", "accepted"),
    [
        ("", True),
        ("a", True),
        (["a", "b"], True),
        ([1, 2], True),
        ([[1, 2]], True),
        ([[1, 2], [3]], True),
        ([], False),
        (None, False),
        (5, False),
        ({}, False),
        (ABSENT, False),
    ],
    ids=[
        "empty",
        "text",
        "texts",
        "tokens",
        "one-of-tokens",
        "two-of-tokens",
        "none",
        "null",
        "number",
        "map",
        "absent",
    ],
)
def test_s47_prompt_is_accepted_as_the_api_has_it_or_a_400(prompt, accepted):
    body = {"model": "m", "usage": "many", "stream_options": 5, "max_tokens": None}
    made = parse(COMPLETIONS, body if prompt is ABSENT else body | {"prompt": prompt})
    assert isinstance(made, InferenceRequest) is accepted
    if not accepted:
        assert (made.status, made.code) == (400, "missing-prompt")
        assert orjson.loads(made.answer().body)["error"]["code"] == "missing-prompt"
