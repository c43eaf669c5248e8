"""Reads the secrets that a client shows: from files, each time anew, so that they can be exchanged while a host runs.

A secret is in no message. To whom it is sent, and that nobody reads along, is the caller's to see to.
"""

import base64
from pathlib import Path
from typing import Final

from hotbay.config.discovery_fields import Credentials
from hotbay.config.reload import read_content
from hotbay.errors import InputError, Place, Problem

__all__ = ["MAX_SECRET_BYTES", "authorization"]

MAX_SECRET_BYTES: Final = 16 << 10
"""Of a file; the longest tokens have a few kilobytes."""


def authorization(credentials: Credentials, directory: Path) -> str:
    """The value of `Authorization`; a relative path counts from `directory`. White space around a secret does not count.

    Blocks on the disk.

    Raises:
        InputError: the file cannot be read, or holds no secret.
    """
    file = directory / credentials.file
    secret = _secret(file)
    if credentials.user:
        pair = f"{credentials.user}:{secret}".encode()
        return f"{credentials.scheme} {base64.b64encode(pair).decode()}"
    if not secret.isascii():
        raise _unusable(file, "printable ASCII", "other characters")
    return f"{credentials.scheme} {secret}"


def _secret(file: Path) -> str:
    content = read_content(file)
    if content.data is None:
        raise _unusable(file, "a file with a secret", content.error)
    if len(content.data) > MAX_SECRET_BYTES:
        raise _unusable(file, f"at most {MAX_SECRET_BYTES} bytes", "more")
    try:
        secret = content.data.decode().strip()
    except UnicodeDecodeError:
        raise _unusable(file, "one line of text", "bytes that are no UTF-8") from None
    if not secret or not secret.isprintable():
        found = "nothing" if not secret else "several lines, or characters that cannot be printed"
        raise _unusable(file, "one line of text", found)
    return secret


def _unusable(file: Path, expected: str, found: str) -> InputError:
    hint = "correct the file: it is read again each time"
    return InputError([Problem("CONFIG_INVALID", "cannot be used", Place(str(file)), "", expected, found, hint)])
