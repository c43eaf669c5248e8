"""A wire request's body as an `InferenceRequest`, or the refusal that says what is missing.

Pure. Only what the router needs is checked; everything else in the body is the model server's to judge.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import orjson
from hotbay_sdk.protocol.verdicts import Parsed

from hotbay.gateway.answers import Refusal
from hotbay.gateway.head import text_headers
from hotbay.gateway.parsers.form import Form, ModelName
from hotbay.gateway.request_reader import WireRequest
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
    refusal = form.check(payload) or _check_depth(payload, form.fields)
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
    refusal = _check_depth(payload, ("prompt",))
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
    level: list[object] = [value]
    for _ in range(levels):
        below: list[object] = []
        for holder in level:
            if isinstance(holder, dict | list):
                below += holder.values() if isinstance(holder, dict) else holder
        if not below:
            return False
        level = [item for item in below if isinstance(item, dict | list)]
    return bool(level)


def _has_too_many_values(body: bytes) -> bool:
    """Whether reading the body would hold everybody else up. Counts what stands in texts, too: it is a bound."""
    if len(body) <= _MAX_BRACKETS:
        return False
    return body.count(b"[") + body.count(b"{") > _MAX_BRACKETS or body.count(b",") > _MAX_COMMAS
