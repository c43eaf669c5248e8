"""Which parser a path belongs to, what it finds in bodies, and that odd bodies cost nobody anything but a 400."""

import struct

import orjson
import pytest
from hotbay.gateway.answers import Refusal
from hotbay.gateway.inference import parse_inference, parsed_elsewhere
from hotbay.gateway.parsers.form import accept, no_prompts
from hotbay.gateway.parsers.paths import original_target
from hotbay.gateway.parsers.table import BUILTIN_PARSERS, DEFAULT_PARSERS, Claimed, ParserTable
from hotbay.gateway.request_reader import WireRequest
from hotbay.scheduling.request import InferenceRequest
from hotbay_sdk.protocol.verdicts import Parsed
from hypothesis import given, settings
from hypothesis import strategies as st

TABLE = ParserTable()
CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS = (
    f"/v1/{name}" for name in ("chat/completions", "completions", "responses", "embeddings")
)


def wire(body, headers=()):
    return WireRequest(b"POST", b"/", False, tuple(headers), body, keep_alive=True, has_framing=True)


def parse(path, value):
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return parse_inference(wire(body), path, "r", TABLE.find(path).form)


@pytest.mark.parametrize(
    ("path", "ref"),
    [
        (CHAT, "openai-parser"),
        ("/chat/completions", "openai-parser"),
        ("/tenants/a/v1/completions", "openai-parser"),
        (RESPONSES, "openai-parser"),
        (EMBEDDINGS, "openai-parser"),
        ("/v1/messages", "anthropic-parser"),
        ("/v1/messages/count_tokens", "anthropic-parser"),
        ("/tokenize", "vllmhttp-parser"),
        ("/detokenize", "vllmhttp-parser"),
        ("/v1/chat/completions/render", "vllmhttp-parser"),
        ("/v1/completions/render", "vllmhttp-parser"),
        ("/inference/v1/generate", "vllmhttp-parser"),
        ("/pooling", "vllmhttp-parser"),
        ("/classify", "vllmhttp-parser"),
        ("/v1/score", "vllmhttp-parser"),
        ("/v2/rerank", "vllmhttp-parser"),
        ("/v1/messagesx", "passthrough-parser"),
        ("/completions/x", "passthrough-parser"),
        ("/", "passthrough-parser"),
    ],
)
def test_path_belongs_to_the_longest_claim(path, ref):
    assert TABLE.find(path).ref == ref


def test_ec35_default_parsers_are_the_reference_s_in_its_order():
    names = [name for suffix, name in DEFAULT_PARSERS if not suffix]
    assert names == ["openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser"]
    assert list(BUILTIN_PARSERS) == names


def test_of_equal_claims_the_first_listed_counts_and_a_longer_one_beats_both():
    table = ParserTable([("/x", "a"), ("/x", "b"), ("/y/x", "b")])
    assert table.find("/z/x") == Claimed("a", None)
    assert table.find("/z/y/x") == Claimed("b", None)


def test_listed_parsers_have_no_fallback_and_nothing_after_one_is_asked():
    table = ParserTable([("", "anthropic-parser"), ("/mine", "mine")])
    assert (table.find(CHAT), table.find("/mine").ref, table.find("/v1/messages").ref) == (
        None,
        "mine",
        "anthropic-parser",
    )
    table = ParserTable([("", "mine"), ("/later", "later"), ("", "openai-parser")])
    assert {table.find(path).ref for path in ("/later", CHAT)} == {"mine"}
    assert ParserTable([]).find(CHAT) is None


