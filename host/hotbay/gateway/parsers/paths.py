"""The path that a request is for. Pure.

It is the request's target; where that is none, as for `*` or behind a proxy that keeps the original elsewhere, the header
`x-original-path`, then `x-forwarded-path`.
"""

from collections.abc import Iterable
from typing import Final

__all__ = ["original_target"]

_HEADERS: Final = (b"x-original-path", b"x-forwarded-path")


def original_target(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Path and query from the headers; "" when they name none."""
    found = {name: value for name, value in headers if name in _HEADERS and value.startswith(b"/")}
    return next((found[name] for name in _HEADERS if name in found), b"")
