"""Which headers a plugin may set or take away, and their bytes.

Pure. Refused are those that end a message, say whose it is or who is spoken to, and those by which this gateway knows its
own requests: a plugin that could set them could make a request another one. A refused edit leaves the request as it was.
"""

from collections.abc import Callable, Mapping
from typing import Final

from hotbay_sdk.protocol.verdicts import RESERVED_HEADERS, is_header_name, is_header_value

__all__ = ["Refused", "header_edits", "is_refused"]

Refused = Callable[[str], None]
"""Told of each refused edit, with why: `name` or `value`."""

_REFUSED: Final = frozenset(name.encode() for name in RESERVED_HEADERS)


def is_refused(name: bytes) -> bool:
    """Whether nobody but the gateway may set this header. `name` is in lower case."""
    return name in _REFUSED


def header_edits(edits: Mapping[str, str | None], refused: Refused) -> dict[bytes, bytes | None]:
    """The edits that are allowed, as bytes; None takes a header away. Names count in lower case."""
    allowed: dict[bytes, bytes | None] = {}
    for name, value in edits.items():
        key = name.lower()
        if not is_header_name(key) or is_refused(key.encode()):
            refused("name")
        elif value is not None and not is_header_value(value):
            refused("value")
        else:
            allowed[key.encode()] = None if value is None else _encoded(value)
    return allowed


def _encoded(value: str) -> bytes:
    """As it came, if it is a client's, whose bytes are shown to plugins as characters."""
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace")