@pytest.mark.parametrize(
    ("headers", "target"),
    [
        ([], b""),
        ([(b"x-forwarded-path", b"/b")], b"/b"),
        ([(b"x-forwarded-path", b"/b"), (b"x-original-path", b"/a?q=1")], b"/a?q=1"),
        ([(b"x-original-path", b"no-path"), (b"x-forwarded-path", b"/b")], b"/b"),
    ],
)
def test_original_target_is_what_the_headers_name(headers, target):
    assert original_target(headers) == target


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "a"}]}, "user\0a\0"),
        (COMPLETIONS, {"prompt": "a"}, "a"),
        (COMPLETIONS, {"prompt_embeds": "aGk="}, ""),
        (COMPLETIONS, {"prompt": ""}, ""),
        (RESPONSES, {"input": "a", "instructions": "be"}, "system\0be\0user\0a\0"),
        (
            RESPONSES,
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}, {"type": "x", "id": 1}]},
            'user\0a\0\0{"type":"x","id":1}\0',
        ),
        (RESPONSES, {"previous_response_id": "r"}, "user\0\0"),
        (EMBEDDINGS, {"input": ["a", "b"]}, "a\0b"),
        (EMBEDDINGS, {"messages": [{"role": "user", "content": "a"}]}, "user\0a\0"),
        ("/v1/messages", {"system": "s", "messages": [{"role": "user", "content": "a"}]}, "system\0s\0user\0a\0"),
        (
            "/v1/messages",
            {"system": [{"type": "text", "text": "s"}], "messages": [{"role": "user", "content": "a"}]},
            "system\0s\0user\0a\0",
        ),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}]}, "user\0a\0"),
        ("/tokenize", {"prompt": "a"}, "a"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a"}]}, "user\0a\0"),
        ("/detokenize", {"tokens": [1, 2]}, ""),
        ("/inference/v1/generate", {"token_ids": [1, 2]}, "1 2"),
        ("/pooling", {"input": "a"}, "a"),
        ("/score", {"text_1": "q", "text_2": ["a", "b"]}, "q\0a\0b"),
        ("/rerank", {"query": "q", "documents": ["a", "b"]}, "q\0a\0b"),
    ],
)
def test_prompt_of_each_form(path, body, text):
    request = parse(path, {"model": "m", **body})
    assert isinstance(request, InferenceRequest)
    assert (request.model, request.prompt_text()) == ("m", text)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (CHAT, {"prompt": "a"}, "missing-messages"),
        (CHAT, {"messages": []}, "missing-messages"),
        (COMPLETIONS, {"prompt": []}, "missing-prompt"),
        (COMPLETIONS, {"prompt": 5}, "missing-prompt"),
        (RESPONSES, {}, "missing-input"),
        (RESPONSES, {"input": [], "prompt": {"id": "p"}}, "missing-input"),
        (EMBEDDINGS, {"input": None}, "missing-input"),
        ("/v1/messages", {"messages": "a"}, "missing-messages"),
        ("/tokenize", {}, "missing-prompt"),
        ("/detokenize", {"tokens": "1"}, "missing-tokens"),
        ("/inference/v1/generate", {"token_ids": []}, "missing-token-ids"),
        ("/pooling", {}, "missing-input"),
        ("/score", {"text_2": "a"}, "missing-text"),
        ("/rerank", {"documents": ["a"]}, "missing-query"),
    ],
)
def test_body_without_its_prompt_is_refused(path, body, code):
    refusal = parse(path, {"model": "m", **body})
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.code) == (400, code)


def test_model_is_optional_only_where_it_is_with_vllm():
    assert parse("/tokenize", {"prompt": "a"}).model == ""
    assert parse("/tokenize", {"prompt": "a", "model": None}).model == ""
    assert parse("/tokenize", {"prompt": "a", "model": 5}).code == "missing-model"
    assert parse("/v1/chat/completions/render", {"messages": [1]}).code == "missing-model"


def test_passthrough_reads_nothing_and_lets_everything_through():
    body = b"\xff not json [[["
    request = parse("/v1/audio/speech", body)
    assert isinstance(request, InferenceRequest)
    assert (request.model, request.body, request.prompt_text(), request.skip_response) == ("", body, "", True)


FIELDS = st.sampled_from(
    [
        *("model", "messages", "prompt", "input", "instructions", "system", "tokens", "token_ids", "text_1", "text_2"),
        *("query", "documents", "stream", "usage", "max_tokens", "cache_salt", "lora"),
    ]
)
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS | st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
PATHS = [f"/v1{claim}" for forms in BUILTIN_PARSERS.values() for claim in forms]


