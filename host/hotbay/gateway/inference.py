"""A wire request's body as an `InferenceRequest`, or the refusal that says what is missing.

Pure. Only what the router needs is checked; everything else in the body is the model server's to judge.
"""

import orjson

from hotbay.gateway.answers import Refusal
from hotbay.gateway.head import text_headers
from hotbay.gateway.request_reader import WireRequest
from hotbay.scheduling.request import InferenceRequest

__all__ = ["CHAT_PATH", "COMPLETIONS_PATH", "parse_inference"]

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"
# Messages with parts that hold an image are five levels. Plugins get messages as values of the wire, which are at most
# 32 levels with what is around them, and the prompt's JSON is written by a serialiser that ends at 254.
_MAX_PROMPT_LEVELS = 16
# Lists and objects cost the loop most: a body of nothing else holds it for seconds. A million tokens of source code have
# fewer brackets, and a prompt given as two million token ids has as many commas.
_MAX_BRACKETS = 1 << 18
_MAX_COMMAS = 1 << 21
_FAIRNESS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")


def parse_inference(wire: WireRequest, path: str, request_id: str) -> InferenceRequest | Refusal:
    """Parse the body that was sent to `path`, one of the two inference paths."""
    if _has_too_many_values(wire.body):
        return Refusal(400, "too-many-values", "The body has too many lists, objects and values.")
    try:
        payload = orjson.loads(wire.body)
    except orjson.JSONDecodeError:
        return Refusal(400, "invalid-json", "The body is not valid JSON.")
    if not isinstance(payload, dict):
        return Refusal(400, "invalid-json", "The body must be a JSON object.")
    model = payload.get("model")
    if not isinstance(model, str) or not model:
        return Refusal(400, "missing-model", "`model` must be a non-empty string.")
    refusal = _check_prompt(payload, path)
    if refusal is not None:
        return refusal
    headers = text_headers(wire.headers)
    return InferenceRequest(
        id=request_id,
        model=model,
        path=path,
        headers=headers,
        body=wire.body,
        payload=payload,
        fairness_id=next((headers[name] for name in _FAIRNESS if name in headers), ""),
        stream=payload.get("stream") is True,
    )


def _check_prompt(payload: dict[str, object], path: str) -> Refusal | None:
    if path == CHAT_PATH:
        messages = payload.get("messages")
        if not isinstance(messages, list) or not messages:
            return Refusal(400, "missing-messages", "`messages` must be a non-empty list.")
    else:
        prompt = payload.get("prompt")
        if not isinstance(prompt, str | list) or prompt == []:
            return Refusal(400, "missing-prompt", "`prompt` must be a string or a non-empty list.")
    # Whichever of the two the path takes: the prompt's text is made of `messages` wherever they stand.
    for name in ("messages", "prompt"):
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
