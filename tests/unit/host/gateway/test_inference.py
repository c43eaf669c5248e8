"""Bodies that can be routed, and those that cannot."""

import orjson
import pytest
from hotbay.gateway.answers import Refusal
from hotbay.gateway.inference import CHAT_PATH, parse_inference, parsed_elsewhere
from hotbay.gateway.parsers.table import ParserTable
from hotbay.gateway.request_reader import WireRequest
from hotbay.scheduling.request import InferenceRequest
from hotbay_sdk.protocol.values import check_value
from hotbay_sdk.protocol.verdicts import Parsed
from hypothesis import given, settings
from hypothesis import strategies as st


def wire(body, headers=()):
    return WireRequest(b"POST", b"/", False, tuple(headers), body, keep_alive=True, has_framing=True)


COMPLETIONS_PATH = "/v1/completions"
TABLE = ParserTable()


def parse(value, path=CHAT_PATH, headers=()):
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return parse_inference(wire(body, headers), path, "r-1", TABLE.find(path).form)


def test_chat_request_has_what_the_router_needs():
    body = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True})
    request = parse(body, headers=[(b"x-llm-d-inference-fairness-id", b"team"), (b"x-a", b"1")])
    assert isinstance(request, InferenceRequest)
    assert (request.id, request.model, request.target_model, request.path) == ("r-1", "m", "m", CHAT_PATH)
    assert (request.stream, request.fairness_id, request.size) == (True, "team", len(body))
    assert request.body is body or request.body == body
    assert request.headers["x-a"] == "1"


@pytest.mark.parametrize("stream", [False, None, 1, "true"])
def test_only_true_is_a_stream(stream):
    request = parse({"model": "m", "messages": [1], "stream": stream})
    assert isinstance(request, InferenceRequest)
    assert request.stream is False


@pytest.mark.parametrize("prompt", ["x", "", ["a", "b"], [1, 2], [[1], [2]]])
def test_completion_takes_any_form_of_prompt(prompt):
    assert isinstance(parse({"model": "m", "prompt": prompt}, COMPLETIONS_PATH), InferenceRequest)


def test_old_fairness_header_is_understood():
    request = parse({"model": "m", "messages": [1]}, headers=[(b"x-gateway-inference-fairness-id", b"old")])
    assert isinstance(request, InferenceRequest)
    assert request.fairness_id == "old"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    st.dictionaries(st.sampled_from(["model", "messages", "prompt", "stream"]), json_values),
    st.sampled_from([CHAT_PATH, COMPLETIONS_PATH]),
)
def test_any_body_is_a_request_with_a_prompt_or_a_400(payload, path):
    result = parse(payload, path)
    if isinstance(result, Refusal):
        assert result.status == 400
    else:
        assert isinstance(result.prompt_text(), str)
        assert len(result.prompt_hashes(1)) % 8 == 0


def test_nothing_of_the_body_is_in_the_repr():
    request = parse({"model": "m", "messages": [{"content": "canary"}]}, headers=[(b"authorization", b"canary")])
    assert "canary" not in repr(request)


def nested(levels):
    return orjson.loads(b"[" * levels + b"]" * levels)


@pytest.mark.parametrize(("path", "name"), [(CHAT_PATH, "messages"), (COMPLETIONS_PATH, "prompt")])
def test_prompt_is_nested_as_deep_as_plugins_can_be_given_it(path, name):
    request = parse({"model": "m", name: nested(16)}, path)
    assert isinstance(request, InferenceRequest)
    # What a decision makes of it: the text of the prompt, and the messages as a value of the wire.
    assert request.prompt_text()
    check_value([[[[[[request.payload[name]]]]]]])
    refusal = parse({"model": "m", name: nested(17)}, path)
    assert (refusal.status, refusal.code) == (400, "prompt-too-deep")


def test_messages_beside_a_prompt_are_no_deeper():
    refusal = parse(b'{"model": "m", "prompt": "x", "messages": %b}' % (b"[" * 500 + b"]" * 500), COMPLETIONS_PATH)
    assert refusal.code == "prompt-too-deep"


def test_depth_beside_the_prompt_is_the_model_servers_business():
    body = b'{"model": "m", "messages": [1], "tools": %b}' % (b"[" * 500 + b"]" * 500)
    assert isinstance(parse(body), InferenceRequest)


@pytest.mark.parametrize(("item", "most"), [(b"[]", (1 << 18) - 3), (b"1", (1 << 21) - 1)])
def test_body_of_too_many_values_is_refused_before_it_is_read(item, most):
    body = b'{"model":"m","prompt":"x","other":[%b]}'
    assert isinstance(parse(body % b",".join([item] * most), COMPLETIONS_PATH), InferenceRequest)
    refusal = parse(body % b",".join([item] * (most + 2)), COMPLETIONS_PATH)
    assert (refusal.status, refusal.code) == (400, "too-many-values")


CHAT_OF = {"model": "m", "messages": [1]}


@pytest.mark.parametrize(
    ("path", "payload"),
    [
        (COMPLETIONS_PATH, lambda count: {"model": "m", "prompt": [""] * count}),
        (COMPLETIONS_PATH, lambda count: {"model": "m", "prompt": [[7]] * count}),
        (COMPLETIONS_PATH, lambda count: {"model": "m", "prompt": [None] * count}),
        (COMPLETIONS_PATH, lambda count: {"model": "m", "prompt": [7] * (count - 1) + [-1]}),
        (COMPLETIONS_PATH, lambda count: {**CHAT_OF, "prompt": "x", "messages": [7] * count}),
        (CHAT_PATH, lambda count: {**CHAT_OF, "messages": [{"content": "x"}] * count}),
        (CHAT_PATH, lambda count: {**CHAT_OF, "messages": [{"content": [""] * (count - 1)}]}),
        ("/v1/messages", lambda count: {**CHAT_OF, "system": [7] * (count - 1)}),
        ("/v1/responses", lambda count: {"model": "m", "input": [7] * count}),
        ("/v1/responses", lambda count: {"model": "m", "input": [{"content": ["x"] * (count - 1)}]}),
        ("/v1/embeddings", lambda count: {"model": "m", "input": [""] * count}),
        ("/rerank", lambda count: {"query": "x", "documents": [""] * count}),
    ],
    ids=[
        "texts", "lists", "nils", "no-ids", "messages-beside", "messages", "parts", "system", "items", "item-parts", "inputs",
        "documents",
    ],
)  # fmt: skip
def test_prompt_has_no_more_items_than_are_read_at_once(path, payload):
    assert isinstance(parse(payload(4096), path), InferenceRequest)
    refusal = parse(payload(4097), path)
    assert (refusal.status, refusal.code) == (400, "too-many-items")
    assert "4096" in refusal.message


def test_token_ids_are_one_item_however_many_they_are():
    ids = [7] * 5000
    assert isinstance(parse({"model": "m", "prompt": ids}, COMPLETIONS_PATH), InferenceRequest)
    assert isinstance(parse({"model": "m", "prompt": [ids, ids]}, COMPLETIONS_PATH), InferenceRequest)
    assert isinstance(parse({"token_ids": ids}, "/inference/v1/generate"), InferenceRequest)
    assert isinstance(parse({"tokens": ids}, "/detokenize"), InferenceRequest)


def test_prompt_of_a_packages_parser_has_no_more_items_either():
    def made(count):
        return parsed_elsewhere(wire(b"x"), "/odd", "r-1", Parsed(model="m", messages=[{"content": "x"}] * count))

    assert isinstance(made(4096), InferenceRequest)
    assert made(4097).code == "too-many-items"
