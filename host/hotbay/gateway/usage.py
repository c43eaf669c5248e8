"""How many tokens an answer says it took, read from the last bytes of its body.

Pure. Servers write `usage` after what they generated: at the end of a JSON body, or in the last event of a stream. So the
last `TAIL_BYTES` of a body are kept, whatever its length, and the last object under that name in them counts. Inside of a
generated text the quotes of such a name have backslashes before them: no model can write a usage of its own. Numbers that
are none count as 0, and a body without any such object has no usage.
"""

import json
import re
from collections import deque
from collections.abc import Mapping
from typing import Final

from hotbay.scheduling.response_facts import Usage

__all__ = ["TAIL_BYTES", "BodyTail"]

TAIL_BYTES: Final = 16 * 1024
"""A usage with all its details has a few hundred bytes; what follows it in a body is short but for log probabilities."""

_USAGE: Final = re.compile(r'"usage"\s*:\s*(?=\{)')
_PROMPT: Final = ("prompt_tokens", "input_tokens")
_COMPLETION: Final = ("completion_tokens", "output_tokens")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
# Anthropic's word, and that of those who have no details.
_CACHED: Final = ("cached_tokens", "cache_read_input_tokens")
_MOST: Final = 1 << 53
_MOST_TRIES: Final = 8


class BodyTail:
    """Keeps the last bytes of a body."""

    __slots__ = ("_parts", "_size")

    def __init__(self) -> None:
        self._parts: deque[bytes] = deque()
        self._size = 0

    def add(self, part: bytes) -> None:
        """More of the body came."""
        if len(part) > TAIL_BYTES:
            part = part[-TAIL_BYTES:]
        parts = self._parts
        parts.append(part)
        self._size += len(part)
        while self._size - len(parts[0]) >= TAIL_BYTES:
            self._size -= len(parts.popleft())

    def usage(self) -> Usage | None:
        """What the body says; None if it says nothing that can be read."""
        text = b"".join(self._parts).decode("utf-8", "replace")
        decoder = json.JSONDecoder()
        for match in list(_USAGE.finditer(text))[: -_MOST_TRIES - 1 : -1]:
            try:
                value, _ = decoder.raw_decode(text, match.end())
            except (json.JSONDecodeError, RecursionError, ValueError):
                continue
            found = _read(value)
            if found is not None:
                return found
        return None


def _read(value: Mapping[str, object]) -> Usage | None:
    if not any(name in value for name in (*_PROMPT, *_COMPLETION)):
        return None
    details = next((value[name] for name in _DETAILS if isinstance(value.get(name), dict)), value)
    assert isinstance(details, dict), "itself, or one of its objects"
    return Usage(_number(value, _PROMPT), _number(value, _COMPLETION), _number(details, _CACHED))


def _number(value: Mapping[str, object], names: tuple[str, ...]) -> int:
    for name in names:
        number = value.get(name)
        if type(number) is int and 0 <= number < _MOST:
            return number
    return 0