@settings(max_examples=150)
@given(st.sampled_from(PATHS), st.dictionaries(FIELDS, ODD, max_size=6))
def test_s47_odd_body_is_a_request_or_a_400(path, payload):
    made = parse(path, payload)
    if isinstance(made, Refusal):
        assert made.status == 400
        assert orjson.loads(made.answer().body)["error"]["code"] == made.code
    else:
        assert isinstance(made.prompt_text(), str)
        assert len(made.prompt_hashes(1)) % 8 == 0
        assert made.tokens_estimate >= 0
        assert made.max_tokens >= 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": 5, "prompt": "a"}, "missing-model"),
        ({"model": None, "prompt": "a"}, "missing-model"),
        ({"prompt": "a"}, "missing-model"),
        ({"model": "m", "prompt": ["a", "b"]}, None),
        ({"model": "m", "prompt": [[1, 2]]}, None),
        ({"model": "m", "prompt": ""}, None),
        ({"model": "m", "prompt": "a", "usage": "many", "max_tokens": "5", "cache_salt": 1, "lora": [{"id": 0}]}, None),
    ],
)
def test_s47_its_own_bodies(body, code):
    made = parse(COMPLETIONS, body)
    assert (made.code if isinstance(made, Refusal) else None) == code


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, 0),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8, "max_tokens": 7}, 8),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": True}, 0),
        ({"max_tokens": -1, "max_output_tokens": 3}, 3),
        ({"max_tokens": 2**63}, 2**53),
    ],
)
def test_max_tokens_has_several_names(fields, most):
    assert parse(COMPLETIONS, {"model": "m", "prompt": "a", **fields}).max_tokens == most


def test_salt_and_adapter_are_the_body_s():
    made = parse(COMPLETIONS, {"model": "m", "prompt": "a", "cache_salt": "s", "lora_path": "l"})
    assert (made.cache_salt, made.lora) == ("s", "l")
    assert parse(COMPLETIONS, {"model": "m", "prompt": "a", "lora": [{"id": 0}]}).lora == '[{"id":0}]'


def test_field_of_a_prompt_is_nested_no_deeper_than_plugins_can_be_given():
    deep = orjson.loads(b"[" * 17 + b"]" * 17)
    assert parse(EMBEDDINGS, {"model": "m", "input": deep}).code == "prompt-too-deep"
    assert parse("/v1/messages", {"model": "m", "messages": [1], "system": deep}).code == "prompt-too-deep"
    assert isinstance(parse(EMBEDDINGS, {"model": "m", "input": deep[0]}), InferenceRequest)


def test_what_a_package_s_parser_found_is_a_request():
    parsed = Parsed("m", "p", stream=True, max_tokens=4, skip_response=True)
    made = parsed_elsewhere(wire(b"odd", [(b"x-a", b"1")]), "/odd", "r", parsed)
    assert isinstance(made, InferenceRequest)
    assert (made.model, made.prompt_text(), made.stream, made.max_tokens, made.skip_response) == (
        "m",
        "p",
        True,
        4,
        True,
    )
    assert (made.body, made.headers) == (b"odd", {"x-a": "1"})
    messages = parsed_elsewhere(wire(b""), "/odd", "r", Parsed("", messages=[{"role": "user", "content": "a"}]))
    assert (messages.prompt_text(), messages.max_tokens) == ("user\0a\0", 0)


def test_what_a_package_s_parser_found_is_held_to_the_bounds_of_a_client_s():
    deep = orjson.loads(b"[" * 17 + b"]" * 17)
    assert parsed_elsewhere(wire(b""), "/odd", "r", Parsed("m", messages=deep)).code == "prompt-too-deep"


def test_ex03_each_prompt_of_a_request_is_hashed_from_its_own_beginning():
    def hashes(prompt):
        data = parse(COMPLETIONS, {"model": "m", "prompt": prompt}).prompt_hashes(1)
        return struct.unpack(f"<{len(data) // 8}Q", data)

    stored, asked = hashes([[1, 2], [3, 4]]), hashes([[1, 2], [5, 6]])
    assert (len(stored), stored[2], asked[2]) == (5, 0, 0)
    assert stored[:2] == asked[:2]
    assert not set(stored[3:]) & set(asked[3:])
    assert stored[3:] == hashes([3, 4])


def test_adapter_that_nests_too_deep_for_anybody_is_none():
    body = b'{"model":"m","prompt":"a","lora":%b}' % (b"[" * 300 + b"]" * 300)
    assert parse(COMPLETIONS, body).lora == ""


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b'{"model":NaN}', b'{"model":"\\ud800"}', b"\xff"])
def test_what_is_no_json_object_is_refused(body):
    assert parse(COMPLETIONS, body).code == "invalid-json"


def test_form_that_asks_for_nothing_takes_anything():
    assert (accept({"x": 1}), no_prompts({"x": 1})) == (None, ())
