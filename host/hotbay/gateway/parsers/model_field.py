"""Replaces the model's name in a body without touching any other byte of it.

Pure. A body that is parsed and written again is another body: numbers of 20 digits, repeated keys and the order of keys
do not survive it. Where `model` stands twice, servers differ in which one counts: all of them are replaced.
"""

import re
from typing import Final

import orjson

__all__ = ["replace_model"]

_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)
_COLON: Final = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*")
_OPENING: Final = (b"{"[0], b"["[0])
_QUOTE: Final = b'"'[0]
_KEY: Final = b'"model"'


def replace_model(body: bytes, name: str) -> bytes | None:
    """The body with `name` for each text that is the value of its top-level `model`; None when there is none.

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
    while (token := _TOKEN.search(body, position)) is not None:
        position = token.end()
        first = body[token.start()]
        if first != _QUOTE:
            depth += 1 if first in _OPENING else -1
        elif depth == 1 and (colon := _COLON.match(body, position)) is not None:
            position = colon.end()
            if _is_model(token[0]) and (value := _TOKEN.match(body, position)) is not None and value[0][0] == _QUOTE:
                spans.append(value.span())
                position = value.end()
                # Any other one has its name in the rest, plain or with escapes.
                if body.find(_KEY, position) < 0 and body.find(b"\\u", position) < 0:
                    break
    return spans


def _is_model(key: bytes) -> bool:
    if b"\\" not in key:
        return key == _KEY
    try:
        return bool(orjson.loads(key) == "model")
    except orjson.JSONDecodeError:
        return False
