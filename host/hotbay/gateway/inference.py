"""A wire request's body as an `InferenceRequest`, or the refusal that says what is missing.

Pure. Only what the router needs is checked; everything else in the body is the model server's to judge.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import orjson
from hotbay_sdk.protocol.verdicts import Parsed

from hotbay.gateway.answers import Refusal
from hotbay.gateway.head import text_headers
from hotbay.gateway.parsers.form import Form, ModelName
from hotbay.gateway.request_reader import WireRequest
from hotbay.scheduling.prompts import token_ids
from hotbay.scheduling.request import InferenceRequest

__all__ = ["CHAT_PATH", "parse_inference", "parsed_elsewhere"]

CHAT_PATH: Final = "/v1/chat/completions"
# Messages with parts that hold an image are five levels. Plugins get messages as values of the wire, which are at most
# 32 levels with what is around them, and the prompt's JSON is written by a serialiser that ends at 254.
_MAX_PROMPT_LEVELS: Final = 16
# Lists and objects cost the loop most: a body of nothing else holds it for seconds. A million tokens of source code have
# fewer brackets, and a prompt given as two million token ids has as many commas.
_MAX_BRACKETS: Final = 1 << 18
_MAX_COMMAS: Final = 1 << 21
# Each text, message and part is a step of its own, also where it is empty: for its text, its hashes and its length. So many
# are some 10 ms of the loop. OpenAI takes 2048 texts in a request; token ids of one prompt are one step together.
_MAX_ITEMS: Final = 4096
_FAIRNESS: Final = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")
# OpenAI's word of today, the one of before, and that of its responses.
_MAX_TOKENS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# An adapter is a model of its own with vLLM; SGLang and llama.cpp have a field for it.
_LORA: Final = ("lora_path", "lora")
_MOST_TOKENS: Final = 1 << 53


def parse_inference(wire: WireRequest, path: str, request_id: str, form: Form) -> InferenceRequest | Refusal:
    """Parse the body that was sent to `path`, which has this form."""
    if not form.is_read:
        return _unread(wire, path, request_id, form)
    payload = _payload(wire.body)
    if isinstance(payload, Refusal):
        return payload
    model = payload.get("model")
    if model is None and form.model is ModelName.OPTIONAL:
        model = ""
    elif not isinstance(model, str) or not model:
        return Refusal(400, "missing-model", "`model` must be a non-empty string.")
    refusal = form.check(payload) or _check_prompts(payload, form.fields, takes_ids=form.takes_ids)
    if refusal is not None:
        return refusal
    headers = text_headers(wire.headers)
    salt = payload.get("cache_salt")
    return InferenceRequest(
        id=request_id,
        model=model,
        path=path,
        headers=headers,
        body=wire.body,
        payload=payload,
        fairness_id=_fairness(headers),
        stream=payload.get("stream") is True,
        lora=_lora(payload),
        cache_salt=salt if isinstance(salt, str) else "",
        max_tokens=_max_tokens(payload),
        read=form.read,
    )


def parsed_elsewhere(wire: WireRequest, path: str, request_id: str, parsed: Parsed) -> InferenceRequest | Refusal:
    """What the parser of a package made of a body, as it says itself: nothing else of the body is known.

    Its model, prompt and messages are checked as those of a client: a package hands on what clients send it.
    """
    payload: dict[str, object] = {}
    if parsed.messages is not None:
        payload["messages"] = parsed.messages
    if parsed.prompt is not None:
        payload["prompt"] = parsed.prompt
    refusal = _check_prompts(payload, ("prompt",))
    if refusal is not None:
        return refusal
    headers = text_headers(wire.headers)
    return InferenceRequest(
        id=request_id,
        model=parsed.model,
        path=path,
        headers=headers,
        body=wire.body,
        payload=payload,
        fairness_id=_fairness(headers),
        stream=parsed.stream,
        max_tokens=parsed.max_tokens or 0,
        skip_response=parsed.skip_response,
    )


def _payload(body: bytes) -> dict[str, object] | Refusal:
    if _has_too_many_values(body):
        return Refusal(400, "too-many-values", "The body has too many lists, objects and values.")
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Refusal(400, "invalid-json", "The body is not valid JSON.")
    return payload if isinstance(payload, dict) else Refusal(400, "invalid-json", "The body must be a JSON object.")


def _unread(wire: WireRequest, path: str, request_id: str, form: Form) -> InferenceRequest:
    headers = text_headers(wire.headers)
    return InferenceRequest(
        id=request_id,
        model="",
        path=path,
        headers=headers,
        body=wire.body,
        payload={},
        fairness_id=_fairness(headers),
        skip_response=True,
        read=form.read,
    )


def _fairness(headers: Mapping[str, str]) -> str:
    for name in _FAIRNESS:
        if name in headers:
            return headers[name]
    return ""


def _lora(payload: Mapping[str, object]) -> str:
    """The adapter's name; of a list of adapters, as both servers take it, its JSON."""
    for name in _LORA:
        value = payload.get(name)
        if value:
            return value if isinstance(value, str) else _json(value)
    return ""


def _json(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # Deeper than the encoder goes: the model server will refuse it.
        return ""


def _max_tokens(payload: Mapping[str, object]) -> int:
    for name in _MAX_TOKENS:
        value = payload.get(name)
        if type(value) is int and value > 0:
            return min(value, _MOST_TOKENS)
    return 0


def _check_prompts(payload: Mapping[str, object], fields: Sequence[str], *, takes_ids: bool = True) -> Refusal | None:
    # Items first: a level is walked value by value.
    return _check_items(payload, fields, takes_ids=takes_ids) or _check_depth(payload, fields)


def _check_items(payload: Mapping[str, object], fields: Sequence[str], *, takes_ids: bool) -> Refusal | None:
    left = _MAX_ITEMS
    for name in ("messages", *fields):
        value = payload.get(name)
        if not isinstance(value, list):
            continue
        if takes_ids and name != "messages" and token_ids(value) is not None:
            left -= 1
        else:
            left -= len(value)
            left -= _parts(value) if left >= 0 else 0
        if left < 0:
            what = "texts, messages and parts of messages"
            return Refusal(400, "too-many-items", f"`{name}` must not hold more than {_MAX_ITEMS} {what}.")
    return None


def _parts(messages: list[object]) -> int:
    """How many parts contents of messages are made of."""
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    return sum(len(content) for content in contents if isinstance(content, list))


def _check_depth(payload: Mapping[str, object], fields: Iterable[str]) -> Refusal | None:
    # `messages` wherever they stand: plugins are given them, whatever the path's prompt is made of.
    for name in ("messages", *fields):
        if _is_deeper(payload.get(name), _MAX_PROMPT_LEVELS):
            return Refusal(
                400, "prompt-too-deep", f"`{name}` must not be nested deeper than {_MAX_PROMPT_LEVELS} levels."
            )
    return None


def _is_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects stand in each other more than `levels` deep."""
    level = [value]
    for _ in range(levels):
        # What was decoded is of no class but these. Token ids are most of what is walked, and hold nothing.
        level = [
            item
            for holder in level
            if type(holder) is dict or (type(holder) is list and token_ids(holder) is None)
            for item in (holder.values() if type(holder) is dict else holder)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def _has_too_many_values(body: bytes) -> bool:
    """Whether reading the body would hold everybody else up. Counts what stands in texts, too: it is a bound."""
    if len(body) <= _MAX_BRACKETS:
        return False
    return body.count(b"[") + body.count(b"{") > _MAX_BRACKETS or body.count(b",") > _MAX_COMMAS
