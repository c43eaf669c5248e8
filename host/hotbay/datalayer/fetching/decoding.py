"""Decodes compressed bodies, in steps between which others have their turn. Pure."""

import zlib
from typing import Final

from hotbay.datalayer.pages.steps import Steps

__all__ = ["STEP_BYTES", "EncodingError", "decoding"]

STEP_BYTES: Final = 256 * 1024
"""What one step makes at most: one or two ms."""

_ZLIB_WINDOW: Final = {b"gzip": 16 + zlib.MAX_WBITS, b"x-gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
_MOST_MEMBERS: Final = 16
"""Of a gzip body: each costs a copy of those after it."""


class EncodingError(Exception):
    """A body cannot be decoded. `reason` is a short fixed word for counting, the text says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def decoding(body: bytes, encoding: bytes, most_bytes: int) -> Steps[bytes]:
    """Decode a body of that content encoding, in steps of at most STEP_BYTES; returns what it is.

    Raises:
        EncodingError: it is not whole, or something follows it, or it is more than `most_bytes`.
    """
    window = _ZLIB_WINDOW.get(encoding)
    if window is None:
        raise EncodingError("encoding", f"unknown content encoding {encoding[:40]!r}")
    decoded, rest = bytearray(), body
    # A body of gzip may be several members one after the other (RFC 1952, 2.2): together they are the page.
    for _ in range(_MOST_MEMBERS):
        rest = yield from _member(decoded, rest, window, encoding, most_bytes)
        if not rest:
            return bytes(decoded)
        if encoding == b"deflate":
            break
    raise EncodingError("encoding", f"{len(rest)} bytes follow the compressed page")


def _member(decoded: bytearray, rest: bytes, window: int, encoding: bytes, most_bytes: int) -> Steps[bytes]:
    """Add what one member decodes to; returns what follows it."""
    decompressor = zlib.decompressobj(window)
    while True:
        room = min(STEP_BYTES, most_bytes + 1 - len(decoded))
        try:
            made = decompressor.decompress(rest, room)
        except zlib.error as error:
            raise EncodingError("encoding", f"the body is not {encoding.decode('ascii', 'replace')}") from error
        decoded += made
        if len(decoded) > most_bytes:
            raise EncodingError("too_large", f"the page is larger than {most_bytes} bytes when decoded")
        if decompressor.eof:
            return decompressor.unused_data
        rest = decompressor.unconsumed_tail
        if not rest and len(made) < room:
            raise EncodingError("truncated", "the page is cut")
        yield
