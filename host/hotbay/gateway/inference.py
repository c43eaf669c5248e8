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
_FAIRNESS = ("x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id")


def parse_inference(wire: WireRequest, path: str, request_id: str) -> InferenceRequest | Refusal:
    """Parse the body that was sent to `path`, one of the two inference paths."""
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
        return None
    prompt = payload.get("prompt")
    if not isinstance(prompt, str | list) or prompt == []:
        return Refusal(400, "missing-prompt", "`prompt` must be a string or a non-empty list.")
    return None
