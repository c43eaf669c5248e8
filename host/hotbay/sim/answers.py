"""The bytes of answers: JSON bodies, server-sent events and the HTTP around them, in the real server's form. Pure."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import orjson

from hotbay.sim.asking import Asked
from hotbay.sim.config import SimConfig

__all__ = [
    "LAST_CHUNK",
    "VERSION",
    "EventStream",
    "chunk",
    "head",
    "models_body",
    "stream_head",
    "usage",
    "whole_body",
]  # fmt: skip

VERSION: Final = "0.32.0"
"""Of vLLM: the one whose metrics and answers these are."""

LAST_CHUNK: Final = b"0\r\n\r\n"
_DONE: Final = b"data: [DONE]\n\n"


@lru_cache
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()


def head(status: int, content_type: str, length: int, extra: bytes = b"", *, is_kept: bool = True) -> bytes:
    """The head of an answer of known length. `extra` are whole header lines."""
    return b"%bserver: hotbay-sim\r\n%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n" % (
        _status_line(status),
        extra,
        content_type.encode(),
        length,
        b"" if is_kept else b"connection: close\r\n",
    )


def stream_head(extra: bytes = b"", *, is_kept: bool = True) -> bytes:
    """The head of a stream of events in chunks."""
    return (
        b"%bserver: hotbay-sim\r\n%bcontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n%b\r\n"
        % (
            _status_line(200),
            extra,
            b"" if is_kept else b"connection: close\r\n",
        )
    )


def chunk(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def usage(asked: Asked, generated: int, cached_tokens: int | None) -> Mapping[str, object]:
    """The `usage` of an answer; `cached_tokens` None does not say how many were cached."""
    prompt_tokens = asked.work.prompt_tokens
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + generated,
        "completion_tokens": generated,
        "prompt_tokens_details": None if cached_tokens is None else {"cached_tokens": cached_tokens},
    }


def whole_body(asked: Asked, id: str, created: int, told: Mapping[str, object], reason: str) -> bytes:  # noqa: A002
    """The body of an answer that is not streamed."""
    text = "".join(asked.pieces)
    choice: dict[str, object] = {"index": 0}
    if asked.is_chat:
        choice["message"] = {
            "role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None,
            "function_call": None, "tool_calls": [], "reasoning": None,
        }  # fmt: skip
        choice |= {"logprobs": None, "finish_reason": reason, "stop_reason": None, "token_ids": None}
    else:
        choice |= {"text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None, "token_ids": None}
        choice |= {"prompt_logprobs": None, "prompt_token_ids": None}
    return orjson.dumps(
        {
            "id": id,
            "object": "chat.completion" if asked.is_chat else "text_completion",
            "created": created,
            "model": asked.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": told,
            "kv_transfer_params": None,
        }
    )


class EventStream:
    """The events of one answer. Call `tokens` for each piece of it, then `end`.

    A chat's first event says the role; the last token's says why the answer ended; usage follows if it was asked for.
    `cached_tokens` is what usage says of them, None nothing.
    """

    def __init__(self, asked: Asked, id: str, created: int) -> None:  # noqa: A002
        self._asked = asked
        self._given = 0
        kind = "chat.completion.chunk" if asked.is_chat else "text_completion"
        frame = orjson.dumps({"id": id, "object": kind, "created": created, "model": asked.model})[:-1]
        self._frame = b"data: " + frame
        before, self._after = _CHAT if asked.is_chat else _TEXT
        self._before = self._frame + before

    def tokens(self, count: int, reason: str, cached_tokens: int | None) -> bytes:
        """So many tokens more, as one event; `reason` with the last ones, else empty."""
        first = self._given
        self._given += count
        text = "".join(self._asked.pieces[first : self._given])
        told = b',"usage":' + self._usage(cached_tokens) if self._asked.tells_usage_always else b""
        ended = b'"%b"' % reason.encode() if reason else b"null"
        event = b"%b%b%b" % (self._before, orjson.dumps(text), self._after % (ended, told))
        if first or not self._asked.is_chat:
            return event
        return self._frame + _ROLE % told + event

    def end(self, cached_tokens: int | None) -> bytes:
        """What follows the last token."""
        if not self._asked.tells_usage:
            return _DONE
        return b'%b,"choices":[],"usage":%b}\n\n%b' % (self._frame, self._usage(cached_tokens), _DONE)

    def _usage(self, cached_tokens: int | None) -> bytes:
        return orjson.dumps(usage(self._asked, self._given, cached_tokens))


_CHAT: Final = (
    b',"choices":[{"index":0,"delta":{"content":',
    b'},"logprobs":null,"finish_reason":%b,"token_ids":null}]%b}\n\n',
)
_TEXT: Final = (
    b',"choices":[{"index":0,"text":',
    b',"logprobs":null,"finish_reason":%b,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]%b}\n\n',
)
_ROLE: Final = (
    b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
    b'"prompt_token_ids":null%b}\n\n'
)


def models_body(config: SimConfig, adapters: Mapping[str, str], created: int) -> bytes:
    """The list of models: the base model by each of its names, then the adapters, whose parent it is."""
    base = config.names[0]
    models = [_model(name, config.model, None, created, config.limits.max_model_len) for name in config.names]
    models += [_model(name, path or name, base, created, None) for name, path in adapters.items()]
    return orjson.dumps({"object": "list", "data": models})


def _model(name: str, root: str, parent: str | None, created: int, max_model_len: int | None) -> Mapping[str, object]:
    permission: Sequence[Mapping[str, object]] = [
        {
            "id": f"modelperm-{name}", "object": "model_permission", "created": created, "allow_create_engine": False,
            "allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False, "allow_view": True,
            "allow_fine_tuning": False, "organization": "*", "group": None, "is_blocking": False,
        }
    ]  # fmt: skip
    return {
        "id": name, "object": "model", "created": created, "owned_by": "vllm", "root": root, "parent": parent,
        "max_model_len": max_model_len, "permission": permission,
    }  # fmt: skip
