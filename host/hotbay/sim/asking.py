"""Reads a completion request: what is asked of the engine and how the answer is to be given. Pure.

Strict where the simulator would answer something else than what was asked for, and lenient about everything that only a real
model can do, as sampling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

import orjson

from hotbay.sim.config import SimConfig
from hotbay.sim.failures import Fault, bad_request, unknown_model
from hotbay.sim.prompts import ANSWER_ROLE, block_hashes, prompts_of, token_count
from hotbay.sim.replies import Reply, make_reply
from hotbay.sim.sequences import Work

__all__ = ["Asked", "read_json", "read_request"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it will be answered: `work` for the engine, `pieces` the text of each token of the answer."""

    work: Work
    model: str
    pieces: tuple[str, ...]
    is_chat: bool
    stream: bool
    tells_usage: bool
    tells_usage_always: bool


class _RefusedError(Exception):
    """A request that gets no answer but this."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def read_json(body: bytes) -> Mapping[str, object] | Fault:
    """The object in a body."""
    try:
        payload = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return bad_request(f"The body is no JSON: {error}")
    return payload if isinstance(payload, Mapping) else bad_request("The body has to be a JSON object.")


def read_request(
    body: bytes, config: SimConfig, adapters: Mapping[str, str], random: Random, *, is_chat: bool
) -> Asked | Fault:
    """Read the body of a request. `adapters` are the paths of known LoRA adapters by their names.

    Returns a fault with the status and the words that the real server has for it.
    """
    payload = read_json(body)
    if isinstance(payload, Fault):
        return payload
    try:
        _check_shape(payload, is_chat=is_chat)
        model = _model(payload, config, adapters)
        work, reply = _work(payload, config, model if model in adapters else "", random, is_chat=is_chat)
    except _RefusedError as refused:
        return refused.fault
    return _asked(payload, work, model, reply, is_chat=is_chat)


def _model(payload: Mapping[str, object], config: SimConfig, adapters: Mapping[str, str]) -> str:
    model = config.names[0] if payload.get("model") is None else payload["model"]
    if not isinstance(model, str) or (model not in config.names and model not in adapters):
        raise _RefusedError(unknown_model(str(model)))
    return model


def _work(
    payload: Mapping[str, object], config: SimConfig, adapter: str, random: Random, *, is_chat: bool
) -> tuple[Work, Reply]:
    prompts = prompts_of(payload)
    if len(prompts) != 1:
        raise _RefusedError(bad_request("The simulator takes one prompt a request.", "prompt"))
    max_tokens = _max_tokens(payload)
    prompt_tokens = token_count(prompts[0])
    room = config.limits.max_model_len - prompt_tokens
    if room < (max_tokens or 1):
        raise _RefusedError(_too_long(config.limits.max_model_len, prompt_tokens, max_tokens))
    reply = make_reply(payload, config.mode, max_tokens, room, random)
    hashes: Sequence[int] = ()
    if config.limits.is_caching:
        role = ANSWER_ROLE if is_chat else b""
        content = b"".join((prompts[0], role, "".join(reply.pieces).encode()))
        salt = payload.get("cache_salt")
        hashes = block_hashes(
            content, config.limits.block_size, adapter=adapter, salt=salt if isinstance(salt, str) else ""
        )
    return Work(prompt_tokens, len(reply.pieces), hashes, adapter, reply.stops, max_tokens), reply


def _asked(payload: Mapping[str, object], work: Work, model: str, reply: Reply, *, is_chat: bool) -> Asked:
    options = payload.get("stream_options")
    options = options if isinstance(options, Mapping) else {}
    tells_usage = options.get("include_usage") is True
    return Asked(
        work=work,
        model=model,
        pieces=tuple(reply.pieces),
        is_chat=is_chat,
        stream=payload.get("stream") is True,
        tells_usage=tells_usage,
        tells_usage_always=tells_usage and options.get("continuous_usage_stats") is True,
    )


def _check_shape(payload: Mapping[str, object], *, is_chat: bool) -> None:
    if not is_chat:
        if "messages" in payload or not isinstance(payload.get("prompt"), str | list):
            raise _RefusedError(bad_request("`prompt` has to be a text or a list.", "prompt"))
    else:
        messages = payload.get("messages")
        if not messages or not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
            raise _RefusedError(bad_request("`messages` has to be a list of objects, at least one.", "messages"))
    if payload.get("n") not in (None, 1):
        raise _RefusedError(bad_request("The simulator gives one answer a request.", "n"))


def _max_tokens(payload: Mapping[str, object]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = payload.get(name)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            raise _RefusedError(bad_request(f"{name} must be at least 1, got {value}.", name))
        return value
    return None


def _too_long(most: int, prompt_tokens: int, max_tokens: int | None) -> Fault:
    wanted = f"{max_tokens} tokens of answer and " if max_tokens else ""
    return bad_request(
        f"This model's maximum context length is {most} tokens. However, you requested {wanted}"
        f"{prompt_tokens} tokens of prompt. Please reduce the length of the input or of the answer.",
        "input_tokens",
    )
