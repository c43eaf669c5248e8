"""Replaces the model's name in a body without touching any other byte of it.

Pure. A body that is parsed and written again is another body: numbers of 20 digits, repeated keys and the order of keys
do not survive it. Where `model` stands twice, servers differ in which one counts: all of them are replaced, or none where
that would take more than `MAX_TOKENS` steps.
"""

import re
from typing import Final

import orjson

__all__ = ["MAX_TOKENS", "replace_model"]

MAX_TOKENS: Final = 1 << 16
"""Texts and brackets that are looked at: some 50 ms of the loop. A chat of 4096 messages has half as many."""

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_COLON: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_OPENING: Final = (b"{"[0], b"["[0])
_QUOTE: Final = b'"'[0]
_KEY: Final = b'"model"'


def replace_model(body: bytes, name: str) -> bytes | None:
    """The body with `name` for each text that is the value of its top-level `model`; None when there is none, or may be
    one behind the first `MAX_TOKENS` texts and brackets.

    `body` is a JSON object that was parsed: what is no JSON gives any answer, but raises nothing.
    """
    spans = _spans(body)
    if not spans:
        return None
    written = orjson.dumps(name)
    parts: list[bytes] = []
    last = 0
    for start, end in spans:
        parts += (body[last:start], written)
        last = end
    parts.append(body[last:])
    return b"".join(parts)


def _spans(body: bytes) -> list[tuple[int, int]]:
    """Where the values stand, quotes included."""
    spans: list[tuple[int, int]] = []
    depth, position = 0, 0
    # No other one has its name behind here, plain or with escapes.
    last = max(body.rfind(_KEY), body.rfind(b"\\u"))
    for _ in range(MAX_TOKENS):
        token = _TOKEN.search(body, position)
        if token is None:
            return spans
        position = token.end()
        first = body[token.start()]
        if first != _QUOTE:
            depth += 1 if first in _OPENING else -1
        elif depth == 1 and (colon := _COLON.match(body, position)) is not None:
            position = colon.end()
            if _is_model(token[0]) and (value := _TOKEN.match(body, position)) is not None and value[0][0] == _QUOTE:
                spans.append(value.span())
                position = value.end()
                if last < position:
                    return spans
    return []


def _is_model(key: bytes) -> bool:
    if b"\\" not in key:
        return key == _KEY
    try:
        return bool(orjson.loads(key) == "model")
    except orjson.JSONDecodeError:
        return False
